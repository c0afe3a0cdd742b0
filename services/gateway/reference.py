"""The reference of the API, from the OpenAPI document: as Markdown (docs/api.md) and as the page at /docs.

`python -m services.gateway.reference docs/api.md` writes the Markdown; a test says when it is not current.
"""

import html
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from services.gateway.openapi import Document, document

Kind = Literal["title", "section", "text", "table", "code"]
Block = tuple[Kind, Any]

STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}"
    "table{border-collapse:collapse;width:100%}td,th{border:1px solid #8886;padding:.3rem .5rem;text-align:left;"
    "vertical-align:top}pre{overflow:auto;padding:.75rem;background:#8882;border-radius:.4rem}"
)
SDK = """from openai import OpenAI

client = OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="none")
reply = client.images.generate(prompt="a red apple", size="1024x1024", extra_body={"seed": 7})
print(reply.data[0].b64_json[:40])
"""


def blocks(spec: Document) -> Iterator[Block]:
    """The reference, part by part."""
    yield "title", "The API of the gateway"
    yield "text", spec["info"]["description"]
    yield "code", SDK
    for path, operations in spec["paths"].items():
        for method, operation in operations.items():
            if method != "head":
                yield from _operation(spec, path, method, operation)
    yield "section", "Events of a stream"
    yield "text", "`event:` has the type, `data:` this object; comment lines keep the connection alive."
    yield "table", _fields(spec, spec["components"]["schemas"]["StreamEvent"])
    yield "section", "Errors"
    yield "text", 'Every error is `{"error": {"message", "type", "param", "code"}}`, with all four keys.'
    yield "table", [("status", "meaning", "type", "code, for example"), *_errors(spec)]


def _operation(spec: Document, path: str, method: str, operation: Document) -> Iterator[Block]:
    yield "section", f"{method.upper()} {path}"
    yield "text", operation["summary"]
    for kind, body in operation.get("requestBody", {}).get("content", {}).items():
        yield "text", f"Body, as `{kind}`:"
        yield "table", _fields(spec, _resolved(spec, body["schema"]))
        for name, example in body.get("examples", {}).items():
            if kind == "application/json":
                yield "text", f"Example, {name}:"
                yield "code", json.dumps(example["value"], indent=2)
    for kind, reply in operation["responses"]["200"]["content"].items():
        yield "text", f"Reply, as `{kind}`:"
        schema = _resolved(spec, reply["schema"])
        if "properties" in schema:
            yield "table", _fields(spec, schema)
        if "example" in reply:
            yield "code", reply["example"]
    yield "text", "Errors: " + ", ".join(status for status in operation["responses"] if status != "200") + "."


def _resolved(spec: Document, schema: Document) -> Document:
    name = schema.get("$ref", "").rpartition("/")[2]
    found: Document = spec["components"]["schemas"][name] if name else schema
    return found


def _fields(spec: Document, schema: Document) -> list[tuple[str, ...]]:
    required = set(schema.get("required", []))
    rows: list[tuple[str, ...]] = [("field", "type", "meaning")]
    for name, field in schema["properties"].items():
        meaning = field.get("description") or _resolved(spec, field).get("description", "")
        rows.append((f"{name}{' (required)' if name in required else ''}", _type(spec, field), meaning))
    return rows


def _type(spec: Document, field: Document) -> str:
    if "$ref" in field:
        inner = _resolved(spec, field)
        return "{" + ", ".join(inner["properties"]) + "}"
    if "anyOf" in field:
        return " or ".join(_type(spec, option) for option in field["anyOf"] if option.get("type") != "null")
    if "enum" in field or "const" in field:
        return ", ".join(field.get("enum", [field.get("const")]))
    if field.get("type") == "array":
        return f"list of {_type(spec, field['items'])}"
    low, high = field.get("minimum"), field.get("maximum")
    bounds = f" {low if low is not None else ''}..{high if high is not None else ''}"
    return f"{field.get('format', field.get('type', ''))}{bounds if bounds != ' ..' else ''}"


def _errors(spec: Document) -> Iterator[tuple[str, ...]]:
    for status, reply in spec["components"]["responses"].items():
        error = reply["content"]["application/json"]["example"]["error"]
        yield status, reply["description"], error["type"], error["code"]


def markdown(spec: Document) -> str:
    """The reference as Markdown."""
    parts = []
    for kind, value in blocks(spec):
        match kind:
            case "title":
                parts.append(f"# {value}")
            case "section":
                parts.append(f"## {value}")
            case "text":
                parts.append(value)
            case "code":
                parts.append(f"```\n{value.rstrip()}\n```")
            case "table":
                rows = [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in value]
                rows.insert(1, "|" + "---|" * len(value[0]))
                parts.append("\n".join(rows))
    return "\n\n".join(parts) + "\n"


def page(spec: Document) -> str:
    """The reference as one HTML page that loads nothing."""
    parts = []
    for kind, value in blocks(spec):
        match kind:
            case "title":
                parts.append(f"<h1>{html.escape(value)}</h1>")
            case "section":
                parts.append(f"<h2>{html.escape(value)}</h2>")
            case "text":
                parts.append(f"<p>{_inline(value)}</p>")
            case "code":
                parts.append(f"<pre>{html.escape(value)}</pre>")
            case "table":
                rows = ("".join(f"<td>{_inline(cell)}</td>" for cell in row) for row in value)
                parts.append("<table>" + "".join(f"<tr>{row}</tr>" for row in rows) + "</table>")
    meta = '<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Diptych: API</title>'
    head = f"{meta}<style>{STYLE}</style>"
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>'


def _inline(text: str) -> str:
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(text))


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(markdown(document()))
