"""Sizes and token grids of GLM-Image: plain arithmetic that all three services agree on.

Sources: transformers `GlmImageProcessor._build_prompt_with_target_shape` (grids), diffusers `GlmImagePipeline`
(2x nearest upsample of the large grid), vllm_omni `glm_image.compute_max_tokens` (token budget).
"""

import math
from typing import NamedTuple

PRIOR_PATCH = 32  # pixels a side that one prior token stands for
LATENT_PATCH = 16  # pixels a side that one DiT token stands for: VAE factor 8 x patch 2
PREVIEW_SIDE = 16  # tokens a side of the square preview grid that text-to-image writes first
MIN_SIDE, MAX_SIDE, MAX_RATIO = 64, 2048, 4  # pixels, pixels, longer over shorter side
NUM_PRIOR_CODES = 16384  # legal prior tokens are 0..16383
IMAGE_END = 16385  # the token that ends the sequence


class Grid(NamedTuple):
    """A token grid, in tokens."""

    rows: int
    columns: int

    @property
    def tokens(self) -> int:
        return self.rows * self.columns


def canonical_side(pixels: int) -> int:
    """The side that is painted for a side of `pixels`: the next multiple of 32."""
    return -(-pixels // PRIOR_PATCH) * PRIOR_PATCH


def large_grid(width: int, height: int) -> Grid:
    """The grid of prior tokens that the DiT paints from, for a canonical size in pixels."""
    return Grid(height // PRIOR_PATCH, width // PRIOR_PATCH)


def preview_grid(width: int, height: int) -> Grid:
    """The small grid of about 256 tokens that text-to-image writes before the large one."""
    rows, columns = large_grid(width, height)
    ratio = rows / columns
    return Grid(int(math.sqrt(ratio) * PREVIEW_SIDE), int(math.sqrt(1 / ratio) * PREVIEW_SIDE))


def prior_budget(width: int, height: int, *, edit: bool) -> int:
    """How many tokens the AR stage writes: both grids (an edit: the large one only) and the end token."""
    small = 0 if edit else preview_grid(width, height).tokens
    return small + large_grid(width, height).tokens + 1
