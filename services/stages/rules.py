"""What the schema allows but GLM-Image, or Diptych, does not."""

from collections.abc import Mapping

from services.stages.checkpoint import PUBLISHED_MODEL, part_sizes
from services.stages.findings import Findings, shown
from services.stages.literal import Literals
from services.stages.parallel import check_division
from services.stages.topology import PIPELINE_NAME
from services.stages.view import StageView
from services.stages.yaml_tree import Node
from services.wire.errors import ConfigError


def check_top_rules(root: Node, literals: Literals, findings: Findings) -> None:
    """The pipeline is GLM-Image's, and hands whole requests on."""
    entries = root.value if isinstance(root.value, dict) else {}
    if "pipeline" in entries and literals.value(("pipeline",)) not in (None, PIPELINE_NAME):
        findings.error(entries["pipeline"].place, "pipeline", f"Diptych serves {PIPELINE_NAME} only; remove this line")
    if "async_chunk" in entries and literals.value(("async_chunk",)) is True:
        message = "GLM-Image has no chunk producer, so vLLM-Omni refuses true; write async_chunk: false"
        findings.error(entries["async_chunk"].place, "async_chunk", message)


def model_of(view: StageView, root: Node, literals: Literals, findings: Findings) -> str | None:
    """The checkpoint of a stage: its own `model`, else the file's, else the MODEL variable, else the published one.

    None if it is written but wrong, which is a finding by then.
    """
    entries = root.value if isinstance(root.value, dict) else {}
    node = entries.get("model")
    if "model" in view.values or "model" in view.unresolved:
        found = view.values.get("model")
    elif node is not None and node.value is not None:
        found = literals.value(("model",))
        source = literals.sources.get(("model",))
        if source is not None:
            view.sources["model"] = source
    else:
        found = literals.environ.get("MODEL", "").strip() or PUBLISHED_MODEL
        findings.note(root.place, "model", f"is not written; {found} is used (from MODEL, or the published checkpoint)")
    if isinstance(found, str) and not found.strip():
        findings.error(node.place if node else view.place_of("model"), "model", "names no checkpoint; set MODEL")
    return found if isinstance(found, str) and found.strip() else None


def check_stage_rules(view: StageView, findings: Findings) -> None:
    """Settings that start well and fail at a request."""
    sampling = view.values.get("default_sampling_params") if view.kind.role == "ar" else None
    if isinstance(sampling, dict) and sampling.get("allowed_token_ids") is not None:
        source = view.inner_sources.get(("default_sampling_params", "allowed_token_ids"))
        place = source.place if source else view.place_of("default_sampling_params")
        message = (
            "kills the engine: its mask is as wide as the text vocabulary, the logits as the vision one; remove it"
        )
        findings.error(place, (*view.key_of("default_sampling_params"), "allowed_token_ids"), message)


def check_model_fit(view: StageView, model: str | None, environ: Mapping[str, str], findings: Findings) -> None:
    """TP against the checkpoint's sizes, where they can be known."""
    if model is None:
        return
    try:
        sizes = part_sizes(model, view.kind.role, view.kind.part, environ)
    except ConfigError as error:
        findings.error(view.place_of("model"), "model", error.message)
        return
    if sizes is None:
        findings.note(
            view.place, "model", f"{shown(model)} is not on this machine: TP is not checked against its sizes"
        )
        return
    check_division(view, sizes, findings)
