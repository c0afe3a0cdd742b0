"""Every error that one service may show to another, or to a caller.

DiptychError
├── InvalidRequest            400  a field is wrong: `param` names it
├── Overloaded                503  a bounded queue is full, or the service drains
│   └── RateLimited           429  this caller's own share of the queue is used up
├── StageUnavailable          503  a stage is not there, not ready, or lost its engine before it began
├── DeadlineExceeded          504  the request's time budget ran out
├── Cancelled                 499  the caller left, or asked for an abort
├── EngineFailed              500  the engine refused or crashed on this one request
├── EngineDied                503  the engine's process died under the request
├── InvalidPriors             500  the AR stage wrote tokens that the DiT must not see
├── ProtocolError             502  bytes from the other service that are not of this protocol
├── ConfigError               -    a setting or file is wrong: start-up stops with one line
└── HandoffError              -    the transfer between the stages
    ├── ArenaFull             503  the producer has no room left
    ├── LeaseExpired          503  nobody read the slot in time; it is gone
    ├── PeerGone              503  the producer's process is gone
    ├── TransferTimeout       504  the READ did not end in time
    ├── TicketInvalid         400  altered, expired, replayed or arithmetically wrong
    ├── IntegrityError        503  the bytes are not those that the ticket promised
    └── IncompatiblePeer      503  other versions, schema or model on the other side
"""

from enum import StrEnum
from typing import ClassVar

import msgspec


class Remedy(StrEnum):
    """What the caller of a failed stage can do about it."""

    NONE = "none"  # the request itself is at fault, or its time is up
    LATER = "later"  # the same call, after `retry_after` seconds
    OTHER_REPLICA = "other_replica"  # the same message to another replica of this stage
    SAME_TICKET = "same_ticket"  # the same ticket again, here or at another DiT replica
    NEW_PRIORS = "new_priors"  # the ticket is worthless: run the AR stage again


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error as it travels between services (the body of a non-2xx reply, or inside `Failed`)."""

    code: str
    message: str
    param: str | None = None
    retry_after: float | None = None  # seconds


class DiptychError(Exception):
    """The root. `status` is the HTTP status, `code` the stable name, `remedy` what the caller can do."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "server_error"
    remedy: ClassVar[Remedy] = Remedy.NONE

    def __init__(self, message: str, *, param: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after = retry_after

    def body(self) -> ErrorBody:
        """This error as it travels."""
        return ErrorBody(code=self.code, message=self.message, param=self.param, retry_after=self.retry_after)


class InvalidRequest(DiptychError):
    """A field of the request is wrong; `param` names it."""

    status = 400
    code = "invalid_value"


class Overloaded(DiptychError):
    """A bounded queue is full, or the service is draining."""

    status = 503
    code = "server_is_overloaded"
    remedy = Remedy.OTHER_REPLICA


class RateLimited(Overloaded):
    """This caller's own share of the queue is used up; others still get in."""

    status = 429
    code = "rate_limit_exceeded"
    remedy = Remedy.LATER


class StageUnavailable(DiptychError):
    """A stage is not reachable or not ready; nothing was started."""

    status = 503
    code = "stage_unavailable"
    remedy = Remedy.OTHER_REPLICA


class DeadlineExceeded(DiptychError):
    """The time budget of the request ran out."""

    status = 504
    code = "timeout"


class Cancelled(DiptychError):
    """The caller left, or asked for this job to stop."""

    status = 499
    code = "cancelled"


class EngineFailed(DiptychError):
    """The engine raised on this request and lives on."""

    status = 500
    code = "engine_failed"


class EngineDied(DiptychError):
    """The engine died while this request ran; the service restarts it."""

    status = 503
    code = "engine_died"
    remedy = Remedy.OTHER_REPLICA


class InvalidPriors(DiptychError):
    """The AR stage wrote a wrong number of tokens, or a token outside 0..16383."""

    status = 500
    code = "invalid_priors"
    remedy = Remedy.NONE


class ProtocolError(DiptychError):
    """Bytes from the other service do not follow this protocol."""

    status = 502
    code = "protocol_error"
    remedy = Remedy.OTHER_REPLICA


class ConfigError(DiptychError):
    """A setting, file or environment variable is wrong; the message names it and the mend."""

    code = "config_error"


class HandoffError(DiptychError):
    """The transfer of a bundle between the stages failed."""

    status = 503
    code = "handoff_failed"
    remedy = Remedy.NEW_PRIORS


class ArenaFull(HandoffError):
    """The producer has no room for this bundle now."""

    code = "arena_full"
    remedy = Remedy.OTHER_REPLICA


class LeaseExpired(HandoffError):
    """The slot's lease ended before the READ."""

    code = "lease_expired"


class PeerGone(HandoffError):
    """The producer's process is not there any more."""

    code = "peer_gone"


class TransferTimeout(HandoffError):
    """The READ was not terminal within its deadline."""

    status = 504
    code = "transfer_timeout"
    remedy = Remedy.SAME_TICKET


class TicketInvalid(HandoffError):
    """The ticket is altered, expired, replayed, or does not add up."""

    status = 400
    code = "ticket_invalid"


class IntegrityError(HandoffError):
    """Header, generation, length or checksum of the bytes do not match the ticket."""

    code = "integrity_error"


class IncompatiblePeer(HandoffError):
    """Producer and consumer differ in NIXL, UCX, schema or model."""

    code = "incompatible_peer"
    remedy = Remedy.OTHER_REPLICA


def _tree(root: type[DiptychError]) -> dict[str, type[DiptychError]]:
    found = {root.code: root}
    for child in root.__subclasses__():
        found |= _tree(child)
    return found


_BY_CODE = _tree(DiptychError)


def from_body(body: ErrorBody) -> DiptychError:
    """The typed error for what came over the wire; an unknown code becomes a plain `DiptychError`."""
    kind = _BY_CODE.get(body.code, DiptychError)
    return kind(body.message, param=body.param, retry_after=body.retry_after)
