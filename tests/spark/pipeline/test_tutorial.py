"""The commands of the tour in docs/pipelines.md run in order and print the output that the page shows.

`…` on the page stands for any text. Pipelines run in this process, in the shared Spark session.
"""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.commands.commands import ENVIRONMENT

from minikafka.spark.pipelines.session import context
from minikafka.tools.cli.main import commands

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "pipelines.md").read_text()
TOUR = PAGE[PAGE.index("## A tour") : PAGE.index("## Options of every command")]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TOUR, re.DOTALL | re.MULTILINE)


def steps() -> Iterator[tuple[str, str]]:
    """Yield each command of the page with the output that the page shows."""
    for block in blocks("console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, output


def as_pattern(shown: str) -> str:
    """Return a regular expression for the shown output that matches any amount of white space between words."""
    words = [re.escape(part) for part in shown.strip().split("…")]
    return r"\s*" + re.sub(r"(?:\\\n|\\ |\s)+", r"\\s+", ".*".join(words)) + r"\s*"


@pytest.fixture
def place(spark, shared_cluster, tmp_path, monkeypatch) -> Path:
    """The working directory of the tour. Its `./data` is a link to the shared cluster's data directory."""
    monkeypatch.chdir(tmp_path)
    Path("data").symlink_to(shared_cluster.directory.path)
    command = Path("bin/minikafka")
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m minikafka "$@"\n')
    command.chmod(0o755)
    [program] = blocks("python")
    Path("clicks.py").write_text(program)
    names = re.findall(r"^.*`(\w+\.toml)`:\n\n```toml$", TOUR, re.MULTILINE)
    for name, definition in zip(names, blocks("toml"), strict=True):
        Path(name).write_text(definition)
    monkeypatch.setattr(context, "execute", lambda _, work, __, report, **___: work(spark, report))
    return tmp_path


def follow(place: Path, command: str) -> tuple[int, str]:
    if not command.startswith("minikafka pipeline "):
        path = f"{place}/bin:{ENVIRONMENT['PATH']}"
        shell = ["/bin/sh", "-c", command]
        done = subprocess.run(
            shell,
            env=ENVIRONMENT | {"PATH": path},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        # On a busy machine a command may say what it waits for.
        errors = re.sub(r"^waiting for .*\n", "", done.stderr, flags=re.MULTILINE)
        return done.returncode, done.stdout + errors
    handler = signal.getsignal(signal.SIGTERM)
    # The Java process of all tests has another working directory.
    command = re.sub(r"--(checkpoint|parquet) (\w+)", rf"--\1 {place}/\2", command)
    try:
        result = CliRunner().invoke(commands, shlex.split(command)[1:], catch_exceptions=False)
    finally:
        signal.signal(signal.SIGTERM, handler)
    return result.exit_code, result.stdout


def test_commands_of_the_tour_print_the_output_that_the_page_shows(place):
    for command, shown in steps():
        code, output = follow(place, command)
        assert code == 0, f"{command}: {output}"
        assert re.fullmatch(as_pattern(shown), output, re.DOTALL), f"{command}: {output}"
    assert (place / "clicks.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (place / "lag.html").read_text()


def test_pictures_of_the_tour_page_exist_and_are_small():
    names = re.findall(r"\]\((images/[^)]+)\)", PAGE)
    assert names
    for name in names:
        assert 5_000 < (ROOT / "docs" / name).stat().st_size < 100_000
