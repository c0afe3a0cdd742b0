"""The AR stage's worker on CPU: vLLM's CPU worker with vLLM-Omni's AR model runner inside."""

from typing import Any

import torch
from vllm.v1.worker.cpu_model_runner import CPUModelRunner
from vllm.v1.worker.cpu_worker import CPUWorker
from vllm_omni.worker.gpu_ar_model_runner import GPUARModelRunner
from vllm_omni.worker.mixins import OmniWorkerMixin


class CpuArModelRunner(GPUARModelRunner, CPUModelRunner):
    """vLLM-Omni's AR runner over vLLM's CPU runner (it precedes GPUModelRunner in the method resolution order)."""

    def __init__(self, vllm_config: Any, device: torch.device) -> None:
        super().__init__(vllm_config, device)
        # GPUARModelRunner makes input_ids and inputs_embeds anew after CPUModelRunner
        # aliased each buffer's device half to its host half: alias again.
        self._postprocess_tensors()


class CpuArWorker(OmniWorkerMixin, CPUWorker):
    """One CPU rank of the AR stage."""

    model_runner_cls = CpuArModelRunner

    def init_device(self) -> None:
        super().init_device()
        self.use_v2_model_runner = False
        self.model_runner = self.model_runner_cls(self.vllm_config, torch.device("cpu"))
