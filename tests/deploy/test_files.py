"""Every deployment file against the tools that own its format."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

DEPLOY = Path(__file__).parents[2] / "deploy"
LAUNCH = DEPLOY.parent / "launch"
COMPOSE = [*sorted(DEPLOY.glob("compose*.yaml")), DEPLOY / "services.yaml"]
OVERLAYS = sorted(path.parent for path in (DEPLOY / "k8s/overlays").glob("*/kustomization.yaml"))
SCHEMAS = yaml.safe_load((Path(__file__).parent / "custom_resources.yaml").read_text())
needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on this machine")


def passes(*command: object) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("file", COMPOSE, ids=lambda path: path.name)
def test_compose_files_keep_to_the_compose_schema(tools, file):
    passes(tools / "tools/bin/check-jsonschema", "--builtin-schema", "vendor.compose-spec", file)


@pytest.mark.parametrize("overlay", OVERLAYS, ids=lambda path: path.name)
@needs_kubectl
def test_an_overlay_renders_and_keeps_to_the_kubernetes_schema(tools, tmp_path, overlay):
    rendered = tmp_path / "rendered.yaml"
    rendered.write_text(passes("kubectl", "kustomize", overlay))
    report = passes(tools / "tools/bin/kubernetes-validate", "--strict", rendered)
    documents = [document for document in yaml.safe_load_all(rendered.read_text()) if document]
    unknown = [line for line in report.splitlines() if "Couldn't find schema" in line]
    custom = [document for document in documents if document["kind"] in SCHEMAS]
    assert len(unknown) == len(custom)
    assert report.count(" passed ") == len(documents) - len(custom)
    for document in custom:
        Draft202012Validator(SCHEMAS[document["kind"]]).validate(document)


@needs_kubectl
def test_a_misspelt_key_would_be_seen(tools, tmp_path):
    rendered = passes("kubectl", "kustomize", OVERLAYS[0]).replace("failureThreshold:", "failureTreshold:")
    (tmp_path / "broken.yaml").write_text(rendered)
    command = [tools / "tools/bin/kubernetes-validate", "--strict", tmp_path / "broken.yaml"]
    assert subprocess.run(command, capture_output=True, timeout=120).returncode != 0


@needs_kubectl
def test_the_scaled_overlay_leaves_the_replicas_to_the_scaler():
    documents = list(yaml.safe_load_all(passes("kubectl", "kustomize", DEPLOY / "k8s/overlays/two-node")))
    replicas = {
        doc["metadata"]["name"]: doc["spec"].get("replicas") for doc in documents if doc["kind"] == "Deployment"
    }
    assert replicas == {"ar": None, "dit": None, "gateway": 1}


@needs_kubectl
def test_the_rdma_component_fits_on_an_overlay(tools, tmp_path):
    overlay = os.path.relpath(DEPLOY / "k8s/overlays/two-node", tmp_path)
    component = os.path.relpath(DEPLOY / "k8s/components/rdma", tmp_path)
    (tmp_path / "kustomization.yaml").write_text(f"resources: [{overlay}]\ncomponents: [{component}]\n")
    (tmp_path / "rendered.yaml").write_text(passes("kubectl", "kustomize", tmp_path))
    passes(tools / "tools/bin/kubernetes-validate", "--strict", tmp_path / "rendered.yaml")
    assert "rdma/ib" in (tmp_path / "rendered.yaml").read_text()


def test_alert_rules_pass_promtool_and_their_own_tests(tools):
    promtool = tools / "prometheus/usr/bin/promtool"
    passes(promtool, "check", "rules", DEPLOY / "prometheus/alerts.yaml")
    passes(promtool, "test", "rules", DEPLOY / "prometheus/alerts_test.yaml")


def test_the_prometheus_configuration_is_valid(tools, tmp_path):
    local = (DEPLOY / "prometheus/prometheus.yaml").read_text().replace("/etc/prometheus", str(tmp_path))
    (tmp_path / "prometheus.yaml").write_text(local)
    shutil.copy(DEPLOY / "prometheus/alerts.yaml", tmp_path)
    passes(tools / "prometheus/usr/bin/promtool", "check", "config", tmp_path / "prometheus.yaml")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not on this machine")
@pytest.mark.parametrize("unit", sorted(LAUNCH.glob("*.service")), ids=lambda path: path.name)
def test_systemd_units_are_understood(unit):
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=60)
    complaints = [line for line in done.stderr.splitlines() if "is not executable" not in line]
    assert complaints == []  # the one that is left out: nothing is installed in /opt/diptych here
