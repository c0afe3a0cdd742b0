"""The AR stage against transformers: the same prompt ids, and greedy tokens that part only at near-ties.

In float32, both are greedy; where the sequences part, transformers' own two best logits must lie within NEAR_TIE of
each other, and ours be one of the two. After that point they are two different texts and are not compared.
"""

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import GlmImageForConditionalGeneration
from transformers.models.glm_image.processing_glm_image import GlmImageProcessor
from vllm.sampling_params import RequestOutputKind

from services.omni.ar_stage import VllmArEngine, _prior_image, _request
from services.omni.checkpoint import Checkpoint
from services.serving.engine import PriorJob
from services.wire.geometry import prior_budget
from tests.engine.ar.jobs import job, photo
from tests.engine.conftest import AR_ARGS

NEAR_TIE = 5e-3  # logits are of order 10; float32 sums of other order differ by about 1e-3
EDIT = job(prompt="make it red", width=128, height=96, image=photo(0))
JOBS = [job(width=64, height=64), job(width=256, height=128), EDIT]


@pytest.fixture(scope="module")
async def exact(tiny_checkpoint: Checkpoint) -> AsyncIterator[VllmArEngine]:
    engine = VllmArEngine(tiny_checkpoint, AR_ARGS | {"dtype": "float32", "max_num_seqs": 1})
    await engine.start()
    yield engine
    await engine.stop()


@pytest.fixture(scope="module")
def upstream(tiny_checkpoint: Checkpoint) -> Any:
    path = tiny_checkpoint.path / "vision_language_encoder"
    return GlmImageForConditionalGeneration.from_pretrained(path, dtype=torch.float32).eval()


def _upstream_inputs(checkpoint: Checkpoint, each: PriorJob) -> Any:
    processor = GlmImageProcessor.from_pretrained(checkpoint.path / "processor")
    content: list[dict[str, Any]] = [{"type": "text", "text": each.prompt}]
    if each.image is not None:
        pixels = np.random.RandomState(0).randint(0, 256, (128, 128, 3), dtype=np.uint8)
        content.insert(0, {"type": "image", "image": Image.fromarray(pixels)})
    return processor.apply_chat_template(
        [[{"role": "user", "content": content}]],
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
        processor_kwargs={"target_h": each.height, "target_w": each.width},
    )


async def _greedy(engine: VllmArEngine, each: PriorJob) -> tuple[Any, Any]:
    prompt, image = engine._prepare(each)
    sampling = engine._sampling_params(each)
    sampling.temperature, sampling.top_p, sampling.top_k = 0.0, 1.0, 0
    sampling.output_kind = RequestOutputKind.CUMULATIVE
    last = codes = None
    async for last in engine._engine.generate(_request(each, prompt, image), sampling, each.request_id):
        codes = codes if codes is not None else _prior_image(last)
    return last, codes


@pytest.mark.parametrize("each", JOBS, ids=["64x64", "256x128", "edit"])
async def test_prompt_and_greedy_tokens_are_transformers(
    exact: VllmArEngine, upstream: Any, tiny_checkpoint: Checkpoint, each: PriorJob
) -> None:
    inputs = _upstream_inputs(tiny_checkpoint, each)
    output, codes = await _greedy(exact, each)
    assert list(output.prompt_token_ids) == inputs["input_ids"][0].tolist()
    ours = list(output.outputs[0].token_ids)
    count = prior_budget(each.width, each.height, edit=each.image is not None) - 1
    assert len(ours) == count
    with torch.no_grad():
        theirs = upstream.generate(
            **inputs,
            max_new_tokens=count,
            do_sample=False,
            eos_token_id=None,
            output_logits=True,
            return_dict_in_generate=True,
        )
    tokens = theirs.sequences[0, inputs["input_ids"].shape[1] :].tolist()
    parting = next((i for i, pair in enumerate(zip(ours, tokens, strict=True)) if pair[0] != pair[1]), None)
    if parting is not None:
        best = theirs.logits[parting][0].topk(2)
        assert ours[parting] in best.indices.tolist(), f"token {parting} is not among transformers' two best"
        assert float(best.values[0] - best.values[1]) < NEAR_TIE, f"token {parting} of {count} differs, and is no tie"
    assert (parting is None) or parting >= 32, f"they part at token {parting} already"
    if each.image is not None:
        assert _codes(codes) == _upstream_codes(upstream, inputs)


def _codes(codes: Any) -> list[int]:
    flat = torch.as_tensor(codes[0] if isinstance(codes, list) else codes)
    return flat.view(8, 8)[::2, ::2].reshape(-1).tolist()


def _upstream_codes(upstream: Any, inputs: Any) -> list[int]:
    grid = inputs["image_grid_thw"][:1]
    with torch.no_grad():
        features = torch.cat(upstream.get_image_features(inputs["pixel_values"], grid).pooler_output, 0)
        return upstream.get_image_tokens(features, grid).tolist()
