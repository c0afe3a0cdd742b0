"""What the commands `diptych check` and `diptych migrate` print and return."""

import json
import os
import tempfile
from pathlib import Path

import click

from services.stages.explain import explain
from services.stages.migrate import migrate
from services.stages.model import Role
from services.stages.report import as_json as report_json
from services.stages.report import as_text
from services.stages.resolve import inspect


def check_file(path: Path, role: Role, *, as_json: bool) -> int:
    """Print the check of a file; 0 if it has no errors, else 1."""
    inspection = inspect(path, role=role, environ=os.environ)
    if as_json:
        click.echo(json.dumps(report_json(inspection, path, role), indent=2))
    else:
        click.echo(as_text(inspection, path, role))
    return 1 if inspection.errors else 0


def explain_key(key: str) -> int:
    """Print what a key does."""
    click.echo(explain(key))
    return 0


def migrate_file(old: Path) -> int:
    """Print the migrated file, and on stderr what the checker still says about it; 1 if that has errors."""
    text = migrate(old)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / old.name
        path.write_text(text, encoding="utf-8")
        inspection = inspect(path, role="all", environ=os.environ)
    click.echo(text, nl=False)
    for finding in inspection.findings:
        line = f"line {finding.place.line}: " if finding.place.line else ""
        click.echo(f"{line}{finding.level}: {finding.key}: {finding.message}", err=True)
    return 1 if inspection.errors else 0
