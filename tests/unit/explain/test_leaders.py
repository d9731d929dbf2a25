"""The findings of `why` in the leader-coordinated mode, and the znodes that they are about."""

from __future__ import annotations

from typing import Any

import pytest
from support.ledger_lines import Scene
from support.memory_zookeeper_client import Ensemble, MemoryZooKeeper

from minikafka.base.model import NO_EPOCH, LeaderAndIsr, ReplicaAssignment, TopicPartition
from minikafka.explain.nodes import nodes_of
from minikafka.explain.picture import DOWN, Nodes
from minikafka.explain.why import explain
from minikafka.zk.nodes import coordination
from minikafka.zk.nodes.leaders import layout

TP = TopicPartition("t", 0)
ASSIGNED = ReplicaAssignment((1, 2, 3))


def nodes(leader: int = 1, isr: tuple[int, ...] = (1, 2, 3), **more: Any) -> Nodes:
    state = LeaderAndIsr(leader, 4, isr, NO_EPOCH, 7)
    fields = {"assignment": ASSIGNED, "state": state, "is_marked": False, "target": None}
    fields |= {"controller": None, "brokers": (1, 2, 3), "coordination": "leaders", **more}
    return Nodes(**fields)


def scene(found: Nodes, **views: dict[str, Any]) -> Scene:
    """Return three brokers without a controller. `views`: what a broker knows about its replica, by `b` and its id."""
    made = Scene()
    made.coordination = "leaders"
    made.nodes = found
    for id_, answer in made.answers.items():
        followed = {"status": "following", "refusal": None}
        answer["controller"] = views.get(f"b{id_}", followed)
        answer["replica"] |= {"leader_epoch": 4}
    return made


def report(made: Scene) -> list[str]:
    """Return the texts of the findings and of their causes."""
    found: list[str] = []
    left = explain(made.picture())
    while left:
        finding = left.pop(0)
        found.append(finding.text)
        left = [*finding.because, *left]
    return found


def test_healthy_partition_needs_no_controller() -> None:
    assert report(scene(nodes())) == []


def test_opening_leader_is_named_with_the_replicas_that_it_waits_for() -> None:
    made = scene(nodes())
    made.answers[1]["replica"]["opening"] = [2, 3]
    assert report(made) == ["leader 1 does not serve clients before 2,3 of the ISR have caught up"]


def test_elected_broker_that_has_not_taken_its_role_is_named() -> None:
    made = scene(nodes())
    made.answers[1]["replica"]["role"] = "follower"
    made.answers[1]["held_at"] = "election.L1"
    assert report(made)[:2] == [
        "broker 1 was elected in epoch 4 but does not lead yet",
        "broker 1 is held at step election.L1",
    ]


def test_replica_that_waits_is_named_with_the_reason_of_its_refusal() -> None:
    waits = {"status": "waiting", "refusal": "broker 2 is not in the ISR 1"}
    made = scene(nodes(-1, (1,)), b2=waits, b3=waits)
    for id_ in (2, 3):
        made.answers[id_]["replica"]["role"] = "follower"
    made.processes[1] = DOWN
    del made.answers[1]
    found = report(made)
    assert found[0] == "t-0 is offline: it has no leader"
    assert "replica 2 waits for a leader: broker 2 is not in the ISR 1" in found
    assert not any("controller" in text for text in found)


def test_unreadable_node_is_named() -> None:
    path = layout.isr_path(TP)
    made = scene(nodes(-1, faults={path: "no epoch"}))
    made.answers[1]["replica"]["role"] = "follower"
    assert f"nothing is decided while {path} is not readable: no epoch" in report(made)


def test_deletion_names_the_broker_whose_queue_is_not_empty() -> None:
    made = scene(nodes(is_marked=True, backlog={1: 0, 2: 0, 3: 2}))
    made.processes[3] = DOWN
    del made.answers[3]
    assert report(made) == [
        "t-0 is being deleted and not deleted yet",
        "broker 3 has not handled the requests in its queue: 2",
        "broker 3 is down: it has no process",
    ]


def test_half_made_partition_is_named_as_being_created() -> None:
    made = scene(nodes(assignment=None, state=None, is_being_created=True))
    assert report(made) == ["t-0 is being created: its replica list is not written yet"]


def test_replica_without_a_leader_to_prefer_names_how_leaderships_return() -> None:
    made = scene(nodes(leader=2))
    made.answers[1]["replica"]["role"] = "follower"
    made.answers[2]["replica"] |= {"role": "leader", "followers": []}
    assert any("every 300 s a leader gives up" in text for text in report(made))


@pytest.fixture
def ensemble() -> Ensemble:
    made = Ensemble()
    made.put(coordination.PATH, b"leaders")
    made.put(layout.topic_path("t"), layout.encode_topic(bytes(range(16))))
    made.put(layout.replicas_path(TP), b"1,2")
    return made


async def read(ensemble: Ensemble) -> Nodes:
    zookeeper = MemoryZooKeeper(ensemble)
    zookeeper.attach()
    return await nodes_of(zookeeper, TP)


async def test_read_nodes_finds_leader_isr_reassignment_and_queues(ensemble: Ensemble) -> None:
    ensemble.put(layout.leader_path(TP), b"2;5")
    ensemble.put(layout.isr_path(TP), b"1,2;5")
    ensemble.put(layout.reassignment_path(TP), b"2,3")
    ensemble.put(f"{layout.BROKER_IDS}/2", b"{}")
    ensemble.put(f"{layout.queue_path(3)}/q-0000000000", b"{}")
    assert await read(ensemble) == Nodes(
        controller=None,
        brokers=(2,),
        assignment=ReplicaAssignment((2, 3, 1), (3,), (1,)),
        state=LeaderAndIsr(2, 5, (1, 2), NO_EPOCH, 0),
        is_marked=False,
        target=None,
        coordination="leaders",
        backlog={3: 1},
    )


async def test_read_nodes_reports_what_it_cannot_parse(ensemble: Ensemble) -> None:
    ensemble.put(layout.isr_path(TP), b"nonsense")
    found = await read(ensemble)
    assert found.state is None
    assert list(found.faults) == [layout.isr_path(TP)]


async def test_read_nodes_tells_a_half_made_partition_from_one_that_is_deleted(
    ensemble: Ensemble,
) -> None:
    ensemble.put(layout.reassignment_path(TP), b"")
    assert (await read(ensemble)).is_marked
    del ensemble.nodes[layout.replicas_path(TP)]
    ensemble.put(layout.reassignment_path(TP), b"1,2")
    found = await read(ensemble)
    assert (found.is_being_created, found.is_marked, found.assignment) == (True, False, None)
