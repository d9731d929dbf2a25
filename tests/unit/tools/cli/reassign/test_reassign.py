"""The output and exit codes of the command `reassign`, with an admin client that only simulates a cluster."""

from __future__ import annotations

import asyncio
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from support.commands.json_output import json_output
from support.commands.scripted_admin import ScriptedAdmin

from minikafka.base.model import TopicPartition
from minikafka.client.administration.results import Resource, ResourceType
from minikafka.tools.cli.arguments.partition_arguments import Named
from minikafka.tools.cli.reassign import reassign as module
from minikafka.tools.cli.reassign.jobs import ReassignOptions
from minikafka.tools.cli.reassign.moves import MoveByController

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
MOVE = ["--topic", "t", "--partition", "0", "--replicas", "3,4,5"]


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> ScriptedAdmin:
    scripted = ScriptedAdmin({T0: (1, 2, 3), T1: (2, 3, 1), U0: (1,)})
    monkeypatch.setattr("minikafka.client.Client", lambda servers, **_: scripted)
    return scripted


def call(*arguments: str) -> Result:
    return CliRunner().invoke(module.reassign, [*arguments, "--bootstrap", "h:1"])


def ended(result: Result) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(result.stdout)
    return shown


@pytest.mark.row("K1", "M4")
def test_reassign_waits_until_the_partition_is_moved(admin: ScriptedAdmin) -> None:
    done = call(*MOVE)
    assert done.exit_code == 0
    assert "Reassignment of partition t-0 is completed." in done.stdout
    assert '"topic":"t","partition":0,"replicas":[1,2,3]' in done.stdout, "needed to return to it"
    assert "0 of 1 partitions moved" in done.stderr
    assert admin.replicas[T0] == (3, 4, 5)


def test_partition_is_named_by_an_argument_as_well_as_by_options(admin: ScriptedAdmin) -> None:
    assert call("t-0", "--replicas", "3,4,5").exit_code == 0
    assert admin.replicas[T0] == (3, 4, 5)
    assert call("--verify", "t-0", "--replicas", "3,4,5").exit_code == 0
    assert call("--verify", "t-0", "t-1", "--timeout", "60").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "zookeeper"),
    [
        (["--via-zookeeper", "t-0", "--replicas", "3,4"], ""),
        (["t-0", "--replicas", "3,4", "--via-zookeeper"], ""),
        (["--via-zookeeper", "h:2181", "t-0", "--replicas", "3,4"], "h:2181"),
        (["t-0", "--via-zookeeper=h:2181", "--replicas", "3,4"], "h:2181"),
    ],
)
def test_option_via_zookeeper_does_not_take_the_partition_as_its_value(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], zookeeper: str
) -> None:
    asked: list[tuple[object, str]] = []
    monkeypatch.setattr(module, "zookeeper_servers", lambda given, *_: given)
    monkeypatch.setattr(module, "zookeeper_access", lambda *_: None)
    monkeypatch.setattr(
        module,
        "_move_by_node",
        lambda options, connect, access: asked.append((options.plan(), connect)),
    )
    done = CliRunner().invoke(module.reassign, arguments)
    assert (done.exit_code, asked) == (0, [({T0: (3, 4)}, zookeeper)]), done.output


@pytest.mark.row("K1", "K12")
def test_reassign_prints_rejected_partitions_and_moves_the_accepted_ones(
    admin: ScriptedAdmin,
) -> None:
    rejected = ["--topic", "t", "--partition", "1", "--replicas", "9"]
    unknown = ["--topic", "none", "--partition", "0", "--replicas", "1"]
    done = call(*MOVE, *rejected, *unknown)
    assert done.exit_code == 1
    assert "t-0 is completed" in done.stdout
    assert "t-1 was rejected: INVALID_REPLICA_ASSIGNMENT: no such broker" in done.stdout
    assert "none-0 was rejected: UNKNOWN_TOPIC_OR_PARTITION: no such partition" in done.stdout


def test_json_has_the_current_replicas_of_a_rejected_partition(admin: ScriptedAdmin) -> None:
    rejected = ["--topic", "t", "--partition", "1", "--replicas", "9"]
    unknown = ["--topic", "none", "--partition", "0", "--replicas", "1"]
    shown = ended(call(*MOVE, *rejected, *unknown, "--json"))
    replicas = {(row["topic"], row["partition"]): row["replicas"] for row in shown["partitions"]}
    assert replicas == {("t", 0): [3, 4, 5], ("t", 1): [2, 3, 1], ("none", 0): []}


def test_reassign_json_output_is_one_document(admin: ScriptedAdmin) -> None:
    done = call(*MOVE, "--json")
    shown = ended(done)
    assert done.stderr == ""
    assert (shown["completed"], shown["interrupted"]) == (True, False)
    assert shown["partitions"][0]["state"] == "completed"
    assert shown["current"]["partitions"][0]["replicas"] == [1, 2, 3]


def test_reassign_reads_the_target_replicas_from_a_file(
    admin: ScriptedAdmin, tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    file.write_text('{"partitions": [{"topic": "u", "partition": 0, "replicas": [2]}]}')
    assert call("--file", str(file)).exit_code == 0
    assert admin.replicas[U0] == (2,)
    assert call("--verify", "--file", str(file)).exit_code == 0


def test_reassign_with_option_no_wait_prints_the_command_that_verifies_the_move(
    admin: ScriptedAdmin,
) -> None:
    done = call(*MOVE, "--no-wait")
    assert done.exit_code == 0
    assert "Successfully started partition reassignment for t-0" in done.stdout
    assert admin.moving
    again = next(line for line in done.stderr.splitlines() if "--verify" in line)
    verify = shlex.split(again.partition(": ")[2])
    assert verify[:2] == ["minikafka", "reassign"]
    admin.looks = 0
    assert CliRunner().invoke(module.reassign, verify[2:]).exit_code == 0


def test_timeout_ends_the_waiting_but_not_the_move(admin: ScriptedAdmin) -> None:
    admin.paused = {5}
    done = call(*MOVE, "--timeout", "0.3")
    assert done.exit_code == 1
    assert "not completed within 0.3 s" in done.stderr
    assert "t-0 is still in progress" in done.stdout
    assert "to cancel: minikafka reassign --cancel --topic t --partition 0" in done.stderr
    assert T0 in admin.moving


@pytest.mark.row("K3")
@pytest.mark.parametrize("as_json", [False, True])
async def test_interrupted_reassign_prints_completed_moves_and_cancels_no_move(
    admin: ScriptedAdmin, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    admin.paused = {5}
    options = ReassignOptions(
        Named((T0, T1), ()), ("3,4,5", "3,2,1"), None, None, None, None, True, None, []
    )
    with json_output(as_json):
        move = asyncio.create_task(MoveByController(options, options.plan()).do(admin))
        async with asyncio.timeout(10):
            while T1 in admin.moving or not admin.looked:  # noqa: ASYNC110 - there is no event
                await asyncio.sleep(0.01)
        move.cancel()
        with pytest.raises(asyncio.CancelledError):
            await move
    shown = capsys.readouterr()
    assert T0 in admin.moving
    assert "1 of 2 reassignments completed, 1 still running" in shown.err
    assert "--verify --topic t --partition 0 --replicas 3,4,5" in shown.err
    if as_json:
        states = [row["state"] for row in json.loads(shown.out)["partitions"]]
        assert states == ["in_progress", "completed"]
    else:
        assert "t-0 is still in progress." in shown.out
        assert "t-1 is completed." in shown.out


def test_verify_prints_each_result_and_exits_with_code_1_if_a_move_is_incomplete(
    admin: ScriptedAdmin,
) -> None:
    admin.paused = {5}
    assert call(*MOVE, "--no-wait").exit_code == 0
    moving = call("--verify", *MOVE)
    assert (moving.exit_code, moving.stdout) == (
        1,
        "Status of partition reassignment:\nReassignment of partition t-0 is still in progress.\n",
    )
    admin.paused = set()
    assert call("--verify", *MOVE).exit_code == 0
    elsewhere = call("--verify", "--topic", "t", "--partition", "1", "--replicas", "1,2")
    assert elsewhere.exit_code == 1
    assert "its replicas are, or will be, 2,3,1" in elsewhere.stdout
    assert call("--verify", "--topic", "t").exit_code == 0


def test_list_shows_moves_in_progress(admin: ScriptedAdmin) -> None:
    assert call("--list").stdout == "No partition is being reassigned.\n"
    admin.paused = {5}
    call(*MOVE, "--no-wait")
    admin.sizes = {(1, T0): 100, (4, T0): 50}
    assert call("--list").stdout == (
        "Current partition reassignments:\n"
        "t-0: replicas: 3,4,5,1,2. adding: 4,5. removing: 1,2. 25 % broker 5 does not answer\n"
    )
    assert ended(call("--list", "--json"))["reassignments"][0] == {
        "topic": "t",
        "partition": 0,
        "replicas": [3, 4, 5, 1, 2],
        "adding": [4, 5],
        "removing": [1, 2],
        "bytes_done": 50,
        "bytes_total": 200,
    }


@pytest.mark.row("R57")
def test_cancel_undoes_moves_of_a_partition_or_a_topic(admin: ScriptedAdmin) -> None:
    admin.paused = {5}
    for named in (["--topic", "t", "--partition", "0"], ["--topic", "t"]):
        call(*MOVE, "--no-wait")
        done = call("--cancel", *named)
        assert (done.exit_code, admin.moving) == (0, {})
        assert done.stdout == "Reassignment of partition t-0 was cancelled.\n"
    nothing = call("--cancel", "--topic", "t", "--partition", "0")
    assert nothing.exit_code == 1
    assert "was not cancelled: NO_REASSIGNMENT_IN_PROGRESS" in nothing.stdout


def test_generate_keeps_the_replication_factor_of_each_topic(
    admin: ScriptedAdmin,
) -> None:
    shown = ended(call("--generate", "--topics", "t,u", "--brokers", "3,4,5", "--json"))
    assert [row["replicas"] for row in shown["current"]["partitions"]] == [
        [1, 2, 3],
        [2, 3, 1],
        [1],
    ]
    rows = {
        (row["topic"], row["partition"]): row["replicas"] for row in shown["proposed"]["partitions"]
    }
    assert [len(replicas) for replicas in rows.values()] == [3, 3, 1]
    assert {broker for replicas in rows.values() for broker in replicas} == {3, 4, 5}
    assert rows["t", 0][0] != rows["t", 1][0]
    text = call("--generate", "--topics", "t").stdout
    assert text.startswith("Current partition replica assignment\n{")
    assert "\n\nProposed partition reassignment configuration\n{" in text


def test_generate_puts_replicas_on_different_racks(admin: ScriptedAdmin) -> None:
    admin.racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c"}
    shown = ended(call("--generate", "--topics", "t", "--json"))
    racks = [
        {admin.racks[broker] for broker in row["replicas"]}
        for row in shown["proposed"]["partitions"]
    ]
    assert racks == [{"a", "b", "c"}] * 2


def test_generate_without_topics_moves_only_the_replicas_of_the_broker_that_is_left_out(
    admin: ScriptedAdmin, tmp_path: Path
) -> None:
    printed = call("--generate", "--brokers", "2,3,4", "--json").stdout
    rows = json.loads(printed)["proposed"]["partitions"]
    assert [(row["topic"], len(set(row["replicas"]) - {2, 3})) for row in rows] == [
        ("t", 1),
        ("t", 1),
        ("u", 0),
    ]
    plan = tmp_path / "plan.json"
    plan.write_text(printed)
    assert call("--file", str(plan), "--no-wait").exit_code == 0
    assert {tp.topic for tp in admin.moving} == {"t", "u"}


def test_generate_says_that_nothing_has_to_move(admin: ScriptedAdmin) -> None:
    shown = call("--generate", "--topics", "u", "--brokers", "1")
    assert shown.stdout == "No partition needs to move.\n"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--topics", "t,none"], "none"),
        (["--topics", "t", "--brokers", "1,2"], "3 replicas"),
        (["--topics", "t", "--brokers", "1,2,9"], "no live broker with id 9"),
    ],
)
def test_generate_refuses_unknown_topics_and_too_few_brokers(
    admin: ScriptedAdmin, arguments: list[str], problem: str
) -> None:
    done = call("--generate", *arguments)
    assert problem in str(done.exception)


def test_throttle_is_set_before_the_move_and_removed_after_completion(
    admin: ScriptedAdmin,
) -> None:
    admin.paused = {5}
    started = call(*MOVE, "--throttle", "1000", "--no-wait")
    assert "The throttle stays until --verify finds that all moves have completed" in started.stderr
    topic = Resource(ResourceType.TOPIC, "t")
    assert admin.configs[topic] == {
        "leader.replication.throttled.replicas": "0:1,0:2,0:3",
        "follower.replication.throttled.replicas": "0:4,0:5",
    }
    assert admin.configs[Resource(ResourceType.BROKER, "5")] == {
        "leader.replication.throttled.rate": "1000",
        "follower.replication.throttled.rate": "1000",
    }
    assert "removed" not in call("--verify", *MOVE).stdout
    admin.paused = set()
    assert "The throttle was removed." in call("--verify", *MOVE).stdout
    assert not any(admin.configs.values())


def test_repeated_reassign_with_another_throttle_changes_the_rate(admin: ScriptedAdmin) -> None:
    admin.paused = {5}
    call(*MOVE, "--throttle", "1000", "--no-wait")
    call(*MOVE, "--throttle", "2000", "--no-wait")
    named = admin.configs[Resource(ResourceType.TOPIC, "t")].values()
    assert [sorted(value.split(",")) for value in named] == [["0:1", "0:2", "0:3"], ["0:4", "0:5"]]
    for broker in "1", "5":
        rates = admin.configs[Resource(ResourceType.BROKER, broker)]
        assert set(rates.values()) == {"2000"}


def test_throttle_of_a_move_stays_when_another_partition_of_the_topic_is_moved(
    admin: ScriptedAdmin,
) -> None:
    """A topic has one list of throttled replicas, and the second command writes it again."""
    admin.paused = {5}
    call(*MOVE, "--throttle", "1000", "--no-wait")
    other = ["--topic", "t", "--partition", "1", "--replicas", "2,5"]
    call(*other, "--throttle", "1000", "--no-wait")
    followers = admin.configs[Resource(ResourceType.TOPIC, "t")][
        "follower.replication.throttled.replicas"
    ]
    assert followers.split(",")[:2] == ["0:4", "0:5"]
    assert "1:5" in followers


def test_reassign_removes_its_throttle_when_it_has_waited_for_the_move(
    admin: ScriptedAdmin,
) -> None:
    done = call(*MOVE, "--throttle", "1000")
    assert "The throttle was removed." in done.stderr
    assert not any(admin.configs.values())


def test_reassign_says_that_the_throttle_stays_while_earlier_moves_run(
    admin: ScriptedAdmin,
) -> None:
    admin.paused = {5}
    assert call("--topic", "t", "--partition", "1", "--replicas", "2,5", "--no-wait").exit_code == 0
    done = call("--topic", "t", "--partition", "0", "--replicas", "2,4", "--throttle", "1000")
    assert "The throttle stays, as other partitions are still moving" in done.stderr
    assert "reassign --verify --topic t --partition 0 --replicas 2,4" in done.stderr
    assert admin.configs


def test_throttle_is_removed_if_no_move_started(admin: ScriptedAdmin) -> None:
    refused = ["--topic", "t", "--partition", "1", "--replicas", "2,9"]
    done = call(*refused, "--throttle", "1000", "--no-wait")
    assert done.exit_code == 1
    assert "broker 9 is not throttled: BROKER_NOT_AVAILABLE" in done.stderr
    assert not any(admin.configs.values())


def test_throttle_of_a_running_move_stays_when_a_later_move_completes(admin: ScriptedAdmin) -> None:
    admin.paused = {5}
    call(*MOVE, "--throttle", "1000", "--no-wait")
    other = ["--topic", "u", "--partition", "0", "--replicas", "2"]
    assert call(*other).exit_code == 0
    assert admin.configs[Resource(ResourceType.TOPIC, "t")]


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--topic", "t", "--partition", "0"],
        ["--file", "x", "--topic", "t"],
        ["--verify", "--list"],
        ["--list", "--throttle", "5"],
        ["--generate", "--throttle", "5"],
        ["--cancel"],
        [*MOVE, "--brokers", "1"],
        [*MOVE, "--timeout", "0"],
        ["t-0", "--topic", "t", "--partition", "0", "--replicas", "3,4,5"],
        ["t", "--replicas", "3,4,5"],
        ["--partition", "0", "--replicas", "3,4,5"],
    ],
)
def test_reassign_exits_with_code_2_when_its_options_are_invalid(
    admin: ScriptedAdmin, arguments: list[str]
) -> None:
    assert call(*arguments).exit_code == 2
    assert not admin.moving
