"""What the AR service answers."""

import msgspec


class Prior(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The reply to a `PriorRequest`: a ticket to the prior tokens, never the tokens themselves.

    Token counts are those of the engine: text_tokens and image_tokens went in, prior_tokens came out.
    times: seconds by phase (`queue`, `ar`, `publish`).
    """

    request_id: str
    ticket: bytes
    text_tokens: int
    image_tokens: int
    prior_tokens: int
    times: dict[str, float] = {}
