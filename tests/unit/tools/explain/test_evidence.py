"""The precedence of sources (brokers, controller, ZooKeeper, ledger) in the evidence of a partition."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.ledger.ledger_lines import Scene, controller

from minikafka.base.model import LeaderAndIsr, ReplicaAssignment
from minikafka.tools.explain.evidence import DOWN, Nodes
from minikafka.tools.explain.why import explain


@pytest.fixture
def scene() -> Scene:
    return Scene()


def nodes(state: LeaderAndIsr | None, assignment: ReplicaAssignment | None = None) -> Nodes:
    return Nodes(1, (1, 2), assignment, state, False, None)


def test_leader_and_isr_in_zookeeper_take_precedence_over_those_of_the_controller(
    scene: Scene,
) -> None:
    scene.nodes = nodes(LeaderAndIsr(3, 9, (3,), 4, 12))
    evidence = scene.evidence()
    assert (evidence.leader, evidence.leader_epoch, evidence.isr) == (3, 9, (3,))
    assert evidence.source == "ZooKeeper"


def test_partition_without_a_state_node_has_no_leader(scene: Scene) -> None:
    scene.nodes = nodes(None)
    assert scene.evidence().leader == -1


def test_leader_known_to_the_controller_takes_precedence_over_that_of_the_replicas(
    scene: Scene,
) -> None:
    scene.view["partition"].update(leader=2, leader_epoch=2)
    assert (scene.evidence().leader, scene.evidence().source) == (2, "the controller")


def test_replica_of_the_latest_epoch_names_the_leader_when_no_broker_is_controller(
    scene: Scene,
) -> None:
    scene.answers[1]["controller"] = None
    scene.answers[2]["replica"].update(leader=3, leader_epoch=8)
    assert (scene.evidence().leader, scene.evidence().source) == (3, "its replicas")


def test_leader_isr_and_replicas_come_from_the_ledger_when_all_brokers_are_dead(
    scene: Scene,
) -> None:
    scene.ledger.state("4-1", 5, 2, 7, 2, 3)
    scene.answers.clear()
    scene.processes = dict.fromkeys(scene.processes, DOWN)
    evidence = scene.evidence()
    assert (evidence.leader, evidence.leader_epoch, evidence.isr) == (2, 7, (2, 3))
    assert evidence.source == "the ledger"
    assert evidence.assignment.replicas == (2, 3)


def test_partition_missing_from_its_topic_node_is_unknown(scene: Scene) -> None:
    scene.nodes = nodes(None)
    assert not scene.evidence().is_known
    scene.nodes = nodes(None, ReplicaAssignment((1, 2)))
    assert scene.evidence().is_known


def test_partition_is_unknown_when_no_broker_node_or_ledger_line_shows_it() -> None:
    scene = Scene()
    scene.answers.clear()
    assert not scene.evidence().is_known


def test_leader_replica_is_none_if_its_epoch_is_too_old(scene: Scene) -> None:
    assert scene.evidence().leader_replica is not None
    scene.view["partition"].update(leader=2, leader_epoch=2)
    assert scene.evidence().leader_replica is None


def test_config_value_of_the_controller_takes_precedence_over_other_brokers(scene: Scene) -> None:
    scene.answers[2]["settings"]["delete.topic.enable"] = False
    assert scene.evidence().setting("delete.topic.enable") is True
    assert scene.evidence().setting("no.such.key") is None


def test_controller_that_zookeeper_names_is_believed_if_two_brokers_claim_to_be_it(
    scene: Scene,
) -> None:
    scene.answers[2]["controller"] = controller(broker=2, epoch=5)
    evidence = scene.evidence()
    assert (evidence.controller or {})["broker"] == 2
    assert evidence.controller_answer is scene.answers[2]
    scene.nodes = nodes(None)
    evidence = scene.evidence()
    assert (evidence.controller or {})["broker"] == 1
    assert evidence.controller_answer is scene.answers[1]
    scene.nodes = replace(nodes(None), controller=3)
    assert scene.evidence().controller is None
    assert scene.evidence().controller_answer is None


def test_corrupt_batch_that_a_coordinator_has_skipped_is_found(scene: Scene) -> None:
    batch = {"topic": "__consumer_offsets", "partition": 0, "offset": 9, "file": "/d/f.log"}
    scene.answers[1]["skipped_batches"] = [{**batch, "error": "wrong CRC"}]
    [found] = explain(scene.evidence())
    assert (found.name, found.brokers) == ("corrupt-records", (1,))
