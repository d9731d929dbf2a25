"""Ledger lines in the form that the console sends and keeps."""

from __future__ import annotations

import json
from typing import Any

from minikafka.tools.console.observation.ledger_records import as_record


def request(partitions: int) -> dict[str, Any]:
    state = {"leader": 1, "leader_epoch": 2, "isr": [1], "partitions": {"t": [*range(partitions)]}}
    return {
        "time": 1,
        "broker": 1,
        "n": 7,
        "kind": "request",
        "cause": "1-2",
        "to": 2,
        "queued": 1,
        "request": "LeaderAndIsr",
        "states": [state],
    }


def test_record_names_its_partitions_and_has_its_sentence() -> None:
    assert as_record(request(2)) == {
        "time": 1,
        "broker": 1,
        "n": 7,
        "kind": "request",
        "cause": "1-2",
        "to": 2,
        "queued": 1,
        "request": "LeaderAndIsr",
        "text": "LeaderAndIsr to broker 2: t-0, t-1 (leader 1, epoch 2, ISR 1)",
        "partitions": ["t-0", "t-1"],
    }


def test_record_of_a_large_line_is_small() -> None:
    assert len(json.dumps(as_record(request(500)))) < 3_000


def test_record_of_a_changed_isr_has_the_isr_before_and_after() -> None:
    change = {"topic": "t", "partition": 0, "change": "shrink", "before": [1, 2], "isr": [1]}
    versions = {"leader_epoch": 1, "expected": 1, "actual": 2, "zxid": 3}
    outcome = {"outcome": "ok", "error": ""}
    head = {"time": 1, "broker": 1, "n": 8, "kind": "isr", "cause": ""}

    record = as_record({**head, **change, **versions, **outcome})

    assert (record["before"], record["isr"], record["partitions"]) == ([1, 2], [1], ["t-0"])
