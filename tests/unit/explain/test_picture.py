"""The precedence of sources (brokers, controller, ZooKeeper, ledger) in the picture of a partition."""

from __future__ import annotations

import pytest
from support.ledger_lines import Scene

from minikafka.base.model import LeaderAndIsr, ReplicaAssignment
from minikafka.explain.picture import DOWN, Nodes


@pytest.fixture
def scene() -> Scene:
    return Scene()


def nodes(state: LeaderAndIsr | None, assignment: ReplicaAssignment | None = None) -> Nodes:
    return Nodes(1, (1, 2), assignment, state, False, None)


def test_zookeeper_takes_precedence_over_the_controller(scene: Scene) -> None:
    scene.nodes = nodes(LeaderAndIsr(3, 9, (3,), 4, 12))
    picture = scene.picture()
    assert (picture.leader, picture.leader_epoch, picture.isr) == (3, 9, (3,))
    assert picture.source == "ZooKeeper"


def test_partition_without_a_state_node_has_no_leader(scene: Scene) -> None:
    scene.nodes = nodes(None)
    assert scene.picture().leader == -1


def test_controller_takes_precedence_over_replicas(scene: Scene) -> None:
    scene.view["partition"].update(leader=2, leader_epoch=2)
    assert (scene.picture().leader, scene.picture().source) == (2, "the controller")


def test_newest_replica_is_used_without_a_controller(scene: Scene) -> None:
    scene.answers[1]["controller"] = None
    scene.answers[2]["replica"].update(leader=3, leader_epoch=8)
    assert (scene.picture().leader, scene.picture().source) == (3, "its replicas")


def test_ledger_is_used_when_all_brokers_are_dead(scene: Scene) -> None:
    scene.ledger.state("4-1", 5, 2, 7, 2, 3)
    scene.answers.clear()
    scene.processes = dict.fromkeys(scene.processes, DOWN)
    picture = scene.picture()
    assert (picture.leader, picture.leader_epoch, picture.isr) == (2, 7, (2, 3))
    assert picture.source == "the ledger"
    assert picture.assignment.replicas == (2, 3)


def test_partition_missing_from_its_topic_node_is_unknown(scene: Scene) -> None:
    scene.nodes = nodes(None)
    assert not scene.picture().is_known
    scene.nodes = nodes(None, ReplicaAssignment((1, 2)))
    assert scene.picture().is_known


def test_partition_without_any_source_is_unknown() -> None:
    scene = Scene()
    scene.answers.clear()
    assert not scene.picture().is_known


def test_leader_replica_is_none_if_its_epoch_is_too_old(scene: Scene) -> None:
    assert scene.picture().leader_replica is not None
    scene.view["partition"].update(leader=2, leader_epoch=2)
    assert scene.picture().leader_replica is None


def test_controllers_setting_takes_precedence_over_other_brokers(scene: Scene) -> None:
    scene.answers[2]["settings"]["delete.topic.enable"] = False
    assert scene.picture().setting("delete.topic.enable") is True
    assert scene.picture().setting("no.such.key") is None
