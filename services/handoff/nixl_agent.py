"""The one place that calls NIXL, and where its exceptions become ours.

It stands on NIXL's bindings, not on its Python class: that class fixes the progress thread's rest at zero, which
burns a core in every idle process, and pickles descriptor lists.
"""

import ctypes
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

from nixl import _bindings as nixl

from services.handoff import ucx
from services.handoff.layout import Memory
from services.handoff.settings import HandoffSettings
from services.handoff.transport import Span
from services.wire.errors import ConfigError, HandoffError, PeerGone, TicketInvalid

_KINDS = {Memory.DRAM: nixl.DRAM_SEG, Memory.VRAM: nixl.VRAM_SEG}
_GONE = (
    nixl.nixlRemoteDisconnectError,
    nixl.nixlNotFoundError,
    nixl.nixlNotAllowedError,
    nixl.nixlBackendError,
    nixl.nixlCancelledError,
)
_WRONG = (nixl.nixlMismatchError, nixl.nixlInvalidParamError)
_OTHER = (
    nixl.nixlUnknownError,
    nixl.nixlNotSupportedError,
    nixl.nixlNotPostedError,
    nixl.nixlRepostActiveError,
)


@contextmanager
def nixl_errors(doing: str) -> Iterator[None]:
    """NIXL's exceptions as ours. NOT_FOUND and NOT_ALLOWED mean a peer that died or was replaced: adding it anew
    from the ticket decides."""
    try:
        yield
    except _GONE as error:
        raise PeerGone(f"{doing}: the producer is not there ({error})") from error
    except _WRONG as error:
        raise TicketInvalid(f"{doing}: NIXL refuses what the ticket says ({error})", param="ticket") from error
    except _OTHER as error:
        raise HandoffError(f"{doing}: NIXL failed ({error})") from error


class NixlAgent:
    """A NIXL agent on UCX. progress: whether it serves READs of others while its own code is busy (a producer
    must; a consumer's READs progress when they are polled)."""

    def __init__(self, settings: HandoffSettings, *, role: str, progress: bool) -> None:
        if settings.require_rdma:
            ucx.require_rdma()
        self.name = f"{role}-{secrets.token_hex(8)}"  # UCX cuts names off at 31 bytes
        config = nixl.nixlAgentConfig()
        config.useProgThread = progress
        config.useListenThread = False
        config.syncMode = nixl.NIXL_THREAD_SYNC_STRICT
        config.pthrDelay = settings.progress_delay_us
        self._log = ucx.process_log()
        self._lanes: dict[str, str] = {}
        self._peer_failed = False
        try:
            with ucx.environment(settings):
                self._agent: Any = nixl.nixlAgent(self.name, config)
                self._backend = self._agent.createBackend("UCX", {})
        except (*_GONE, *_WRONG, *_OTHER) as error:
            raise ConfigError(
                f"NIXL's UCX backend does not start ({error}): check UCX_TLS, UCX_NET_DEVICES and DIPTYCH_REQUIRE_RDMA"
            ) from error
        self.nixl, self.ucx = version("nixl"), ucx.version()
        self._log.new_lanes(self.name)

    def register(self, span: Span) -> object:
        descriptors = nixl.nixlRegDList(_KINDS[span.memory], [(span.address, span.length, span.device, "")])
        with nixl_errors("registering memory"):
            self._agent.registerMem(descriptors, [])
        return descriptors

    def deregister(self, registration: object) -> None:
        with nixl_errors("deregistering memory"):
            self._agent.deregisterMem(registration, [])

    def metadata(self) -> bytes:
        with nixl_errors("reading own metadata"):
            raw: bytes = self._agent.getLocalMD()
        return raw

    def add_peer(self, name: str, metadata: bytes) -> None:
        if name.encode() not in metadata:
            raise TicketInvalid("the agent metadata in the ticket is of another agent", param="ticket.agent")
        with self._peer_errors("adding the producer"):
            found: bytes = self._agent.loadRemoteMD(metadata)
        if found != name.encode():
            raise TicketInvalid("the agent metadata in the ticket is of another agent", param="ticket.agent")
        with self._peer_errors("connecting to the producer"):
            self._agent.makeConnection(name, [])
        # UCX reports a lane configuration once; a peer that brings no new one is served by those known.
        known = self._log.new_lanes(self.name) or self._log.all_lanes(self.name)
        self._lanes[name] = "; ".join(f"{where}: {lanes}" for where, lanes in known.items() if where != "self")

    def drop_peer(self, name: str) -> None:
        self._lanes.pop(name, None)
        try:
            self._agent.invalidateRemoteMD(name)
        except nixl.nixlNotFoundError:
            return  # NIXL drops a peer itself when it sees the disconnect
        except nixl.nixlNotAllowedError as error:
            raise HandoffError(f"dropping {name}: {error}") from error

    def read(self, peer: str, remote: Span, local: Span) -> int:
        with self._peer_errors("starting a READ"):
            ours = nixl.nixlXferDList(_KINDS[local.memory], [(local.address, local.length, local.device)])
            theirs = nixl.nixlXferDList(_KINDS[remote.memory], [(remote.address, remote.length, remote.device)])
            handle: int = self._agent.createXferReq(nixl.NIXL_READ, ours, theirs, peer, "", [])
            try:
                self._agent.postXferReq(handle, "")
            except Exception:
                self._agent.releaseXferReq(handle)
                raise
        return handle

    def finished(self, handle: int) -> bool:
        with self._peer_errors("during a READ"):
            done: bool = self._agent.getXferStatus(handle) == nixl.NIXL_SUCCESS
        return done

    def release(self, handle: int) -> None:
        with self._peer_errors("releasing a READ"):
            self._agent.releaseXferReq(handle)

    def notify(self, peer: str, message: bytes) -> None:
        with self._peer_errors("notifying the producer"):
            self._agent.genNotif(peer, message, [])

    def notices(self) -> list[bytes]:
        with nixl_errors("reading notices"):
            found: dict[str, list[bytes]] = self._agent.getNotifs({}, [])
        return [message for messages in found.values() for message in messages]

    def lanes(self, peer: str) -> str:
        return self._lanes.get(peer, "")

    def all_lanes(self) -> dict[str, str]:
        return self._log.all_lanes(self.name)

    def close(self, *, busy: bool = False) -> None:
        if busy or self._peer_failed:
            # UCX asserts that no endpoint has requests left when its worker goes, and aborts the process if a failed
            # peer left some: such an agent lives to the very end.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._agent))
        self._agent = None
        self._log.forget(self.name)

    @contextmanager
    def _peer_errors(self, doing: str) -> Iterator[None]:
        try:
            with nixl_errors(doing):
                yield
        except HandoffError:
            self._peer_failed = True
            raise
