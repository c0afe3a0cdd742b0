"""The dtype that the real checkpoint runs in: near to diffusers, and bit for bit the stock loop."""

import torch

from services.omni.checkpoint import Checkpoint
from tests.engine.dit.harness import Stepper, assert_near, bundle_for, edit_bundle, job
from tests.engine.dit.oracle import diffusers_pipeline, expected

DTYPE = torch.bfloat16  # of this module's `stepper`
MEAN, MAX = 1.5, 16  # 8-bit pixels; measured on other machines 0.82 and 11
SMALL = {"width": 64, "height": 64, "steps": 2}


def test_bit_identical_to_the_stock_loop(stepper: Stepper) -> None:
    render = SMALL | {"prompt": "a cat 'hell'"}
    assert torch.equal(stepper.paint(job(**render)).pixels, stepper.paint_stock(job(**render)))


def test_near_to_diffusers(stepper: Stepper, tiny_checkpoint: Checkpoint) -> None:
    text, edit = job(**SMALL, prompt="a cat 'hi'"), job(**SMALL)
    with diffusers_pipeline(tiny_checkpoint.path, DTYPE) as pipeline:
        for render, bundle in ((text, bundle_for(text)), (edit, edit_bundle(edit))):
            assert_near(stepper.paint(render, bundle).pixels, expected(pipeline, render, bundle), MEAN, MAX)
