"""What vLLM-Omni must know of us in every process, worker processes included.

`register` is declared under the entry-point group `vllm_omni.general_plugins`; vLLM-Omni calls it once a process,
before it looks any model up.
"""

AR_ARCH = "DiptychGlmImageForConditionalGeneration"
DIT_ARCH = "DiptychGlmImagePipeline"


def register() -> None:
    """Add our GLM-Image AR model and DiT pipeline to vLLM-Omni's registries; calling it again changes nothing."""
    from vllm_omni.diffusion.registry import register_diffusion_model
    from vllm_omni.model_executor.models.registry import OmniModelRegistry

    OmniModelRegistry.register_model(AR_ARCH, f"services.omni.glm_ar:{AR_ARCH}")
    register_diffusion_model(
        DIT_ARCH,
        "services.omni.glm_pipeline",
        DIT_ARCH,
        pre_process_func_name="get_glm_image_pre_process_func",
        post_process_func_name="get_glm_image_post_process_func",
    )
