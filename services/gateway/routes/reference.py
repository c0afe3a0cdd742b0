"""`GET /openapi.json` and `GET /docs`."""

import base64
import hashlib
import json

from fastapi import APIRouter
from starlette.responses import Response

from services.gateway.openapi import document
from services.gateway.reference import STYLE, page

_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; frame-ancestors 'none'"


def reference_routes() -> APIRouter:
    """Both, rendered once."""
    router = APIRouter(include_in_schema=False)
    spec = document()
    as_json = json.dumps(spec).encode()
    as_page = page(spec).encode()

    @router.get("/openapi.json")
    async def openapi() -> Response:
        return Response(as_json, media_type="application/json")

    @router.get("/docs")
    async def docs() -> Response:
        return Response(as_page, media_type="text/html", headers={"content-security-policy": POLICY})

    return router
