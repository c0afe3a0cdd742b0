"""Log lines: one an event, with the request's id, in both forms."""

import json
import logging
from collections.abc import Iterator

import pytest

from services.observe.context import current_request_id, request_context
from services.observe.logs import configure_logging
from services.observe.settings import ObserveSettings


@pytest.fixture(autouse=True)
def restored_root() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def test_json_lines_carry_the_request_and_extra_fields(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("gateway", ObserveSettings(log_format="json"))
    with request_context("req_9"):
        logging.getLogger("x").warning("lost %s\nand found", "it", extra={"replica": "http://ar"})
    event = json.loads(capsys.readouterr().err)
    assert event["request_id"] == "req_9"
    assert event["service"] == "gateway"
    assert event["message"] == "lost it\nand found"
    assert event["replica"] == "http://ar"


def test_a_text_line_stays_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("ar", ObserveSettings())
    logging.getLogger("x").error("first\nsecond")
    assert capsys.readouterr().err.count("\n") == 1


def test_exceptions_are_in_the_json(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("ar", ObserveSettings(log_format="json"))
    try:
        raise ValueError("why")
    except ValueError:
        logging.getLogger("x").exception("failed")
    assert "ValueError: why" in json.loads(capsys.readouterr().err)["exception"]


def test_the_level_is_a_setting(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("ar", ObserveSettings(log_level="error"))
    logging.getLogger("x").warning("quiet")
    assert capsys.readouterr().err == ""


def test_the_request_id_ends_with_its_context() -> None:
    with request_context("a"):
        with request_context("b"):
            assert current_request_id() == "b"
        assert current_request_id() == "a"
    assert current_request_id() == ""
