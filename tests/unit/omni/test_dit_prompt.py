"""A job and its bundle as the engine is asked."""

from typing import Any

import pytest
import torch

from services.omni.dit_prompt import condition_grid, render_prompt, upsampled
from services.serving.engine import CONDITION_IMAGE, CONDITION_TOKENS, PRIOR_TOKENS, RenderJob
from services.wire.errors import InvalidPriors
from services.wire.geometry import Grid

JOB = RenderJob(request_id="a", prompt="a cat", width=96, height=64, steps=4, guidance=1.5, seed=1)


def bundle(**changes: Any) -> dict[str, torch.Tensor]:
    return {PRIOR_TOKENS: torch.arange(6, dtype=torch.int32)} | changes


def test_tokens_are_repeated_over_two_rows_and_two_columns() -> None:
    fine = upsampled(torch.arange(6, dtype=torch.int32), Grid(2, 3))
    assert fine.dtype == torch.int64
    assert fine.reshape(4, 6).tolist() == [
        [0, 0, 1, 1, 2, 2],
        [0, 0, 1, 1, 2, 2],
        [3, 3, 4, 4, 5, 5],
        [3, 3, 4, 4, 5, 5],
    ]


def test_a_text_job_carries_its_priors() -> None:
    prompt = render_prompt(JOB, bundle())
    assert (prompt["width"], prompt["height"]) == (96, 64)
    assert prompt["extra"]["prior_token_ids"].shape == (24,)
    assert "additional_information" not in prompt


@pytest.mark.parametrize(
    ("priors", "message"),
    [
        (torch.arange(5), "5 tokens where the size needs 6"),
        (torch.full((6,), 16384), "16384"),
        (torch.full((6,), -1), "-1"),
        (torch.empty(0, dtype=torch.int32), "0 tokens"),
    ],
)
def test_bad_priors_are_told(priors: torch.Tensor, message: str) -> None:
    with pytest.raises(InvalidPriors, match=message):
        render_prompt(JOB, bundle(**{PRIOR_TOKENS: priors}))


def test_a_bundle_without_priors_is_told() -> None:
    with pytest.raises(InvalidPriors, match=PRIOR_TOKENS):
        render_prompt(JOB, {})


def test_an_edit_carries_its_image_in_minus_one_to_one() -> None:
    image = torch.full((32, 64, 3), 255, dtype=torch.uint8)
    prompt = render_prompt(JOB, bundle(**{CONDITION_IMAGE: image, CONDITION_TOKENS: torch.arange(8)}))
    pixels = prompt["additional_information"]["preprocessed_image"]
    assert pixels.shape == (3, 32, 64) and pixels.dtype == torch.float32 and pixels.min() == 1.0
    assert [codes.tolist() for codes in prompt["extra"]["prior_token_image_ids"]] == [list(range(8))]


@pytest.mark.parametrize(
    "broken",
    [
        {CONDITION_IMAGE: torch.zeros(32, 64, 3, dtype=torch.uint8)},
        {CONDITION_IMAGE: torch.zeros(32, 64, dtype=torch.uint8), CONDITION_TOKENS: torch.arange(8)},
        {CONDITION_IMAGE: torch.zeros(32, 64, 3), CONDITION_TOKENS: torch.arange(8)},
        {CONDITION_IMAGE: torch.zeros(0, 64, 3, dtype=torch.uint8), CONDITION_TOKENS: torch.arange(8)},
        {CONDITION_IMAGE: torch.zeros(32, 64, 3, dtype=torch.uint8), CONDITION_TOKENS: torch.arange(7)},
        {CONDITION_IMAGE: torch.zeros(32, 64, 3, dtype=torch.uint8), CONDITION_TOKENS: torch.arange(0)},
        {CONDITION_IMAGE: torch.zeros(32, 64, 3, dtype=torch.uint8), CONDITION_TOKENS: torch.arange(8) + 16380},
    ],
)
def test_a_broken_condition_is_told(broken: dict[str, torch.Tensor]) -> None:
    with pytest.raises(InvalidPriors, match="condition"):
        render_prompt(JOB, bundle(**broken))


@pytest.mark.parametrize(
    ("height", "width", "tokens", "grid"),
    [(128, 128, 64, (8, 8)), (96, 160, 60, (6, 10)), (1000, 800, 3100, (62, 50)), (64, 256, 64, (4, 16))],
)
def test_the_grid_follows_the_images_shape(height: int, width: int, tokens: int, grid: tuple[int, int]) -> None:
    assert condition_grid(height, width, tokens) == grid
