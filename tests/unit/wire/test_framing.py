"""Frames of any split, and bytes that are no frames."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.wire import framing
from services.wire.dit_to_gateway import Failed, Preview, Progress, Rendered
from services.wire.errors import ErrorBody, ProtocolError
from services.wire.gateway_to_ar import PriorRequest

EVENTS = [
    Progress(1, 4),
    Preview(0, b"\x00\xff" * 50),
    Rendered(image=b"png", width=64, height=96, times={"denoise": 0.5}),
    Failed(ErrorBody(code="engine_failed", message="x")),
]


async def _chunks(raw: bytes, sizes: list[int]):
    at = 0
    for size in sizes:
        yield raw[at : at + size]
        at += size
    yield raw[at:]


@given(sizes=st.lists(st.integers(0, 30), max_size=30))
async def test_events_survive_any_split(sizes):
    raw = b"".join(framing.frame(event) for event in EVENTS)
    assert [event async for event in framing.events(_chunks(raw, sizes))] == EVENTS


@given(garbage=st.binary(min_size=1, max_size=64))
async def test_garbage_is_a_protocol_error(garbage):
    with pytest.raises(ProtocolError):
        async for _ in framing.events(_chunks(garbage, [])):
            break  # a short garbage frame may be skipped only if it decodes, which no event does
        else:
            raise AssertionError(garbage)


async def test_a_cut_stream_is_a_protocol_error():
    raw = framing.frame(EVENTS[2])
    with pytest.raises(ProtocolError, match="inside a frame"):
        async for _ in framing.events(_chunks(raw[:-1], [])):
            pass


async def test_a_frame_over_the_cap_is_refused_before_it_is_read():
    with pytest.raises(ProtocolError, match="at most"):
        async for _ in framing.events(_chunks((framing.MAX_FRAME + 1).to_bytes(4, "big"), [])):
            pass


def test_a_message_of_the_wrong_form_names_the_field():
    raw = framing.encode({"request_id": "a", "prompt": "b", "width": "wide", "height": 64, "seed": 1, "budget": 1.0})
    with pytest.raises(ProtocolError, match=r"\$\.width"):
        framing.decode(raw, PriorRequest)
