"""The deploy file that starts one stage alone."""

import yaml

from services.omni.single_stage import deploy_file


def test_the_file_is_literal_and_goes_away() -> None:
    with deploy_file("key", {"devices": "0,1", "model": "${not.resolved}", "max_num_seqs": 4}) as path:
        written = yaml.safe_load(path.read_text())
    assert written == {
        "pipeline": "key",
        "async_chunk": False,
        "stages": [{"stage_id": 0, "devices": "0,1", "model": "${not.resolved}", "max_num_seqs": 4}],
    }
    assert not path.exists()
    assert not path.parent.exists()


def test_what_a_platform_changes_goes_along() -> None:
    with deploy_file("key", {"devices": "0"}, {"npu": {"enforce_eager": True}}) as path:
        document = yaml.safe_load(path.read_text())
    assert document["platforms"] == {"npu": {"stages": [{"stage_id": 0, "enforce_eager": True}]}}
