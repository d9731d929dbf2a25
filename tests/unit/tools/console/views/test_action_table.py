"""The command lines that the actions of the console equal."""

from __future__ import annotations

import json
from typing import Any

import click
import pytest

from minikafka.tools.cli.main import commands
from minikafka.tools.console.errors import RequestRefused
from minikafka.tools.console.views.action_table import ACTIONS

GIVEN: dict[str, dict[str, Any]] = {
    "kill": {"broker": "1"},
    "pause": {"broker": "zookeeper"},
    "resume": {"broker": 2},
    "stop": {"broker": "ZooKeeper"},
    "start": {"broker": "3"},
    "restart": {"broker": "zookeeper"},
    "elect": {"topic": "t", "partition": 0, "type": "unclean"},
    "reassign": {"topic": "t", "partition": "1", "replicas": "3, 1"},
    "cancel-reassignment": {"topic": "t", "partition": 1},
    "abort-transaction": {"transactional_id": "tx"},
    "create-topic": {"topic": "t", "partitions": 3, "configs": "a=1,cleanup.policy=compact,delete"},
    "alter-topic": {"topic": "t", "partitions": 9},
    "delete-topic": {"topic": "t"},
    "set-config": {"topic": "t", "name": "retention.ms", "value": "-1"},
    "delete-config": {"topic": "t", "name": "retention.ms"},
    "produce": {"topic": "t", "value": "v"},
    "cut": {"a": 1, "b": "zookeeper", "direction": "one"},
    "cut-clients": {"broker": 1, "direction": "both"},
    "delay": {"a": "1", "b": "2", "link": "fetch", "ms": 50},
    "drop": {"a": "1", "b": "Clients"},
    "reset": {"a": "1", "b": "2"},
    "fill-disk": {"broker": "1", "free_bytes": 100, "log_dir": "/a b"},
    "slow-sync": {"broker": "1", "ms": 5},
    "fail-sync": {"broker": "1"},
    "expire-session": {"broker": "1"},
    "lose-coordinator": {"group": "g", "how": "pause"},
    "hold": {"step": "creation.partitions-new"},
    "held": {"step": "creation.partitions-new"},
    "release": {"step": "creation.partitions-new"},
    "after": {"api": "Produce", "n": 3, "broker": 1},
    "heal": {"a": "1"},
    "list-faults": {},
    "run-faults": {"script": "[[fault]]"},
}
WORDS = {
    "kill": "kill 1",
    "pause": "pause zookeeper",
    "resume": "resume 2",
    "stop": "stop zookeeper",
    "start": "start 3",
    "restart": "restart zookeeper",
    "elect": "elect --unclean t-0",
    "reassign": "reassign t-1 --replicas 3,1 --no-wait",
    "cancel-reassignment": "reassign t-1 --cancel",
    "abort-transaction": "transactions fence tx",
    "create-topic": "topics create t --partitions 3 --config a=1 --config cleanup.policy=compact,delete",
    "alter-topic": "topics alter t --partitions 9",
    "delete-topic": "topics delete t",
    "set-config": "configs set --topic t retention.ms=-1",
    "delete-config": "configs delete --topic t retention.ms",
    "produce": "produce t --json",
    "cut": "faults cut 1 zookeeper --direction one",
    "cut-clients": "faults cut-clients 1 --direction both",
    "delay": "faults delay 1 2 --link fetch --ms 50",
    "drop": "faults drop 1 clients",
    "reset": "faults reset 1 2",
    "fill-disk": "faults fill-disk 1 --log-dir /a b --free-bytes 100",
    "slow-sync": "faults slow-sync 1 --ms 5",
    "fail-sync": "faults fail-sync 1",
    "expire-session": "faults expire-session 1",
    "lose-coordinator": "faults lose-coordinator g --pause",
    "hold": "faults hold creation.partitions-new",
    "held": "faults held creation.partitions-new",
    "release": "faults release creation.partitions-new",
    "after": "faults after Produce 3 --broker 1",
    "heal": "faults heal 1",
    "list-faults": "faults list",
    "run-faults": "faults run -",
}


def words(name: str, given: object) -> list[str]:
    action = ACTIONS[name]
    return list(action.words(action.values(given)))


def parse(arguments: list[str]) -> None:
    """Let the command line parse the arguments without running the command. Raises UsageError."""
    group: click.Command = commands
    with click.Context(commands) as context:
        while isinstance(group, click.Group):
            _, command, arguments = group.resolve_command(context, arguments)
            assert command is not None
            group = command
        with group.make_context(group.name, arguments, parent=context):
            pass


@pytest.mark.parametrize("name", ACTIONS)
def test_action_is_a_command_that_the_command_line_accepts(name: str) -> None:
    action = ACTIONS[name]
    values = action.values(GIVEN[name])
    assert " ".join(action.words(values)) == WORDS[name]
    parse([*action.words(values), "--data", "d"])
    if (plan := action.plan(values)) is not None:
        parse([*plan, "--data", "d"])
    assert all(action.effects(values))


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("kill", {}),
        ("kill", {"broker": "one"}),
        ("kill", {"broker": True}),
        ("kill", {"broker": "1", "signal": "9"}),
        ("kill", "1"),
        ("elect", {"topic": "t", "partition": "x"}),
        ("elect", {"topic": "t", "partition": 0, "type": "best"}),
        ("reassign", {"topic": "t", "partition": 0, "replicas": "1;2"}),
        ("delete-topic", {"topic": "--all"}),
        ("abort-transaction", {}),
        ("abort-transaction", {"transactional_id": "--force"}),
        ("abort-transaction", {"topic": "t", "partition": 0}),
        ("create-topic", {"topic": "t", "configs": "a"}),
        ("set-config", {"topic": "t", "name": "--broker", "value": "1"}),
        ("cut", {"a": "1", "b": "--data"}),
        ("delay", {"a": "1", "b": "2"}),
        ("lose-coordinator", {}),
        ("lose-coordinator", {"group": "g", "transactional_id": "t"}),
        ("lose-coordinator", {"group": "--pause"}),
        ("hold", {"step": "--json"}),
        ("run-faults", {}),
    ],
)
def test_wrong_arguments_are_refused_before_a_command_is_made(name: str, given: object) -> None:
    with pytest.raises(RequestRefused) as refused:
        words(name, given)
    assert refused.value.status == 400


def test_hanging_transaction_is_aborted_in_its_partition() -> None:
    given = {"topic": "t", "partition": 0, "start_offset": 7}
    found = words("abort-transaction", given)
    assert found == ["transactions", "abort", "t-0", "--start-offset", "7"]
    parse([*found, "--data", "d"])


def test_coordinator_of_a_transactional_id_is_named_by_its_option() -> None:
    found = words("lose-coordinator", {"transactional_id": "--tx", "how": "kill"})
    assert found == ["faults", "lose-coordinator", "--transactional-id", "--tx"]
    parse([*found, "--data", "d"])


def test_every_command_of_faults_is_an_action() -> None:
    group = commands.get_command(click.Context(commands), "faults")
    assert isinstance(group, click.Group)
    named = {"list": "list-faults", "run": "run-faults"}
    for name in group.list_commands(click.Context(group)):
        assert named.get(name, name) in ACTIONS


def test_produced_record_is_one_line_of_json_whatever_it_contains() -> None:
    action = ACTIONS["produce"]
    given = {"topic": "t", "value": 'a\n"b"', "key": " k ", "partition": 2, "headers": "h=1,2,i="}
    text = action.input(action.values(given))
    assert text.count("\n") == 1
    assert json.loads(text) == {
        "key": " k ",
        "value": 'a\n"b"',
        "partition": 2,
        "headers": [{"key": "h", "value": "1,2"}, {"key": "i", "value": ""}],
    }
