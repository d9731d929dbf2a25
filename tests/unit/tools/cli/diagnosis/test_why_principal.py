"""The options of `why --principal`, without brokers."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from minikafka.tools.cli.main import commands


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("--principal User:alice", "name one resource"),
        ("--principal User:alice --topic t --group g", "name one resource"),
        ("--principal alice --topic t", "must have the form type:name"),
        ("--principal User:a --principal User:b --topic t", "name one principal"),
        ("--principal User:a t-0 --topic t", "no partition"),
        ("--principal User:a --topic t --offset 1", "no partition"),
        ("--principal User:a --topic t --operation fly", "is not one of"),
        ("--principal User:a --group g --operation write", "Group has no operation Write"),
        ("--operation write --topic t", "need --principal"),
        ("t-0 --data d --command-config /dev/null", "--command-config needs --bootstrap"),
    ],
)
def test_options_that_ask_nothing_are_a_usage_error(line: str, reason: str) -> None:
    done = CliRunner().invoke(commands, ["why", *line.split()])
    assert done.exit_code == 2
    assert reason in " ".join(done.output.split())
