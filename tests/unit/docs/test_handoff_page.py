"""docs/handoff.md: its sample runs, and what it names exists."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/handoff.md").read_text()
SETTINGS = (ROOT / "docs/settings.md").read_text()
TESTS = "\n".join(
    path.read_text() for folder in ("unit", "chaos") for path in (ROOT / "tests" / folder / "handoff").glob("*.py")
)


def test_the_sample_runs_over_nixl() -> None:
    (sample,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    done = subprocess.run([sys.executable, "-c", sample], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "latents torch.Size([2, 16])" in done.stdout


def test_every_test_it_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert len(named) > 15
    assert [name for name in named if f"def {name}(" not in TESTS] == []


def test_every_setting_it_names_exists() -> None:
    named = set(re.findall(r"`(DIPTYCH_\w+)`", PAGE))
    assert len(named) > 10
    assert [name for name in named if name != "DIPTYCH_REQUIRE_RDMA" and f"`{name}`" not in SETTINGS] == []
