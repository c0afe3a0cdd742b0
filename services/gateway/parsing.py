"""From the bytes of a body to a typed request, or to a 400 that names the field."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, from_json
from starlette.requests import Request

from services.gateway.errors import ApiError, bad_request

Parsed = TypeVar("Parsed", bound=BaseModel)

_CODES = {
    "missing": "missing_required_parameter",
    "extra_forbidden": "unknown_parameter",
    "greater_than_equal": "below_min_value",
    "less_than_equal": "above_max_value",
    "string_too_short": "string_below_min_length",
    "string_too_long": "string_above_max_length",
    "too_short": "array_below_min_length",
    "too_long": "array_above_max_length",
}
_WHOLE = re.compile(r"[+-]?[0-9]{1,20}")
_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
_SWITCH = {"true": True, "false": False}


def content_type(request: Request) -> str:
    """The media type of the body, lower case, without parameters. Raises ApiError 415 on an encoded body."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise ApiError(415, "Encoded bodies (content-encoding) are not read: send the body as it is.")
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_json(request: Request) -> dict[str, Any]:
    """The body as a JSON object. Raises ApiError 400 on anything else; NaN and infinities are not JSON."""
    raw = bytearray()
    async for chunk in request.stream():
        raw += chunk
    if not raw:
        raise bad_request("The body is empty: send a JSON object.", code="invalid_json")
    try:
        value = from_json(bytes(raw), allow_inf_nan=False)
    except ValueError as error:
        raise bad_request(f"The body is not JSON: {error}.", code="invalid_json") from error
    if not isinstance(value, dict):
        raise bad_request("The body must be a JSON object.", code="invalid_type")
    return value


def checked(fields: Mapping[str, Any], kind: type[Parsed], *, allow_unknown: bool) -> Parsed:
    """`fields` as a `kind`. `null` counts as absent. Raises ApiError 400 that names the first wrong field."""
    present = {name: value for name, value in fields.items() if value is not None}
    for name in [name for name in present if name not in kind.model_fields]:
        if not allow_unknown:
            raise unknown(name, list(kind.model_fields))
        del present[name]
    try:
        return kind.model_validate(present)
    except ValidationError as error:
        raise _refusal(error.errors(include_url=False)[0]) from error


def unknown(name: str, known: list[str]) -> ApiError:
    """A 400 for a field that is not there, with the nearest name that is."""
    near = get_close_matches(name, known, n=1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return bad_request(f"Unknown parameter: '{name[:80]}'.{hint}", name[:80], "unknown_parameter")


def coerced(fields: Mapping[str, str], kind: type[BaseModel]) -> dict[str, object]:
    """Form strings as the types that `kind` declares; what does not look like one stays a string, and is refused later.

    An empty string counts as absent, except for the prompt: browsers send every field of a form.
    """
    properties = kind.model_json_schema()["properties"]
    return {
        name: _typed(value, _json_types(properties.get(name, {})))
        for name, value in fields.items()
        if value or name == "prompt"
    }


def _json_types(schema: Mapping[str, Any]) -> set[str]:
    return {option.get("type", "") for option in [schema, *schema.get("anyOf", [])]}


def _typed(value: str, kinds: set[str]) -> object:
    if "integer" in kinds and _WHOLE.fullmatch(value):
        return int(value)
    if "number" in kinds and _DECIMAL.fullmatch(value):
        return float(value)
    if "boolean" in kinds:
        return _SWITCH.get(value.lower(), value)
    return value


def _refusal(error: ErrorDetails) -> ApiError:
    param = _path(error["loc"])
    kind = error["type"]
    if kind == "missing":
        return bad_request(f"Missing required parameter: '{param}'.", param, _CODES[kind])
    code = _CODES.get(kind, "invalid_type" if kind.endswith("_type") else "invalid_value")
    if code.endswith(("_min_value", "_max_value")):
        code = f"{'integer' if isinstance(error['input'], int) else 'decimal'}_{code}"
    reason = error["msg"].removeprefix("Value error, ")
    return bad_request(f"Invalid value for '{param}': {reason[:1].lower()}{reason[1:]}.", param, code)


def _path(loc: tuple[int | str, ...]) -> str:
    path = ""
    for part in loc:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    return path[:200]
