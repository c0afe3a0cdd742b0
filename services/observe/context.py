"""Whose request the current task works for: carried by a context variable, so that every log line can say it."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_request_id: ContextVar[str] = ContextVar("diptych_request_id", default="")


def current_request_id() -> str:
    """The id of the request that this task works for, or "" outside of one."""
    return _request_id.get()


_traceparent: ContextVar[str | None] = ContextVar("diptych_traceparent", default=None)


def current_traceparent() -> str | None:
    """The caller's W3C trace context, if it sent one."""
    return _traceparent.get()


def enter_trace(traceparent: str | None) -> None:
    """What the current task does belongs to the caller's trace: for tasks that serve one request only."""
    _traceparent.set(traceparent)


@contextmanager
def request_context(request_id: str) -> Iterator[None]:
    """Everything inside, tasks started there included, works for `request_id`."""
    token = _request_id.set(request_id)
    try:
        yield
    finally:
        _request_id.reset(token)


def enter_request(request_id: str) -> None:
    """The current task works for `request_id` from here to its end: for tasks that serve one request only."""
    _request_id.set(request_id)
