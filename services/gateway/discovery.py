"""Where the replicas are: a static list of URLs, or a DNS name that is resolved again and again."""

import asyncio
import socket
from urllib.parse import urlsplit

from services.wire.errors import ConfigError, StageUnavailable


class Discovery:
    """The base URLs behind one setting. `urls` raises StageUnavailable if a name does not resolve.

    Raises ConfigError, which names `setting`, if the text is neither http(s) URLs nor dns://name:port.
    """

    def __init__(self, text: str, setting: str) -> None:
        self._entries = [entry.strip().rstrip("/") for entry in text.split(",") if entry.strip()]
        if not self._entries:
            raise ConfigError(f"{setting} is empty: give URLs, or dns://name:port", param=setting)
        for entry in self._entries:
            _check(entry, setting)
        self.dynamic = any(entry.startswith("dns://") for entry in self._entries)

    async def urls(self) -> list[str]:
        """Sorted base URLs, without duplicates."""
        found: set[str] = set()
        for entry in self._entries:
            found |= await _resolve(entry) if entry.startswith("dns://") else {entry}
        return sorted(found)


def _check(entry: str, setting: str) -> None:
    remedy = f"{setting}={entry!r} is not http://host:port, https://host:port or dns://name:port"
    try:
        parts = urlsplit(entry)
        port = parts.port
    except ValueError as error:
        raise ConfigError(remedy, param=setting) from error
    if parts.scheme not in ("http", "https", "dns") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigError(remedy, param=setting)
    if parts.scheme == "dns" and (port is None or parts.path):
        raise ConfigError(remedy, param=setting)


async def _resolve(entry: str) -> set[str]:
    parts = urlsplit(entry)
    try:
        answers = await asyncio.get_running_loop().getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise StageUnavailable(f"{entry} does not resolve: {error.strerror}") from error
    hosts = {str(address[0]) for *_, address in answers}
    return {f"http://[{host}]:{parts.port}" if ":" in host else f"http://{host}:{parts.port}" for host in hosts}
