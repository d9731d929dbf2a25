"""Suggestions for misspelt commands."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from minikafka.tools.cli.main import commands
from minikafka.tools.cli.terminal.command_group import nearest


@pytest.mark.parametrize(
    ("line", "suggestion"),
    [
        ("topcs", "Did you mean topics"),
        ("Topics", "Did you mean topics?"),
        ("consum", "Did you mean consume?"),
        ("topics crate", "Did you mean create"),
        ("topics desc", "Did you mean describe?"),
        ("cluster helth", "Did you mean health?"),
        ("configs sett", "Did you mean set?"),
        ("plan kill", "Did you mean kill-broker?"),
        ("list", "Did you mean faults list or topics list or acls list or users list"),
        ("health", "Did you mean faults heal or faults held or cluster health?"),
        (
            "topics xyz",
            "alter, compact, create, delete, delete-records, describe, expire, list.",
        ),
    ],
)
def test_error_about_an_unknown_command_suggests_one(line: str, suggestion: str) -> None:
    done = CliRunner().invoke(commands, line.split())
    assert done.exit_code == 2
    assert f"No such command {line.split()[-1]!r}. " in done.stderr
    assert suggestion in done.stderr


def test_misspelt_option_before_a_subcommand_is_reported_as_an_option() -> None:
    done = CliRunner().invoke(commands, ["topics", "--hlp", "list"])
    assert done.exit_code == 2
    assert "No such option" in done.stderr


def test_command_suggestions_prefer_names_that_begin_with_the_input() -> None:
    assert nearest("re", ["reassign", "resume", "restart", "are"]) == [
        "reassign",
        "resume",
        "restart",
    ]
    assert nearest("stauts", ["status", "stop", "start"])[0] == "status"
    assert nearest("zzz", ["status"]) == []
