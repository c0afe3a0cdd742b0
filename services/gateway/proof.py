"""The data-path probe: before a replica gets work, a few bytes travel from an AR to a DiT, over NIXL, for real."""

import logging

from services.gateway.pool import Pool
from services.gateway.replica import Replica
from services.wire.errors import DiptychError, StageUnavailable

log = logging.getLogger(__name__)

PEERS = 3  # replicas of the other stage to try; one good hand-off is proof enough


class Proof:
    """Proves replicas of either pool against the other pool."""

    def __init__(self, ar: Pool, dit: Pool) -> None:
        self._ar = ar
        self._dit = dit

    async def __call__(self, replica: Replica) -> None:
        """Raises the last DiptychError if no hand-off worked, StageUnavailable if there is nobody to try it with."""
        other = self._dit if replica.stage == "ar" else self._ar
        peers = [peer for peer in other.replicas.values() if peer.up]
        error: DiptychError = StageUnavailable(f"no {other.stage} replica is up to try the hand-off with")
        for peer in peers[:PEERS]:
            source, target = (replica, peer) if replica.stage == "ar" else (peer, replica)
            try:
                await hand_over(source, target)
            except DiptychError as failed:
                error = failed
                log.warning("no hand-off from %s to %s: %s", source.url, target.url, failed)
            else:
                return
        raise error


async def hand_over(ar: Replica, dit: Replica) -> None:
    """One tiny hand-off. Raises DiptychError."""
    probe = await ar.client.probe()
    try:
        await dit.client.fetch(probe)
    finally:
        await ar.client.forget(f"/v1/priors/{probe.request_id}")
