"""The tree of errors survives the wire."""

import pytest

from services.wire import errors
from services.wire.framing import decode, encode


def _kinds(root=errors.DiptychError):
    return [root, *(kind for child in root.__subclasses__() for kind in _kinds(child))]


@pytest.mark.parametrize("kind", _kinds())
def test_error_comes_back_as_its_own_type(kind):
    sent = kind("what happened", param="size", retry_after=2.5)
    got = errors.from_body(decode(encode(sent.body()), errors.ErrorBody))
    assert type(got) is kind
    assert (got.message, got.param, got.retry_after) == ("what happened", "size", 2.5)


def test_codes_are_unique():
    codes = [kind.code for kind in _kinds()]
    assert len(codes) == len(set(codes))


def test_unknown_code_is_a_plain_error():
    assert type(errors.from_body(errors.ErrorBody(code="of_a_later_version", message="x"))) is errors.DiptychError


def test_the_drawn_tree_names_every_error():
    for kind in _kinds():
        assert kind.__name__ in (errors.__doc__ or "")
