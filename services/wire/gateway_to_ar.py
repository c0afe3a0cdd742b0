"""What the gateway sends to the AR service."""

import msgspec


class PriorRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`POST /v1/priors`: write the prior tokens of one image.

    width, height: canonical pixels, multiples of 32. seed: 0..2**63-1. budget: seconds left for the whole job
    (a duration, since two nodes' clocks differ). image: one encoded RGB image if this is an edit.
    """

    request_id: str
    prompt: str
    width: int
    height: int
    seed: int
    budget: float
    image: bytes | None = None
    traceparent: str | None = None
