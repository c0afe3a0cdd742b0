"""`GET /`: the playground page, from package data, under a strict content policy."""

from importlib.resources import files

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from services.gateway.errors import not_found

PAGE = "index.html"
CONTENT_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "webp": "image/webp",
    "woff2": "font/woff2",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "font-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


def read_pages() -> dict[str, bytes]:
    """The page and what it loads, by name; empty if this install has none."""
    folder = files("services.gateway") / "playground"
    if not folder.is_dir():
        return {}
    known = (entry for entry in folder.iterdir() if entry.is_file())
    return {entry.name: entry.read_bytes() for entry in known if entry.name.rpartition(".")[2] in CONTENT_TYPES}


def playground_routes(pages: dict[str, bytes]) -> APIRouter:
    """`/` and `/playground/{name}` for `pages`."""
    router = APIRouter(include_in_schema=False)

    async def page(request: Request) -> Response:
        name = request.path_params.get("name", PAGE)
        if name not in pages:
            raise not_found(request.url.path)
        return Response(pages[name], headers=HEADERS, media_type=CONTENT_TYPES[name.rpartition(".")[2]])

    router.api_route("/", methods=["GET", "HEAD"])(page)
    router.api_route("/playground/{name}", methods=["GET", "HEAD"])(page)
    return router
