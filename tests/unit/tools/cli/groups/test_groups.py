"""Arguments that the commands about groups refuse before they connect."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from minikafka.tools.cli.groups import groups
from minikafka.tools.cli.records.consume import consume

SCOPE = ("--topic", "t")


def refused(*arguments: str) -> str:
    done = CliRunner().invoke(groups, [*arguments])
    assert done.exit_code == 2, done.output
    return " ".join(done.output.split())


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("describe",), "name at least one GROUP, or give --all-groups"),
        (("describe", "g", "--all-groups"), "name at least one GROUP, or give --all-groups"),
        (("describe", "g", "--members", "--state"), "one of --offsets, --members and --state"),
        (("describe", "g", "--verbose"), "--verbose can only be used with --members"),
        (("list", "--state", "Stable,Asleep"), "'Asleep' is not a state: give some of Preparing"),
        (("delete",), "name at least one GROUP"),
        (("reset-offsets", "g", *SCOPE), "choose one of --to-earliest, --to-latest"),
        (("reset-offsets", "g", *SCOPE, "--to-latest", "--to-offset", "3"), "choose one of"),
        (("reset-offsets", "g", "--to-latest"), "name the partitions: --topic T, --all-topics"),
        (("reset-offsets", "g", *SCOPE, "--all-topics", "--to-latest"), "name the partitions"),
        (("reset-offsets", "g", *SCOPE, "--to-latest", "--dry-run", "--execute"), "choose one"),
        (("reset-offsets", "g", *SCOPE, "--to-latest", "--export", "--json"), "choose one of"),
        (("reset-offsets", "g", *SCOPE, "--by-duration", "2h"), "is not a duration"),
        (("reset-offsets", "g", *SCOPE, "--to-offset", "-1"), "--to-offset"),
        (("delete-offsets", "g"), "name the partitions: --topic TOPIC"),
        (("describ", "g"), "Did you mean describe?"),
    ],
)
def test_groups_command_refuses_invalid_arguments_with_an_error_that_says_why(
    arguments: tuple[str, ...], problem: str
) -> None:
    assert problem in refused(*arguments)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("-g", "g", "t", "-p", "1"), "--partition cannot be used with --group"),
        (("-g", "g", "t", "-o", "5"), "with --group, -o must be beginning or end"),
        (("-g", "g", "t", "-o", "beginning", "-o", "e@1700000000000"), "with --group, -o must be"),
        (("t", "u"), "name exactly one topic"),
        ((), "name exactly one topic"),
    ],
)
def test_consume_refuses_options_that_a_group_cannot_use(
    arguments: tuple[str, ...], problem: str
) -> None:
    done = CliRunner().invoke(consume, [*arguments])
    assert done.exit_code == 2, done.output
    assert problem in " ".join(done.output.split())
