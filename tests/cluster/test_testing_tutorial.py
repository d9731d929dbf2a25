"""The files of docs/testing.md, with the tutorial and the recipes, run as printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from support.commands.commands import ENVIRONMENT

PAGE = Path(__file__).parents[2] / "docs/testing.md"
TESTS = 13


def files() -> dict[str, str]:
    """Return the Python files of the page by name; the first line of each is its name."""
    return {
        name: text
        for text, name in re.findall(
            r"^```python\n(# (\w+\.py)\n.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE
        )
    }


def test_files_of_the_tutorial_of_testing_pass(tmp_path: Path) -> None:
    for name, text in files().items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "minikafka.pytest", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-q", "--rootdir=.", "-p", "no:asyncio", "-W", "error"],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert f"{TESTS} passed" in done.stdout, done.stdout + done.stderr
