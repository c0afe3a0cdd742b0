"""The metrics' names and labels keep to the house rules."""

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase

from services.observe import metrics

ALL = [value for value in vars(metrics).values() if isinstance(value, MetricWrapperBase)]
BOUNDED = {"route", "status", "outcome", "phase", "reason", "stage", "replica", "state", "kind", "how"}


def test_all_names_have_the_prefix_and_base_units() -> None:
    assert ALL
    for metric in ALL:
        name = metric._name
        assert name.startswith("diptych_")
        assert not name.endswith(("_ms", "_kib", "_mb", "_minutes"))
        if isinstance(metric, Histogram):
            assert name.endswith("_seconds")


def test_all_labels_are_bounded() -> None:
    for metric in ALL:
        assert set(metric._labelnames) <= BOUNDED


def test_each_metric_says_what_it_is() -> None:
    for metric in ALL:
        assert isinstance(metric, Counter | Gauge | Histogram)
        assert metric._documentation.endswith(".")


def test_the_exposition_is_prometheus_text() -> None:
    metrics.SHED.labels("queue_full").inc()
    body, kind = metrics.exposition()
    assert b'diptych_shed_total{reason="queue_full"}' in body
    assert kind.startswith("text/plain")
