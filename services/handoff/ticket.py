"""The ticket: a small, signed, opaque description of one published bundle.

On the wire: `DPT`, one byte of schema, 32 bytes of HMAC-SHA256 (zeros if there is no key), then msgpack.
"""

import hmac
import time
from functools import lru_cache
from typing import Annotated

import msgspec

from services.handoff import layout
from services.handoff.checksum import DIGEST_BYTES, Algorithm
from services.handoff.layout import Memory, TensorSpec
from services.wire.errors import IncompatiblePeer, LeaseExpired, TicketInvalid

SCHEMA = 1
MAX_TICKET = 2**20  # bytes
MAX_PROBE = 2**22  # bytes
_MAGIC = b"DPT"
_MAC_BYTES = 32
_UNSIGNED = bytes(_MAC_BYTES)
_PREFIX_BYTES = len(_MAGIC) + 1 + _MAC_BYTES
_Text = Annotated[str, msgspec.Meta(max_length=256)]


class Region(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """Contiguous bytes at the producer. device: CUDA ordinal there, 0 for DRAM."""

    address: Annotated[int, msgspec.Meta(gt=0)]
    length: Annotated[int, msgspec.Meta(gt=0, lt=2**48)]
    memory: Memory = Memory.DRAM
    device: Annotated[int, msgspec.Meta(ge=0, lt=1024)] = 0


class Ticket(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a consumer needs to pull and verify one bundle.

    handoff_id: 16 random bytes. generation: of the slot, never used twice by one producer. instance: the producer's
    NIXL agent, unique per process start. host, machine: where it can be reached, and a hash of its boot id.
    agent: its NIXL metadata. nixl, ucx: versions. probe: registered zeros, to measure bandwidth with. regions[0] is
    DRAM and starts with the header. digest: over all payload bytes. fingerprint: of the model. expires: Unix seconds
    by the producer's clock.
    """

    handoff_id: Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
    generation: Annotated[int, msgspec.Meta(gt=0)]
    instance: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    host: _Text
    machine: _Text
    agent: Annotated[bytes, msgspec.Meta(min_length=1, max_length=2**18)]
    nixl: _Text
    ucx: _Text
    regions: Annotated[tuple[Region, ...], msgspec.Meta(min_length=1, max_length=16)]
    probe: Region
    tensors: Annotated[tuple[TensorSpec, ...], msgspec.Meta(min_length=1, max_length=4096)]
    algorithm: Algorithm
    digest: Annotated[bytes, msgspec.Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
    fingerprint: _Text
    expires: float

    @property
    def payload_bytes(self) -> int:
        """Bytes of all tensors with their padding, without the header."""
        return sum(region.length for region in self.regions) - layout.HEADER_BYTES


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Ticket)


def seal(ticket: Ticket, key: bytes | None) -> bytes:
    """`ticket` as bytes, signed if there is a key."""
    body = _encoder.encode(ticket)
    return _MAGIC + bytes([SCHEMA]) + _mac(body, key) + body


def unseal(raw: bytes, key: bytes | None, fingerprint: str, *, skew: float = 0.0) -> Ticket:
    """The ticket in `raw`, with everything checked that can be checked before memory is touched.

    skew: seconds that the producer's clock may be behind. Raises TicketInvalid (signature, shape, arithmetic),
    IncompatiblePeer (schema, model), LeaseExpired (its time is over).
    """
    if len(raw) > MAX_TICKET or len(raw) <= _PREFIX_BYTES or raw[:3] != _MAGIC:
        raise TicketInvalid("these bytes are no ticket; take it from the AR service's reply unchanged", param="ticket")
    if raw[3] != SCHEMA:
        raise IncompatiblePeer(
            f"the ticket has schema {raw[3]}, this consumer reads schema {SCHEMA}: run one release on both sides"
        )
    mac, body = raw[4:_PREFIX_BYTES], raw[_PREFIX_BYTES:]
    _check_signature(mac, body, key)
    try:
        ticket = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TicketInvalid(f"the ticket does not decode: {error}", param="ticket") from error
    if ticket.fingerprint != fingerprint:
        raise IncompatiblePeer(
            f"the producer serves model {ticket.fingerprint!r}, this consumer {fingerprint!r}: load one checkpoint"
        )
    if not time.time() <= ticket.expires + skew:  # also refuses NaN
        raise LeaseExpired(f"the ticket expired {time.time() - ticket.expires:.1f} s ago")
    _check_arithmetic(ticket)
    return ticket


def _mac(body: bytes, key: bytes | None) -> bytes:
    if key is None:
        return _UNSIGNED
    keyed = _keyed(key).copy()
    keyed.update(body)
    return keyed.digest()


@lru_cache(maxsize=4)
def _keyed(key: bytes) -> hmac.HMAC:
    """The part of the HMAC that does not depend on the ticket: half of its cost."""
    return hmac.new(key, bytes([SCHEMA]), "sha256")


def _check_signature(mac: bytes, body: bytes, key: bytes | None) -> None:
    if key is None and mac != _UNSIGNED:
        raise TicketInvalid("the ticket is signed, but this consumer has no DIPTYCH_HANDOFF_KEY", param="ticket")
    if not hmac.compare_digest(mac, _mac(body, key)):
        raise TicketInvalid("the ticket's signature is wrong: altered, or signed with another key", param="ticket")


def _check_arithmetic(ticket: Ticket) -> None:
    first = ticket.regions[0]
    if first.memory is not Memory.DRAM:
        raise TicketInvalid("region 0 must be DRAM: it starts with the header", param="ticket.regions")
    if ticket.probe.memory is not Memory.DRAM or ticket.probe.length > MAX_PROBE:
        raise TicketInvalid(f"the probe must be DRAM of at most {MAX_PROBE} bytes", param="ticket.probe")
    names = set()
    for spec in ticket.tensors:
        if spec.dtype not in layout.ITEM_BYTES:
            raise TicketInvalid(f"tensor {spec.name!r}: unknown dtype {spec.dtype!r}", param="ticket.tensors")
        if spec.region >= len(ticket.regions):
            raise TicketInvalid(
                f"tensor {spec.name!r} lies in region {spec.region}, which is not there", param="ticket"
            )
        if spec.name in names:
            raise TicketInvalid(f"two tensors are named {spec.name!r}", param="ticket.tensors")
        names.add(spec.name)
    _, lengths = layout.offsets(ticket.tensors, len(ticket.regions))
    for index, (region, length) in enumerate(zip(ticket.regions, lengths, strict=True)):
        if region.length != length or region.address + region.length >= 2**64:
            raise TicketInvalid(
                f"region {index} has {region.length} bytes at {region.address:#x}, its tensors need {length}",
                param="ticket.regions",
            )
