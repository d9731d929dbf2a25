"""Partitions added to topics that exist."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from support.cold import Cold, state

from minikafka.base.errors import ErrorCode
from minikafka.base.model import ReplicaAssignment
from minikafka.base.ports import Check, Set
from minikafka.broker.admin.partitions import MorePartitions, Result
from minikafka.zk import layout

ID = bytes(range(16))
TWO = {0: ReplicaAssignment((2, 3)), 1: ReplicaAssignment((3, 1))}


class World:
    """A controller over a ZooKeeper in memory that holds one topic."""

    def __init__(self, assignment: Mapping[int, ReplicaAssignment] = TWO, **rest: Any) -> None:
        self.cold = Cold(**rest)
        self.ensemble, self.session = self.cold.ensemble, self.cold.session
        self.ensemble.put(layout.topic_path("t"), layout.encode_topic(ID, assignment))
        self.cold.update(*(state("t", p, entry.replicas) for p, entry in assignment.items()))

    def written(self) -> dict[int, ReplicaAssignment]:
        topic_id, assignment = layout.decode_topic(self.ensemble.nodes[layout.topic_path("t")].data)
        assert topic_id == ID
        return assignment

    async def add(self, count: int, *by_hand: tuple[int, ...], **rest: Any) -> Result:
        """Ask with a controller that elects leaders as soon as it sees the partitions."""
        asked = [MorePartitions("t", count, by_hand or None)]
        adding = asyncio.ensure_future(
            self.cold.admin.partitions.create_partitions(asked, 60_000, **rest)
        )
        for _ in range(30):
            await asyncio.sleep(0)
        self.cold.update(*(state("t", p, entry.replicas) for p, entry in self.written().items()))
        (result,) = await adding
        return result


@pytest.mark.row("I9")
async def test_the_topics_node_is_set_at_its_version_under_the_controllers_check() -> None:
    world = World()
    assert await world.add(4) == Result("t")
    (ops,) = world.session.multis
    assert ops[0] == Check(layout.CONTROLLER_EPOCH, 0)
    assert isinstance(ops[1], Set)
    assert (ops[1].path, ops[1].version, len(ops)) == (layout.topic_path("t"), 0, 2)


@pytest.mark.row("R70")
async def test_new_partitions_go_on_where_the_topics_first_ones_left_off_as_in_kafka() -> None:
    world = World()
    assert await world.add(5) == Result("t")
    assert {p: entry.replicas for p, entry in world.written().items()} == {
        0: (2, 3),
        1: (3, 1),
        2: (1, 3),
        3: (2, 3),
        4: (3, 1),
    }


async def test_replicas_given_by_hand_are_taken() -> None:
    world = World()
    assert await world.add(4, (3, 2), (1, 2)) == Result("t")
    assert [world.written()[p].replicas for p in (2, 3)] == [(3, 2), (1, 2)]


@pytest.mark.parametrize(
    ("count", "by_hand", "code", "message"),
    [
        (
            1,
            (),
            ErrorCode.INVALID_PARTITIONS,
            "Topic currently has 2 partitions, which is higher than the requested 1.",
        ),
        (2, (), ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partitions."),
        (-5, (), ErrorCode.INVALID_PARTITIONS, "higher than the requested -5"),
        (2**31 - 1, (), ErrorCode.POLICY_VIOLATION, "10000"),
        (
            4,
            ((1, 2),),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Increasing the number of partitions by 2 but 1 assignments provided.",
        ),
        (
            3,
            ((1, 9),),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Unknown broker(s) in replica assignment: 9.",
        ),
        (3, ((1, 1),), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Duplicate brokers not allowed"),
        (3, ((),), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "replication factor of 0"),
        (
            3,
            ((1, 2, 3),),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Inconsistent replication factor between partitions, partition 0 has 2 while "
            "partitions [2] have replication factors [3], respectively.",
        ),
    ],
)
async def test_what_cannot_be_added_is_refused_with_kafkas_words(
    count: int, by_hand: tuple[tuple[int, ...], ...], code: ErrorCode, message: str
) -> None:
    world = World()
    result = await world.add(count, *by_hand)
    assert result.error == code
    assert message in (result.message or "")
    assert world.session.multis == []


async def test_fewer_brokers_than_replicas_cannot_take_more_partitions() -> None:
    result = await World(live=(2,)).add(3)
    assert result.error == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "available brokers: 1" in (result.message or "")


@pytest.mark.row("R59")
async def test_a_topic_whose_replicas_are_moving_is_left_alone() -> None:
    moving = ReplicaAssignment((2, 3, 1), adding=(1,))
    world = World({0: TWO[0], 1: moving})
    assert (await world.add(3)).error == ErrorCode.REASSIGNMENT_IN_PROGRESS
    assert world.session.multis == []


@pytest.mark.row("R65")
async def test_a_topic_that_is_queued_for_deletion_gets_no_partitions() -> None:
    world = World()
    world.ensemble.put(layout.delete_topic_path("t"))
    result = await world.add(3)
    assert result == Result(
        "t", ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion."
    )


@pytest.mark.parametrize("name", ["none", "", "a/b", "../t"])
async def test_a_topic_that_does_not_exist_is_unknown(name: str) -> None:
    world = World()
    asked = [MorePartitions(name, 3)]
    (result,) = await world.cold.admin.partitions.create_partitions(asked, 0)
    assert result.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_topic_named_twice_is_left_alone() -> None:
    world = World()
    asked = [MorePartitions("t", 3), MorePartitions("t", 4)]
    assert await world.cold.admin.partitions.create_partitions(asked, 0) == [
        Result("t", ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
    ]


async def test_somebody_elses_write_in_between_is_kept() -> None:
    world = World()

    def reorder(ops: object) -> None:
        world.session.before_multi = lambda ops: None
        changed = {0: ReplicaAssignment((3, 2)), 1: TWO[1]}
        world.ensemble.put(layout.topic_path("t"), layout.encode_topic(ID, changed))

    world.session.before_multi = reorder
    assert await world.add(3) == Result("t")
    assert world.written()[0].replicas == (3, 2)
    assert len(world.written()) == 3


async def test_a_node_that_changes_all_the_time_is_given_up() -> None:
    world = World()

    def touch(ops: object) -> None:
        world.ensemble.put(layout.topic_path("t"), layout.encode_topic(ID, TWO))

    world.session.before_multi = touch
    assert (await world.add(3)).error == ErrorCode.REQUEST_TIMED_OUT
    assert len(world.written()) == 2


async def test_a_controller_that_was_replaced_finds_out_by_its_check() -> None:
    world = World()
    world.ensemble.put(layout.CONTROLLER_EPOCH, b"2")
    assert (await world.add(3)).error == ErrorCode.NOT_CONTROLLER
    assert len(world.written()) == 2


async def test_a_broker_that_does_not_rule_adds_nothing() -> None:
    world = World(broker_id=1, controller_id=2)
    assert (await world.add(3)).error == ErrorCode.NOT_CONTROLLER


async def test_partitions_without_leaders_in_time_are_there_all_the_same() -> None:
    world = World()
    asked = [MorePartitions("t", 3)]
    (result,) = await world.cold.admin.partitions.create_partitions(asked, 0)
    assert result.error == ErrorCode.REQUEST_TIMED_OUT
    assert len(world.written()) == 3


async def test_trying_only_answers_without_writing() -> None:
    world = World()
    assert await world.add(3, validate_only=True) == Result("t")
    assert world.session.multis == []


async def test_a_node_that_cannot_be_read_is_not_overwritten() -> None:
    world = World()
    world.ensemble.put(layout.topic_path("t"), b"nonsense")
    asked = [MorePartitions("t", 3)]
    (result,) = await world.cold.admin.partitions.create_partitions(asked, 0)
    assert result.error == ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.ensemble.nodes[layout.topic_path("t")].data == b"nonsense"
