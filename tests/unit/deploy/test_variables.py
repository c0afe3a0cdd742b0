"""Whatever the deployment files set is a setting that exists, and whatever they read is explained."""

import re
from pathlib import Path

import yaml

from services.ar.settings import ArSettings
from services.dit.settings import DitSettings
from services.gateway.settings import GatewaySettings
from services.handoff.settings import HandoffSettings
from services.observe.settings import ObserveSettings

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
COMPOSE = [*sorted(DEPLOY.glob("compose*.yaml")), DEPLOY / "services.yaml"]
LAUNCHER = {"DIPTYCH_BIN", "DIPTYCH_START_TIMEOUT", "DIPTYCH_STOP_TIMEOUT"}
ELSEWHERE = {"DIPTYCH_CACHE", "DIPTYCH_REQUIRE_RDMA"}  # read by the stage configurations, and an alias


def settings() -> set[str]:
    kinds = (ArSettings, DitSettings, GatewaySettings, HandoffSettings, ObserveSettings)
    names = {f"{kind.model_config['env_prefix']}{name}".upper() for kind in kinds for name in kind.model_fields}
    return names | LAUNCHER | ELSEWHERE


def text_of(*patterns: str) -> str:
    return "\n".join(path.read_text() for pattern in patterns for path in sorted(ROOT.glob(pattern)) if path.is_file())


def test_every_diptych_variable_that_is_named_exists():
    text = text_of(
        "deploy/**/*.yaml", "deploy/.env.example", "docker/*", "launch/*", "docs/deploy.md", "docs/two-nodes.md"
    )
    named = set(re.findall(r"\bDIPTYCH_[A-Z][A-Z_]*[A-Z]\b", text))
    assert len(named) > 25
    assert named - settings() == set()


def test_every_variable_of_the_compose_files_is_explained():
    text = "\n".join(path.read_text() for path in COMPOSE)
    read = set(re.findall(r"\$\{([A-Z0-9_]+)", text))
    services = [
        service for path in COMPOSE for service in (yaml.safe_load(path.read_text()).get("services") or {}).values()
    ]
    passed = {
        name for service in services for name, value in (service.get("environment") or {}).items() if value is None
    }
    explained = set(re.findall(r"^#? ?([A-Z0-9_]+)=", (DEPLOY / ".env.example").read_text(), re.M))
    images = {name for name in read if name.endswith("_IMAGE")}
    unexplained = read | passed - images - explained
    quiet = {"UCX_LOG_LEVEL", "DIPTYCH_DRAIN_TIMEOUT", "DIPTYCH_PLAYGROUND", "AR_URLS", "DIT_URLS"}
    assert unexplained - explained - images - quiet == set()
    assert explained - read - passed == set(), "explained, but read by no compose file"


def test_no_empty_variable_reaches_a_container():
    """`VAR: ${VAR-}` would pass an empty string, which UCX and others do not take for unset."""
    for path in COMPOSE:
        assert not re.findall(r"\$\{[A-Z0-9_]+(?::?-)?\}", path.read_text()), path


def test_images_and_ports_agree_with_the_settings():
    assert GatewaySettings.model_fields["gateway_port"].default == 8000
    assert ArSettings.model_fields["ar_port"].default == 8101
    assert DitSettings.model_fields["dit_port"].default == 8102


def test_the_stop_grace_covers_drain_and_engine_stop():
    from services.serving.supervisor import STOP_TIMEOUT

    drain = ArSettings.model_fields["drain_timeout"].default
    grace = re.search(r"stop_grace_period: (\d+)s", (DEPLOY / "services.yaml").read_text())
    assert grace
    assert int(grace[1]) >= drain + STOP_TIMEOUT
    unit = text_of("launch/*.service")
    assert all(int(seconds) >= drain + STOP_TIMEOUT for seconds in re.findall(r"TimeoutStopSec=(\d+)", unit))


def test_tiny_checkpoint_is_where_the_stage_configuration_looks():
    cpu = yaml.safe_load((DEPLOY / "compose.cpu.yaml").read_text())
    folder = cpu["services"]["model"]["command"][1]
    assert folder == "/var/cache/diptych/tiny-glm-image"
    assert "DIPTYCH_CACHE=/var/cache/diptych" in (ROOT / "docker/engine.Dockerfile").read_text()
    assert "DIPTYCH_CACHE" in (ROOT / "stage_configs/glm_image_cpu.yaml").read_text()


def test_nothing_names_where_packages_come_from():
    text = text_of("deploy/**/*.yaml", "docker/*", "requirements/*.txt", "launch/*", "Makefile", "tests/deploy/*")
    assert not re.findall(r"(?i)index-url[\s='\"]*http|find-links|pypi\.org|pythonhosted", text)
