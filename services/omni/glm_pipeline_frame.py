"""What the pipeline says after a step, on its way out of vLLM-Omni."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Frame:
    """Step `step` (from 1) of `total` is done; pixels (uint8 [height, width, 3], CPU) if a picture was due."""

    step: int
    total: int
    pixels: torch.Tensor | None


def unwrap_frames(_config: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The post-process hook: a step's payload as the one `image` of vLLM-Omni's output envelope.

    Workers send a plain dict, whose tensors vLLM-Omni moves through shared memory (diffusion/ipc.py).
    """

    def unwrap(payload: dict[str, Any]) -> dict[str, Any]:
        return {"payload": {"image": [Frame(payload["step"], payload["total"], payload["pixels"])]}, "metadata": {}}

    return unwrap
