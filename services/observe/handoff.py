"""The hand-off's own counts as Prometheus metrics: names and units, read at each scrape."""

from collections.abc import Callable, Iterable

from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

Stats = Callable[[], dict[str, float]]

COUNTERS = {
    "reads": ("diptych_nixl_reads", "NIXL READs that ended well."),
    "bytes_moved": ("diptych_nixl_bytes", "Bytes moved by NIXL READs."),
    "read_seconds": ("diptych_nixl_read_seconds", "Seconds spent in NIXL READs."),
    "reconnects": ("diptych_nixl_reconnects", "Peers that were connected to again."),
    "quarantined": ("diptych_nixl_quarantined", "Slots or READs set aside until NIXL lets go of their memory."),
    "peers_added": ("diptych_nixl_peers_added", "Producers that this consumer connected to."),
    "peers_dropped": ("diptych_nixl_peers_dropped", "Producers that this consumer let go."),
    "published_bytes": ("diptych_slots_published_bytes", "Bytes put into slots."),
    "reads_ended": ("diptych_slots_reads_ended", "READs that a consumer said have ended."),
    "reads_abandoned": ("diptych_slots_reads_abandoned", "READs that a consumer gave up."),
    "stray_notices": ("diptych_slots_stray_notices", "Notices about slots that are gone."),
    "published": ("diptych_slots_published", "Bundles put into a slot."),
    "released": ("diptych_slots_released", "Slots given back by the gateway."),
    "expired": ("diptych_slots_expired", "Slots whose lease ended first."),
    "refused": ("diptych_slots_refused", "Bundles that found no room."),
}
GAUGES = {
    "slots_live": ("diptych_leases", "Slots that are leased now."),
    "slots_resting": ("diptych_slots_resting", "Slots that rest until no READ can touch them."),
    "arena_bytes": ("diptych_arena_bytes", "Size of the registered region."),
    "bytes_in_use": ("diptych_arena_used_bytes", "Bytes of it in use."),
    "bytes_high_water": ("diptych_arena_high_water_bytes", "Most bytes in use so far."),
    "oversize_bytes": ("diptych_oversize_bytes", "Bytes registered beyond the main region."),
    "in_flight": ("diptych_nixl_in_flight", "READs under way."),
    "in_quarantine": ("diptych_nixl_in_quarantine", "READs that are late and not yet let go."),
    "peers": ("diptych_nixl_peers", "Producers that this consumer is connected to."),
    "best_bytes_per_second": ("diptych_nixl_best_bytes_per_second", "Rate of the fastest big READ; 0 before any."),
}
TRANSPORT_GAUGE = ("diptych_nixl_peers_by_transport", "Connected producers, by each UCX transport among their lanes.")
TRANSPORTS = "transport_"  # what counts of peers start with, before the transport's name
ERROR_COUNTER = ("diptych_nixl_errors", "Failed hand-offs, by the error's code.")
ERRORS = "errors_"  # what error counts start with, before the error's code


class HandoffMetrics(Collector):
    """Shows the `stats` of producers and consumers, by stage. Names without a definition here are left out."""

    def __init__(self) -> None:
        self._sources: dict[str, Stats] = {}

    def add(self, stage: str, stats: Stats) -> Callable[[], None]:
        """Show `stats` from now on; returns what ends that."""
        self._sources[stage] = stats

        def hide() -> None:
            if self._sources.get(stage) is stats:
                del self._sources[stage]

        return hide

    def collect(self) -> Iterable[Metric]:
        """The families of this moment."""
        counters = {name: CounterMetricFamily(*about, labels=["stage"]) for name, about in COUNTERS.items()}
        gauges = {name: GaugeMetricFamily(*about, labels=["stage"]) for name, about in GAUGES.items()}
        errors = CounterMetricFamily(*ERROR_COUNTER, labels=["stage", "reason"])
        transports = GaugeMetricFamily(*TRANSPORT_GAUGE, labels=["stage", "transport"])
        for stage, stats in list(self._sources.items()):
            for name, value in stats().items():
                if name in counters:
                    counters[name].add_metric([stage], value)
                elif name in gauges:
                    gauges[name].add_metric([stage], value)
                elif name.startswith(ERRORS):
                    errors.add_metric([stage, name.removeprefix(ERRORS)], value)
                elif name.startswith(TRANSPORTS):
                    transports.add_metric([stage, name.removeprefix(TRANSPORTS)], value)
        yield from counters.values()
        yield from gauges.values()
        yield errors
        yield transports


HANDOFF = HandoffMetrics()
REGISTRY.register(HANDOFF)
