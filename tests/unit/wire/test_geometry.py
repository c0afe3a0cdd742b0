"""The grids against transformers', diffusers' and vLLM-Omni's own formulas, over every size that is served."""

import pytest
from transformers.models.glm_image.processing_glm_image import GlmImageProcessor
from vllm_omni.model_executor.stage_input_processors.glm_image import compute_max_tokens

from services.wire import geometry

SIDES = range(geometry.PRIOR_PATCH, geometry.MAX_SIDE + 1, geometry.PRIOR_PATCH)
SIZES = [(w, h) for w in SIDES for h in SIDES if max(w, h) <= geometry.MAX_RATIO * min(w, h)]


class _Tokens:
    """The four tokens that the processor's own formatting needs."""

    grid_bos_token, grid_eos_token, bos_token = "<sop>", "<eop>", "<bos>"


def _grids(width: int, height: int) -> tuple[geometry.Grid, geometry.Grid]:
    """transformers' (large, preview) grids."""
    build = GlmImageProcessor._build_prompt_with_target_shape
    _, rows, columns, small_rows, small_columns = build(_Tokens(), "", height, width, True)
    return geometry.Grid(rows, columns), geometry.Grid(small_rows, small_columns)


def test_grids_are_those_of_transformers_for_every_size():
    assert len(SIZES) > 2000
    for width, height in SIZES:
        large, preview = _grids(width, height)
        assert geometry.large_grid(width, height) == large
        assert geometry.preview_grid(width, height) == preview


@pytest.mark.parametrize("edit", [False, True])
def test_budget_is_that_of_vllm_omni_for_every_size(edit):
    for width, height in SIZES:
        assert geometry.prior_budget(width, height, edit=edit) == compute_max_tokens(height, width, is_i2i=edit)


def test_upsampled_grid_is_what_diffusers_expects():
    from diffusers import GlmImagePipeline  # the 2x upsample of `generate_prior_tokens`

    for width, height in [(64, 64), (1024, 1024), (2048, 512), (160, 96)]:
        large = geometry.large_grid(width, height)
        import torch

        tokens = torch.arange(large.tokens)[None]
        upsampled = GlmImagePipeline._upsample_token_ids(tokens, large.rows, large.columns)
        assert upsampled.shape[-1] == (width // geometry.LATENT_PATCH) * (height // geometry.LATENT_PATCH)


def test_published_example_of_1024_pixels():
    assert geometry.prior_budget(1024, 1024, edit=False) == 256 + 1024 + 1


@pytest.mark.parametrize(("side", "canonical"), [(1, 32), (32, 32), (33, 64), (200, 224), (1000, 1024), (2048, 2048)])
def test_canonical_side_is_the_next_multiple_of_32(side, canonical):
    assert geometry.canonical_side(side) == canonical
