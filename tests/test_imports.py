"""The arrows between components hold (docs/architecture.md); import-linter reads them from pyproject.toml."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from importlinter.cli import lint_imports

ROOT = Path(__file__).parent.parent


def test_every_import_contract_is_kept(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)

    status = lint_imports(config_filename="pyproject.toml", no_cache=True)

    assert status == 0, capsys.readouterr().out


def test_importing_the_package_loads_no_component():
    assert not hasattr(import_module("minikafka"), "no_such_name")
