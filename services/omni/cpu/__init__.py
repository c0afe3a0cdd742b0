"""vLLM-Omni on machines without an accelerator: an out-of-tree platform.

vLLM-Omni 0.30 knows CUDA, ROCm, NPU, XPU and MUSA; it loads other platforms from the entry-point group
`vllm_omni.platform_plugins`, which is where `activate` is declared.
"""


def activate() -> str | None:
    """The platform class's qualified name where vLLM itself runs on CPU, else None (GPU machines are untouched)."""
    from vllm.platforms import current_platform

    return "services.omni.cpu.platform.CpuOmniPlatform" if current_platform.is_cpu() else None
