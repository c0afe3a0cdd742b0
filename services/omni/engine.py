"""One stage of GLM-Image in vLLM-Omni: start, generate, abort, check, stop."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import Any

from services.omni.environment import prepare_cpu_environment, prepare_environment
from services.omni.processes import NewChildren, new_children, stop_processes
from services.omni.single_stage import Stage, deploy_file, register_single_stage
from services.wire.errors import Cancelled, ConfigError, DiptychError, EngineDied, EngineFailed, InvalidRequest

logger = logging.getLogger(__name__)

START_SECONDS = 600.0  # a 30 GB checkpoint from a cold disk
STOP_SECONDS = 30.0


class SingleStageEngine:
    """vLLM-Omni running one stage. Not for concurrent start and stop; generate and abort may overlap freely."""

    def __init__(
        self,
        stage: Stage,
        model: str,
        engine_args: Mapping[str, Any],
        *,
        platforms: Mapping[str, Mapping[str, Any]] | None = None,
        start_seconds: float = START_SECONDS,
        stop_seconds: float = STOP_SECONDS,
    ) -> None:
        """Args: stage 0 (AR) or 1 (DiT); model: checkpoint directory; engine_args: keys of vLLM-Omni's deploy schema
        for one stage, without `stage_id`, all values literal; platforms: the same, of what a platform changes."""
        self.stage = stage
        self._model = model
        self._engine_args = dict(engine_args)
        self._platforms = platforms
        self._start_seconds = start_seconds
        self._stop_seconds = stop_seconds
        self._omni: Any = None
        self._processes: list[Any] = []
        self._running: set[str] = set()
        self._stepped = time.monotonic()
        self._aborted: set[str] = set()

    async def start(self) -> None:
        """Build the engine off the event loop; it answers requests when this returns.

        Raises:
            ConfigError: vLLM-Omni refuses the arguments.
            EngineDied: A worker died, or the engine was not up in time; its processes are gone.
        """
        if self._omni is not None:
            return
        with new_children() as children:
            building = asyncio.ensure_future(asyncio.to_thread(self._build))
            try:
                self._omni = await asyncio.wait_for(asyncio.shield(building), self._start_seconds)
            except TimeoutError:
                await self._abandon(building, children)
                raise EngineDied(f"stage {self.stage} was not up within {self._start_seconds:.0f} s") from None
            except BaseException:
                await self._abandon(building, children)
                raise
            self._processes = children.found()

    async def generate(self, prompt: Any, sampling: Any, request_id: str) -> AsyncGenerator[Any, None]:
        """Run one request; yields vLLM-Omni's outputs. Closing the iterator, or cancelling the task, aborts it.

        Raises:
            Cancelled: `abort` was called for this request.
            InvalidRequest: vLLM-Omni refused the request as the caller's fault.
            EngineFailed: The engine raised on this request and lives on.
            EngineDied: The engine is gone.
        """
        omni = self._omni
        if omni is None:
            raise EngineDied(f"stage {self.stage} is not started")
        if request_id in self._running:
            raise EngineFailed(f"request {request_id} runs already")
        if not self._running:
            self._stepped = time.monotonic()
        self._running.add(request_id)
        try:
            with self._translated():
                outputs = omni.generate(prompt, sampling_params_list=[sampling], request_id=request_id)
                async with aclosing(outputs):
                    async for output in outputs:
                        self._stepped = time.monotonic()
                        if request_id in self._aborted:
                            break
                        yield output
            if request_id in self._aborted:
                raise Cancelled(f"request {request_id} was aborted")
        finally:
            self._running.discard(request_id)
            self._aborted.discard(request_id)

    async def abort(self, request_id: str) -> None:
        """Stop this request; unknown or finished ones are no error."""
        if request_id not in self._running or self._omni is None:
            return
        self._aborted.add(request_id)
        with self._translated():
            await self._omni.abort(request_id)

    def stalled(self) -> float:
        """Seconds since the engine last gave an output (AR: a whole prior; DiT: a step) while it has work; or 0."""
        return time.monotonic() - self._stepped if self._running else 0.0

    async def check_health(self) -> None:
        """Raise EngineDied when the engine is not there any more."""
        if self._omni is None:
            raise EngineDied(f"stage {self.stage} is not started")
        self._raise_if_dead()

    async def stop(self) -> None:
        """Stop the engine; all its processes are gone when this returns, and `start` may be called again."""
        omni, self._omni = self._omni, None
        if omni is None:
            return
        try:
            await asyncio.wait_for(asyncio.to_thread(omni.shutdown), self._stop_seconds)
        except TimeoutError:
            logger.warning("stage %d did not stop within %.0f s; killing it", self.stage, self._stop_seconds)
        finally:
            await asyncio.to_thread(stop_processes, self._processes)
            self._processes = []

    def _build(self) -> Any:
        prepare_environment()
        from vllm.platforms import current_platform

        if current_platform.is_cpu():
            prepare_cpu_environment(self._engine_args)
        from vllm_omni.entrypoints.async_omni import AsyncOmni
        from vllm_omni.plugins import load_omni_general_plugins

        load_omni_general_plugins()
        key = register_single_stage(self.stage)
        limit = max(1, int(self._start_seconds))
        with deploy_file(key, self._engine_args, self._platforms) as path, _translated_start(self.stage):
            return AsyncOmni(model=self._model, deploy_config=str(path), stage_init_timeout=limit, init_timeout=limit)

    async def _abandon(self, building: "asyncio.Future[Any]", children: NewChildren) -> None:
        # The constructor cannot be interrupted; it raises when the processes that it waits for are gone.
        give_up = time.monotonic() + self._stop_seconds
        while not building.done() and time.monotonic() < give_up:
            await asyncio.to_thread(stop_processes, children.found())
            await asyncio.wait([building], timeout=0.5)
        building.add_done_callback(_shut_down_late)
        await asyncio.to_thread(stop_processes, children.found())

    def _raise_if_dead(self) -> None:
        from vllm.v1.engine.exceptions import EngineDeadError
        from vllm_omni.entrypoints.omni_base import OmniBase

        try:
            OmniBase.check_health(self._omni)
        except EngineDeadError as error:
            raise EngineDied(f"the engine of stage {self.stage} died: {error}") from error

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """The one boundary where vLLM-Omni's exceptions become ours."""
        from vllm.v1.engine.exceptions import EngineDeadError
        from vllm_omni.errors import OmniClientError

        try:
            yield
        except DiptychError:
            raise
        except EngineDeadError as error:
            raise EngineDied(f"the engine of stage {self.stage} died: {error}") from error
        except OmniClientError as error:
            raise InvalidRequest(str(error)) from error
        except Exception as error:
            # A bad request and a death may both be a bare RuntimeError: only the health tells them apart.
            if self._omni is not None:
                self._raise_if_dead()
            raise EngineFailed(f"stage {self.stage} failed on this request: {error}") from error


@contextmanager
def _translated_start(stage: Stage) -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, RuntimeError, OSError) as error:
        root: BaseException = error
        while root.__cause__ is not None:
            root = root.__cause__
        # vLLM-Omni wraps whatever its own thread met into a RuntimeError; settings are refused as values.
        if isinstance(root, ValueError | TypeError):
            raise ConfigError(f"stage {stage} cannot start with these settings: {_one_line(root)}") from error
        raise EngineDied(f"stage {stage} did not start: {_one_line(root)}") from error


def _shut_down_late(building: "asyncio.Future[Any]") -> None:
    """An engine that was built after all, when nobody waited any more."""
    if not building.cancelled() and building.exception() is None:
        threading.Thread(target=building.result().shutdown, name="late-engine", daemon=True).start()


def _one_line(error: BaseException) -> str:
    from pydantic import ValidationError

    text = "; ".join(each["msg"] for each in error.errors()) if isinstance(error, ValidationError) else str(error)
    return " ".join(text.split())[:500] or type(error).__name__
