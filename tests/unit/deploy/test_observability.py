"""Dashboards and alert rules ask only for metrics, labels and label values that the code defines."""

import json
import re
from pathlib import Path

import pytest
import yaml
from prometheus_client.metrics import MetricWrapperBase

from services.observe import handoff, metrics
from services.wire.errors import DiptychError

DEPLOY = Path(__file__).parents[3] / "deploy"
# Of the exporters that the compose file brings, and of prometheus_client itself.
FOREIGN = {
    "up",
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_FB_USED",
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
}
FUNCTIONS = {"sum", "or"}  # what may stand without parentheses of its own


def defined() -> dict[str, set[str]]:
    """Series name -> its labels, of the definitions modules."""
    found: dict[str, set[str]] = {}
    for metric in vars(metrics).values():
        if not isinstance(metric, MetricWrapperBase):
            continue
        kind, name, labels = metric._type, metric._name, set(metric._labelnames)
        suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(kind, [""])
        found |= {name + suffix: labels | ({"le"} if suffix == "_bucket" else set()) for suffix in suffixes}
    found |= {f"{name}_total": {"stage"} for name, _ in handoff.COUNTERS.values()}
    found |= {name: {"stage"} for name, _ in handoff.GAUGES.values()}
    found[f"{handoff.ERROR_COUNTER[0]}_total"] = {"stage", "reason"}
    found[handoff.TRANSPORT_GAUGE[0]] = {"stage", "transport"}
    return found


def dashboard_queries() -> list[str]:
    panels = json.loads((DEPLOY / "grafana/dashboards/diptych.json").read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", [])]


def alert_rules() -> list[dict]:
    groups = yaml.safe_load((DEPLOY / "prometheus/alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def scaler_queries() -> list[str]:
    scalers = yaml.safe_load_all((DEPLOY / "k8s/components/keda/scalers.yaml").read_text())
    return [trigger["metadata"]["query"] for scaler in scalers for trigger in scaler["spec"]["triggers"]]


QUERIES = [*dashboard_queries(), *(rule["expr"] for rule in alert_rules()), *scaler_queries()]


def series(query: str) -> list[tuple[str, str]]:
    """(name, selector) of each series in a query."""
    bare = re.sub(r"\b(?:by|without) \([^)]*\)|\[[^\]]*\]", "", query)
    tokens = re.findall(r"\b([a-zA-Z_]\w*)(?:\{([^}]*)\})?(\s*\()?", bare)
    return [(name, selector) for name, selector, call in tokens if not call and name not in FUNCTIONS]


def test_the_checker_sees_what_it_should():
    query = 'sum by (le, stage) (rate(diptych_a_bucket{phase="queue"}[$__rate_interval])) / sum(b) or vector(0)'
    assert [name for name, _ in series(query)] == ["diptych_a_bucket", "b"]
    assert dict(series(query))["diptych_a_bucket"] == 'phase="queue"'


def test_there_is_something_to_check():
    assert len(dashboard_queries()) >= 30
    assert len(alert_rules()) >= 8
    assert len(scaler_queries()) == 2


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_names_only_series_and_labels_that_exist(query):
    known = defined()
    for name, selector in series(query):
        assert name in known or name in FOREIGN, f"{name} is not defined in services/observe"
        labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector))
        assert labels <= known.get(name, set()) | {"job", "instance"}, f"{name} has no such label: {labels}"
    grouped = {label.strip() for group in re.findall(r"by \(([^)]*)\)", query) for label in group.split(",")}
    offered = set().union(*(known.get(name, set()) for name, _ in series(query))) | {"instance", "job"}
    assert grouped <= offered


def test_every_metric_is_on_the_dashboard_or_named_as_left_out():
    left_out = {
        "diptych_request_seconds",  # the gateway's view of an image is on it, and says more
        "diptych_stage_jobs",
        "diptych_denoise_steps",
        "diptych_stage_running_jobs",
        "diptych_nixl_quarantined",
        "diptych_nixl_in_flight",
        "diptych_nixl_in_quarantine",
        "diptych_nixl_peers",
        "diptych_nixl_peers_by_transport",
        "diptych_nixl_best_bytes_per_second",
        "diptych_nixl_peers_added",
        "diptych_nixl_peers_dropped",
        "diptych_slots_published",
        "diptych_slots_published_bytes",
        "diptych_slots_reads_ended",
        "diptych_slots_reads_abandoned",
        "diptych_slots_stray_notices",
        "diptych_oversize_bytes",
        "diptych_engine_ready",
    }
    base = {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in defined()}
    shown = {
        re.sub(r"_(total|bucket|sum|count)$", "", name) for query in dashboard_queries() for name, _ in series(query)
    }
    assert base - shown - left_out == set()


def test_error_codes_in_queries_exist():
    codes = {kind.code for kind in _tree(DiptychError)} | {"ok"}
    for query in QUERIES:
        for pattern in re.findall(r'(?:outcome|reason)\s*(?:=~|!~|!=|=)\s*"([^"]*)"', query):
            for choice in pattern.split("|"):
                assert any(re.fullmatch(choice, code) for code in codes), f"no outcome is {choice}"


def test_an_alert_says_what_to_do():
    for rule in alert_rules():
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert len(rule["annotations"]["description"]) > 40


def test_the_cluster_gets_the_same_rules():
    manifest = yaml.safe_load((DEPLOY / "k8s/components/monitoring/rules.yaml").read_text())
    assert manifest["spec"]["groups"] == yaml.safe_load((DEPLOY / "prometheus/alerts.yaml").read_text())["groups"]


def test_panels_do_not_overlap_and_have_descriptions():
    panels = json.loads((DEPLOY / "grafana/dashboards/diptych.json").read_text())["panels"]
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        own = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not own & cells
        assert place["x"] + place["w"] <= 24
        cells |= own
        assert panel["type"] == "row" or panel["description"]
    assert len({panel["id"] for panel in panels}) == len(panels)


def _tree(kind: type[DiptychError]) -> set[type[DiptychError]]:
    return {kind}.union(*(_tree(child) for child in kind.__subclasses__()))
