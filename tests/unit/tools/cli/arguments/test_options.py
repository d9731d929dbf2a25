"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from minikafka.tools.cli.main import commands


@pytest.mark.parametrize(
    "command",
    [
        ["up", "--data", ""],
        ["up", "--config", ""],
        ["down", "--data", " "],
        ["topics", "list", "--data", ""],
        ["topics", "list", "--bootstrap", ""],
    ],
    ids=" ".join,
)
def test_blank_option_is_refused_instead_of_using_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(commands, command)
    assert done.exit_code == 2
    assert f"{command[-1]!r} is blank; leave the option out to use its default" in done.stderr
    assert not list(tmp_path.iterdir())
