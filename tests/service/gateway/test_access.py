"""Keys, CORS, probes, models, identity: who may call, and what every reply carries."""

import pytest

from tests.service.gateway.serve import serving

ORIGIN = {"origin": "https://app.example"}


@pytest.fixture(scope="module")
async def guarded(tmp_path_factory):
    keys = tmp_path_factory.mktemp("keys") / "keys.txt"
    keys.write_text("# ours\nsecret-two\n\n")
    async with serving(api_keys="secret-one", api_keys_file=keys, cors_origins="https://app.example") as served:
        yield served


@pytest.mark.parametrize("authorization", ["", "secret-one", "Basic secret-one", "Bearer", "Bearer wrong", "Bearer é"])
async def test_without_a_known_key_everything_under_v1_is_a_401(guarded, authorization):
    headers = {"authorization": authorization.encode()}
    for path in ("/v1/models", "/v1/nothing"):
        reply = await guarded.http.get(path, headers=headers)
        assert reply.status_code == 401
        assert reply.json()["error"]["code"] == "invalid_api_key"
        assert reply.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("key", ["secret-one", "secret-two"])
async def test_each_key_opens_and_is_its_own_tenant(guarded, key):
    guarded.painter.jobs.clear()
    reply = await guarded.http.post(
        "/v1/images/generations",
        json={"prompt": "a", "size": "64x64", "num_inference_steps": 1},
        headers={"authorization": f"bearer {key}"},
    )
    assert reply.status_code == 200
    tenant = guarded.painter.jobs[0].tenant
    assert len(tenant) == 16
    assert key not in tenant


async def test_tenants_differ_by_key(guarded):
    guarded.painter.jobs.clear()
    for key in ("secret-one", "secret-two"):
        await guarded.http.post(
            "/v1/images/generations",
            json={"prompt": "a", "size": "64x64", "num_inference_steps": 1},
            headers={"authorization": f"Bearer {key}"},
        )
    first, second = (job.tenant for job in guarded.painter.jobs)
    assert first != second


@pytest.mark.parametrize("path", ["/live", "/ready", "/health", "/metrics", "/version", "/docs", "/openapi.json"])
async def test_probes_and_docs_need_no_key(guarded, path):
    assert (await guarded.http.get(path)).status_code == 200


async def test_a_preflight_needs_no_key(guarded):
    headers = ORIGIN | {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
    reply = await guarded.http.options("/v1/images/generations", headers=headers)
    assert reply.status_code == 200
    assert reply.headers["access-control-allow-origin"] == ORIGIN["origin"]
    assert "authorization" in reply.headers["access-control-allow-headers"]


async def test_errors_carry_cors_headers_too(guarded):
    for path in ("/v1/models", "/nowhere"):
        reply = await guarded.http.get(path, headers=ORIGIN)
        assert reply.status_code >= 400
        assert reply.headers["access-control-allow-origin"] == ORIGIN["origin"]
        assert "x-request-id" in reply.headers["access-control-expose-headers"].lower()


async def test_other_origins_get_no_permission_and_a_shaped_refusal(guarded):
    headers = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    reply = await guarded.http.options("/v1/images/generations", headers=headers)
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "cors_refused")
    assert "access-control-allow-origin" not in reply.headers


async def test_cors_is_off_by_default(gateway):
    reply = await gateway.http.get("/v1/models", headers=ORIGIN)
    assert "access-control-allow-origin" not in reply.headers


@pytest.mark.parametrize("given", ["a b", "x" * 65, "é", "a/b", ""])
async def test_an_insane_request_id_is_replaced(gateway, given):
    reply = await gateway.http.get("/live", headers={"x-request-id": given.encode()})
    assert reply.headers["x-request-id"].startswith("req_")


async def test_every_reply_carries_id_and_time(gateway):
    for path in ("/live", "/nowhere", "/v1/models/none"):
        reply = await gateway.http.get(path, headers={"x-request-id": "mine.1"})
        assert reply.headers["x-request-id"] == "mine.1"
        assert reply.headers["openai-processing-ms"].isdigit()


async def test_models_lists_the_served_one_and_its_aliases(gateway):
    listed = (await gateway.http.get("/v1/models")).json()
    assert [card["id"] for card in listed["data"]] == ["glm-image", "zai-org/GLM-Image"]
    card = (await gateway.http.get("/v1/models/zai-org/GLM-Image")).json()
    assert card["object"] == "model"
    missing = await gateway.http.get("/v1/models/dall-e-9")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")


async def test_an_alias_is_served(gateway):
    assert (await gateway.generate(model="zai-org/GLM-Image")).status_code == 200


async def test_ready_says_why_not(gateway):
    assert (await gateway.http.get("/ready")).json() == {"status": "ok"}
    gateway.painter.why_unready = "no dit replica"
    for path in ("/ready", "/health"):
        reply = await gateway.http.get(path)
        assert (reply.status_code, reply.json()["reason"]) == (503, "no dit replica")
        assert reply.json()["error"]["code"] == "server_is_overloaded"
    assert (await gateway.http.get("/live")).status_code == 200
    assert (await gateway.http.head("/live")).status_code == 200


async def test_metrics_count_requests_by_route(gateway):
    await gateway.http.get("/v1/models/dall-e-9")
    await gateway.http.get("/no/such/path")
    text = (await gateway.http.get("/metrics")).text
    assert 'diptych_requests_total{route="/v1/models/{model:path}",status="404"}' in text
    assert 'diptych_requests_total{route="none",status="404"}' in text


async def test_the_painter_lives_as_long_as_the_app():
    async with serving() as gateway:
        assert gateway.painter.started == 1
    assert gateway.painter.started == 0
