"""What vLLM-Omni asks of a platform, answered for CPU cores."""

import os
import resource
from typing import Any

import psutil
import torch
from vllm.platforms.cpu import CpuPlatform
from vllm_omni.platforms.interface import OmniPlatform, OmniPlatformEnum

SDPA_NAMES = ("TORCH_SDPA", "SDPA")


class CpuOmniPlatform(OmniPlatform, CpuPlatform):
    """vLLM's CPU platform with vLLM-Omni's questions answered. One process may host any number of CPU ranks."""

    _omni_enum = OmniPlatformEnum.OOT
    # CpuPlatform's own variable (CPU_VISIBLE_MEMORY_NODES) names NUMA nodes; vLLM-Omni would write the
    # stage's `devices` into it.
    device_control_env_var = "DIPTYCH_CPU_RANKS"

    @classmethod
    def get_omni_ar_worker_cls(cls) -> str:
        return "services.omni.cpu.worker.CpuArWorker"

    @classmethod
    def get_default_stage_config_path(cls) -> str:
        return "vllm_omni/deploy"

    @classmethod
    def get_diffusion_attn_backend_cls(
        cls, selected_backend: str | None, head_size: int, allow_trtllm_default: bool = False
    ) -> str:
        """The SDPA backend; raises ValueError for any other that was asked for."""
        if selected_backend is not None and selected_backend.upper() not in SDPA_NAMES:
            raise ValueError(f"attention backend {selected_backend} does not run on CPU; use TORCH_SDPA")
        return "services.omni.cpu.attention.CpuSdpaBackend"

    @classmethod
    def supports_diffusion_dense_flash_attention(cls) -> bool:
        return False

    @classmethod
    def supports_torch_inductor(cls) -> bool:
        return False

    @classmethod
    def init_diffusion_worker_vllm_config(cls, vllm_config: Any) -> None:
        """Called in each DiT worker before its output thread starts, so the one place to replace that thread's loop."""
        from services.omni.cpu.output_loop import replace_output_loop

        replace_output_loop()

    @classmethod
    def get_torch_device(cls, local_rank: int | None = None) -> torch.device:
        return torch.device("cpu")

    @classmethod
    def get_device_count(cls) -> int:
        return os.cpu_count() or 1

    @classmethod
    def get_device_version(cls) -> str | None:
        return None

    @classmethod
    def is_initialized(cls) -> bool:
        return True

    @classmethod
    def is_available(cls) -> bool:
        return True

    @classmethod
    def current_device(cls) -> int:
        return 0

    @classmethod
    def synchronize(cls, *args: Any, **kwargs: Any) -> None:
        return None

    @classmethod
    def empty_cache(cls) -> None:
        return None

    @classmethod
    def get_free_memory(cls, device: torch.device | None = None) -> int:
        """Bytes of RAM that new processes could take."""
        return int(psutil.virtual_memory().available)

    @classmethod
    def get_device_memory(cls, device: torch.device | None = None) -> tuple[int, int]:
        """Bytes of RAM: (available, total)."""
        memory = psutil.virtual_memory()
        return int(memory.available), int(memory.total)

    @classmethod
    def memory_reserved(cls, device: torch.device | int | None = None) -> int:
        """Bytes resident in this process now."""
        return int(psutil.Process().memory_info().rss)

    @classmethod
    def max_memory_reserved(cls, device: torch.device | int | None = None) -> int:
        """Bytes resident in this process at its peak."""
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    @classmethod
    def max_memory_allocated(cls, device: torch.device | int | None = None) -> int:
        return cls.max_memory_reserved(device)

    @classmethod
    def reset_peak_memory_stats(cls, device: torch.device | int | None = None) -> None:
        return None
