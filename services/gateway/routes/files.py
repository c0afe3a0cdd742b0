"""`GET /v1/files/images/{name}`: stored results."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from services.gateway.context import gateway_of
from services.gateway.errors import ApiError

router = APIRouter(prefix="/v1/files/images", tags=["files"])


@router.api_route("/{name}", methods=["GET", "HEAD"])
async def stored_image(request: Request) -> Response:
    """A stored image, until it expires. Its name is its only key."""
    storage = gateway_of(request).storage
    try:
        found = await storage.get(request.path_params["name"]) if storage else None
    except OSError as error:
        raise ApiError(503, "The storage of results does not answer now.") from error
    if found is None:
        raise ApiError(404, "There is no such image, or it has expired.", code="not_found")
    headers = {
        "cache-control": f"private, max-age={found.seconds_left}, immutable",
        "content-disposition": "inline",
        "cross-origin-resource-policy": "cross-origin",
    }
    return Response(found.image, media_type=found.content_type, headers=headers)
