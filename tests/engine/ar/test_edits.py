"""Edits on the real AR stage: each keeps its own condition image, whatever runs beside it."""

import asyncio

import numpy as np
import pytest
import torch

from services.omni.ar_stage import VllmArEngine
from services.serving.engine import CONDITION_IMAGE, CONDITION_TOKENS, PRIOR_TOKENS
from services.wire.errors import InvalidRequest
from tests.engine.ar.jobs import job, photo


async def test_the_same_image_twice_gives_its_codes_twice(ar_engine: VllmArEngine) -> None:
    first, second = [await ar_engine.write(job(7, width=128, height=96, image=photo(0))) for _ in range(2)]
    for name in (PRIOR_TOKENS, CONDITION_TOKENS, CONDITION_IMAGE):
        assert torch.equal(first.bundle[name], second.bundle[name])
    assert first.bundle[CONDITION_TOKENS].shape == (8 * 8,)
    assert first.bundle[CONDITION_TOKENS].dtype == torch.int32
    assert first.bundle[PRIOR_TOKENS].shape == (4 * 3,)
    assert first.image_tokens == 4 * 4


async def test_the_pixels_travel_as_they_came(ar_engine: VllmArEngine) -> None:
    result = await ar_engine.write(job(image=photo(3, 160, 96)))
    pixels = result.bundle[CONDITION_IMAGE]
    assert pixels.dtype == torch.uint8
    expected = np.random.RandomState(3).randint(0, 256, (96, 160, 3), dtype=np.uint8)
    assert np.array_equal(pixels.numpy(), expected)


async def test_concurrent_edits_and_paintings_do_not_mix(ar_engine: VllmArEngine) -> None:
    images = [photo(10), photo(11, 192, 96), photo(12)]
    alone = [await ar_engine.write(job(i, width=96, height=96, image=image)) for i, image in enumerate(images)]
    text_alone = await ar_engine.write(job(9, width=96, height=96))
    tasks = [ar_engine.write(job(i, width=96, height=96, image=image)) for i, image in enumerate(images)]
    *together, text = await asyncio.gather(*tasks, ar_engine.write(job(9, width=96, height=96)))
    for expected, got in zip(alone, together, strict=True):
        assert torch.equal(expected.bundle[CONDITION_TOKENS], got.bundle[CONDITION_TOKENS])
        assert torch.equal(expected.bundle[PRIOR_TOKENS], got.bundle[PRIOR_TOKENS])
    assert not torch.equal(alone[0].bundle[CONDITION_TOKENS], alone[2].bundle[CONDITION_TOKENS])
    assert list(text.bundle) == [PRIOR_TOKENS]
    assert torch.equal(text.bundle[PRIOR_TOKENS], text_alone.bundle[PRIOR_TOKENS])


@pytest.mark.parametrize("image", [b"", b"GIF89a", photo(0)[:200], photo(0, 640, 64)], ids=["no", "gif", "cut", "long"])
async def test_an_unusable_image_is_the_callers_error(ar_engine: VllmArEngine, image: bytes) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await ar_engine.write(job(image=image))
    assert caught.value.param == "image"
