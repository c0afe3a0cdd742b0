"""Stages and a peer that take no time, so that what is left is the gateway: `python -m bench.gateway_stubs ROLE PORT`.

`stages` speaks the wire protocol of both stages, and the Images API itself (what the peers forward to); `passthrough`
forwards the Images API and looks at nothing: the least that any gateway can do.
"""

import io
import sys
from collections.abc import AsyncIterator

import httpx
import msgspec
import pybase64
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import Response, StreamingResponse
from PIL import Image

from services.wire import framing
from services.wire.ar_to_gateway import Prior
from services.wire.dit_to_gateway import Progress, Rendered
from services.wire.gateway_to_ar import PriorRequest
from services.wire.gateway_to_dit import RenderRequest
from services.wire.info import StageInfo

SIDE = 1024  # pixels
NOISE = 4.0  # standard deviation a channel: makes a PNG as large as that of a photograph


def png() -> bytes:
    """A noisy 1024x1024 PNG."""
    out = io.BytesIO()
    channels = [Image.effect_noise((SIDE, SIDE), NOISE) for _ in range(3)]
    Image.merge("RGB", channels).save(out, "PNG")
    return out.getvalue()


def stages() -> FastAPI:
    """AR below /ar, DiT below /dit, and the Images API, each with the same image at once."""
    app = FastAPI()
    image = png()
    reply = b'{"created":1,"data":[{"b64_json":"' + pybase64.b64encode(image) + b'"}]}'

    @app.get("/{stage}/v1/info")
    async def read_info(stage: str) -> Response:
        info = StageInfo(instance=stage, stage=stage, ready=True, model="stub", fingerprint="stub", capacity=64)
        return Response(msgspec.json.encode(info), media_type="application/json")

    @app.post("/ar/v1/priors")
    async def write(request: Request) -> Response:
        asked = framing.decode(await request.body(), PriorRequest)
        prior = Prior(request_id=asked.request_id, ticket=bytes(1000), text_tokens=9, image_tokens=0, prior_tokens=1281)
        return Response(framing.encode(prior), media_type=framing.MSGPACK)

    @app.post("/dit/v1/renders")
    async def render(request: Request) -> StreamingResponse:
        asked = framing.decode(await request.body(), RenderRequest)

        async def events() -> AsyncIterator[bytes]:
            yield framing.frame(Progress(asked.steps, asked.steps))
            yield framing.frame(Rendered(image=image, width=SIDE, height=SIDE))

        return StreamingResponse(events(), media_type=framing.MSGPACK)

    @app.delete("/{stage}/v1/{kind}/{name}")
    async def forget(stage: str, kind: str, name: str) -> Response:
        return Response(status_code=204)

    @app.post("/v1/images/generations")
    async def generate(request: Request) -> Response:
        await request.body()
        return Response(reply, media_type="application/json")

    return app


def passthrough(upstream: str) -> FastAPI:
    """Forwards bodies as they are."""
    app = FastAPI()
    client = httpx.AsyncClient(base_url=upstream, timeout=60, trust_env=False)

    @app.post("/v1/images/generations")
    async def generate(request: Request) -> Response:
        reply = await client.post(
            "/v1/images/generations", content=await request.body(), headers={"content-type": "application/json"}
        )
        return Response(reply.content, reply.status_code, media_type="application/json")

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    return app


if __name__ == "__main__":
    role, port, *upstream = sys.argv[1:]
    uvicorn.run(stages() if role == "stages" else passthrough(*upstream), port=int(port), log_level="warning")
