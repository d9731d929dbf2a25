"""The phases of state changes and their durations, computed from the ledger."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.broker.ledger.lifecycle import lifecycle

pytestmark = pytest.mark.row("C38")


def request(
    to: int, leader: int = 0, epoch: int = 10, name: str = "LeaderAndIsr"
) -> dict[str, Any]:
    state = {"leader": leader, "leader_epoch": epoch, "isr": [0], "partitions": {"foo": [0]}}
    if name == "StopReplica":
        state = {"delete": True, "leader_epoch": epoch, "partitions": {"foo": [0]}}
    head = {"time": 1, "broker": 0, "n": 1, "kind": "request", "cause": "4-2"}
    return {**head, "to": to, "request": name, "states": [state]}


def effect(
    broker: int, phase: str, *, epoch: int = 10, error: int = 0, name: str = "LeaderAndIsr"
) -> dict[str, Any]:
    head = {"time": 2, "broker": broker, "n": 1, "kind": "effect", "cause": "4-2"}
    line = {**head, "phase": phase, "request": name, "from": 0, "error": 0}
    if phase == "received":
        return {**line, "partitions": {"foo": [0]}}
    result = {"became": "x", "error": error, "leader_epoch": epoch, "partitions": {"foo": [0]}}
    if name == "LeaderAndIsr":
        result |= {"leader": 0, "isr": [0]}
    return {**line, "results": [result]}


def texts(lines: list[dict[str, Any]]) -> list[str]:
    return [str(stage) for stage in lifecycle(lines, "foo", 0)]


def test_start_replica_requests_to_two_followers_are_shown_in_six_lines() -> None:
    lines = [request(1), request(2)]
    lines += [effect(1, "received"), effect(2, "received")]
    lines += [effect(1, "completed"), effect(2, "completed")]
    do = "start-replica for topic foo partition 0"
    assert texts(lines) == [
        f"controller, broker id 0, requested {do}, to broker id 1, at epoch 10",
        f"controller, broker id 0, requested {do}, to broker id 2, at epoch 10",
        f"follower, broker id 1, received {do}, from controller 0, at epoch 10",
        f"follower, broker id 2, received {do}, from controller 0, at epoch 10",
        f"follower, broker id 1, completed {do}, request from controller 0, at epoch 10",
        f"follower, broker id 2, completed {do}, request from controller 0, at epoch 10",
    ]


def test_state_change_received_by_a_leader_is_shown_with_the_role_leader() -> None:
    stages = list(lifecycle([request(0), effect(0, "received"), effect(0, "completed")], "foo", 0))
    assert [stage.role for stage in stages] == ["controller", "leader", "leader"]


def test_two_requests_to_a_broker_in_one_event_are_shown_with_separate_epochs() -> None:
    lines = [request(1, epoch=1), request(1, epoch=2), effect(1, "received")]
    lines += [
        effect(1, "completed", epoch=1),
        effect(1, "received"),
        effect(1, "completed", epoch=2),
    ]
    stages = [(s.stage, s.epoch) for s in lifecycle(lines, "foo", 0)]
    assert stages[2:] == [("received", 1), ("completed", 1), ("received", 2), ("completed", 2)]


def test_stop_replica_request_is_shown_as_close_replica() -> None:
    lines = [request(1, name="StopReplica"), effect(1, "completed", name="StopReplica")]
    stages = list(lifecycle(lines, "foo", 0))
    assert [(s.op, s.stage, s.role) for s in stages] == [
        ("close-replica", "requested", "controller"),
        ("close-replica", "completed", "replica"),
    ]


def test_refused_state_change_is_shown_with_its_error() -> None:
    (stage,) = lifecycle([effect(1, "completed", error=11)], "foo", 0)
    assert str(stage).endswith(
        "request from controller 0 with error STALE_CONTROLLER_EPOCH, at epoch 10"
    )


def test_state_change_without_its_request_line_is_shown_with_an_unknown_epoch() -> None:
    (stage,) = lifecycle([effect(1, "received")], "foo", 0)
    assert str(stage).endswith("at epoch unknown")


def test_update_metadata_and_other_partitions_are_omitted_from_state_changes() -> None:
    metadata = request(1) | {"request": "UpdateMetadata"}
    assert texts([metadata, {"kind": "event", "cause": "4-2"}]) == []
    assert list(lifecycle([request(1)], "foo", 1)) == []
