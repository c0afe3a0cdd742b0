"""The shape of every error that a caller sees, and the way from our typed errors to it.

`{"error": {"message", "type", "param", "code"}}`, all four keys, on every status from 400 up.
"""

import json
import logging
import math
import re

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from services.wire.errors import DiptychError, InvalidRequest

log = logging.getLogger(__name__)

MIN_RETRY_AFTER, MAX_RETRY_AFTER = 1, 120  # seconds; the OpenAI SDKs give up above 120
DEFAULT_RETRY_AFTER = 5  # seconds
_URL = re.compile(r"\b(?:https?|dns|tcp)://[^\s'\",)]+")

TYPES = {401: "authentication_error", 429: "rate_limit_error"}
CODES = {
    400: "invalid_value",
    401: "invalid_api_key",
    404: "not_found",
    405: "method_not_allowed",
    408: "request_timeout",
    413: "request_too_large",
    415: "unsupported_content_type",
    429: "rate_limit_exceeded",
    431: "headers_too_large",
    500: "server_error",
    503: "server_is_overloaded",
    504: "timeout",
}


class ApiError(Exception):
    """An error as the caller will see it. `retry_after`: seconds, for 429 and 503; `retry`: may the SDK try again."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after: float | None = None,
        retry: bool | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code or CODES.get(status, "server_error" if status >= 500 else "invalid_value")
        self.param = param
        self.headers = dict(headers or {})
        if status in {429, 503}:
            wait = DEFAULT_RETRY_AFTER if retry_after is None or not math.isfinite(retry_after) else retry_after
            self.headers["retry-after"] = str(min(max(math.ceil(wait), MIN_RETRY_AFTER), MAX_RETRY_AFTER))
        if retry is not None:
            self.headers["x-should-retry"] = "true" if retry else "false"

    def body(self) -> dict[str, dict[str, str | None]]:
        """The JSON body."""
        kind = TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> Response:
        """The reply. ASCII only, whatever the message quotes."""
        raw = json.dumps(self.body(), separators=(",", ":"))
        return Response(raw, self.status, headers=self.headers, media_type="application/json")


def bad_request(message: str, param: str | None = None, code: str = "invalid_value") -> ApiError:
    """A 400 that names the field."""
    return ApiError(400, message, code=code, param=param)


def from_typed(error: DiptychError) -> ApiError:
    """What the caller is told about an error of the stages or of the queue.

    400 stays; 429, 504 stay; what another attempt may mend is a 503; the rest is a 500 that the SDKs must not repeat,
    since every try costs the same GPU time and fails the same way. Addresses of replicas are left out.
    """
    message = _URL.sub("a replica", error.message)
    if isinstance(error, InvalidRequest):
        return ApiError(400, message, code=error.code, param=error.param)
    if error.status == 429:
        return ApiError(429, message, retry_after=error.retry_after)
    if error.status == 504:
        return ApiError(504, message, retry=False)
    if error.status in {499, 502, 503}:
        return ApiError(503, message, retry_after=error.retry_after)
    return ApiError(500, message, retry=False)


def from_any(error: BaseException) -> ApiError:
    """Any exception as an `ApiError`; one that nobody foresaw is logged, and shown without its text."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, DiptychError):
        return from_typed(error)
    if isinstance(error, ClientDisconnect):
        return ApiError(499, "The caller left.", code="client_closed_request")
    log.error("a request crashed", exc_info=error)
    return ApiError(500, "The gateway failed on this request. Its log has the details.", retry=False)


async def _typed(_request: Request, error: Exception) -> Response:
    return from_any(error).response()


def _framework(request: Request, error: HTTPException) -> ApiError:
    headers = dict(error.headers or {})
    if error.status_code == 404:
        return not_found(request.url.path)
    if error.status_code == 405:
        allowed = headers.get("Allow", "")
        message = f"{request.method} is not allowed on {request.url.path}. Allowed: {allowed}."
        return ApiError(405, message, headers=headers)
    return ApiError(error.status_code, str(error.detail), headers=headers)


async def _http(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        return await _typed(request, error)
    return _framework(request, error).response()


def not_found(path: str) -> ApiError:
    """A 404 that names the URL that was probably meant."""
    plain = re.sub(r"/{2,}", "/", path)
    plain = re.sub(r"^(/v1)+(?=/|$)", "/v1", plain)
    if len(plain) > 1:
        plain = plain.rstrip("/")
    if not plain.startswith("/v1") and plain.startswith(("/images", "/models", "/files")):
        plain = f"/v1{plain}"
    shown = path[:200]
    if plain == "/v1/images/variations":
        return ApiError(404, f"There is no {shown}: GLM-Image has no variations. Use /v1/images/edits.")
    if plain != path:
        return ApiError(404, f"There is no {shown}. Did you mean {plain[:200]}? A base URL ends in exactly one /v1.")
    return ApiError(404, f"There is no {shown}. The routes are listed at /openapi.json.")


def install(app: FastAPI) -> None:
    """Make every error of `app` OpenAI-shaped, also those of the framework."""
    app.add_exception_handler(ApiError, _typed)
    app.add_exception_handler(DiptychError, _typed)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _typed)
