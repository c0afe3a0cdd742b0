"""`base_config`: the same merge as vLLM-Omni's, key by key, and chains that do not end."""

from pathlib import Path
from textwrap import dedent

from services.stages import inspect
from services.stages.inherit import load_merged


def merged(tmp_path: Path, base: str, own: str) -> dict[str, object]:
    (tmp_path / "base.yaml").write_text(dedent(base))
    path = tmp_path / "own.yaml"
    path.write_text("base_config: base.yaml\n" + dedent(own))
    plain: dict[str, object] = load_merged(path, lambda node: str(node.value)).plain()
    return plain


def test_a_stage_is_merged_by_its_id_and_sampling_goes_deep(tmp_path: Path) -> None:
    base = """
    stages:
      - {stage_id: 0, devices: '0', env: {A: 1}, default_sampling_params: {top_k: 1, top_p: 0.5}}
      - {stage_id: 1, devices: '1'}
    """
    own = "stages: [{stage_id: 0, devices: '7', env: {B: 2}, default_sampling_params: {top_k: 9}}]"
    assert merged(tmp_path, base, own)["stages"] == [
        {"stage_id": 0, "devices": "7", "env": {"B": 2}, "default_sampling_params": {"top_k": 9, "top_p": 0.5}},
        {"stage_id": 1, "devices": "1"},
    ]


def test_connectors_and_platforms_are_merged_and_the_rest_is_replaced(tmp_path: Path) -> None:
    base = """
    dtype: bfloat16
    edges: [{from: 0, to: 1}]
    connectors: {nixl: {name: NixlConnector, extra: {host: a, zmq_port: 1}}}
    platforms:
      cuda: {stages: [{stage_id: 0, devices: '0'}]}
      npu: {stages: [{stage_id: 0, devices: '0'}]}
    """
    own = """
    edges: []
    connectors: {nixl: {extra: {host: b}}}
    platforms: {npu: {stages: [{stage_id: 0, enforce_eager: true}, {stage_id: 1, devices: '1'}]}}
    """
    found = merged(tmp_path, base, own)
    assert found["dtype"] == "bfloat16"
    assert found["edges"] == []
    assert found["connectors"] == {"nixl": {"name": "NixlConnector", "extra": {"host": "b", "zmq_port": 1}}}
    assert found["platforms"] == {
        "cuda": {"stages": [{"stage_id": 0, "devices": "0"}]},
        "npu": {"stages": [{"stage_id": 0, "devices": "0", "enforce_eager": True}, {"stage_id": 1, "devices": "1"}]},
    }


def test_the_base_sees_what_the_overlay_changes(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(
        "model: m\nstages:\n- stage_id: 0\n  tensor_parallel_size: 1\n"
        "  devices: '${devices.first:${.tensor_parallel_size}}'\n"
    )
    path = tmp_path / "own.yaml"
    path.write_text("base_config: base.yaml\nstages: [{stage_id: 0, tensor_parallel_size: 2}]\n")
    deployment = inspect(path, role="ar", environ={}).deployment
    assert deployment is not None
    assert deployment.ar is not None
    assert deployment.ar.devices == "0,1"


def test_a_ring_and_a_long_chain_end(tmp_path: Path) -> None:
    for i in range(12):
        (tmp_path / f"{i}.yaml").write_text(f"base_config: {i + 1}.yaml\n")
    (tmp_path / "12.yaml").write_text("stages: []\n")
    (tmp_path / "ring.yaml").write_text("base_config: ring2.yaml\n")
    (tmp_path / "ring2.yaml").write_text("base_config: ./ring.yaml\n")
    assert "more than 8 files" in inspect(tmp_path / "0.yaml", role="all", environ={}).findings[0].message
    assert "goes in a ring" in inspect(tmp_path / "ring.yaml", role="all", environ={}).findings[0].message


def test_the_base_may_come_from_the_environment(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("model: m\nstages: [{stage_id: 0, devices: '3'}]\n")
    path = tmp_path / "own.yaml"
    path.write_text("base_config: ${env.str:BASE}\n")
    found = inspect(path, role="ar", environ={"BASE": "base.yaml"}).deployment
    assert found is not None
    assert found.ar is not None
    assert found.ar.devices == "3"
    assert "BASE is not set" in inspect(path, role="ar", environ={}).findings[0].message
    assert "No such file" in inspect(path, role="ar", environ={"BASE": "nowhere.yaml"}).findings[0].message
