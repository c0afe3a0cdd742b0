"""The OpenAPI document and what is made from it tell the truth."""

import subprocess
import sys
from pathlib import Path

from fastapi.routing import APIRoute

from services.gateway.app import create_app
from services.gateway.errors import ApiError
from services.gateway.openapi import ERRORS, document
from services.gateway.reference import markdown, page
from services.gateway.requests import GenerationRequest
from services.gateway.settings import GatewaySettings
from tests.service.gateway.fakes import FakePainter

ROOT = Path(__file__).resolve().parents[3]


def test_docs_api_md_is_current():
    """If this fails: python -m services.gateway.reference docs/api.md"""
    assert (ROOT / "docs/api.md").read_text() == markdown(document())


def test_the_document_has_exactly_the_routes():
    app = create_app(GatewaySettings(storage_url=""), FakePainter())
    routes = {
        (route.path.replace(":path", ""), method.lower())
        for route in app.routes
        if isinstance(route, APIRoute) and route.include_in_schema
        for method in route.methods
    }
    described = {(path, method) for path, operations in document()["paths"].items() for method in operations}
    assert described == routes


def test_examples_are_accepted():
    content = document()["paths"]["/v1/images/generations"]["post"]["requestBody"]["content"]["application/json"]
    for example in content["examples"].values():
        GenerationRequest.model_validate(example["value"])


def test_each_error_is_shown_in_its_own_shape():
    for status, (meaning, example) in ERRORS.items():
        assert isinstance(example, ApiError)
        assert example.status == status
        assert meaning


def test_the_page_loads_nothing_and_escapes():
    html = page(document())
    assert "<script" not in html
    assert "http-equiv" not in html
    assert "src=" not in html
    assert "&lt;" in html or "&quot;" in html


def test_the_gateway_imports_no_engine():
    heavy = ("torch", "vllm", "vllm_omni", "nixl", "numpy", "transformers")
    code = f"import sys, services.gateway.main; print([name for name in {heavy} if name in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.strip() == "[]"
