"""A GLM-Image checkpoint on disk: is it whole, which model is it, what does it allow.

All of it reads names, sizes and small JSON files; no weight is opened.
"""

import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.wire.errors import ConfigError

CONFIGS = {
    "vision_language_encoder": "config.json",
    "processor": "tokenizer_config.json",
    "text_encoder": "config.json",
    "tokenizer": "tokenizer_config.json",
    "transformer": "config.json",
    "vae": "config.json",
    "scheduler": "scheduler_config.json",
}
WEIGHTS = {
    "vision_language_encoder": "model",
    "text_encoder": "model",
    "transformer": "diffusion_pytorch_model",
    "vae": "diffusion_pytorch_model",
}
STAGE_PARTS = (
    ("vision_language_encoder", "processor"),
    ("transformer", "vae", "text_encoder", "tokenizer", "scheduler"),
)
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint whose layout is whole. fingerprint: 32 hex digits, the same on both sides of the hand-off."""

    path: Path
    fingerprint: str

    def max_positions(self) -> int:
        """The most tokens, prompt and priors together, that the AR model has positions for."""
        config = read_json(self.path / "vision_language_encoder" / "config.json")
        found = config.get("text_config", {}).get("max_position_embeddings")
        if not isinstance(found, int):
            raise ConfigError(
                f"{self.path}/vision_language_encoder/config.json has no text_config.max_position_embeddings"
            )
        return found


def open_checkpoint(model: str, stage: int) -> Checkpoint:
    """The checkpoint at directory `model`, or of the repository `model` (downloaded, or out of the cache).

    Args:
        model: A directory, or a repository id such as `zai-org/GLM-Image`.
        stage: 0 looks for the weights of the AR stage, 1 for those of the DiT.

    Raises:
        ConfigError: Nothing is there, or a file is missing; the message names the file and the mend.
    """
    path = _locate(model)
    check_layout(path, stage)
    return Checkpoint(path, fingerprint(path))


def check_layout(path: Path, stage: int) -> None:
    """Raise ConfigError that names the first file missing from the checkpoint at `path` for `stage`."""
    index = read_json(path / "model_index.json")
    if index.get("_class_name") != "GlmImagePipeline":
        raise ConfigError(f"{path}/model_index.json is of {index.get('_class_name')}: name a GlmImagePipeline")
    for part in STAGE_PARTS[stage]:
        read_json(path / part / CONFIGS[part])
        if part in WEIGHTS:
            _check_weights(path / part, WEIGHTS[part])


def fingerprint(path: Path) -> str:
    """A digest of the configurations of every part.

    Weights do not count, since a host needs those of its own stage only: an AR host and a DiT host with the same
    checkpoint agree, whichever weights each has. So two checkpoints that differ in nothing but weights agree too.
    """
    digest = hashlib.sha256()
    for part, config in sorted(CONFIGS.items()):
        digest.update(f"{part}/{config}\0".encode())
        digest.update(json.dumps(read_json(path / part / config), sort_keys=True).encode())
    return digest.hexdigest()[:32]


def read_json(file: Path) -> dict[str, Any]:
    """The JSON object in `file`; ConfigError names the file if it is missing or broken."""
    try:
        found = json.loads(file.read_text())
    except FileNotFoundError:
        raise ConfigError(_missing(file)) from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be read: {error}; download the checkpoint again") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{file} holds no JSON object; download the checkpoint again")
    return found


def _check_weights(part: Path, stem: str) -> None:
    single, index = part / f"{stem}.safetensors", part / f"{stem}.safetensors.index.json"
    if not index.is_file():
        names = {single.name}
    else:
        shards = read_json(index).get("weight_map", {})
        names = set(shards.values())
    for name in sorted(names):
        file = part / Path(name).name
        if not file.is_file() or file.stat().st_size == 0:
            raise ConfigError(_missing(file))


def _missing(file: Path) -> str:
    return (
        f"{file} is missing: this is no whole GLM-Image checkpoint in the diffusers layout; "
        "finish the download, or make a tiny one with `diptych tiny-model DIR`"
    )


def _locate(model: str) -> Path:
    directory = Path(model).expanduser()
    if directory.is_dir():
        return directory.resolve()
    if not _REPOSITORY.fullmatch(model) or directory.exists():
        raise ConfigError(f"the model {model} is no directory: name one, or a repository such as zai-org/GLM-Image")
    return _download(model)


def _download(repository: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        offline = os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on")
        return Path(snapshot_download(repository, local_files_only=offline)).resolve()
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"the model {repository} is no directory here and cannot be had: {reason}") from error
