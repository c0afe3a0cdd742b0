"""The thread that hands a DiT worker's outputs on, without the CUDA stream that the stock one opens.

Stock: `vllm_omni.diffusion.worker.diffusion_worker.WorkerProc._async_output_loop`. It builds a `torch.Stream` on
`torch.accelerator.current_accelerator()`; on CPU the thread dies at once and start-up waits for it until its
time-out. Only the DiT with more than one worker process runs this loop.
"""

from typing import Any


def replace_output_loop() -> None:
    """Put the CPU loop in place in this process; calling it again changes nothing."""
    from vllm_omni.diffusion.worker.diffusion_worker import WorkerProc

    WorkerProc._async_output_loop = _output_loop


def _output_loop(worker: Any) -> None:
    while (item := worker._async_output_queue.get()) is not None:
        output, output_id, _event = item
        worker._enqueue_result(_packed(output, output_id))
        with worker._async_output_done:
            worker._async_output_pending = max(0, worker._async_output_pending - 1)
            worker._async_output_done.notify_all()


def _packed(output: Any, output_id: Any) -> Any:
    from vllm_omni.diffusion.data import AsyncDiffusionOutput, AsyncOutputKind
    from vllm_omni.diffusion.ipc import pack_diffusion_output_shm

    ready = AsyncOutputKind.OUTPUT_READY
    try:
        pack_diffusion_output_shm(output)
    except (OSError, RuntimeError, ValueError, TypeError) as error:
        return AsyncDiffusionOutput(kind=ready, async_output_id=output_id, error=f"packing the output failed: {error}")
    return AsyncDiffusionOutput(kind=ready, async_output_id=output_id, output=output)
