"""Whom a picture believes."""

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


def test_zookeeper_is_believed_before_the_controller(scene: Scene) -> None:
    scene.nodes = nodes(LeaderAndIsr(3, 9, (3,), 4, 12))
    picture = scene.picture()
    assert (picture.leader, picture.leader_epoch, picture.isr) == (3, 9, (3,))
    assert picture.source == "ZooKeeper"


def test_a_partition_without_a_state_node_is_led_by_nobody(scene: Scene) -> None:
    scene.nodes = nodes(None)
    assert scene.picture().leader == -1


def test_the_controller_is_believed_before_the_replicas(scene: Scene) -> None:
    scene.view["partition"].update(leader=2, leader_epoch=2)
    assert (scene.picture().leader, scene.picture().source) == (2, "the controller")


def test_the_newest_replica_is_believed_when_nobody_rules(scene: Scene) -> None:
    scene.answers[1]["controller"] = None
    scene.answers[2]["replica"].update(leader=3, leader_epoch=8)
    assert (scene.picture().leader, scene.picture().source) == (3, "its replicas")


def test_the_ledger_is_believed_when_all_are_dead(scene: Scene) -> None:
    scene.ledger.state("4-1", 5, 2, 7, 2, 3)
    scene.answers.clear()
    scene.processes = dict.fromkeys(scene.processes, DOWN)
    picture = scene.picture()
    assert (picture.leader, picture.leader_epoch, picture.isr) == (2, 7, (2, 3))
    assert picture.source == "the ledger"
    assert picture.assignment.replicas == (2, 3)


def test_a_topic_that_zookeeper_has_without_the_partition_is_not_known(scene: Scene) -> None:
    scene.nodes = nodes(None)
    assert not scene.picture().is_known
    scene.nodes = nodes(None, ReplicaAssignment((1, 2)))
    assert scene.picture().is_known


def test_a_partition_that_nobody_names_is_not_known() -> None:
    scene = Scene()
    scene.answers.clear()
    assert not scene.picture().is_known


def test_a_leader_of_an_older_epoch_is_none(scene: Scene) -> None:
    assert scene.picture().leader_replica is not None
    scene.view["partition"].update(leader=2, leader_epoch=2)
    assert scene.picture().leader_replica is None


def test_a_setting_is_the_controllers_word_first(scene: Scene) -> None:
    scene.answers[2]["settings"]["delete.topic.enable"] = False
    assert scene.picture().setting("delete.topic.enable") is True
    assert scene.picture().setting("no.such.key") is None
