"""Traces: nothing while off, one tree across processes while on."""

import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest

from services.observe.settings import ObserveSettings
from services.observe.tracing import TRACING

INSTALLED = importlib.util.find_spec("opentelemetry") and importlib.util.find_spec("opentelemetry.sdk")
needs_extra = pytest.mark.skipif(not INSTALLED, reason="the tracing extra (opentelemetry-sdk) is not installed")


def test_off_a_span_is_nothing() -> None:
    TRACING.configure("gateway", ObserveSettings(tracing=False))
    with TRACING.span("image", "00-" + "1" * 32 + "-" + "2" * 16 + "-01") as span:
        span.note(width=64)
        span.phases({"denoise": 1.0})
        assert span.traceparent is None


@pytest.mark.skipif(bool(INSTALLED), reason="the tracing extra is installed")
def test_on_without_the_extra_says_how_to_get_it() -> None:
    with pytest.raises(ImportError, match=r"pip install 'diptych\[tracing\]'"):
        TRACING.configure("gateway", ObserveSettings(tracing=True))


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


@needs_extra
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


@needs_extra
def test_a_forged_traceparent_starts_a_new_trace(finished: Any) -> None:
    with TRACING.span("image", "00-zz; drop table-01"):
        pass
    assert finished()["image"].parent is None
