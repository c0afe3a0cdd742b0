"""The OpenAPI document: what the routes take and answer, every error included. A test compares it with the routes."""

from collections.abc import Iterable
from typing import Any

import msgspec
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from services import __version__
from services.gateway.errors import ApiError, bad_request
from services.gateway.openapi_examples import EDIT_FORM, GENERATION, IMAGES, STREAM, URL_IMAGES
from services.gateway.replies import ImagesResponse, ModelCard, ModelList, Ready, StreamEvent, Version
from services.gateway.requests import EditFields, EditRequest, GenerationRequest
from services.gateway.routes import files, images, models, probes
from services.wire.info import GatewayInfo

Document = dict[str, Any]

ERRORS: dict[int, tuple[str, ApiError]] = {
    400: (
        "A field is wrong: `param` names it.",
        bad_request("Unknown parameter: 'sise'.", "sise", "unknown_parameter"),
    ),
    401: ("The API key is missing or wrong.", ApiError(401, "A valid API key is needed.")),
    404: ("There is no such thing here.", ApiError(404, "There is no such image, or it has expired.")),
    408: ("The body did not arrive in time.", ApiError(408, "The body did not arrive in time.")),
    413: ("The body, or an image in it, is too large.", ApiError(413, "The body is larger than 2097152 bytes.")),
    415: ("The body has another content type.", ApiError(415, "Send JSON: content-type: application/json.")),
    429: ("This key has too many images waiting.", ApiError(429, "This key has 8 images waiting or running.")),
    500: ("Painting failed, and would fail again.", ApiError(500, "The engine failed on this request.", retry=False)),
    503: ("No room, or a stage is down: try again later.", ApiError(503, "256 images wait or run; at most 256 may.")),
    504: ("The time budget ran out.", ApiError(504, "The request's time budget ran out.", retry=False)),
}
COMMON_HEADERS = {
    "x-request-id": {"description": "The caller's id if it was sane, else a new one.", "schema": {"type": "string"}},
    "openai-processing-ms": {"description": "Milliseconds until the reply began.", "schema": {"type": "string"}},
}
RETRY_AFTER = {"description": "Seconds to wait, 1 to 120.", "schema": {"type": "string"}}
SHOULD_RETRY = {"description": "`false`: the same call would fail again.", "schema": {"type": "string"}}
PAINTING = (400, 401, 404, 408, 413, 415, 429, 500, 503, 504)
ERROR_SCHEMA = {
    "type": "object",
    "title": "Error",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"], "description": "The field that is wrong."},
                "code": {"type": "string"},
            },
        }
    },
}
EVENT_SCHEMA = {
    "type": "object",
    "title": "ServerSentEvent",
    "description": "One event; `data` holds a StreamEvent, or an Error as the last event of a stream that failed.",
    "required": ["data"],
    "properties": {
        "event": {"type": "string"},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
}
NAME = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}, "description": "From a `url`."}
MODEL = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}, "example": "glm-image"}


def document() -> Document:
    """The whole document, OpenAPI 3.1."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Diptych",
            "version": __version__,
            "description": "GLM-Image behind the OpenAI Images API. Any OpenAI SDK is a client: set its `base_url` to "
            "this gateway's address with `/v1` at the end. In requests, `null` is the same as absent.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": _paths(),
        "components": {
            "schemas": {"Error": ERROR_SCHEMA, **_schemas()},
            "responses": {str(status): _error(status) for status in ERRORS},
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "Only if the gateway has keys."}
            },
        },
    }


def _paths() -> Document:
    return {
        "/v1/images/generations": {"post": _generations()},
        "/v1/images/edits": {"post": _edits()},
        "/v1/files/images/{name}": {
            method: _operation(
                files.stored_image, f"{method}StoredImage", _image_reply(), (404, 500, 503), [NAME], secured=False
            )
            for method in ("get", "head")
        },
        "/v1/models": {"get": _operation(models.list_models, "listModels", _reply(ModelList), (401, 500))},
        "/v1/models/{model}": {
            "get": _operation(models.one_model, "getModel", _reply(ModelCard), (401, 404, 500), [MODEL])
        },
        **{
            path: {
                method: _operation(function, f"{method}{path.title()}".replace("/", ""), reply, errors, secured=False)
                for method in ("get", "head")
            }
            for path, function, reply, errors in (
                ("/live", probes.live, _reply(Ready), (500,)),
                ("/ready", probes.ready, _reply(Ready), (500, 503)),
                ("/health", probes.ready, _reply(Ready), (500, 503)),
            )
        },
        "/version": {"get": _operation(probes.version, "version", _reply(Version), (500,), secured=False)},
        "/v1/info": {"get": _operation(probes.info, "info", _reply(GatewayInfo), (401, 500))},
        "/metrics": {
            "get": _operation(
                probes.metrics, "metrics", {"text/plain": {"schema": {"type": "string"}}}, (500,), secured=False
            )
        },
    }


def _generations() -> Document:
    operation = _operation(images.generate, "createImage", _images_reply("image_generation"), PAINTING)
    body = {
        "schema": _ref(GenerationRequest),
        "examples": {name: {"value": value} for name, value in GENERATION.items()},
    }
    return {**operation, "requestBody": {"required": True, "content": {"application/json": body}}}


def _edits() -> Document:
    operation = _operation(images.edit, "createImageEdit", _images_reply("image_edit"), PAINTING)
    form = {
        "schema": {"$ref": "#/components/schemas/EditForm"},
        "examples": {name: {"value": value} for name, value in EDIT_FORM.items()},
    }
    content = {"multipart/form-data": form, "application/json": {"schema": _ref(EditRequest)}}
    return {**operation, "requestBody": {"required": True, "content": content}}


def _operation(
    function: Any,
    name: str,
    content: Document,
    errors: Iterable[int],
    parameters: list[Document] | None = None,
    *,
    secured: bool = True,
) -> Document:
    summary = str(function.__doc__).strip().splitlines()[0]
    head = name.startswith("head")
    operation: Document = {
        "operationId": name,
        "summary": summary,
        "responses": {
            "200": {"description": "Done.", "headers": COMMON_HEADERS, "content": {} if head else content},
            **{
                str(status): _error(status, bodiless=True) if head else {"$ref": f"#/components/responses/{status}"}
                for status in errors
            },
        },
    }
    if secured:
        operation["security"] = [{"key": []}, {}]
    if parameters:
        operation["parameters"] = parameters
    return operation


def _error(status: int, *, bodiless: bool = False) -> Document:
    meaning, example = ERRORS[status]
    headers: Document = dict(COMMON_HEADERS)
    if "retry-after" in example.headers:
        headers["retry-after"] = RETRY_AFTER
    if "x-should-retry" in example.headers:
        headers["x-should-retry"] = SHOULD_RETRY
    if "www-authenticate" in example.headers or status == 401:
        headers["www-authenticate"] = {"description": "`Bearer`.", "schema": {"type": "string"}}
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}, "example": example.body()}}
    return {"description": meaning, "headers": headers, "content": {} if bodiless else content}


def _ref(model: type[BaseModel | msgspec.Struct]) -> Document:
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def _reply(model: type[BaseModel | msgspec.Struct]) -> Document:
    return {"application/json": {"schema": _ref(model)}}


def _images_reply(operation: str) -> Document:
    examples = {"b64_json": {"value": IMAGES}, "url": {"value": URL_IMAGES}}
    return {
        "application/json": {"schema": _ref(ImagesResponse), "examples": examples},
        "text/event-stream": {"schema": EVENT_SCHEMA, "example": STREAM.replace("OPERATION", operation)},
    }


def _image_reply() -> Document:
    return {
        kind: {"schema": {"type": "string", "format": "binary"}} for kind in ("image/png", "image/jpeg", "image/webp")
    }


def _schemas() -> Document:
    shown = (
        GenerationRequest,
        EditRequest,
        EditFields,
        ImagesResponse,
        ModelCard,
        ModelList,
        Ready,
        Version,
        StreamEvent,
    )
    _, definitions = models_json_schema(
        [(model, "validation") for model in shown], ref_template="#/components/schemas/{model}"
    )
    schemas: Document = definitions["$defs"]
    for name, refused in (("background", "transparent"), ("input_fidelity", "high")):
        for schema in schemas.values():
            _forbid(schema["properties"].get(name, {}), refused)
    form = schemas.pop("EditFields")
    image = {"type": "string", "format": "binary", "description": "One PNG, JPEG or WebP. `image[]` is the same."}
    form["title"] = "EditForm"
    form["properties"] = {"image": image, **form["properties"]}
    form["required"] = ["image", *form["required"]]
    schemas["EditForm"] = form
    _, infos = msgspec.json.schema_components([GatewayInfo], ref_template="#/components/schemas/{name}")
    return schemas | infos


def _forbid(schema: Document, value: str) -> None:
    """Known to the parser only for the sake of a better error: not part of what may be sent."""
    for option in schema.get("anyOf", []):
        if value in option.get("enum", []):
            option["enum"] = [kept for kept in option["enum"] if kept != value]
