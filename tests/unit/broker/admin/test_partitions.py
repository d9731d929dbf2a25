"""Partitions added to existing topics."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from support.brokers.cold import Cold, state

from minikafka.base.errors import BadArguments, ErrorCode
from minikafka.base.model import ReplicaAssignment
from minikafka.base.names import GROUP_TOPIC
from minikafka.base.ports import Check, Set
from minikafka.broker.admin.partitions import CreatePartitionsResult, MorePartitions
from minikafka.zookeeper.nodes import layout

ID = bytes(range(16))
TWO = {0: ReplicaAssignment((2, 3)), 1: ReplicaAssignment((3, 1))}


class World:
    """The active controller, with one topic in an in-memory ZooKeeper."""

    def __init__(self, assignment: Mapping[int, ReplicaAssignment] = TWO, **rest: Any) -> None:
        self.cold = Cold(**rest)
        self.ensemble, self.session = self.cold.ensemble, self.cold.session
        self.ensemble.put(layout.topic_path("t"), layout.encode_topic(ID, assignment))
        self.cold.update(*(state("t", p, entry.replicas) for p, entry in assignment.items()))

    def written(self) -> dict[int, ReplicaAssignment]:
        topic_id, assignment = layout.decode_topic(self.ensemble.nodes[layout.topic_path("t")].data)
        assert topic_id == ID
        return assignment

    async def add(
        self, count: int, *by_hand: tuple[int, ...], **rest: Any
    ) -> CreatePartitionsResult:
        """Add partitions to t, elect leaders for the new partitions, and return the result."""
        asked = [MorePartitions("t", count, by_hand or None)]
        adding = asyncio.ensure_future(
            self.cold.admin.partitions.create_partitions(asked, 60_000, **rest)
        )
        await self.cold.until_waiting(adding)
        self.cold.update(*(state("t", p, entry.replicas) for p, entry in self.written().items()))
        (result,) = await adding
        return result


@pytest.mark.row("I9")
async def test_new_partitions_are_written_in_one_multi_that_checks_epoch_and_version() -> None:
    world = World()
    assert await world.add(4) == CreatePartitionsResult("t")
    (ops,) = world.session.multis
    assert ops[0] == Check(layout.CONTROLLER_EPOCH, 0)
    assert isinstance(ops[1], Set)
    assert (ops[1].path, ops[1].version, len(ops)) == (layout.topic_path("t"), 0, 2)


@pytest.mark.row("R70")
async def test_new_partitions_continue_the_round_robin_assignment_as_in_kafka() -> None:
    world = World()
    assert await world.add(5) == CreatePartitionsResult("t")
    assert {p: entry.replicas for p, entry in world.written().items()} == {
        0: (2, 3),
        1: (3, 1),
        2: (1, 3),
        3: (2, 3),
        4: (3, 1),
    }


async def test_replicas_given_for_new_partitions_are_used() -> None:
    world = World()
    assert await world.add(4, (3, 2), (1, 2)) == CreatePartitionsResult("t")
    assert [world.written()[p].replicas for p in (2, 3)] == [(3, 2), (1, 2)]


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("unanswered", ErrorCode.NONE),
        ("lagging", ErrorCode.NONE),
        ("lost", ErrorCode.REQUEST_TIMED_OUT),
    ],
)
async def test_topic_write_with_a_lost_response_is_resolved_by_reading_the_node(
    fault: str, code: ErrorCode
) -> None:
    world = World()
    world.session.faults = [fault]
    assert (await world.add(4)).error == code
    assert len(world.written()) == (2 if code else 4)


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
async def test_invalid_new_partitions_are_refused_with_kafkas_error_message(
    count: int, by_hand: tuple[tuple[int, ...], ...], code: ErrorCode, message: str
) -> None:
    world = World()
    result = await world.add(count, *by_hand)
    assert result.error == code
    assert message in (result.message or "")
    assert world.session.multis == []


async def test_new_partitions_are_refused_when_live_brokers_are_fewer_than_replicas() -> None:
    result = await World(live=(2,)).add(3)
    assert result.error == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "available brokers: 1" in (result.message or "")


@pytest.mark.row("R59")
async def test_new_partitions_are_refused_while_the_topic_is_reassigned() -> None:
    moving = ReplicaAssignment((2, 3, 1), adding=(1,))
    world = World({0: TWO[0], 1: moving})
    assert (await world.add(3)).error == ErrorCode.REASSIGNMENT_IN_PROGRESS
    assert world.session.multis == []


@pytest.mark.row("R65")
async def test_new_partitions_are_refused_when_the_topic_is_queued_for_deletion() -> None:
    world = World()
    world.ensemble.put(layout.delete_topic_path("t"))
    result = await world.add(3)
    assert result == CreatePartitionsResult(
        "t", ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion."
    )


@pytest.mark.parametrize("name", ["none", "", "a/b", "../t"])
async def test_new_partitions_of_an_unknown_topic_are_refused(name: str) -> None:
    world = World()
    asked = [MorePartitions(name, 3)]
    (result,) = await world.cold.admin.partitions.create_partitions(asked, 0)
    assert result.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("name", ["", "a/b", "../t"])
async def test_invalid_topic_name_is_not_looked_up_in_zookeeper(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()

    async def get_many(paths: list[str]) -> None:
        raise BadArguments(str(paths))

    monkeypatch.setattr(world.session, "get_many", get_many)
    asked = [MorePartitions(name, 3)]
    (result,) = await world.cold.admin.partitions.create_partitions(asked, 0)
    assert result.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_topic_named_twice_gets_no_new_partitions() -> None:
    world = World()
    asked = [MorePartitions("t", 3), MorePartitions("t", 4)]
    assert await world.cold.admin.partitions.create_partitions(asked, 0) == [
        CreatePartitionsResult("t", ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
    ]


async def test_replicas_that_another_broker_writes_concurrently_are_kept() -> None:
    world = World()

    def reorder(ops: object) -> None:
        world.session.before_multi = lambda ops: None
        changed = {0: ReplicaAssignment((3, 2)), 1: TWO[1]}
        world.ensemble.put(layout.topic_path("t"), layout.encode_topic(ID, changed))

    world.session.before_multi = reorder
    assert await world.add(3) == CreatePartitionsResult("t")
    assert world.written()[0].replicas == (3, 2)
    assert len(world.written()) == 3


async def test_request_times_out_when_the_topic_node_changes_at_every_attempt() -> None:
    world = World()

    def touch(ops: object) -> None:
        world.ensemble.put(layout.topic_path("t"), layout.encode_topic(ID, TWO))

    world.session.before_multi = touch
    assert (await world.add(3)).error == ErrorCode.REQUEST_TIMED_OUT
    assert len(world.written()) == 2


async def test_former_controller_adds_no_partitions_because_its_epoch_is_stale() -> None:
    world = World()
    world.ensemble.put(layout.CONTROLLER_EPOCH, b"2")
    assert (await world.add(3)).error == ErrorCode.NOT_CONTROLLER
    assert len(world.written()) == 2


async def test_broker_that_is_not_the_controller_adds_no_partitions() -> None:
    world = World(broker_id=1, controller_id=2)
    assert (await world.add(3)).error == ErrorCode.NOT_CONTROLLER


async def test_request_times_out_when_new_partitions_get_no_leaders_in_time() -> None:
    world = World()
    asked = [MorePartitions("t", 3)]
    (result,) = await world.cold.admin.partitions.create_partitions(asked, 0)
    assert result.error == ErrorCode.REQUEST_TIMED_OUT
    assert len(world.written()) == 3


async def test_validate_only_adds_no_partitions() -> None:
    world = World()
    assert await world.add(3, validate_only=True) == CreatePartitionsResult("t")
    assert world.session.multis == []


async def test_unreadable_topic_node_is_not_overwritten() -> None:
    world = World()
    world.ensemble.put(layout.topic_path("t"), b"nonsense")
    asked = [MorePartitions("t", 3)]
    (result,) = await world.cold.admin.partitions.create_partitions(asked, 0)
    assert result.error == ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.ensemble.nodes[layout.topic_path("t")].data == b"nonsense"


async def test_partitions_are_not_added_to_the_offsets_topic() -> None:
    """The number of partitions decides where a group's offsets are: more partitions would hide committed offsets."""
    cold = Cold()
    cold.ensemble.put(layout.topic_path(GROUP_TOPIC), layout.encode_topic(ID, TWO))
    cold.update(*(state(GROUP_TOPIC, p, entry.replicas) for p, entry in TWO.items()))
    asked = [MorePartitions(GROUP_TOPIC, 3, None)]
    (result,) = await cold.admin.partitions.create_partitions(asked, 60_000)
    assert result.error == ErrorCode.INVALID_PARTITIONS


async def test_one_request_creates_at_most_10000_partitions() -> None:
    world = World()
    path = layout.topic_path("u")
    world.ensemble.put(path, layout.encode_topic(ID, TWO))
    asked = [MorePartitions("t", 6_002), MorePartitions("u", 4_003), MorePartitions("u2", 1)]
    create = world.cold.admin.partitions.create_partitions
    results = {result.topic: result.error for result in await create(asked, 0, validate_only=True)}
    assert sorted([results["t"], results["u"]]) == [ErrorCode.NONE, ErrorCode.POLICY_VIOLATION]
    asked[1] = MorePartitions("u", 4_002)
    assert {r.error for r in await create(asked[:2], 0, validate_only=True)} == {ErrorCode.NONE}
