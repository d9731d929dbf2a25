"""The tutorial of docs/security.md runs as printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands.commands import ENVIRONMENT

PAGE = Path(__file__).parents[2] / "docs/security.md"
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def shell(command: str, directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", command],
        cwd=directory,
        env={**ENVIRONMENT, "PATH": PATH},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "cluster.toml").write_text("[cluster]\nbrokers = 1\nport = 0\n")
    yield tmp_path
    shell("minikafka down", tmp_path)


def steps() -> list[tuple[str, str]]:
    """Return the commands of the tutorial, each with what it prints."""
    [section] = re.findall(r"^## Tutorial\n(.*?)^## ", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    found = []
    for kind, text in re.findall(r"^```(\w+)\n(.*?)^```$", section, re.DOTALL | re.MULTILINE):
        if kind == "sh":
            found.append((text, ""))
            continue
        for step in text.removeprefix("$ ").split("\n$ "):
            command, _, printed = step.partition("\n")
            found.append((command, printed))
    return found


def pattern(printed: str) -> str:
    """Return the pattern of an output. `…` stands for the rest of a line, or alone for any lines."""
    lines = printed.splitlines()
    return "".join(
        r"(.*\n)*" if line == "…" else re.escape(line).replace("…", ".*") + r"\n" for line in lines
    )


def test_tutorial_of_security_prints_what_the_page_shows(directory: Path) -> None:
    commands = steps()
    assert len(commands) > 8
    for command, printed in commands:
        done = shell(command, directory)
        output = done.stdout if done.returncode == 0 else done.stderr
        assert re.fullmatch(pattern(printed), output), (command, done)
