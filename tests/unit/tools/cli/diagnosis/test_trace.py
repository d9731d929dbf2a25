"""The command `trace`."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from support.ledger.group_ledger import GroupLedgerWorld
from support.ledger.ledger_lines import Lines

from minikafka.tools.cli.diagnosis.trace import trace
from minikafka.tools.cli.execution import sources as opened
from minikafka.tools.cluster.observation.state import ClusterState, combine
from minikafka.tools.explain.gather import LocalSources

SILENT = (
    "now: broker 1 does not answer; its last line in the ledger is from 00:00:01.004, "
    "and no line shows that it stopped",
    "now: broker 2 does not answer, and there is no line in its ledger",
)


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Lines:
    ledger = Lines()

    async def state() -> ClusterState:
        return combine({})

    async def lines(*_: object) -> object:
        return ledger.lines

    found = SimpleNamespace(state=state, directory=SimpleNamespace(path="DIR", topics=set))
    monkeypatch.setattr(opened, "find_cluster", lambda data: found)
    monkeypatch.setattr(LocalSources, "partition_lines", lines)
    return ledger


def run(*arguments: str) -> tuple[int, list[str]]:
    done = CliRunner().invoke(trace, ["-t", "t", "-p", "0", *arguments])
    return done.exit_code, done.output.splitlines()


def test_verbose_trace_shows_an_event_with_the_ledger_lines_it_caused(ledger: Lines) -> None:
    ledger.live("4-2", 1, 2)
    ledger.state("4-2", 9, 2, 5, 1, 2)
    code, output = run("-v")
    assert code == 0
    assert output == [
        "4-2  1970-01-01 00:00:01.001  controller 1 elected leader 2 with ISR 1,2",
        "    00:00:01.001  1#1      event     BrokersChanged (live brokers 1,2)",
        "    00:00:01.002  1#2      write     ok: set /brokers/topics/t/partitions/0/state "
        "at version 9 -> 10, zxid 0x9",
        *(line.replace("01.004", "01.002") for line in SILENT),
        "now: no broker answers",
    ]


def test_partition_of_a_trace_is_named_by_an_argument_or_by_options(ledger: Lines) -> None:
    ledger.state("4-2", 9, 2, 5, 1, 2)
    by_argument = CliRunner().invoke(trace, ["t-0"])
    assert by_argument.exit_code == 0
    assert by_argument.output.splitlines() == run()[1]


def test_trace_summary_has_one_sentence_per_event_that_changed_the_partition(ledger: Lines) -> None:
    ledger.state("4-1", 8, 1, 4, 1, 2)
    ledger.live("4-2", 1, 2)
    ledger.request("4-2", 2)
    ledger.isr(9, 1, 4, [1, 2], [1])
    code, output = run()
    assert code == 0
    assert output == [
        "1#4  1970-01-01 00:00:01.004  leader 1 removed 2 from the ISR, which is 1 now",
        *SILENT,
        "now: no broker answers",
    ]


def test_partition_that_only_a_refused_request_names_is_unknown(ledger: Lines) -> None:
    ledger.event("ReassignmentsRequested", "4-2", targets=[["t", 0, [1]]])
    code = "UNKNOWN_TOPIC_OR_PARTITION"
    refused = {"code": code, "message": "The partition does not exist.", "partitions": {"t": [0]}}
    ledger.add("answer", "4-2", ticket=1, results=[refused])
    assert run()[0] == 1


def test_brokers_without_the_partition_are_not_shown_as_down(
    ledger: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.live("4-2", 1, 2)
    ledger.state("4-2", 9, 2, 5, 1, 2)

    async def state() -> ClusterState:
        return replace(combine({}), answers={1: {"backlog": {}}})

    async def lines(*_: object) -> object:
        return ledger.lines

    found = SimpleNamespace(state=state, directory=SimpleNamespace(path="DIR", topics=set))
    monkeypatch.setattr(opened, "find_cluster", lambda data: found)
    _, output = run()
    assert output[-1] == "now: unknown to every broker that answers"


def test_option_last_limits_the_number_of_traced_events(ledger: Lines) -> None:
    for i in range(3):
        ledger.isr(i, 1, 1, [1, 2], [1])
    _, output = run("--last", "1")
    assert [line[:4] for line in output if not line.startswith(" ")] == ["1#3 ", "now:"]


def test_trace_json_contains_the_lines_of_the_ledger(ledger: Lines) -> None:
    ledger.state("4-2", 9, 2, 5, 1, 2)
    _, output = run("--json")
    shown = json.loads(output[0])
    assert shown["chains"][0]["lines"][0]["zxid"] == 9
    assert shown["leader"] is None


@pytest.mark.row("C38")
def test_option_lifecycle_prints_one_line_per_request_stage(ledger: Lines) -> None:
    ledger.request("4-2", to=2)
    code, output = run("--lifecycle")
    assert code == 0
    assert output == [
        "1970-01-01 00:00:01.001  4-2  controller, broker id 1, requested start-replica for topic t "
        "partition 0, to broker id 2, at epoch 1"
    ]
    _, output = run("--lifecycle", "--json")
    assert json.loads(output[0])[0]["stage"] == "requested"


def test_partition_that_its_topic_never_had_is_unknown_in_trace(ledger: Lines) -> None:
    created = {"op": "create", "path": "/brokers/topics/t", "version": 0}
    ledger.live("4-1", 1)
    ledger.add("write", "4-1", 1, operations=[created], outcome="ok", zxid=5)
    code, output = run()
    assert (code, output[-1].startswith("Error: t-0 is unknown")) == (1, True)


@pytest.mark.parametrize("more", [[], ["--lifecycle"]])
def test_unknown_partition_exits_with_code_1_in_trace(ledger: Lines, more: list[str]) -> None:
    ledger.live("4-1", 1)
    code, output = run(*more)
    assert code == 1
    assert "t-0" in output[-1]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> GroupLedgerWorld:
    world = GroupLedgerWorld()

    async def ask(*_: object) -> object:
        return world.evidence().answers

    async def lines(*_: object) -> object:
        return world.lines

    found = SimpleNamespace(directory=SimpleNamespace(path="DIR", topics=set))
    monkeypatch.setattr(opened, "find_cluster", lambda data: found)
    monkeypatch.setattr(LocalSources, "ask", ask)
    monkeypatch.setattr(LocalSources, "group_lines", lines)
    return world


def group(*arguments: str) -> tuple[int, list[str]]:
    done = CliRunner().invoke(trace, ["--group", "g", *arguments])
    return done.exit_code, done.output.splitlines()


def test_trace_of_a_group_has_a_line_for_each_rebalance(world: GroupLedgerWorld) -> None:
    world.stable(1)
    world.advance(10_000)
    code, output = group()
    assert code == 0
    assert output == [
        "2023-11-14 22:13:21.000  client-1 joined; generation 1 of 1 member after 0 ms (0 ms until all had joined, "
        "client-1 last; 0 ms until the leader client-1 sent the assignment; 0 ms to write it)",
        "2023-11-14 22:13:31.000  the session of client-1 expired; no member is left in generation 2",
        "now: group g: Empty, generation 2, 0 members, coordinator 1 (__consumer_offsets-0)",
    ]
    assert group("--last", "1")[1] == output[1:]


def test_verbose_trace_of_a_group_shows_every_step_of_a_rebalance(world: GroupLedgerWorld) -> None:
    world.stable(1)
    assert group("-v")[1][1:-1] == [
        "    22:13:21.000  1#1      client-1 joined (client at 127.0.0.1)",
        "    22:13:21.000  1#2      rebalance of 1 member started: client-1 joined",
        "    22:13:21.000  1#3      1 member joined in 0 ms, client-1 last; leader client-1, protocol range",
        "    22:13:21.000  1#4      assigned in 0 ms, written in 0 ms; 0 ms in all",
    ]


def test_json_trace_of_a_group_has_the_trigger_and_duration_of_a_rebalance(
    world: GroupLedgerWorld,
) -> None:
    world.stable(1)
    shown = json.loads("\n".join(group("--json")[1]))
    assert (shown["group"], shown["state"], shown["coordinator"]) == ("g", "Stable", 1)
    [entry] = shown["entries"]
    assert (entry["trigger"], entry["joining_ms"], entry["finished"]) == ("member joined", 0, True)


def test_unknown_group_exits_with_code_1_in_trace(
    world: GroupLedgerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def similar(*_: object) -> str:
        return "; did you mean g1?"

    monkeypatch.setattr("minikafka.tools.cli.diagnosis.trace.similar_group_at", similar)
    monkeypatch.setattr(LocalSources, "access", lambda self: None)
    code, output = group()
    assert code == 1
    assert output == [
        "Error: group g is unknown to every broker and ledger in DIR; did you mean g1?"
    ]


def test_option_lifecycle_is_a_usage_error_in_a_trace_of_a_group(world: GroupLedgerWorld) -> None:
    assert group("--lifecycle")[0] == 2
