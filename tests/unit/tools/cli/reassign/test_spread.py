"""The plan of `reassign --generate`: even, over the racks, and with few moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from minikafka.base.model import Broker, TopicPartition
from minikafka.deciders.controller.assignments import assign
from minikafka.tools.cli.reassign.spread import spread

Plan = Mapping[TopicPartition, Sequence[int]]


def brokers(*ids: int, racks: str = "") -> list[Broker]:
    return [
        Broker(id_, (), rack=rack)
        for id_, rack in zip(ids, racks or [None] * len(ids), strict=True)
    ]


def topic(name: str, *replicas: Sequence[int]) -> dict[TopicPartition, tuple[int, ...]]:
    return {TopicPartition(name, number): tuple(row) for number, row in enumerate(replicas)}


def created(
    name: str, partitions: int, on: Sequence[Broker], factor: int = 3, start: int = 0
) -> Plan:
    """Return the replicas that a new topic gets."""
    return topic(name, *assign(on, partitions, factor, start, 0).values())


def moved(before: Plan, after: Plan) -> int:
    return sum(len(set(after[tp]) - set(replicas)) for tp, replicas in before.items())


def replicas_of(plan: Plan) -> Counter[int]:
    return Counter(broker for replicas in plan.values() for broker in replicas)


def leaders_of(plan: Plan) -> Counter[int]:
    return Counter(replicas[0] for replicas in plan.values())


def test_plan_moves_only_the_replicas_of_a_broker_that_is_to_be_removed() -> None:
    four = brokers(1, 2, 3, 4)
    before = {**created("a", 8, four), **created("b", 4, four, start=2)}
    after = spread(before, brokers(1, 2, 3))
    assert moved(before, after) == replicas_of(before)[4] == 9
    assert replicas_of(after) == {1: 12, 2: 12, 3: 12}
    assert leaders_of(after) == {1: 4, 2: 4, 3: 4}


def test_plan_gives_a_new_broker_its_share_and_moves_nothing_else() -> None:
    before = {**created("a", 6, brokers(1, 2, 3)), **created("b", 2, brokers(1, 2, 3))}
    after = spread(before, brokers(1, 2, 3, 4))
    assert replicas_of(after) == {1: 6, 2: 6, 3: 6, 4: 6}
    assert leaders_of(after) == {1: 2, 2: 2, 3: 2, 4: 2}
    assert moved(before, after) == 6


def test_topics_of_one_partition_are_spread_together() -> None:
    before: dict[TopicPartition, tuple[int, ...]] = {}
    for name in "abcdef":
        before |= topic(name, (1, 2))
    after = spread(before, brokers(1, 2, 3))
    assert replicas_of(after) == {1: 4, 2: 4, 3: 4}
    assert leaders_of(after) == {1: 2, 2: 2, 3: 2}


def test_even_plan_on_all_racks_changes_nothing() -> None:
    six = brokers(1, 2, 3, 4, 5, 6, racks="aabbcc")
    before = created("t", 12, six)
    assert spread(before, six) == {tp: list(replicas) for tp, replicas in before.items()}


def test_replica_moves_to_a_rack_without_one() -> None:
    before = topic("t", (1, 2, 3))
    after = spread(before, brokers(1, 2, 3, 4, racks="aabc"))
    assert moved(before, after) == 1
    assert set(after[TopicPartition("t", 0)]) in ({1, 3, 4}, {2, 3, 4})


@given(st.integers(0, 2**32), st.booleans())
def test_every_plan_is_valid_and_uses_all_racks_and_all_brokers_evenly(
    seed: int, has_racks: bool
) -> None:
    rng = Random(seed)
    factor = rng.randint(1, 3)
    old = rng.sample(range(8), rng.randint(factor, 8))
    new = rng.sample(range(10), rng.randint(factor, 10))
    target = brokers(*new, racks="".join(rng.choice("abc") for _ in new) if has_racks else "")
    before: dict[TopicPartition, tuple[int, ...]] = {}
    for name in "abc"[: rng.randint(1, 3)]:
        before |= topic(name, *(rng.sample(old, factor) for _ in range(rng.randint(1, 12))))
    after = spread(before, target)
    racks = {broker.id: broker.rack for broker in target}
    for tp, replicas in before.items():
        assert len(after[tp]) == len(set(after[tp])) == len(replicas)
        assert set(after[tp]) <= set(new)
        if has_racks:
            used = {racks[broker] for broker in after[tp]}
            assert len(used) == min(factor, len(set(racks.values())))
    if not has_racks:
        for name in {tp.topic for tp in before}:
            counts = replicas_of({tp: row for tp, row in after.items() if tp.topic == name})
            assert (
                max(counts[broker] for broker in new) - min(counts[broker] for broker in new) <= 1
            )
    again = spread({tp: tuple(row) for tp, row in after.items()}, target)
    assert again == after
