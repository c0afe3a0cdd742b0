"""Which transformer passes of a batch of requests run as one forward."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class DenoiseInputs:
    """What stays the same over all steps of one request, on the device.

    text, negative_text: glyph embeddings [1, tokens, dim]; without negative_text there is no guidance. prior: int64
    [1, patches]. target_size, crop: [1, 2], pixels. kv_cache: keys and values of the condition image (edits).
    """

    text: torch.Tensor
    negative_text: torch.Tensor | None
    prior: torch.Tensor
    target_size: torch.Tensor
    crop: torch.Tensor
    guidance: float
    previews: frozenset[int]
    kv_cache: Any = None


@dataclass(frozen=True, slots=True)
class Pass:
    """One conditional or unconditional pass of the request in row `row` of the batch."""

    row: int
    conditional: bool
    text: torch.Tensor
    kv_cache: Any = None


def group_passes(batch: Sequence[DenoiseInputs], *, join_guidance: bool) -> list[list[Pass]]:
    """The passes of one denoising step, grouped into forwards; within a group conditional passes come first.

    Rows of one forward have equally long texts, so that nothing is padded or masked: a row computes what it computes
    alone. A pass that reads a condition image runs alone. join_guidance: the conditional and the unconditional pass of
    a request may be two rows of one forward.
    """
    groups: dict[tuple[int, bool, int | None], list[Pass]] = {}
    for conditional in (True, False):
        for row, inputs in enumerate(batch):
            text = inputs.text if conditional else inputs.negative_text
            if text is None:
                continue
            cache = inputs.kv_cache if conditional else None
            key = (text.shape[1], conditional and not join_guidance, row if cache is not None else None)
            groups.setdefault(key, []).append(Pass(row, conditional, text, cache))
    return list(groups.values())


def take_rows(values: Sequence[torch.Tensor], rows: Sequence[int]) -> torch.Tensor:
    """Rows of a batch kept as one tensor [1, ...] a request, as one tensor [rows, ...]."""
    return values[rows[0]] if len(rows) == 1 else torch.cat([values[row] for row in rows])
