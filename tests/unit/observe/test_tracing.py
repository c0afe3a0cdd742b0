"""Traces: nothing while off, one tree across processes while on."""

import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from services import cli
from services.observe.settings import ObserveSettings
from services.observe.tracing import MISSING, TRACING


def test_off_a_span_is_nothing() -> None:
    TRACING.configure("gateway", ObserveSettings(tracing=False))
    with TRACING.span("image", "00-" + "1" * 32 + "-" + "2" * 16 + "-01") as span:
        span.note(width=64)
        span.phases({"denoise": 1.0})
        assert span.traceparent is None


@pytest.mark.parametrize("role", ["gateway", "ar", "dit"])
def test_on_without_the_extra_each_service_ends_with_one_line(role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)  # as if it were not installed
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # a service sets its own; they go with this test
    monkeypatch.setenv("DIPTYCH_TRACING", "1")
    monkeypatch.setenv("DIPTYCH_ENGINE", "sim")
    ended = CliRunner().invoke(cli.main, [role])
    assert ended.exit_code == 1
    assert ended.output.splitlines() == [f"Error: {MISSING}"]
    assert "requirements/tracing.txt" in MISSING


@pytest.fixture
def finished() -> Iterator[Any]:
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    TRACING.configure("gateway", ObserveSettings(tracing=True), exporter)

    def spans() -> dict[str, Any]:
        TRACING.stop()
        return {span.name: span for span in exporter.get_finished_spans()}

    yield spans
    TRACING.stop()


def test_a_child_elsewhere_joins_by_its_traceparent(finished: Any) -> None:
    caller = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    with TRACING.span("image", caller) as image:
        with TRACING.span("ar", image.traceparent) as ar:
            ar.failed("engine_died")
        image.phases({"denoise": 2.0, "vae": 0.5})
    spans = finished()
    assert {f"{span.context.trace_id:032x}" for span in spans.values()} == {"a" * 32}
    assert f"{spans['image'].parent.span_id:016x}" == "b" * 16
    assert spans["ar"].parent.span_id == spans["image"].context.span_id
    assert spans["ar"].status.description == "engine_died"
    assert spans["vae"].end_time - spans["vae"].start_time == 500_000_000
    assert spans["denoise"].end_time == spans["vae"].start_time


def test_a_forged_traceparent_starts_a_new_trace(finished: Any) -> None:
    with TRACING.span("image", "00-zz; drop table-01"):
        pass
    assert finished()["image"].parent is None
