"""The active controller's view of one partition."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from support.deciders.controller_world import World

from minikafka.base.model import TopicPartition
from minikafka.broker.modes.controller.terms.view import view_of
from minikafka.deciders.controller.events import BrokersChanged, DeletionsChanged

T0 = TopicPartition("t", 0)


@pytest.fixture
def world() -> World:
    world = World(brokers=3)
    world.create("t", [0, 1, 2])
    return world


def view(world: World, tp: TopicPartition = T0) -> dict[str, Any]:
    term: Any = SimpleNamespace(machine=world.machine, state="Idle", queue_size=2)
    found = view_of(term, tp)
    json.dumps(found)
    return found


def test_controller_view_contains_leadership_and_replica_states(
    world: World,
) -> None:
    found = view(world)
    assert (found["state"], found["queue_size"], found["live_brokers"]) == ("Idle", 2, [0, 1, 2])
    partition = found["partition"]
    assert (partition["leader"], partition["isr"], partition["status"]) == (
        0,
        [0, 1, 2],
        "OnlinePartition",
    )
    assert set(partition["replica_states"].values()) == {"OnlineReplica"}
    assert found["deletion"] is None
    assert found["state_changes"]


def test_controller_view_has_no_state_of_an_unknown_partition(world: World) -> None:
    assert view(world, TopicPartition("t", 7))["partition"] is None
    assert not view(world, TopicPartition("u", 0))["topic_known"]


def test_controller_view_has_the_reason_why_a_topic_deletion_waits(
    world: World,
) -> None:
    del world.brokers[2]
    world.handle(BrokersChanged(dict(world.brokers)))
    world.handle(DeletionsChanged(frozenset({"t"})))
    deletion = view(world)["deletion"]
    assert deletion["waits_for"] == "offline replicas"
    assert [2, 0, "ReplicaDeletionIneligible"] in deletion["replicas"]
