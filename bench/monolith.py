"""The peer: `vllm serve --omni` of the same vLLM-Omni, both stages in one deployment, on the same checkpoint.

Diptych's lock leaves out what only vLLM's own API server imports, so the peer gets those packages
(requirements/monolith.txt) from a folder of their own in front of the environment that both share.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.processes import CACHE, CHECKPOINT, ROOT, Stack, free_ports, wait_ready

LOCK = ROOT / "requirements" / "monolith.txt"
PACKAGES = CACHE / "monolith-packages"
CONFIG = Path(__file__).parent / "monolith_cpu.yaml"
VLLM_OMNI = str(Path(sys.executable).parent / "vllm-omni")


def install() -> None:
    """Fetch the peer's extra packages once."""
    stamp = PACKAGES / ".from"
    if stamp.exists() and stamp.read_text() == LOCK.read_text():
        return
    print("fetching what `vllm serve` needs on top of our lock, once", file=sys.stderr)
    target = ["--target", str(PACKAGES), "--upgrade"]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*command, *target, "-r", str(LOCK)], check=True)
    stamp.write_text(LOCK.read_text())


@contextmanager
def monolith(config: Path = CONFIG, **settings: str) -> Iterator[Stack]:
    """The peer, ready. config: its deploy YAML. settings: environment."""
    install()
    (port,) = free_ports(1)
    stack = Stack("monolith", f"http://127.0.0.1:{port}")
    argv = [VLLM_OMNI, "serve", str(CHECKPOINT), "--omni", "--deploy-config", str(config)]
    env = {"PYTHONPATH": str(PACKAGES), "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    began = time.monotonic()
    try:
        stack.start("serve", [*argv, "--host", "127.0.0.1", "--port", str(port)], env | settings)
        wait_ready(stack, "/health", began)
        yield stack
    finally:
        stack.stop()
