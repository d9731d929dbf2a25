"""The history of one partition, from the lines of its topic."""

from __future__ import annotations

from typing import Any

from minikafka.base.model import TopicPartition
from minikafka.tools.console.views import partition
from minikafka.tools.console.views.partition import history_of


def isr(number: int, time: int, leader: int, isr: list[int]) -> dict[str, Any]:
    return {
        "time": time,
        "broker": leader,
        "n": time,
        "kind": "isr",
        "cause": "",
        "topic": "t",
        "partition": number,
        "change": "shrink",
        "before": [1, 2, 3],
        "isr": isr,
        "leader_epoch": time,
        "expected": 1,
        "actual": 2,
        "zxid": time,
        "outcome": "ok",
        "error": "",
    }


LINES = [isr(0, 10, 1, [1, 2]), isr(1, 20, 3, [3]), isr(0, 30, 1, [1])]


def test_history_has_the_states_of_its_partition_only() -> None:
    found = history_of(LINES, TopicPartition("t", 0))
    assert [(one["time_ms"], one["leader"], one["isr"]) for one in found["states"]] == [
        (10, 1, [1, 2]),
        (30, 1, [1]),
    ]
    assert [chain["time"] for chain in found["ledger"]] == [10, 30]
    assert found["from_ms"] == 10


def test_history_has_the_newest_chains(monkeypatch: Any) -> None:
    monkeypatch.setattr(partition, "CHAINS_MAX", 1)
    found = history_of(LINES, TopicPartition("t", 0))
    assert [chain["time"] for chain in found["ledger"]] == [30]
    assert history_of([], TopicPartition("t", 0)) == {"ledger": [], "states": [], "from_ms": None}


def test_lines_of_a_chain_are_only_about_the_partition() -> None:
    states = [
        {"leader": 1, "leader_epoch": 1, "isr": [1], "partitions": {"t": [*range(300)]}},
        {"leader": 2, "leader_epoch": 1, "isr": [2], "partitions": {"u": [0]}},
    ]
    head = {"time": 5, "broker": 1, "n": 5, "cause": "1-1"}
    request = {**head, "kind": "request", "to": 2, "queued": 1, "request": "LeaderAndIsr"}
    [chain] = history_of([{**request, "states": states}], TopicPartition("t", 7))["ledger"]
    [line] = chain["lines"]
    assert line["text"] == "LeaderAndIsr to broker 2: t-7 (leader 1, epoch 1, ISR 1)"
    assert "states" not in line
