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
    render = job(**SMALL, prompt="a cat 'hi'")
    with diffusers_pipeline(tiny_checkpoint.path, DTYPE) as pipeline:
        wanted = expected(pipeline, render, bundle_for(render))
    assert_near(stepper.paint(render).pixels, wanted, MEAN, MAX)


def test_an_edit_reads_its_condition_image(stepper: Stepper) -> None:
    edit = job(**SMALL)
    edited, plain = stepper.paint(edit, edit_bundle(edit)).pixels, stepper.paint(job(**SMALL)).pixels
    assert not torch.equal(edited, plain)
