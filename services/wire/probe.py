"""The data-path probe: a tiny bundle that the AR publishes and the DiT fetches, so that "ready" means the path works.

`POST ar /v1/probes` answers with a `Probe`; `POST dit /v1/probes` takes it and answers 204, or an `ErrorBody`.
"""

import msgspec

PROBE_LEASE = 60.0  # seconds that a probe's slot lives if the DiT never comes for it


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """A ticket to a few bytes. request_id: to release its slot by, like a prior's."""

    request_id: str
    ticket: bytes
