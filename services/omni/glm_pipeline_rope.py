"""Rotary tables, computed once a size."""

from collections import OrderedDict

import torch

SIZES_KEPT = 8  # tables of a 2048 x 2048 image: 16384 tokens x 128 x 4 bytes x 2 = 16 MiB


class RememberedRope(torch.nn.Module):
    """Upstream's `GlmImageRotaryPosEmbed`, asked once for each latent size.

    It builds its frequencies on the host and copies them to the device in every forward: two waits a pass.
    """

    def __init__(self, rope: torch.nn.Module) -> None:
        super().__init__()
        self.rope = rope
        self._tables: OrderedDict[tuple[int, int, torch.device], tuple[torch.Tensor, torch.Tensor]] = OrderedDict()

    def forward(self, hidden_states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines, float32 [patches, head dim], for latents [batch, channels, height, width]."""
        key = (hidden_states.shape[-2], hidden_states.shape[-1], hidden_states.device)
        if key not in self._tables:
            self._tables[key] = self.rope(hidden_states)
        self._tables.move_to_end(key)
        while len(self._tables) > SIZES_KEPT:
            self._tables.popitem(last=False)
        return self._tables[key]
