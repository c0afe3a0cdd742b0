"""What the AR model wrote, checked: the DiT must never see a wrong count or a token outside its codebook."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from services.wire.errors import InvalidPriors
from services.wire.geometry import IMAGE_END, NUM_PRIOR_CODES, large_grid, prior_budget

if TYPE_CHECKING:
    import torch


def large_grid_tokens(token_ids: Sequence[int], width: int, height: int, *, edit: bool) -> "torch.Tensor":
    """The tokens of the large grid, int32 [rows * columns], row by row; an end token is optional.

    Args:
        token_ids: All that the model wrote for a canonical size in pixels: the preview grid first, unless an edit.

    Raises:
        InvalidPriors: Too few or too many tokens, or one outside 0..16383 (on CUDA that is a device-side assert).
    """
    import torch

    codes = token_ids[:-1] if token_ids and token_ids[-1] == IMAGE_END else token_ids
    wanted = prior_budget(width, height, edit=edit) - 1
    if len(codes) != wanted:
        raise InvalidPriors(f"the AR stage wrote {len(codes)} prior tokens where {width}x{height} takes {wanted}")
    tokens = torch.tensor(codes, dtype=torch.int64)
    if int(tokens.min()) < 0 or int(tokens.max()) >= NUM_PRIOR_CODES:
        place = int(((tokens < 0) | (tokens >= NUM_PRIOR_CODES)).nonzero()[0, 0])
        raise InvalidPriors(f"prior token {place} is {int(tokens[place])}, outside 0..{NUM_PRIOR_CODES - 1}")
    return tokens[-large_grid(width, height).tokens :].to(torch.int32)
