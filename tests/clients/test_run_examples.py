"""The examples of `minikafka run` with the test commands of other languages, where their tools are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.clients.client_drivers import NPM, build
from support.commands.commands import NEW_INTERPRETER

EXAMPLES = Path(__file__).parents[2] / "examples"
COMMANDS = {
    "npm": ["npm", "test"],
    "go": ["go", "test", "./..."],
    "mvn": ["mvn", "--quiet", "--batch-mode", "--offline", "test"],
}
LONG = ("go", "mvn")
"""Examples whose compilers take more than a second."""


@pytest.mark.parametrize("tool", COMMANDS)
def test_example_passes_with_a_good_verdict(tool: str, tmp_path: Path) -> None:
    if tool in LONG and "MINIKAFKA_LONG_TESTS" not in os.environ:
        pytest.skip(f"MINIKAFKA_LONG_TESTS=1 runs the example of {tool}, which compiles for long")
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    folder = tmp_path / tool
    shutil.copytree(EXAMPLES / tool, folder)
    if tool == "npm":
        build(list(NPM), folder)
    words = [*NEW_INTERPRETER, "run", "--brokers", "1", "--", *COMMANDS[tool]]
    ended = subprocess.run(
        words, cwd=folder, capture_output=True, text=True, check=False, timeout=280
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "verdict: no anomaly (2 writes, 2 reads)\n" in ended.stderr
