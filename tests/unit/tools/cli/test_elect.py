"""The command `elect`: its requests, output and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.commands.scripted_admin import ScriptedAdmin

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.client import Outcome
from minikafka.tools.cli import elect as module

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> ScriptedAdmin:
    scripted = ScriptedAdmin({T0: (1, 2), T1: (2, 1), U0: (1,)})
    scripted.election = {
        T0: Outcome(ErrorCode.NONE),
        T1: Outcome(ErrorCode.ELECTION_NOT_NEEDED, "leads already"),
        U0: Outcome(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "broker 1 is away"),
    }
    monkeypatch.setattr("minikafka.client.Client", lambda servers, **_: scripted)
    return scripted


def call(*arguments: str) -> Result:
    return CliRunner().invoke(module.elect, [*arguments, "--bootstrap", "h:1"])


@pytest.mark.row("R61", "H6")
def test_elect_succeeds_for_a_partition_that_needs_no_election(admin: ScriptedAdmin) -> None:
    done = call("--preferred", "--topic", "t")
    assert done.exit_code == 0
    assert done.stdout == (
        "Successfully completed leader election (PREFERRED) for partition t-0\n"
        "Valid replica already elected for partition t-1\n"
    )
    assert admin.elections == [([T0, T1], False)]


@pytest.mark.row("R61")
def test_failed_election_prints_its_reason_and_exits_with_code_1(admin: ScriptedAdmin) -> None:
    done = call("--preferred", "--all")
    assert done.exit_code == 1
    assert (
        "Error completing leader election (PREFERRED) for partition u-0: "
        "PREFERRED_LEADER_NOT_AVAILABLE: broker 1 is away\n"
    ) in done.stdout
    shown = json.loads(call("--preferred", "--all", "--json").stdout)
    assert [row["result"] for row in shown["partitions"]] == ["elected", "not_needed", "failed"]
    assert shown["partitions"][2]["error"] == "PREFERRED_LEADER_NOT_AVAILABLE"


def test_partitions_are_named_by_options_or_by_a_file(admin: ScriptedAdmin, tmp_path: Path) -> None:
    file = tmp_path / "partitions.json"
    file.write_text('{"partitions": [{"topic": "u", "partition": 0}]}')
    call("--unclean", "--topic", "t", "--partition", "1", "--partition", "0")
    call("--unclean", "--file", str(file))
    call("--preferred", "t-1", "u-0")
    assert admin.elections == [([T1, T0], True), ([U0], True), ([T1, U0], False)]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--all"],
        ["--preferred", "--unclean", "--all"],
        ["--preferred"],
        ["--preferred", "--all", "--topic", "t"],
        ["--preferred", "--partition", "0"],
        ["--preferred", "--all", "--partition", "0"],
    ],
)
def test_elect_exits_with_code_2_on_missing_or_contradictory_options(
    admin: ScriptedAdmin, arguments: list[str]
) -> None:
    assert call(*arguments).exit_code == 2
    assert admin.elections == []


def test_error_names_the_unknown_topic(admin: ScriptedAdmin) -> None:
    assert "none" in str(call("--preferred", "--topic", "none").exception)


def test_elect_all_says_that_no_partition_needs_an_election(admin: ScriptedAdmin) -> None:
    admin.election = {}
    assert call("--preferred", "--all").stdout == "No partition needs an election.\n"
