"""The arrows between components hold (docs/architecture.md); the contracts are in pyproject.toml."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A process of its own: import-linter and a fresh import would both leave traces in this one."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_every_import_contract_is_kept():
    checked = python(
        "-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache"
    )

    assert checked.returncode == 0, checked.stdout


def test_no_contract_went_unnoticed():
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())

    assert len(config["tool"]["importlinter"]["contracts"]) == 20


def test_an_executor_that_imports_the_spark_package_loads_no_broker():
    heavy = [
        "aiohttp",
        "aiozk",
        "uvloop",
        "kio",
        "minikafka.broker",
        "minikafka.zk",
        "minikafka.rpc",
    ]
    program = f"import sys, minikafka.spark; print([n for n in {heavy} if n in sys.modules])"

    assert python("-c", program).stdout.strip() == "[]"


def test_the_package_gives_local_cluster_on_first_use_and_nothing_else():
    program = (
        "import sys, minikafka; lazy = 'minikafka.cluster' not in sys.modules; "
        "print(lazy, minikafka.LocalCluster.__name__, hasattr(minikafka, 'no_such_name'))"
    )

    assert python("-c", program).stdout.strip() == "True LocalCluster False"
