"""A job's way through the pipeline, against stand-in replicas."""

from typing import Any


async def test_a_job_goes_through_both_stages_and_frees_its_slot(world: Any) -> None:
    ar, dit = await world.ar(), await world.dit()
    painter = await world.pipeline([ar], [dit])
    painted = await world.image(painter, world.job())
    assert painted.image == f"image of {ar.info.instance}/7".encode()
    assert painted.prior_tokens == 261
    assert {"queue", "ar", "denoise"} <= painted.times.keys()
    await world.eventually(lambda: ar.deleted == [ar.writes[0].request_id])
    assert len(painter) == 0
