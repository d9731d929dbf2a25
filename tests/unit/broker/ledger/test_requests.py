"""The ledger fields of requests, responses and effects: equal items share an entry, and no item is lost."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.brokers.endpoints import endpoints

from minikafka.base.model import (
    Broker,
    ControllerRequest,
    ControllerResponse,
    LeaderAndIsrRequest,
    PartitionState,
    StopReplicaPartition,
    StopReplicaRequest,
    TopicPartition,
    UpdateMetadataRequest,
)
from minikafka.broker.ledger.record import PARTITIONS_MAX, partitions_of
from minikafka.broker.ledger.requests import (
    completed_lines,
    failed_line,
    name_of,
    received_lines,
    request_lines,
    response_line,
)


def state(number: int, leader: int = 1, epoch: int = 3, *, is_new: bool = False) -> PartitionState:
    return PartitionState(
        TopicPartition("t", number), leader, epoch, (1, 2), 7, 5, (1, 2, 3), is_new=is_new
    )


def leader_and_isr(*states: PartitionState) -> LeaderAndIsrRequest:
    return LeaderAndIsrRequest(9, 5, 77, states, (), (), "5-1")


def update_metadata(*states: PartitionState) -> UpdateMetadataRequest:
    brokers = tuple(Broker(id_, endpoints("h", 1, "h", 2)) for id_ in (1, 2))
    return UpdateMetadataRequest(9, 5, 77, states, brokers, (), "5-1")


STOP = StopReplicaRequest(
    9,
    5,
    77,
    (
        StopReplicaPartition(TopicPartition("t", 0), 3, delete=True),
        StopReplicaPartition(TopicPartition("t", 1), 3, delete=False),
    ),
    "5-1",
)


def test_partitions_with_the_same_leader_and_isr_share_an_entry_of_the_ledger_line() -> None:
    (line,) = request_lines(leader_and_isr(state(0), state(1), state(2, leader=2)))
    assert line == {
        "request": "LeaderAndIsr",
        "broker_epoch": 77,
        "states": [
            {"leader": 1, "leader_epoch": 3, "isr": (1, 2), "partitions": {"t": [0, 1]}},
            {"leader": 2, "leader_epoch": 3, "isr": (1, 2), "partitions": {"t": [2]}},
        ],
    }


def test_ledger_line_of_a_request_for_a_new_replica_has_is_new_true() -> None:
    (line,) = request_lines(leader_and_isr(state(0, is_new=True)))
    assert line["states"][0]["is_new"] is True


def test_update_metadata_contains_the_live_brokers() -> None:
    (line,) = request_lines(update_metadata(state(0)))
    assert (line["request"], line["live_brokers"]) == ("UpdateMetadata", [1, 2])
    assert line["states"][0]["partitions"] == {"t": [0]}


def test_update_metadata_line_for_one_partition_is_not_reused_for_another_partition() -> None:
    (first,) = request_lines(update_metadata(state(0)))
    (second,) = request_lines(update_metadata(state(1)))
    assert first["states"] != second["states"]


def test_stop_replica_says_whether_the_replica_is_deleted() -> None:
    (line,) = request_lines(STOP)
    assert line["states"] == [
        {"delete": True, "leader_epoch": 3, "partitions": {"t": [0]}},
        {"delete": False, "leader_epoch": 3, "partitions": {"t": [1]}},
    ]


@pytest.mark.parametrize("make", [leader_and_isr, update_metadata])
def test_ledger_lines_of_a_large_request_are_numbered_and_name_every_partition(
    make: object,
) -> None:
    states = [state(i) for i in range(PARTITIONS_MAX + 10)]
    lines = list(request_lines(make(*states)))  # type: ignore[operator]
    assert [(line["part"], line["parts"]) for line in lines] == [(1, 2), (2, 2)]
    named = [
        tp.partition
        for line in lines
        for group in line["states"]
        for tp in partitions_of(group["partitions"])
    ]
    assert named == list(range(PARTITIONS_MAX + 10))


def test_ledger_line_of_a_response_names_only_partitions_with_an_error() -> None:
    request = leader_and_isr(state(0), state(1))
    response = ControllerResponse(0, ((state(0).tp, 0), (state(1).tp, 56)))
    assert response_line(request, response) == {
        "request": "LeaderAndIsr",
        "error": 0,
        "errors": {"56": {"t": [1]}},
    }


def test_ledger_line_of_a_completed_request_has_role_and_epoch_of_each_partition() -> None:
    request = leader_and_isr(state(0), state(1, leader=2), state(2))
    response = ControllerResponse(0, ((state(0).tp, 0), (state(1).tp, 0), (state(2).tp, 11)))
    (line,) = completed_lines(1, request, response)
    assert {result["became"]: result["partitions"] for result in line["results"]} == {
        "leader": {"t": [0]},
        "follower": {"t": [1]},
        "refused": {"t": [2]},
    }
    assert all(result["leader_epoch"] == 3 for result in line["results"])
    assert (line["phase"], line["from"], line["controller_epoch"]) == ("completed", 9, 5)


def test_ledger_line_distinguishes_stopped_and_deleted_replicas() -> None:
    response = ControllerResponse(0, tuple((stop.tp, 0) for stop in STOP.partitions))
    (line,) = completed_lines(1, STOP, response)
    assert [result["became"] for result in line["results"]] == ["deleted", "stopped"]


def test_ledger_line_of_a_refused_request_has_its_error_and_no_results() -> None:
    (line,) = completed_lines(1, leader_and_isr(state(0)), ControllerResponse(11))
    assert line["error"] == 11
    assert "results" not in line


def test_update_metadata_has_one_line_with_the_partition_count() -> None:
    request = update_metadata(state(0), state(1))
    assert list(received_lines(request)) == []
    (line,) = completed_lines(1, request, ControllerResponse(0))
    assert (line["partition_count"], line["live_brokers"]) == (2, [1, 2])


@pytest.mark.parametrize("request_", [leader_and_isr(state(0), state(1)), STOP])
def test_ledger_line_of_a_received_request_names_its_partitions(
    request_: ControllerRequest,
) -> None:
    (line,) = received_lines(request_)
    assert (line["phase"], line["partitions"]) == ("received", {"t": [0, 1]})
    assert line["request"] == name_of(request_)


def test_ledger_line_of_a_failed_request_has_its_error() -> None:
    line = failed_line(STOP, "NotConnected")
    assert (line["phase"], line["error"]) == ("failed", "NotConnected")


def test_ledger_line_of_metadata_names_the_suspects() -> None:
    (line,) = request_lines(replace(update_metadata(state(0)), suspects=(2,)))
    assert line["suspects"] == (2,)
    (line,) = request_lines(update_metadata(state(0)))
    assert "suspects" not in line
