"""Torch's scaled dot product attention as the DiT's attention backend on CPU."""

from typing import Any

import torch
from vllm_omni.diffusion.attention.backends.sdpa import SDPABackend, SDPAImpl


class CpuSdpaImpl(SDPAImpl):
    """vLLM-Omni's SDPA implementation; its dispatch refuses an out-of-tree platform, its body is plain torch."""

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_metadata: Any = None
    ) -> torch.Tensor:
        return self._forward_impl(query, key, value, attn_metadata, mask_mode="broadcast_k")


class CpuSdpaBackend(SDPABackend):
    """Names `CpuSdpaImpl` to vLLM-Omni."""

    @staticmethod
    def get_impl_cls() -> type[CpuSdpaImpl]:
        return CpuSdpaImpl
