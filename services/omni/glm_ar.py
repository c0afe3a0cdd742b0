"""GLM-Image's AR model as we serve it: vLLM-Omni's, with its condition-image codes sent to the client."""

from vllm_omni.model_executor.models.glm_image.glm_image_ar import GlmImageForConditionalGeneration


class DiptychGlmImageForConditionalGeneration(GlmImageForConditionalGeneration):
    """vLLM-Omni's class, telling the runner that a client wants `ids.prior_image`.

    A one-stage engine has nobody downstream, so the stock runner drops the codes
    (`GPUARModelRunner._request_needs_downstream_stage_payload`). Declared on the model, it holds on every platform.
    """

    omni_client_multimodal_output_keys = ("ids.prior_image",)
