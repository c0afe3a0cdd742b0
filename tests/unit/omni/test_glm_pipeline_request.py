"""What a render request may ask of the pipeline, and what is refused before the engine."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from services.omni.glm_pipeline_request import (
    GUIDANCE,
    PREVIEWS,
    RenderInputs,
    check_tokens,
    fold_guidance,
    preview_steps,
)


def sampling(**changes: Any) -> SimpleNamespace:
    fields = {"height": 64, "width": 96, "num_inference_steps": 3, "extra_args": {GUIDANCE: 2.0, PREVIEWS: 1}}
    return SimpleNamespace(**(fields | changes))


def prompt(**changes: Any) -> dict[str, Any]:
    return {"prompt": "a cat", "extra": {"prior_token_ids": torch.arange(24)}} | changes


def read(prompt: Any, *, warm_up: bool = False, **changes: Any) -> RenderInputs:
    return RenderInputs.read(prompt, sampling(**changes), warm_up=warm_up)


@pytest.mark.parametrize(
    ("total", "wanted", "due"),
    [
        (50, 3, (12, 25, 37)),
        (50, 1, (25,)),
        (50, 0, ()),
        (4, 3, (1, 2, 3)),
        (3, 3, (1, 2)),
        (2, 3, (1,)),
        (1, 3, ()),
        (0, 3, ()),
    ],
)
def test_previews_are_spread_evenly(total: int, wanted: int, due: tuple[int, ...]) -> None:
    assert preview_steps(total, wanted) == due


@pytest.mark.parametrize("wanted", range(4))
@pytest.mark.parametrize("total", range(1, 101))
def test_previews_are_distinct_and_before_the_end(total: int, wanted: int) -> None:
    due = preview_steps(total, wanted)
    assert len(due) == min(wanted, total - 1)
    assert list(due) == sorted(set(due))
    assert all(1 <= step < total for step in due)


@pytest.mark.parametrize(
    ("tokens", "expected", "message"),
    [([0, 16383], 3, "2 tokens where the size needs 3"), ([0, 16384], 2, "0..16384"), ([-1, 5], 2, "-1..5")],
)
def test_bad_tokens_are_named(tokens: list[int], expected: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_tokens(torch.tensor(tokens), expected, "prior_token_ids")


def test_legal_tokens_pass() -> None:
    check_tokens(torch.tensor([0, 16383]), 2, "prior_token_ids")


def test_a_request_is_read() -> None:
    inputs = read(prompt(negative_prompt="ugly"))
    assert (inputs.text, inputs.negative_text, inputs.height, inputs.width) == ("a cat", "ugly", 64, 96)
    assert (inputs.steps, inputs.guidance, inputs.previews) == (3, 2.0, 1)
    assert inputs.prior.tolist() == [list(range(24))]
    assert inputs.condition_image is None


def test_the_prompts_size_goes_before_the_sampling_parameters() -> None:
    assert read(prompt(height=96, width=64)).height == 96


def test_only_a_warm_up_goes_without_priors() -> None:
    with pytest.raises(ValueError, match="prior_token_ids: missing"):
        read("a cat")
    assert read("a cat", warm_up=True).prior.sum() == 0


@pytest.mark.parametrize("side", [0, -64, 70, 64.0, None, 4096])
def test_a_side_that_is_no_multiple_of_16_is_refused(side: Any) -> None:
    with pytest.raises(ValueError, match="height"):
        read(prompt(), height=side)


@pytest.mark.parametrize("steps", [0, -1, 1001, 10**12, 2.5])
def test_absurd_step_counts_are_refused(steps: Any) -> None:
    with pytest.raises(ValueError, match="num_inference_steps"):
        read(prompt(), num_inference_steps=steps)


def test_an_edit_brings_a_code_for_each_patch() -> None:
    image = torch.zeros(3, 32, 64)
    extra = {"prior_token_ids": torch.arange(24), "prior_token_image_ids": [torch.arange(8)]}
    edit = prompt(additional_information={"preprocessed_image": image}, extra=extra)
    inputs = read(edit)
    assert inputs.condition_image is image
    assert inputs.condition_tokens is not None and inputs.condition_tokens.shape == (1, 8)
    extra["prior_token_image_ids"] = [torch.arange(7)]
    with pytest.raises(ValueError, match="prior_token_image_ids: 7 tokens where the size needs 8"):
        read(edit)
    extra["prior_token_image_ids"] = None
    with pytest.raises(ValueError, match="codes of its one condition image"):
        read(edit)


def test_guidance_leaves_the_batch_key() -> None:
    fold = fold_guidance(None)
    keys = set()
    for scale in (1.0, 1.5, 7.0):
        params = SimpleNamespace(
            guidance_scale=scale,
            guidance_scale_2=scale,
            guidance_scale_provided=True,
            do_classifier_free_guidance=scale > 1,
            extra_args={},
        )
        fold(SimpleNamespace(sampling_params=params))
        assert params.extra_args == {GUIDANCE: scale}
        keys.add((params.guidance_scale, params.guidance_scale_2, params.do_classifier_free_guidance))
    assert len(keys) == 1


def test_a_request_without_guidance_gets_the_models() -> None:
    params = SimpleNamespace(guidance_scale=1.0, guidance_scale_provided=False, extra_args={})
    fold_guidance(None)(SimpleNamespace(sampling_params=params))
    assert params.extra_args == {GUIDANCE: 1.5}
