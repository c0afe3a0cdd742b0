"""The Kubernetes files hold together without a cluster or kubectl: names, selectors, probes, sums."""

import re
from pathlib import Path

import pytest
import yaml

K8S = Path(__file__).parents[3] / "deploy/k8s"


def documents(path: Path) -> list[dict]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def base(kind: str) -> dict[str, dict]:
    found = [doc for path in sorted((K8S / "base").glob("*.yaml")) for doc in documents(path) if doc["kind"] == kind]
    return {document["metadata"]["name"]: document for document in found}


DEPLOYMENTS = base("Deployment")


@pytest.mark.parametrize("kustomization", sorted(K8S.rglob("kustomization.yaml")), ids=lambda path: path.parent.name)
def test_what_a_kustomization_names_is_there(kustomization):
    content = yaml.safe_load(kustomization.read_text())
    for entry in [*content.get("resources", []), *content.get("components", [])]:
        target = kustomization.parent / entry
        assert target.is_file() or (target / "kustomization.yaml").is_file(), entry


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_pod_is_hardened(name):
    pod = DEPLOYMENTS[name]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    for container in pod["containers"]:
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"] is True
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"]["drop"] == ["ALL"]
        assert container["resources"]["requests"]["memory"]
        assert container["resources"]["limits"]["memory"]


def test_no_service_can_shadow_a_setting():
    """A Service named diptych-ar would set DIPTYCH_AR_PORT=tcp://... in every pod."""
    for name, deployment in DEPLOYMENTS.items():
        assert deployment["spec"]["template"]["spec"]["enableServiceLinks"] is False
        assert not name.startswith("diptych")


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_service_selects_its_deployment(name):
    service = base("Service")[name]["spec"]
    labels = DEPLOYMENTS[name]["spec"]["template"]["metadata"]["labels"]
    assert service["selector"].items() <= labels.items()
    port = DEPLOYMENTS[name]["spec"]["template"]["spec"]["containers"][0]["ports"][0]
    assert service["ports"][0]["targetPort"] == port["name"] == "http"


@pytest.mark.parametrize("name", ["ar", "dit"])
def test_start_up_gets_longer_than_the_engine_itself_gets(name):
    from services.serving.settings import StageSettings

    container = DEPLOYMENTS[name]["spec"]["template"]["spec"]["containers"][0]
    probe = container["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] > StageSettings.model_fields["start_timeout"].default
    assert container["livenessProbe"]["httpGet"]["path"] == "/live"
    assert container["readinessProbe"]["httpGet"]["path"] == "/ready"


def test_the_shutdown_sum_holds():
    from services.serving.supervisor import STOP_TIMEOUT

    patches = yaml.safe_load((K8S / "components/graceful-shutdown/kustomization.yaml").read_text())["patches"]
    config = (K8S / "base/kustomization.yaml").read_text()
    (drain,) = {int(seconds) for seconds in re.findall(r"DIPTYCH_DRAIN_TIMEOUT=(\d+)", config)}
    for patch, after_drain in zip(patches, (STOP_TIMEOUT, 10), strict=True):  # the gateway: 10 s for open connections
        operations = {entry["path"].rsplit("/", 1)[1]: entry["value"] for entry in yaml.safe_load(patch["patch"])}
        sleep = int(operations["lifecycle"]["preStop"]["exec"]["command"][1])
        assert sleep + drain + after_drain < operations["terminationGracePeriodSeconds"]


def test_policy_and_ports_agree():
    config = (K8S / "base/kustomization.yaml").read_text()
    first, last = re.search(r"DIPTYCH_HANDOFF_PORT_RANGE=(\d+)-(\d+)", config).groups()
    policies = documents(K8S / "components/network-policy/policies.yaml")
    ports = [port for rule in policies[0]["spec"]["ingress"] for port in rule.get("ports", []) if "endPort" in port]
    assert ports == [{"protocol": "TCP", "port": int(first), "endPort": int(last)}]


def test_every_scaler_has_a_deployment_whose_replicas_it_may_own():
    scalers = documents(K8S / "components/keda/scalers.yaml")
    target = yaml.safe_load((K8S / "components/keda/kustomization.yaml").read_text())["patches"][0]["target"]["name"]
    for scaler in scalers:
        assert scaler["spec"]["scaleTargetRef"]["name"] in DEPLOYMENTS
        assert re.fullmatch(target, scaler["spec"]["scaleTargetRef"]["name"])
        assert scaler["spec"]["minReplicaCount"] >= 1
