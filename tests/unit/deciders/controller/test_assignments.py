"""Replica assignment of new topics and partitions."""

from __future__ import annotations

from collections import Counter

import pytest
from support.brokers.endpoints import endpoints

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import Broker
from minikafka.deciders.controller.assignments import (
    PARTITIONS_MAX,
    assign,
    assign_more,
    check_replication_factor,
    check_room,
    checked_assignment,
)


def brokers(count: int, racks: int = 0) -> list[Broker]:
    return [
        Broker(n, endpoints("h", 1, "h", 2), rack=f"rack-{n % racks}" if racks else None)
        for n in range(count)
    ]


@pytest.mark.row("R70")
def test_replicas_are_assigned_round_robin_as_in_kafka() -> None:
    expected = [
        (0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 4, 0), (4, 0, 1),
        (0, 2, 3), (1, 3, 4), (2, 4, 0), (3, 0, 1), (4, 1, 2),
    ]  # fmt: skip
    assert assign(brokers(5), 10, 3, 0, 0) == dict(enumerate(expected))


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("start", [0, 1, 6])
def test_assignment_spreads_leaders_and_replicas_evenly_over_different_brokers(
    count: int, start: int
) -> None:
    start %= count
    assignment = assign(brokers(count), 4 * count, min(3, count), start, start)
    leaders = Counter(replicas[0] for replicas in assignment.values())
    assert set(leaders.values()) == {4}
    assert all(len(set(replicas)) == min(3, count) for replicas in assignment.values())


@pytest.mark.row("R70")
@pytest.mark.parametrize(("count", "racks", "factor"), [(6, 3, 3), (6, 2, 2), (6, 3, 2), (9, 3, 3)])
def test_replicas_are_on_different_racks_while_unused_racks_exist(
    count: int, racks: int, factor: int
) -> None:
    assignment = assign(brokers(count, racks), 4 * count, factor, 1, 2)
    leaders = Counter(replicas[0] for replicas in assignment.values())
    assert set(leaders.values()) == {4}
    for replicas in assignment.values():
        assert len(set(replicas)) == factor
        assert len({broker % racks for broker in replicas}) == min(racks, factor)


def test_every_rack_is_used_when_there_are_more_replicas_than_racks() -> None:
    assignment = assign(brokers(6, 2), 12, 4, 0, 0)
    assert len(assignment) == 12
    for replicas in assignment.values():
        assert len(set(replicas)) == 4
        assert {broker % 2 for broker in replicas} == {0, 1}


@pytest.mark.row("R70")
def test_racks_are_ignored_when_a_broker_has_none() -> None:
    some = [*brokers(4, 2), Broker(4, endpoints("h", 1, "h", 2))]
    assert assign(some, 5, 3, 0, 0) == assign(brokers(5), 5, 3, 0, 0)


@pytest.mark.row("A2")
@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (((1, (1, 2)),), "numbered from 0"),
        (((0, (1, 2)), (0, (2, 1))), "numbered from 0"),
        (((0, ()),), "no replica"),
        (((0, (1, 1)),), "twice"),
        (((0, (1, 2)), (1, (1,))), "different numbers"),
        (((0, (1, 9)),), "broker 9 does not exist"),
    ],
)
def test_manual_assignment_is_refused_with_the_reason_when_invalid(
    given: tuple, reason: str
) -> None:
    with pytest.raises(KafkaError, match=reason) as caught:
        checked_assignment(given, {1, 2, 3})
    assert caught.value.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_manual_assignment_is_returned_unchanged() -> None:
    assert checked_assignment(((1, (2, 1)), (0, (1, 3))), {1, 2, 3}) == {0: (1, 3), 1: (2, 1)}


@pytest.mark.row("R70")
def test_added_partitions_continue_the_round_robin_of_the_first_partition() -> None:
    numbered = [Broker(id_, endpoints("h", 1, "h", 2)) for id_ in (1, 2, 3)]
    added = {2: (1, 3), 3: (2, 3), 4: (3, 1)}
    assert assign_more(numbered, (2, 3), 2, range(2, 5)) == added
    parts = [assign_more(numbered, (2, 3), 2, numbers) for numbers in (range(2, 4), range(4, 5))]
    assert parts[0] | parts[1] == added
    one = assign_more(numbered, (9, 1), 1, range(1, 3))  # the first preferred replica is not alive
    assert one == {1: (2, 3), 2: (3, 1)}


@pytest.mark.parametrize(
    ("factor", "available", "words"), [(0, 3, "larger than 0"), (3, 2, "available brokers: 2")]
)
def test_replication_factor_above_the_number_of_brokers_is_refused(
    factor: int, available: int, words: str
) -> None:
    check_replication_factor(2, 2)
    with pytest.raises(KafkaError, match=words) as caught:
        check_replication_factor(factor, available)
    assert caught.value.code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_request_is_refused_when_it_creates_too_many_partitions() -> None:
    check_room(5, 5)
    with pytest.raises(KafkaError, match=str(PARTITIONS_MAX)):
        check_room(6, 5)
