"""The command `why`."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from support.ledger.group_ledger import GroupLedgerWorld
from support.ledger.ledger_lines import Scene

from minikafka.tools.cli.diagnosis.why import why
from minikafka.tools.cli.execution import sources as opened
from minikafka.tools.cluster.observation.causes import Cause
from minikafka.tools.explain.evidence import Nodes, PartitionEvidence
from minikafka.tools.explain.gather import LocalSources
from minikafka.tools.explain.groups.evidence import GroupEvidence


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    scene = Scene()

    async def gather(*_: object) -> PartitionEvidence:
        return scene.evidence()

    directory = SimpleNamespace(path="DIR", topics=lambda: {"t1", "other"})
    monkeypatch.setattr(opened, "find_cluster", lambda data: SimpleNamespace(directory=directory))
    monkeypatch.setattr("minikafka.tools.explain.gather.gather", gather)
    return scene


def test_why_prints_two_lines_for_a_healthy_partition(scene: Scene) -> None:
    done = CliRunner().invoke(why, ["t-0"])
    assert done.exit_code == 0
    assert done.output == (
        "t-0: leader 1, epoch 1, ISR 1,2,3, replicas 1,2,3 (source: the controller)\n"
        "nothing is wrong with t-0\n"
    )


def test_partition_is_named_by_an_argument_or_by_options(scene: Scene) -> None:
    by_options = CliRunner().invoke(why, ["--topic", "t", "--partition", "0"])
    assert by_options.output == CliRunner().invoke(why, ["t-0"]).output
    for words in ([], ["-t", "t"], ["-p", "0"], ["t-0", "-t", "t"], ["t-0", "-p", "0"]):
        done = CliRunner().invoke(why, words)
        assert done.exit_code == 2, words
        assert "TOPIC-PARTITION" in done.output, words


def test_why_prints_a_problem_as_a_tree_of_reasons_with_broker_and_event(scene: Scene) -> None:
    scene.ledger.live("1-2", 1, 2)
    scene.in_sync(1, 2).down(3)
    done = CliRunner().invoke(why, ["t-0"])
    assert done.exit_code == 0
    assert done.output.splitlines()[1:] == [
        "- t-0 is under-replicated: 2 of 3 replicas are in sync (ISR 1,2)",
        "  - replica 3 is not in the ISR",
        "    - broker 3 is down: it has no process  [1-2 1#1]",
    ]


def test_why_json_has_the_health_of_a_partition_and_the_blocking_brokers(scene: Scene) -> None:
    healthy = json.loads(CliRunner().invoke(why, ["t-0", "--json"]).output)
    assert (healthy["healthy"], healthy["blocking_brokers"]) == (True, [])
    scene.in_sync(1, 2).down(3)
    shown = json.loads(CliRunner().invoke(why, ["t-0", "--json"]).output)
    assert (shown["healthy"], shown["blocking_brokers"]) == (False, [3])
    assert (shown["topic"], shown["partition"], shown["leader"]) == ("t", 0, 1)


def test_why_with_option_offset_says_whether_the_offset_is_visible(scene: Scene) -> None:
    done = CliRunner().invoke(why, ["t-0", "--offset", "4"])
    assert "- offset 4 is visible: it is below the high watermark 10" in done.output


def test_unknown_partition_exits_with_code_1_in_why(scene: Scene) -> None:
    scene.nodes = Nodes(1, (1, 2, 3), None, None, False, None)
    done = CliRunner().invoke(why, ["t-0"])
    assert done.exit_code == 1
    assert "there is no partition t-0; did you mean t1?" in done.output


def test_why_does_not_deny_a_partition_that_no_answering_broker_can_know(scene: Scene) -> None:
    scene.answers.clear()
    scene.causes = [Cause("broker-paused", "broker 1 is paused", "`minikafka resume 1`", 1)]
    done = CliRunner().invoke(why, ["t-0"])
    assert done.exit_code == 1
    assert "not known whether there is a partition t-0: broker 1 is paused; `mini" in done.output


def test_deleted_topic_is_shown_with_the_write_that_deleted_it(scene: Scene) -> None:
    scene.ledger.state("4-1", 5, 1, 1, 1)
    operation = {"op": "delete", "path": "/brokers/topics/t", "expected": -1, "actual": None}
    fields = {"check": {}, "outcome": "ok", "zxid": None}
    scene.ledger.add("write", "4-2", **fields, operations=[operation | {"data": None}])
    scene.answers.clear()
    done = CliRunner().invoke(why, ["t-0"])
    assert done.exit_code == 1
    assert "there is no partition t-0; it was deleted [4-2 1#2]" in done.output


@pytest.mark.parametrize("text", ["t", "t-", "-0", "t-x"])
def test_invalid_partition_name_exits_with_code_2(scene: Scene, text: str) -> None:
    done = CliRunner().invoke(why, ["--", text])
    assert done.exit_code == 2
    assert "TOPIC-PARTITION" in done.output


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> GroupLedgerWorld:
    world = GroupLedgerWorld()

    async def gather_group(*_: object) -> GroupEvidence:
        return world.evidence()

    directory = SimpleNamespace(path="DIR", topics=lambda: {"t1", "other"})
    monkeypatch.setattr(opened, "find_cluster", lambda data: SimpleNamespace(directory=directory))
    monkeypatch.setattr("minikafka.tools.explain.groups.gather.gather_group", gather_group)
    return world


def test_why_prints_two_lines_for_a_healthy_group(world: GroupLedgerWorld) -> None:
    world.stable(2)
    done = CliRunner().invoke(why, ["--group", "g"])
    assert done.exit_code == 0
    assert done.output == (
        "group g: Stable, generation 2, 2 members, coordinator 1 (__consumer_offsets-0)\n"
        "group g has no problem\n"
    )


def test_why_prints_a_problem_of_a_group_as_a_tree_of_reasons(world: GroupLedgerWorld) -> None:
    first, second = world.stable(2)
    world.send_join(second)
    world.commit({("t", 0): 1}, first, 1)
    done = CliRunner().invoke(why, ["--group", "g"])
    assert done.output.splitlines()[1:] == [
        "- commit of client-1 for generation 1 refused: ILLEGAL_GENERATION  [1#9]",
        "  - the group was in generation 2: the member missed a rebalance",
    ]
    shown = json.loads(CliRunner().invoke(why, ["--group", "g", "--json"]).output)
    assert (shown["group"], shown["state"], shown["healthy"]) == ("g", "Stable", False)
    assert [finding["name"] for finding in shown["findings"]] == ["commit-refused"]
    assert [member["member"] for member in shown["members"]] == [first, second]


def test_unknown_group_exits_with_code_1_in_why(
    world: GroupLedgerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def similar(*_: object) -> str:
        return "; did you mean g1?"

    monkeypatch.setattr("minikafka.tools.cli.diagnosis.why.similar_group_at", similar)
    monkeypatch.setattr(LocalSources, "access", lambda self: None)
    done = CliRunner().invoke(why, ["--group", "g"])
    assert done.exit_code == 1
    assert "there is no group g; did you mean g1?" in done.output


@pytest.mark.parametrize("words", [["t-0"], ["-t", "t", "-p", "0"], ["--offset", "3"]])
def test_why_refuses_a_group_together_with_a_partition_or_an_offset(words: list[str]) -> None:
    done = CliRunner().invoke(why, ["--group", "g", *words])
    assert done.exit_code == 2
