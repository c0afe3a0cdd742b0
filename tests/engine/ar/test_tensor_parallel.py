"""Two ranks write what one writes, up to rounding: sums in another order move a near-tie."""

from services.omni.ar_stage import VllmArEngine
from services.omni.checkpoint import Checkpoint
from services.serving.engine import CONDITION_TOKENS, PRIOR_TOKENS
from tests.engine.ar.jobs import job, photo
from tests.engine.conftest import AR_ARGS

AGREE = 8  # tokens that must agree before bfloat16 rounding may part the two


async def test_two_ranks_write_the_same_tokens(ar_engine: VllmArEngine, tiny_checkpoint: Checkpoint) -> None:
    jobs = [job(1), job(2, width=128, height=128, image=photo(0))]
    alone = [await ar_engine.write(each) for each in jobs]
    engine = VllmArEngine(tiny_checkpoint, AR_ARGS | {"tensor_parallel_size": 2, "devices": "0,1"})
    await engine.start()
    try:
        text, edit = [await engine.write(each) for each in jobs]
        again = await engine.write(jobs[0])
    finally:
        await engine.stop()
    assert text.bundle[PRIOR_TOKENS].tolist() == again.bundle[PRIOR_TOKENS].tolist()
    assert edit.bundle[CONDITION_TOKENS].tolist() == alone[1].bundle[CONDITION_TOKENS].tolist()
    assert edit.bundle[PRIOR_TOKENS].tolist()[:AGREE] == alone[1].bundle[PRIOR_TOKENS].tolist()[:AGREE]
