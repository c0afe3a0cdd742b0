import pytest

from services.planner.workload import Kind, parse_mix, positive
from services.wire.errors import ConfigError


def test_shares_add_up_to_one() -> None:
    mix = parse_mix(("1024x1024:50:3", "512x512:30"))
    assert [kind.share for kind in mix] == [0.75, 0.25]


def test_odd_sizes_count_as_the_canonical_size_that_is_painted() -> None:
    kind = Kind(1000, 1000, 50)
    assert kind.pixels == 1024 * 1024
    assert kind.tokens == 256 + 1024 + 1


SIZES = ["", "1024", "1024x1024", "0x0:50", "32x32:5", "4096x4096:50", "2048x256:50", "99999999999x1:1", "x" * 10_000]
STEPS = ["1024x1024:0", "1024x1024:5000", "1024x1024:50:1:1"]
SHARES = ["1024x1024:50:0", "1024x1024:50:nan", "1024x1024:50:-1", "1024x1024:50:1e400", "1024x1024:50:."]


@pytest.mark.parametrize("entry", [*SIZES, *STEPS, *SHARES])
def test_a_kind_that_cannot_be_is_refused(entry: str) -> None:
    with pytest.raises(ConfigError):
        parse_mix((entry,))


@pytest.mark.parametrize("count", [0, 65])
def test_a_mix_has_1_to_64_kinds(count: int) -> None:
    with pytest.raises(ConfigError, match="between 1 and 64"):
        parse_mix(("1024x1024:50",) * count)


@pytest.mark.parametrize("value", ["x", "nan", "inf", 0, -1, 11])
def test_positive_names_the_option(value: str | float) -> None:
    with pytest.raises(ConfigError, match="--rate"):
        positive("--rate", value, most=10)
