"""A planned operation of the controller, described in sentences."""

from __future__ import annotations

import json
from typing import Any

from support.ledger.ledger_lines import NAMES, Lines

from minikafka.tools.explain.forecast import forecast

CHOICE = {"verdict": "choose", "machine": "partition", "election": "OfflinePartitionLeaderElection"}
STATE = {"leader_epoch": 5, "controller_epoch": 4}


def write(ledger: Lines, path: str, op: str = "set", data: Any = None) -> None:
    text = None if data is None else json.dumps(data)
    operation = {"op": op, "path": path, "expected": 1, "actual": 2, "data": text}
    ledger.add("write", "4-2", outcome="ok", zxid=None, operations=[operation])


def test_forecast_of_a_broker_death_names_new_leaders_isrs_and_offline_partitions() -> None:
    ledger = Lines()
    offline = {"verdict": "move", "machine": "partition", "to": "OfflinePartition"}
    ledger.add("decision", "4-2", **offline, partitions={"t": [0, 1], "x": [0]})
    ledger.add("decision", "4-2", **CHOICE, partitions={"t": [0, 1]})
    refusal = {"verdict": "refuse", "machine": "partition", "reason": "has no live replica"}
    ledger.add("decision", "4-2", **refusal, partitions={"x": [0]})
    for number in (0, 1):
        path = f"/brokers/topics/t/partitions/{number}/state"
        write(ledger, path, data=STATE | {"leader": 3, "isr": [1, 3]})
    write(ledger, "/brokers/topics/t/partitions/2/state", data=STATE | {"leader": 1, "isr": [1, 3]})
    ledger.request("4-2", 1)
    ledger.request("4-2", 3)
    assert forecast(ledger.lines) == [
        "t-0, t-1 would be led by broker 3, ISR 1,3",
        "t-2 would keep leader 1, ISR 1,3",
        "x-0 would have no leader: the partition has no live replica",
        "3 writes to ZooKeeper, 2 requests to brokers 1,3",
    ]


def test_forecast_names_partitions_of_users_first_and_counts_internal_ones() -> None:
    ledger = Lines()
    for number in range(9):
        path = f"/brokers/topics/__consumer_offsets/partitions/{number}/state"
        write(ledger, path, data=STATE | {"leader": 2, "isr": [2]})
    ledger.state("4-2", 9, 3, 5, 3)
    assert forecast(ledger.lines)[:2] == [
        "t-0 would keep leader 3, ISR 3",
        "9 partitions of __consumer_offsets would keep leader 2, ISR 2",
    ]


def test_forecast_names_the_only_broker_that_would_get_a_request() -> None:
    ledger = Lines()
    ledger.request("4-2", 3)
    assert forecast(ledger.lines)[-1] == "0 writes to ZooKeeper, 1 request to broker 3"


def test_forecast_of_a_reassignment_names_the_final_replicas_and_leader() -> None:
    ledger = Lines()
    ledger.assignment("4-2", 9, partitions=[3, 1, 2], adding_replicas=[3], removing_replicas=[2])
    ledger.state("4-2", 10, 1, 5, 1, 2, 3)
    ledger.state("4-2", 11, 1, 6, 3, 1)
    ledger.assignment("4-2", 12, partitions=[3, 1])
    assert forecast(ledger.lines) == [
        "t-0 would keep leader 1, ISR 3,1",
        "t-0 would have the replicas 3,1",
        "4 writes to ZooKeeper, 0 requests",
    ]


def test_forecast_of_a_refused_election_says_that_the_leader_stays() -> None:
    ledger = Lines()
    refusal = {"verdict": "refuse", "machine": "partition", "reason": "is already led"}
    ledger.add("decision", "4-2", **refusal, partitions=NAMES)
    assert forecast(ledger.lines) == [
        "t-0 would be led as before: the partition is already led",
        "nothing would change",
    ]


def test_forecast_of_a_rejected_reassignment_has_the_error_of_the_request() -> None:
    ledger = Lines()
    ledger.event("ReassignmentsRequested", "4-2", targets=[["t", 0, [9]]])
    refused = {"code": "INVALID_REPLICA_ASSIGNMENT", "message": "9 is away", "partitions": NAMES}
    granted = {"code": "ELECTION_NOT_NEEDED", "message": "", "partitions": {"t": [1]}}
    ledger.add("answer", "4-2", ticket=1, results=[refused, granted])
    assert forecast(ledger.lines) == [
        "the request for t-0 would be rejected: INVALID_REPLICA_ASSIGNMENT: 9 is away",
        "nothing would change",
    ]


def test_forecast_of_a_new_order_of_replicas_names_the_replicas() -> None:
    ledger = Lines()
    ledger.event("ReassignmentsRequested", "4-2", targets=[["t", 0, [2, 1]]])
    ledger.assignment("4-2", 12, partitions=[2, 1])
    assert forecast(ledger.lines) == [
        "t-0 would have the replicas 2,1",
        "1 write to ZooKeeper, 0 requests",
    ]


def test_forecast_of_a_deletion_that_waits_says_that_the_topic_stays_marked() -> None:
    ledger = Lines()
    ledger.add("assumed", "", text="t marked in /admin/delete_topics", topics=["t"])
    ledger.state("4-2", 9, -1, 5, 1)
    assert forecast(ledger.lines) == [
        "t-0 would have no leader",
        "topic t would stay marked for deletion until every replica can be deleted",
        "1 write to ZooKeeper, 0 requests",
    ]


def test_forecast_of_a_deletion_names_the_topic_and_not_its_partitions() -> None:
    ledger = Lines()
    ledger.state("4-2", 9, -1, 5, 1)
    write(ledger, "/brokers/topics/t", op="delete")
    assert forecast(ledger.lines) == [
        "topic t would be deleted",
        "2 writes to ZooKeeper, 0 requests",
    ]
