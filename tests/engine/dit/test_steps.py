"""Step by step: shared forwards, previews, failures, and a loop that never waits for the device."""

import pytest
import torch

from services.omni.glm_pipeline_rope import RememberedRope
from tests.engine.dit.harness import Stepper, assert_near, distance, edit_bundle, job
from tests.engine.dit.stalls import Stalls


@pytest.mark.parametrize("guidance", [1.0, 1.5])
def test_bit_identical_to_the_stock_loop(stepper: Stepper, guidance: float) -> None:
    # A prompt without an even span: the two pad those differently, and diffusers' way is the one kept.
    render = {"prompt": "a cat 'hell'", "guidance": guidance, "width": 64, "height": 64}
    assert torch.equal(stepper.paint(job(**render)).pixels, stepper.paint_stock(job(**render)))


def test_no_step_waits_for_the_device(stepper: Stepper) -> None:
    edit = job(steps=6)
    stepper.begin(job(steps=6, prompt="a cat 'hello'"))
    stepper.begin(job(steps=6, guidance=3.0))
    stepper.begin(edit, edit_bundle(edit))
    stepper.step()
    stepper.step()
    with Stalls() as stalls:
        assert len(stepper.step()) == 3
    assert stalls.counted == {}
    stepper.finish()


def test_the_stock_loop_waits_and_the_counter_sees_it(stepper: Stepper) -> None:
    with Stalls() as stalls:
        stepper.paint_stock(job(width=64, height=64))
    # Four steps of two passes: a masked read and a masked write each, and the rotary tables built on the host.
    assert stalls.counted["masked_index"] >= 16
    assert stalls.counted["host_tensor"] >= 16


def test_requests_at_different_steps_share_a_forward_and_paint_what_they_paint_alone(stepper: Stepper) -> None:
    jobs = [
        {"seed": 1, "steps": 5, "guidance": 1.5},
        {"seed": 2, "steps": 3, "guidance": 4.0},
        {"seed": 3, "steps": 7, "guidance": 1.0},
        {"seed": 4, "steps": 4, "guidance": 2.0, "prompt": "a dog 'woof'", "negative_prompt": "'cat'"},
    ]
    alone = [stepper.paint(job(**each)).pixels for each in jobs]
    painted = []
    for each in jobs:
        painted.append(stepper.begin(job(**each)))
        assert len(stepper.step()) == len(painted)
    stepper.finish()
    for one, other in zip(alone, painted, strict=True):
        assert_near(one, other.pixels)
    assert not stepper.runner.state_cache


def test_edits_keep_to_their_own_condition_image_in_a_batch(stepper: Stepper) -> None:
    first, second = job(seed=1), job(seed=2)
    bundles = [edit_bundle(first, seed=5), edit_bundle(second, side=96, seed=9)]
    alone = [stepper.paint(job(seed=seed), bundle).pixels for seed, bundle in zip((1, 2), bundles, strict=True)]
    painted = [stepper.begin(first, bundles[0]), stepper.begin(second, bundles[1]), stepper.begin(job(seed=3))]
    assert len(stepper.step()) == 3
    stepper.finish()
    for one, other in zip(alone, painted[:2], strict=True):
        assert_near(one, other.pixels)


def test_sizes_do_not_mix(stepper: Stepper) -> None:
    wide = stepper.begin(job(width=128, height=64))
    tall = stepper.begin(job(width=64, height=128))
    assert len(stepper.step()) == 1
    stepper.finish()
    assert (wide.pixels.shape, tall.pixels.shape) == ((64, 128, 3), (128, 64, 3))


def test_both_guidance_passes_as_one_batch(stepper: Stepper) -> None:
    apart = stepper.paint(job(guidance=3.0)).pixels
    with stepper.joined_guidance():
        joined = stepper.paint(job(guidance=3.0)).pixels
    assert_near(apart, joined)


@pytest.mark.parametrize(("steps", "previews", "due"), [(8, 3, [2, 4, 6]), (4, 1, [2]), (3, 3, [1, 2]), (1, 3, [])])
def test_previews_come_at_evenly_spread_steps(stepper: Stepper, steps: int, previews: int, due: list[int]) -> None:
    frames = stepper.paint(job(steps=steps, previews=previews)).frames
    assert [step for step, _ in frames] == list(range(1, steps + 1))
    assert [step for step, pixels in frames if pixels is not None] == [*due, steps]


def test_previews_approach_the_image_and_leave_it_as_it_is(stepper: Stepper) -> None:
    frames = stepper.paint(job(steps=8, previews=3)).frames
    pictures = [pixels for _, pixels in frames if pixels is not None]
    off = [distance(picture, pictures[-1])[0] for picture in pictures[:-1]]
    assert off[0] > off[1] > off[2]
    assert torch.equal(stepper.paint(job(steps=8)).pixels, pictures[-1])


def test_a_request_that_fails_takes_no_other_with_it(stepper: Stepper) -> None:
    alone = stepper.paint(job(seed=1)).pixels
    good = stepper.begin(job(seed=1))
    bad = stepper.begin(job(seed=2, guidance=1e38))
    stepper.finish()
    assert_near(good.pixels, alone)
    assert "guidance_scale" in bad.last.error


def test_rotary_tables_are_kept_for_a_bounded_number_of_sizes(stepper: Stepper) -> None:
    rope = stepper.pipeline.transformer.rope
    assert isinstance(rope, RememberedRope)
    for side in range(2, 40, 2):
        rope(torch.zeros(1, 16, side, side))
    assert len(rope._tables) == 8
