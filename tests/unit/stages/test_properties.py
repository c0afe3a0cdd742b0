"""Random YAML trees and environments: never a traceback, only findings, each on one line with a place."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.stages import Inspection, inspect, resolve
from services.stages.report import as_json, as_text
from services.stages.schema import stage_fields, top_fields
from services.wire.errors import ConfigError

TOP = sorted(top_fields())
STAGE = sorted({*stage_fields("llm_ar"), *stage_fields("diffusion"), "engine_args", "runtime", "engine_extras"})
# Where the checker does more than look a key up.
HOT = ["devices", "tensor_parallel_size", "parallel_config", "default_sampling_params", "scheduler_cls", "num_replicas"]
HOT += [
    "async_scheduling",
    "env",
    "input_connectors",
    "engine_args",
    "runtime",
    "engine_extras",
    "model",
    "max_num_seqs",
]
TOP_HOT = ["connectors", "platforms", "model", "base_config", "pipeline", "async_chunk", "share_devices", "stages"]
VARIABLES = ["AR_TP", "DIT_TP", "AR_DEVICES", "DIT_DEVICES", "MODEL", "X"]

interpolations = st.one_of(
    st.builds(
        "${{env.{}:{},{}}}".format,
        st.sampled_from(["int", "bool", "str", "devices", "float"]),
        st.sampled_from(VARIABLES),
        st.text(max_size=4),
    ),
    st.builds("${{oc.env:{},{}}}".format, st.sampled_from(VARIABLES), st.sampled_from(["1", "'0,1'", "0,1", ""])),
    st.builds("${{oc.decode:${{oc.env:{}}}}}".format, st.sampled_from(VARIABLES)),
    st.sampled_from(
        ["${stages}", "${stages[0].devices}", "${.devices}", "${..}", "${model}", "${x}", "${", "$}", "\\${x}"]
    ),
    st.builds("${{devices.first:{}}}".format, st.integers(-1, 5)),
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 40),
    st.integers(),
    st.floats(),
    st.text(max_size=10),
    st.sampled_from(["0", "0,1", "2,3", "NixlConnector", "same_node", "???", "zai-org/GLM-Image"]),
    interpolations,
)
trees = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(HOT) | st.sampled_from(STAGE) | st.text(max_size=6), inner, max_size=5)
    ),
    max_leaves=12,
)
stages = st.builds(
    lambda stage_id, keys: {"stage_id": stage_id, **keys},
    st.sampled_from([0, 1, 0, 1, "0", True, None, 7]),
    st.dictionaries(st.sampled_from(HOT) | st.sampled_from(STAGE), trees, max_size=6),
)
files = st.builds(
    lambda top, entries, platforms: {**top, **entries, **platforms},
    st.dictionaries(st.sampled_from(TOP) | st.sampled_from(TOP_HOT) | st.text(max_size=6), trees, max_size=5),
    st.one_of(st.builds(lambda s: {"stages": s}, st.lists(stages, max_size=3)), st.just({})),
    st.one_of(
        st.builds(
            lambda n, s: {"platforms": {n: {"stages": s}}},
            st.sampled_from(["cuda", "npu", "x"]),
            st.lists(stages, max_size=2),
        ),
        st.just({}),
    ),
)
environs = st.dictionaries(
    st.sampled_from(VARIABLES),
    st.text(max_size=6) | st.sampled_from(["", "1", "2", "two", "0,1", "2,3", "[" * 500]),
    max_size=6,
)
roles = st.sampled_from(["ar", "dit", "all"])
quick = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def sound(path: Path, role: Any, environ: dict[str, str]) -> Inspection:
    """Inspect, and hold the promises: each finding is one line with a place; `resolve` raises exactly on errors."""
    inspection = inspect(path, role=role, environ=environ)
    for finding in inspection.findings:
        assert finding.message
        assert "\n" not in str(finding)
        assert finding.place.file.suffix == ".yaml"
    assert as_text(inspection, path, role)
    assert as_json(inspection, path, role)["ok"] is not bool(inspection.errors)
    if inspection.errors:
        with pytest.raises(ConfigError) as caught:
            resolve(path, role=role, environ=environ)
        assert "\n" not in str(caught.value)
    else:
        assert resolve(path, role=role, environ=environ) == inspection.deployment
    return inspection


@quick
@given(tree=files, environ=environs, role=roles)
def test_random_trees_give_findings_and_no_traceback(
    tmp_path: Path, tree: dict, environ: dict[str, str], role: str
) -> None:
    path = tmp_path / "random.yaml"
    path.write_text(yaml.safe_dump(tree, allow_unicode=True), encoding="utf-8")
    sound(path, role, environ)


@quick
@given(
    text=st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")),
    role=roles,
)
def test_random_bytes_give_findings_and_no_traceback(tmp_path: Path, text: bytes, role: str) -> None:
    path = tmp_path / "random.yaml"
    path.write_bytes(text)
    assert sound(path, role, {}).errors


@quick
@given(environ=environs, role=roles, name=st.sampled_from(["glm_image", "glm_image_cpu", "glm_image_two_node"]))
def test_our_files_stand_any_environment(environ: dict[str, str], role: str, name: str) -> None:
    path = Path(__file__).parents[3] / "stage_configs" / f"{name}.yaml"
    inspection = sound(path, role, environ)
    for stage in (
        (inspection.deployment.ar, inspection.deployment.dit) if inspection.deployment and not inspection.errors else ()
    ):
        if stage is not None:
            assert len(stage.devices.split(",")) == stage.tensor_parallel_size


@quick
@given(data=st.data(), environ=environs)
def test_one_line_changed_at_random(tmp_path: Path, data: st.DataObject, environ: dict[str, str]) -> None:
    lines = (Path(__file__).parents[3] / "stage_configs" / "glm_image.yaml").read_text().splitlines()
    at = data.draw(st.integers(0, len(lines) - 1))
    lines[at] = data.draw(st.text(max_size=30) | st.just(lines[at] + " ") | st.just(lines[at][1:]) | interpolations)
    path = tmp_path / "changed.yaml"
    path.write_text("\n".join(lines), encoding="utf-8")
    sound(path, "all", environ)
