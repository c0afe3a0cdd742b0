"""A small GLM-Image checkpoint with random weights, so that both real engines run anywhere.

Same seed and size, same bytes. It paints noise: it proves the machinery, never a picture's quality.
"""

import json
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from services.omni.tiny_sizes import TinySize
from services.wire.errors import ConfigError

RECIPE_FILE = "diptych_tiny.json"
SEED = 1234


def write_tiny_model(directory: Path, seed: int = SEED, size: TinySize | None = None) -> Path:
    """Write the checkpoint into `directory`, or keep it if the same recipe already made it.

    It is built beside `directory` and renamed into place, so a half-written one is never seen.

    Raises:
        ConfigError: `directory` holds something else.
    """
    size = size or TinySize()
    recipe = _recipe(seed, size)
    if _is_kept(directory, recipe):
        return directory
    directory.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        _build(scratch, seed, size)
        (scratch / RECIPE_FILE).write_text(json.dumps(recipe, indent=2))
        scratch.chmod(0o755)
        scratch.rename(directory)
    except OSError as error:
        # Another process may have won the race to the same place.
        if not _is_kept(directory, recipe):
            raise ConfigError(f"the tiny checkpoint could not be written to {directory}: {error}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return directory


def _recipe(seed: int, size: TinySize) -> dict[str, Any]:
    recipe: dict[str, Any] = json.loads(json.dumps({"schema": 1, "seed": seed, "size": asdict(size)}))
    return recipe


def _is_kept(directory: Path, recipe: dict[str, Any]) -> bool:
    if not directory.exists() or (directory.is_dir() and not any(directory.iterdir())):
        return False
    found = directory / RECIPE_FILE
    if not found.is_file():
        raise ConfigError(f"{directory} exists and is no tiny checkpoint: name another directory or remove it")
    if json.loads(found.read_text()) != recipe:
        raise ConfigError(f"{directory} holds a tiny checkpoint of another seed or size: remove it to build this one")
    return True


def _build(directory: Path, seed: int, size: TinySize) -> None:
    import torch

    from services.omni.tiny_text import write_text_parts
    from services.omni.tiny_weights import write_networks

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        tokenizer = write_text_parts(directory)
        write_networks(directory, tokenizer, size, torch.bfloat16)
