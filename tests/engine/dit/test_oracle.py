"""The DiT stage paints what diffusers' GlmImagePipeline paints from the same tokens and noise.

Metric: absolute difference of 8-bit pixels. In float32 the two agree up to rounding; wrong priors are far off.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from services.omni.checkpoint import Checkpoint
from tests.engine.dit.harness import Stepper, assert_near, bundle_for, distance, edit_bundle, job
from tests.engine.dit.oracle import diffusers_pipeline, expected

MEAN, MAX = 0.01, 1  # float32; measured 0.0001 and 1
WRONG = 1.0  # what another input must move at least


@pytest.fixture(scope="module")
def oracle(tiny_checkpoint: Checkpoint) -> Iterator[Any]:
    with diffusers_pipeline(tiny_checkpoint.path, torch.float32) as pipeline:
        yield pipeline


@pytest.mark.parametrize("guidance", [1.0, 1.5, 4.0])
@pytest.mark.parametrize(("width", "height"), [(64, 64), (128, 128), (64, 128), (160, 96)])
def test_text_to_image(stepper: Stepper, oracle: Any, width: int, height: int, guidance: float) -> None:
    render = job(width=width, height=height, guidance=guidance)
    assert_near(stepper.paint(render).pixels, expected(oracle, render, bundle_for(render)), MEAN, MAX)


@pytest.mark.parametrize("steps", range(1, 9))
def test_every_number_of_steps(stepper: Stepper, oracle: Any, steps: int) -> None:
    render = job(steps=steps, width=64, height=64)
    assert_near(stepper.paint(render).pixels, expected(oracle, render, bundle_for(render)), MEAN, MAX)


@pytest.mark.parametrize("prompt", ["say 'hello'", "say 'hell'", "'one' and \"two\"", "“a” 「bb」 'ccc'", "it's"])
def test_quoted_text_reaches_the_glyph_encoder(stepper: Stepper, oracle: Any, prompt: str) -> None:
    render = job(prompt=prompt, width=64, height=64, guidance=4.0)
    assert_near(stepper.paint(render).pixels, expected(oracle, render, bundle_for(render)), MEAN, MAX)


@pytest.mark.parametrize(("negative", "glyphs"), [("no 'HELLO WORLD'", "'HELLO WORLD'"), ("blurry", "'blurry'")])
def test_a_negative_prompt_is_the_unconditional_text(stepper: Stepper, oracle: Any, negative: str, glyphs: str) -> None:
    render = job(negative_prompt=negative, guidance=6.0)
    embeds = oracle._get_glyph_embeds([glyphs], dtype=torch.float32)
    painted = stepper.paint(render).pixels
    assert_near(painted, expected(oracle, render, bundle_for(render), negative_prompt_embeds=embeds), MEAN, MAX)
    assert distance(painted, stepper.paint(job(guidance=6.0)).pixels)[0] > 10 * MEAN


@pytest.mark.parametrize("guidance", [1.0, 1.5, 4.0])
def test_an_edit_reads_its_condition_image(stepper: Stepper, oracle: Any, guidance: float) -> None:
    render = job(guidance=guidance)
    bundle = edit_bundle(render)
    painted = stepper.paint(render, bundle).pixels
    assert_near(painted, expected(oracle, render, bundle), MEAN, MAX)
    assert distance(painted, stepper.paint(job(guidance=guidance)).pixels)[0] > 10 * MEAN


def test_a_condition_image_of_another_shape(stepper: Stepper, oracle: Any) -> None:
    render = job()
    bundle = edit_bundle(render, side=96)
    assert_near(stepper.paint(render, bundle).pixels, expected(oracle, render, bundle), MEAN, MAX)


def test_wrong_priors_are_seen(stepper: Stepper, oracle: Any) -> None:
    render = job()
    wrong = expected(oracle, render, bundle_for(render, seed=6))
    assert distance(stepper.paint(render).pixels, wrong)[0] > WRONG
