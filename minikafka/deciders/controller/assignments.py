"""Assignment of a new topic's replicas to brokers (R70), and checks of manual assignments.

Invariant: a partition never has two replicas on one broker, and leaders are spread evenly. The functions are pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import Broker, BrokerId

PARTITIONS_MAX: Final = 10_000
"""Maximum number of partitions that one request may create, as in KRaft, to limit the memory that it uses."""


def check_room(partitions: int, room: int) -> None:
    """Raise KafkaError(POLICY_VIOLATION) if `partitions` exceeds `room`.

    `room` is the number of partitions that the request may still create.
    """
    if partitions > room:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, f"a request may create at most {PARTITIONS_MAX} partitions"
        )


def check_replication_factor(replication_factor: int, available: int) -> None:
    """Raise KafkaError(INVALID_REPLICATION_FACTOR) if the factor is below 1 or above `available`.

    `available` is the number of live brokers.
    """
    if replication_factor < 1:
        reason = "Replication factor must be larger than 0."
    elif replication_factor > available:
        reason = (
            f"Replication factor: {replication_factor} larger than available brokers: {available}."
        )
    else:
        return
    raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, reason)


def assign(
    brokers: Sequence[Broker],
    partitions: int,
    replication_factor: int,
    start: int,
    shift: int,
    first_partition: int = 0,
) -> dict[int, tuple[BrokerId, ...]]:
    """Return the ordered replicas of new partitions, by partition number.

    Leaders are assigned round-robin to the ordered brokers, beginning at index `start` for partition 0.
    `shift` sets the distance from a partition's leader to its first follower; the distance grows by one step
    after each round of leaders. The new partitions are numbered from `first_partition`, the number of
    partitions that the topic already has. If every broker has a rack, a partition's replicas are spread over
    as many racks as possible.
    """
    racks = {broker.id: broker.rack for broker in brokers}
    if all(rack is not None for rack in racks.values()):
        order = _alternating(brokers)
    else:
        order = sorted(racks)
        racks = {broker_id: str(broker_id) for broker_id in order}
    rack_count = len(set(racks.values()))
    stride = rack_count if rack_count < len(order) else 1
    assignment = {}
    for partition in range(first_partition, first_partition + partitions):
        first = (partition + start) % len(order)
        turn = shift + partition // len(order)
        candidates = [order[first], *_followers(order, first, turn * stride)]
        assignment[partition] = _pick(candidates, racks, rack_count, replication_factor)
    return assignment


def assign_more(
    brokers: Sequence[Broker],
    first_replicas: Sequence[BrokerId],
    count: int,
    numbers: Sequence[int],
) -> dict[int, tuple[BrokerId, ...]]:
    """Return the replicas of the new partitions of an existing topic, by partition number.

    `count` is the current number of partitions. `numbers` holds the consecutive numbers of the new
    partitions. `first_replicas` holds the replicas of partition 0. As in Kafka, the round-robin begins at
    the preferred replica of partition 0.
    """
    ids = sorted(broker.id for broker in brokers)
    start = next((i for i, id_ in enumerate(ids) if id_ >= first_replicas[0]), 0)
    shift = start - (count - 1) // len(ids)
    return assign(brokers, len(numbers), len(first_replicas), start, shift, numbers[0])


def checked_assignment(
    given: Sequence[tuple[int, tuple[BrokerId, ...]]], known: Collection[BrokerId]
) -> dict[int, tuple[BrokerId, ...]]:
    """Return a manual assignment as a dictionary, by partition number.

    Raises KafkaError(INVALID_REPLICA_ASSIGNMENT), with the reason, if the assignment is invalid.
    """
    assignment = dict(given)
    if sorted(partition for partition, _ in given) != list(range(len(given))):
        raise _invalid("partitions must be numbered from 0, each once")
    for partition, replicas in sorted(assignment.items()):
        if not replicas:
            raise _invalid(f"partition {partition} has no replica")
        if len(set(replicas)) < len(replicas):
            raise _invalid(f"partition {partition} names a broker twice: {list(replicas)}")
        if len(replicas) != len(assignment[0]):
            raise _invalid("partitions have different numbers of replicas")
        for replica in replicas:
            if replica not in known:
                raise _invalid(f"partition {partition}: broker {replica} does not exist")
    return assignment


def _invalid(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)


def _followers(order: Sequence[BrokerId], first: int, shift: int) -> list[BrokerId]:
    """Return the possible followers of the leader `order[first]`, in order of preference.

    These are the brokers after the leader, cyclically. The list is then rotated left by `shift` positions.
    """
    others = len(order) - 1
    return [order[(first + 1 + (shift + i) % others) % len(order)] for i in range(others)]


def _pick(
    candidates: Sequence[BrokerId],
    racks: Mapping[BrokerId, str | None],
    rack_count: int,
    replication_factor: int,
) -> tuple[BrokerId, ...]:
    """Return the first `replication_factor` candidates, in an order that spreads them over the racks.

    Until every rack is used, a candidate on a used rack moves to the end. Otherwise the order of the candidates
    is kept.
    """
    picked: list[BrokerId] = []
    used: set[str | None] = set()
    passed: list[BrokerId] = []
    for candidate in candidates:
        if racks[candidate] in used and len(used) < rack_count:
            passed.append(candidate)
        else:
            used.add(racks[candidate])
            picked.append(candidate)
    return tuple([*picked, *passed][:replication_factor])


def _alternating(brokers: Sequence[Broker]) -> list[BrokerId]:
    """Return the broker ids, one of each rack in turn, so that most neighbours are on different racks."""
    by_rack: dict[str, list[BrokerId]] = {}
    for broker in sorted(brokers, key=lambda broker: broker.id):
        by_rack.setdefault(broker.rack or "", []).append(broker.id)
    queues = [by_rack[rack] for rack in sorted(by_rack)]
    longest = max(map(len, queues))
    return [queue[turn] for turn in range(longest) for queue in queues if turn < len(queue)]
