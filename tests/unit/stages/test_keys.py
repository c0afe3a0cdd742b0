"""Unknown keys are refused by name with the nearest known one, at every level; values have the schema's types."""

import pytest

from services.stages.keys import words
from services.stages.schema import annotation_type
from tests.unit.stages.files import MINIMAL, Check, messages


def ar(lines: str) -> str:
    return MINIMAL.replace('    devices: "0"\n', f'    devices: "0"\n    {lines}\n')


def dit(lines: str) -> str:
    return MINIMAL + f"    {lines}\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (MINIMAL + "dytpe: bfloat16", "9 dytpe: no such key at the top of a file; did you mean dtype?"),
        (MINIMAL + "max_num_seqs: 4", "9 max_num_seqs: belongs under a stage"),
        (MINIMAL + "frobnicate: 4", "9 frobnicate: no such key at the top of a file"),
        (
            ar("max_num_seq: 4"),
            "7 stages[0].max_num_seq: vLLM-Omni has no such key for the ar stage; did you mean max_",
        ),
        (ar("process: true"), "7 stages[0].process: vLLM-Omni has no such key for the ar stage"),
        (ar("ulysses_degree: 1"), "7 stages[0].ulysses_degree: vLLM-Omni has no such key for the ar stage"),
        (
            dit("kv_cache_dtype: fp8"),
            "9 stages[1].kv_cache_dtype: vLLM-Omni has no such key for the dit stage; did you",
        ),
        (
            ar("share_devices: true"),
            "7 stages[0].share_devices: vLLM-Omni has no such key for the ar stage; it belongs at",
        ),
        (ar("engine_args: {enforce_eagerly: true}"), "7 stages[0].engine_args.enforce_eagerly: vLLM-Omni has no such"),
        (ar("runtime: {process: true}"), "7 stages[0].runtime.process: the pipeline itself declares this"),
        (ar("engine_extras: {wibble: 1}"), "7 stages[0].engine_extras.wibble: vLLM-Omni has no such key"),
        (ar("default_sampling_params: {temprature: 1.0}"), "has no such key; did you mean temperature?"),
        (dit("default_sampling_params: {num_inference_step: 4}"), "has no such key; did you mean num_inference_steps?"),
        (dit("parallel_config: {tensor_parallel: 1}"), "has no such key; did you mean tensor_parallel_size?"),
        (ar("compilation_config: {cudagraph_capture_size: [1]}"), "did you mean cudagraph_capture_sizes?"),
        (
            MINIMAL + "platforms: {cuda: {stages: [{stage_id: 0, max_num_seq: 1}]}}",
            "9 platforms.cuda.stages[0].max_num",
        ),
        (
            MINIMAL + "platforms: {cdua: {stages: []}}",
            "9 platforms.cdua: no such platform, so this never applies; did you",
        ),
        (
            MINIMAL + "platforms: {cuda: {stage: []}}",
            "9 platforms.cuda.stage: a platform has stages and model_runner only",
        ),
        (
            MINIMAL + "platforms: {cuda: {stages: [{stage_id: 0, engine_args: {}, enforce_eager: true}]}}",
            "is ignored beside engine_args on a platform",
        ),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_known_one(check: Check, text: str, says: str) -> None:
    found = messages(check(text))
    assert len(found) == 1
    assert says in found[0]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (ar("max_num_seqs: many"), "max_num_seqs: must be a whole number, got 'many'"),
        (ar("max_num_seqs: 0"), "max_num_seqs: must be a whole number, got 0 (Input should be greater"),
        (ar("max_num_seqs: true"), "max_num_seqs: must be a whole number, got True"),
        (ar("max_num_seqs: 1.5"), "max_num_seqs: must be a whole number, got 1.5"),
        (ar("enforce_eager: 1"), "enforce_eager: must be true or false, got 1"),
        (ar("gpu_memory_utilization: 1.5"), "gpu_memory_utilization: must be a number, got 1.5"),
        (ar("env: [A]"), "env: must be a mapping, got a list of 1"),
        (ar("default_sampling_params: {stop_token_ids: ['x']}"), "stop_token_ids: must be a list of whole numbers"),
        (ar("default_sampling_params: {top_k: high}"), "top_k: must be a whole number, got 'high'; remove the quotes"),
        (dit("default_sampling_params: {height: -1}"), "height: must be a whole number, got -1"),
        (MINIMAL + "share_devices: 'yes'", "share_devices: must be true or false, got 'yes'"),
        (MINIMAL + "placement: near", "placement: must be one of same_node, separate_nodes, got 'near'"),
        (MINIMAL + "stages: 3", "given twice"),
        ("model: m\nstages: {a: 1}", "2 stages: must be a list, got a mapping of 1"),
        (MINIMAL + "platforms: [1]", "9 platforms: must be a mapping, got a list of 1"),
    ],
)
def test_a_wrong_type_says_what_it_must_be(check: Check, text: str, says: str) -> None:

    assert any(says in found for found in messages(check(text)))


@pytest.mark.parametrize(
    ("annotation", "said"),
    [
        ("int | None", "a whole number"),
        ("str | list[str] | None", "text or a list of texts"),
        ("dict[str, Any] | None", "a mapping"),
        ("list[int] | None", "a list of whole numbers"),
        ("Literal['a', 'b']", "one of a, b"),
        ("SomeEnum | None", "of another type"),
    ],
)
def test_types_in_words(annotation: str, said: str) -> None:
    assert words(annotation_type(annotation)) == said


def test_a_null_is_not_given(check: Check) -> None:
    inspection = check(ar("max_num_seqs: null"))
    assert messages(inspection) == []
    assert inspection.deployment is not None
    assert inspection.deployment.ar is not None
    assert "max_num_seqs" not in inspection.deployment.ar.engine_args


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("model: m\nstages: [{stage_id: 0, devices: '0'}]", "no entry with stage_id: 1, the dit stage; add it"),
        ("model: m\nstages: [{stage_id: 2}]", "stages[0].stage_id: must be one of 0 (ar), 1 (dit), got 2"),
        ("model: m\nstages: [{stage_id: '0'}]", "must be one of 0 (ar), 1 (dit), got '0'"),
        ("model: m\nstages: [{stage_id: true}]", "must be one of 0 (ar), 1 (dit), got True"),
        ("model: m\nstages: [{devices: '0'}]", "stages[0].stage_id: must be one of 0 (ar), 1 (dit), got None"),
        ("model: m\nstages: [7]", "stages[0]: must be a mapping of keys, got 7"),
        (MINIMAL + "  - {stage_id: 1, devices: '2'}", "stage_id 1 is given twice; merge the two entries"),
        ("model: m\nstages: [" + "{}," * 17 + "]", "17 entries; GLM-Image has 2 stages"),
        ("model: ''\nstages: [{stage_id: 0, devices: '0'}]", "model: names no checkpoint; set MODEL"),
        (MINIMAL + "pipeline: qwen3_omni", "pipeline: Diptych serves glm_image only"),
        (MINIMAL.replace("async_chunk: false", "async_chunk: true"), "GLM-Image has no chunk producer"),
        (ar("default_sampling_params: '0,1'"), "default_sampling_params: must be a mapping, got '0,1'"),
        (ar("default_sampling_params: {allowed_token_ids: [1]}"), "kills the engine"),
        ("stage_args: []\nruntime: {}", "the old schema, which applies no defaults: run `diptych migrate FILE`"),
    ],
)
def test_structure_and_rules(check: Check, text: str, says: str) -> None:
    assert any(says in found for found in messages(check(text)))


def test_a_model_that_cannot_be_resolved_is_said_once(check: Check) -> None:
    found = messages(check(MINIMAL.replace("zai-org/GLM-Image", "${env.str:MODEL}")))
    assert found == ["2 model: MODEL is not set, and no default is written for it; set MODEL"]


def test_a_flood_of_findings_loses_no_error(check: Check) -> None:
    many = "".join(f"  c{i}: {{name: SharedMemoryConnector}}\n" for i in range(300))
    inspection = check(MINIMAL + "connectors:\n" + many + "bogus: 1\n")
    assert len(inspection.findings) < 500
    assert [item.key for item in inspection.errors] == ["bogus"]
