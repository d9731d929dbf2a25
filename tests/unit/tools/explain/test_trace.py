"""The causal chains of ledger lines about a partition."""

from __future__ import annotations

from typing import Any

import pytest
from support.ledger.ledger_lines import NAMES, TP, Lines

from minikafka.base.model import TopicPartition
from minikafka.tools.explain.trace import chains, describe, only_about

OTHER = TopicPartition("u", 0)


@pytest.fixture
def ledger() -> Lines:
    return Lines()


def a_death(ledger: Lines) -> None:
    """Add the lines of broker 3's death: event, decision, write, two requests, their effects, and one response."""
    ledger.live("4-2", 1, 2)
    fields = {"verdict": "move", "machine": "partition", "from": "OnlinePartition"}
    ledger.add("decision", "4-2", **fields, to="OfflinePartition", partitions=NAMES)
    ledger.state("4-2", 9, 2, 5, 1, 2)
    ledger.request("4-2", 2, leader=2, leader_epoch=5, isr=[1, 2])
    ledger.request("4-2", 1, "UpdateMetadata", leader=2, leader_epoch=5, isr=[1, 2])
    head = {"phase": "completed", "from": 1, "controller_epoch": 4, "error": 0}
    result = {"became": "leader", "error": 0, "leader_epoch": 5, "partitions": NAMES}
    ledger.add("effect", "4-2", 2, request="LeaderAndIsr", **head, results=[result])
    metadata = {"partition_count": 1, "live_brokers": [1, 2]}
    ledger.add("effect", "4-2", 1, request="UpdateMetadata", **head, **metadata)
    ledger.add("response", "4-2", request="LeaderAndIsr", error=0, errors={}, **{"from": 2})


def kinds(ledger: Lines, tp: TopicPartition = TP) -> list[list[str]]:
    return [[line["kind"] for line in chain.lines] for chain in chains(ledger.lines, tp)]


def test_causal_chain_lists_ledger_lines_from_the_event_to_the_brokers_response(
    ledger: Lines,
) -> None:
    a_death(ledger)
    (chain,) = chains(ledger.lines, TP)
    assert (chain.cause, chain.title) == ("4-2", "BrokersChanged (live brokers 1,2)")
    assert [line["kind"] for line in chain.lines] == [
        "event",
        "decision",
        "write",
        "request",
        "request",
        "effect",
        "effect",
        "response",
    ]
    assert [describe(line) for line in chain.lines] == [
        "BrokersChanged (live brokers 1,2)",
        "partition OnlinePartition -> OfflinePartition",
        "ok: set /brokers/topics/t/partitions/0/state at version 9 -> 10, zxid 0x9",
        "LeaderAndIsr to broker 2: t-0 (leader 2, epoch 5, ISR 1,2)",
        "UpdateMetadata to broker 1: t-0 (leader 2, epoch 5, ISR 1,2)",
        "LeaderAndIsr of controller 1 completed: leader",
        "UpdateMetadata of controller 1 completed",
        "LeaderAndIsr answered by broker 2",
    ]


def test_chains_leave_out_lines_about_other_partitions(ledger: Lines) -> None:
    a_death(ledger)
    assert kinds(ledger, OTHER) == []
    ledger.add("effect", "4-2", 3, request="UpdateMetadata", phase="completed", error=0)
    assert len(kinds(ledger)[0]) == 8


def test_isr_change_is_a_separate_chain(ledger: Lines) -> None:
    line = ledger.isr(12, 2, 5, [1, 2], [2])
    (chain,) = chains(ledger.lines, TP)
    assert chain.cause == f"2#{line['n']}"
    assert chain.title == "ISR 1,2 -> 2, ok, version 1 -> 2, zxid 0xc"


def test_event_without_effect_on_the_partition_has_no_chain(ledger: Lines) -> None:
    ledger.live("4-1", 1, 2, 3)
    assert kinds(ledger) == []


def test_chains_of_a_partition_include_a_write_to_the_node_of_its_topic(ledger: Lines) -> None:
    operation = {"op": "set", "path": "/brokers/topics/t", "expected": 3, "actual": 4, "data": "{}"}
    other = operation | {"path": "/brokers/topics/t/partitions/1/state"}
    fields = {"check": {}, "outcome": "ok", "zxid": 4}
    ledger.add("write", "4-3", **fields, operations=[operation])
    ledger.add("write", "4-4", **fields, operations=[other])
    assert [chain.cause for chain in chains(ledger.lines, TP)] == ["4-3"]


def test_ledger_line_reduced_to_one_partition_does_not_describe_other_partitions(
    ledger: Lines,
) -> None:
    line = ledger.state("4-2", 9, 2, 5, 1, 2)
    line["operations"].append(
        dict(line["operations"][0], path="/brokers/topics/t/partitions/7/state")
    )
    assert "partitions/7" in describe(line)
    assert "partitions/7" not in describe(only_about(line, TP))


@pytest.mark.row("C39")
def test_description_of_a_request_has_the_number_of_requests_queued_for_the_broker(
    ledger: Lines,
) -> None:
    line = ledger.request("4-2", 2) | {"queued": 3}
    assert describe(line) == "LeaderAndIsr to broker 2 (3 queued): t-0 (leader 1, epoch 1, ISR 1)"


@pytest.mark.parametrize(
    ("kind", "fields", "words"),
    [
        ("step", {"operation": "deletion", "step": "queued"}, "deletion.queued"),
        (
            "retry",
            {"to": 2, "request": "StopReplica", "attempt": 4, "error": "OSError"},
            "no answer from broker 2 to StopReplica, attempt 4: OSError",
        ),
        (
            "response",
            {"request": "StopReplica", "error": 11, "errors": {}, "from": 2},
            "StopReplica answered by broker 2: STALE_CONTROLLER_EPOCH",
        ),
        (
            "response",
            {"request": "LeaderAndIsr", "error": 0, "errors": {"56": {"t": [0, 1]}}, "from": 2},
            "LeaderAndIsr answered by broker 2: KAFKA_STORAGE_ERROR for t-0, t-1",
        ),
        (
            "request",
            {
                "to": 2,
                "request": "StopReplica",
                "queued": 1,
                "states": [
                    {"delete": True, "leader_epoch": 1, "partitions": {"t": [0]}},
                    {"delete": False, "leader_epoch": 1, "partitions": {"u": list(range(7))}},
                ],
            },
            "StopReplica to broker 2: delete t-0; stop u-0, u-1, u-2, u-3, u-4 and 2 more",
        ),
        (
            "effect",
            {
                "request": "LeaderAndIsr",
                "from": 1,
                "phase": "completed",
                "error": 0,
                "results": [{"became": "refused", "error": 11, "partitions": NAMES}],
            },
            "LeaderAndIsr of controller 1 completed: refused (STALE_CONTROLLER_EPOCH)",
        ),
        (
            "response",
            {"request": "StopReplica", "error": 9999, "errors": {}, "from": 2},
            "StopReplica answered by broker 2: 9999",
        ),
        ("broker", {"fact": "connection lost", "to": 2}, "connection lost 2"),
        ("answer", {"results": [{"code": "NONE"}]}, "NONE"),
        (
            "effect",
            {"request": "LeaderAndIsr", "from": 1, "phase": "failed", "error": "NotConnected"},
            "LeaderAndIsr of controller 1 failed: NotConnected",
        ),
        (
            "decision",
            {"verdict": "refuse", "machine": "replica", "replica": 3, "reason": "is late"},
            "refused: replica 3: the replica is late",
        ),
        ("broker", {"fact": "log directory failed", "error": "EIO"}, "log directory failed EIO"),
        (
            "election",
            {"outcome": "won", "epoch": 4, "reason": ""},
            "broker 1 won the election of epoch 4",
        ),
        (
            "election",
            {"outcome": "took over", "epoch": 4, "former": 2, "reason": "connection refused"},
            "broker 1 took over from controller 2 in epoch 4: connection refused",
        ),
        ("lost", {"lines": 3}, "lost"),
    ],
)
def test_every_kind_of_ledger_line_has_a_description(
    ledger: Lines, kind: str, fields: dict[str, Any], words: str
) -> None:
    assert describe(ledger.add(kind, "4-1", **fields)) == words


def test_chain_is_converted_to_json(ledger: Lines) -> None:
    a_death(ledger)
    (chain,) = chains(ledger.lines, TP)
    converted = chain.as_json()
    assert converted["cause"] == "4-2"
    assert converted["lines"][2]["zxid"] == 9
    assert converted["lines"][0]["text"] == "BrokersChanged (live brokers 1,2)"
