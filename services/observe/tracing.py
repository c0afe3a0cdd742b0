"""OpenTelemetry traces across gateway, AR and DiT, with the hand-off as a span. Off by default; an extra when on.

requirements/tracing.txt and `DIPTYCH_TRACING=1`; the OTEL_* variables say where the spans go (OTLP over HTTP).
Off, a span costs one attribute look-up.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from services.observe.settings import ObserveSettings

MISSING = "DIPTYCH_TRACING is on, but OpenTelemetry is not installed: pip install --no-deps -r requirements/tracing.txt"


class Span:
    """One span. traceparent: the W3C header that makes a span elsewhere its child; None while tracing is off."""

    traceparent: str | None = None

    def note(self, **attributes: str | float) -> None:
        """Attributes of bounded size; never prompts."""

    def phases(self, times: dict[str, float]) -> None:
        """Children that ended just now, one a phase, laid end to end. times: seconds by phase."""

    def failed(self, code: str) -> None:
        """The work ended in an error of this code."""


class _Recorded(Span):
    def __init__(self, tracer: Any, span: Any) -> None:
        self._tracer = tracer
        self._span = span
        context = span.get_span_context()
        self.traceparent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"

    def note(self, **attributes: str | float) -> None:
        for name, value in attributes.items():
            self._span.set_attribute(f"diptych.{name}", value)

    def phases(self, times: dict[str, float]) -> None:
        from opentelemetry import trace

        at = time.time_ns() - int(sum(times.values()) * 1e9)
        for phase, seconds in times.items():
            child = self._tracer.start_span(phase, trace.set_span_in_context(self._span), start_time=at)
            at += int(seconds * 1e9)
            child.end(at)

    def failed(self, code: str) -> None:
        from opentelemetry.trace import Status, StatusCode

        self._span.set_status(Status(StatusCode.ERROR, code))


class Tracing:
    """The tracer of this process: none until `configure`."""

    def __init__(self) -> None:
        self._tracer: Any = None
        self._provider: Any = None

    def configure(self, service: str, settings: ObserveSettings, exporter: Any = None) -> None:
        """Begin to record if the settings say so. exporter: where spans go; default: OTLP over HTTP.

        Raises ImportError, with the mend in its text, if the extra is not installed.
        """
        if not settings.tracing:
            return
        try:
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor

            if exporter is None:
                from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

                exporter = OTLPSpanExporter()
        except ImportError as error:
            raise ImportError(MISSING) from error
        self._provider = TracerProvider(resource=Resource.create({"service.name": f"diptych-{service}"}))
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("diptych")

    @contextmanager
    def span(self, name: str, parent: str | None = None) -> Iterator[Span]:
        """A span around the body. parent: a traceparent, or None for a root. Safe around `yield`s of a generator."""
        if self._tracer is None:
            yield Span()
            return
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        context = TraceContextTextMapPropagator().extract({"traceparent": parent} if parent else {})
        recorded = self._tracer.start_span(name, context)
        try:
            yield _Recorded(self._tracer, recorded)
        finally:
            recorded.end()

    def stop(self) -> None:
        """Send what is left, and record no more."""
        if self._provider is not None:
            self._provider.shutdown()
        self._tracer = self._provider = None


TRACING = Tracing()
