"""API keys. None set: open to all. Probes, stored images, the docs and the playground page need no key."""

import hashlib
import hmac

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from services.gateway.errors import ApiError

_OPEN_UNDER_V1 = "/v1/files/images/"  # their names are secrets


class Keys:
    """The known keys, as digests: a lookup takes the same time whichever key is right, or none."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        self._digests = [hashlib.sha256(key.encode()).digest() for key in keys]

    def tenant(self, headers: Headers) -> str:
        """Whose request this is: the start of the key's hash, or "" without keys. Raises ApiError 401."""
        if not self._digests:
            return ""
        scheme, _, key = headers.get("authorization", "").partition(" ")
        digest = hashlib.sha256(key.strip().encode()).digest()
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        if scheme.lower() != "bearer" or not any(matches):
            message = "A valid API key is needed: send it as 'Authorization: Bearer KEY'."
            raise ApiError(401, message, headers={"www-authenticate": "Bearer"})
        return digest.hex()[:16]


class KeyGate:
    """Refuses calls under /v1 without a key, and notes the tenant in the scope's state."""

    def __init__(self, app: ASGIApp, keys: Keys) -> None:
        self.app = app
        self.keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path = scope["path"].lstrip("/")
            state = scope.setdefault("state", {})
            state["tenant"] = ""
            if scope["method"] != "OPTIONS" and path.startswith("v1") and not scope["path"].startswith(_OPEN_UNDER_V1):
                state["tenant"] = self.keys.tenant(Headers(scope=scope))
        await self.app(scope, receive, send)
