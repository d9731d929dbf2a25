"""The dependencies between packages obey the contracts in pyproject.toml (docs/architecture.md)."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a new process, because import-linter and a fresh import would change the state of this process."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_every_import_contract_is_kept():
    checked = python(
        "-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache"
    )

    assert checked.returncode == 0, checked.stdout


def test_pyproject_defines_the_expected_number_of_import_contracts():
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())

    assert len(config["tool"]["importlinter"]["contracts"]) == 22


def test_importing_the_spark_package_loads_no_broker():
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


def test_package_imports_local_cluster_on_first_use():
    program = (
        "import sys, minikafka; lazy = 'minikafka.cluster' not in sys.modules; "
        "print(lazy, minikafka.LocalCluster.__name__, hasattr(minikafka, 'no_such_name'))"
    )

    assert python("-c", program).stdout.strip() == "True LocalCluster False"
