"""What vLLM-Omni must know of us in every process, worker processes included.

`register` is declared under the entry-point group `vllm_omni.general_plugins`; vLLM-Omni calls it once a process,
before it looks any model up.
"""

AR_ARCH = "DiptychGlmImageForConditionalGeneration"
DIT_ARCH = "DiptychGlmImagePipeline"
AR_MODULE, DIT_MODULE = "services.omni.glm_ar", "services.omni.glm_pipeline"


def register() -> None:
    """Add our GLM-Image AR model and DiT pipeline to the registries; calling it again changes nothing."""
    from vllm_omni.diffusion.registry import register_diffusion_model

    register_diffusion_model(
        DIT_ARCH,
        DIT_MODULE,
        DIT_ARCH,
        pre_process_func_name="get_glm_image_pre_process_func",
        post_process_func_name="get_glm_image_post_process_func",
    )
    _register_ar()


def _register_ar() -> None:
    from vllm.model_executor.models.registry import ModelRegistry
    from vllm.platforms import current_platform
    from vllm_omni.model_executor.models.registry import OmniModelRegistry

    # vLLM validates the architecture in its own registry, vLLM-Omni loads it from its own.
    for registry in (ModelRegistry, OmniModelRegistry):
        if current_platform.is_cpu():
            registry.models[AR_ARCH] = _in_process_model()
        else:
            registry.register_model(AR_ARCH, f"{AR_MODULE}:{AR_ARCH}")


def _in_process_model() -> object:
    """Our AR model, looked at in this process.

    vLLM looks in a subprocess, so as not to initialise CUDA here; that import of everything costs 10 s and more.
    """
    from vllm.model_executor.models.registry import _LazyRegisteredModel, _ModelInfo

    class InProcessModel(_LazyRegisteredModel):
        def inspect_model_cls(self) -> object:
            return _ModelInfo.from_model_cls(self.load_model_cls())

    return InProcessModel(AR_MODULE, AR_ARCH)
