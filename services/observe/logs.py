"""Structured logs: one line an event, as text or JSON, each with the request's id; no prompts unless asked."""

import json
import logging
import sys
import time

from services.observe.context import current_request_id
from services.observe.settings import ObserveSettings

OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "service", "request_id", "color_message"}
NOISY = ("httpx", "httpcore", "asyncio", "multipart", "uvicorn")  # a line a poll or chunk, at info or debug


class _Stamp(logging.Filter):
    """Adds the service's name and the current request's id to each record."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def filter(self, record: logging.LogRecord) -> bool:
        record.service = self._service
        record.request_id = current_request_id()
        return True


def _extra(record: logging.LogRecord) -> dict[str, object]:
    return {key: value for key, value in vars(record).items() if key not in OWN and not key.startswith("_")}


class JsonLines(logging.Formatter):
    """`{"time", "level", "service", "request_id", "logger", "message", ...}`, one object a line."""

    def format(self, record: logging.LogRecord) -> str:
        event: dict[str, object] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "service": getattr(record, "service", ""),
            "request_id": getattr(record, "request_id", ""),
            "logger": record.name,
            "message": record.getMessage(),
            **_extra(record),
        }
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        return json.dumps(event, default=str, ensure_ascii=False)


class TextLines(logging.Formatter):
    """`time level service [request id] message key=value ...`, on one line: newlines in a message are escaped."""

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        request = getattr(record, "request_id", "") or "-"
        extra = "".join(f" {key}={value}" for key, value in _extra(record).items())
        message = (record.getMessage() + extra).replace("\n", "\\n")
        where = f"{record.levelname:7} {getattr(record, 'service', '')}"
        line = f"{clock}.{int(record.msecs):03d} {where} [{request}] {message}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def configure_logging(service: str, settings: ObserveSettings | None = None) -> None:
    """Send all logs of this process to stderr in one form. service: `gateway`, `ar` or `dit`."""
    chosen = settings or ObserveSettings()
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(_Stamp(service))
    handler.setFormatter(JsonLines() if chosen.log_format == "json" else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(chosen.log_level.upper())
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
