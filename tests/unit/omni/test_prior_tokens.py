"""What the AR model wrote is checked before it is handed on."""

import pytest
import torch

from services.omni.prior_tokens import large_grid_tokens
from services.wire.errors import InvalidPriors
from services.wire.geometry import IMAGE_END


@pytest.mark.parametrize("tail", [[], [IMAGE_END]])
def test_the_preview_and_the_end_token_are_taken_off(tail: list[int]) -> None:
    preview = 11 * 22  # 128x64: int(sqrt(1/2) * 16) rows of int(sqrt(2) * 16)
    tokens = large_grid_tokens([*range(preview + 8), *tail], 128, 64, edit=False)
    assert tokens.dtype == torch.int32
    assert tokens.tolist() == list(range(preview, preview + 8))


@pytest.mark.parametrize("tail", [[], [IMAGE_END]])
def test_an_edit_has_no_preview(tail: list[int]) -> None:
    assert large_grid_tokens([*range(8), *tail], 128, 64, edit=True).tolist() == list(range(8))


@pytest.mark.parametrize("count", [0, 1, 3, 5, 400])
def test_a_wrong_count_is_refused(count: int) -> None:
    with pytest.raises(InvalidPriors, match=f"wrote {count} prior tokens where 64x64 takes 4"):
        large_grid_tokens([1] * count, 64, 64, edit=True)


@pytest.mark.parametrize("token", [-1, 16384, IMAGE_END, 16511, 2**40])
def test_a_token_that_is_no_code_is_refused(token: int) -> None:
    with pytest.raises(InvalidPriors, match=rf"prior token 1 is {token}, outside 0..16383"):
        large_grid_tokens([0, token, 3, 4], 64, 64, edit=True)
