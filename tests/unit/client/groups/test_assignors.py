"""Tables of assignments by each assignor, and comparisons with aiokafka's assignors."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyAssignorUserDataV1
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata

from minikafka.base.errors import ConfigError
from minikafka.base.model import TopicPartition
from minikafka.client.groups.assignors import (
    ASSIGNORS,
    NOTHING_OWNED,
    Member,
    Owned,
    Shares,
    choose_assignors,
    is_cooperative,
)
from minikafka.client.groups.protocol import Subscription, encode_subscription

T = TopicPartition
THREE = {"t": 3}


def member(
    id_: str,
    *topics: str,
    owned: str = "",
    generation: int = -1,
    data: bytes | None = None,
    instance: str | None = None,
) -> Member:
    """Return a group member. `owned`: its current partitions of the first topic, one digit each."""
    partitions = tuple(T(topics[0], int(number)) for number in owned)
    return Member(id_, instance, Subscription(topics, data, partitions, generation))


def shown(shares: Shares) -> dict[str, str]:
    return {id_: " ".join(map(str, share)) for id_, share in shares.items()}


@pytest.mark.parametrize(
    ("members", "counts", "expected"),
    [
        ([("m1", "t")], {"t": 2}, {"m1": "t-0 t-1"}),
        ([("m2", "t"), ("m1", "t")], {"t": 3}, {"m1": "t-0 t-1", "m2": "t-2"}),
        ([("m1", "t"), ("m2", "t")], {"t": 1}, {"m1": "t-0", "m2": ""}),
        (
            [("m1", "t", "u"), ("m2", "t", "u")],
            {"t": 3, "u": 3},
            {"m1": "t-0 t-1 u-0 u-1", "m2": "t-2 u-2"},
        ),
        ([("m1", "t", "u"), ("m2", "u")], {"t": 1, "u": 2}, {"m1": "t-0 u-0", "m2": "u-1"}),
        ([("m1", "t")], {}, {"m1": ""}),
        ([("m1",)], {"t": 1}, {"m1": ""}),
    ],
)
def test_range_gives_consecutive_partitions_of_each_topic(
    members: list[tuple[str, ...]], counts: dict[str, int], expected: dict[str, str]
) -> None:
    found = ASSIGNORS["range"].assign([member(*m) for m in members], counts)
    assert shown(found) == expected


@pytest.mark.parametrize(
    ("members", "counts", "expected"),
    [
        ([("m2", "t"), ("m1", "t")], {"t": 3}, {"m1": "t-0 t-2", "m2": "t-1"}),
        (
            [("m1", "t", "u"), ("m2", "t", "u")],
            {"t": 3, "u": 3},
            {"m1": "t-0 t-2 u-1", "m2": "t-1 u-0 u-2"},
        ),
        (
            [("m0", "t"), ("m1", "t", "u"), ("m2", "t", "u", "v")],
            {"t": 1, "u": 2, "v": 3},
            {"m0": "t-0", "m1": "u-0", "m2": "u-1 v-0 v-1 v-2"},
        ),
        ([("m1", "t")], {}, {"m1": ""}),
    ],
)
def test_roundrobin_assigns_partitions_in_turn(
    members: list[tuple[str, ...]], counts: dict[str, int], expected: dict[str, str]
) -> None:
    found = ASSIGNORS["roundrobin"].assign([member(*m) for m in members], counts)
    assert shown(found) == expected


@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_static_members_are_assigned_before_dynamic_members(name: str) -> None:
    members = [member("a", "t"), member("z", "t", instance="i2"), member("b", "t", instance="i3")]
    found = ASSIGNORS[name].assign(members, THREE)
    assert shown(found) == {"z": "t-0", "b": "t-1", "a": "t-2"}


class Cluster:
    def __init__(self, counts: dict[str, int]) -> None:
        self.counts = counts

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(self.counts[topic])) if topic in self.counts else None


def theirs(assignor: Any, members: list[Member], counts: dict[str, int]) -> dict[str, set[T]]:
    """Return the partitions that an assignor of aiokafka assigns to each of these members."""
    rows = {
        m.id: ConsumerProtocolMemberMetadata.decode(encode_subscription(m.subscription))
        for m in members
    }
    shares = assignor.assign(Cluster(counts), rows)
    return {id_: {T(*tp) for tp in given.partitions()} for id_, given in shares.items()}


def random_group(seed: int, *, static: bool = True) -> tuple[list[Member], dict[str, int]]:
    rng = random.Random(seed)
    counts = {f"t{i}": rng.randint(1, 12) for i in range(rng.randint(1, 5))}
    members = [
        member(
            f"m{rng.randint(0, 10**6)}-{i}",
            *sorted(rng.sample(sorted(counts), rng.randint(1, len(counts)))),
            instance=f"i{i}" if static and rng.random() < 0.3 else None,
        )
        for i in range(rng.randint(1, 8))
    ]
    return members, counts


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(
    ("name", "other"),
    [("range", RangePartitionAssignor), ("roundrobin", RoundRobinPartitionAssignor)],
)
def test_range_and_roundrobin_assign_the_same_partitions_as_aiokafka(
    name: str, other: Any, seed: int
) -> None:
    members, counts = random_group(seed, static=False)
    found = ASSIGNORS[name].assign(members, counts)
    assert {id_: set(share) for id_, share in found.items()} == theirs(other, members, counts)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_every_partition_goes_to_one_member_that_reads_its_topic(name: str, seed: int) -> None:
    members, counts = random_group(seed)
    found = ASSIGNORS[name].assign(members, counts)
    read = {topic for m in members for topic in m.subscription.topics}
    given = Counter(tp for share in found.values() for tp in share)
    assert given == {T(topic, n): 1 for topic in read for n in range(counts[topic])}
    topics = {m.id: m.subscription.topics for m in members}
    assert all(tp.topic in topics[id_] for id_, share in found.items() for tp in share)


@pytest.mark.parametrize("seed", range(10))
def test_sticky_assignor_balances_equal_subscriptions_with_the_fewest_moves(seed: int) -> None:
    rng = random.Random(seed)
    counts = {"t": rng.randint(5, 40), "u": rng.randint(1, 9)}
    names = [f"m{i}" for i in range(rng.randint(2, 9))]
    before: Shares = {}
    for generation in range(6):
        members = [
            member_with(name, counts, Owned(tuple(before.get(name, ())), generation))
            for name in names
        ]
        after = ASSIGNORS["sticky"].assign(members, counts)
        sizes = sorted(map(len, after.values()))
        assert sizes[-1] - sizes[0] <= 1
        total = sum(sizes)
        kept = sum(len(set(before.get(name, ())) & set(after[name])) for name in names)
        quotas = sorted((len(before.get(name, ())) for name in names), reverse=True)
        most = sum(
            min(had, total // len(names) + (place < total % len(names)))
            for place, had in enumerate(quotas)
        )
        assert kept == most
        before = after
        if rng.random() < 0.5 and len(names) > 1:
            names.remove(rng.choice(names))
        else:
            names.append(f"n{generation}")


def member_with(name: str, counts: dict[str, int], owned: Owned) -> Member:
    data = ASSIGNORS["sticky"].user_data(owned)
    return Member(name, None, Subscription(tuple(counts), data))


def test_sticky_user_data_equals_aiokafkas() -> None:
    theirs = StickyAssignorUserDataV1([("t", [1, 2])], 4).encode()
    assert ASSIGNORS["sticky"].user_data(Owned((T("t", 1), T("t", 2)), 4)) == theirs


def test_partition_claimed_by_two_sticky_members_goes_to_the_higher_generation() -> None:
    old = ASSIGNORS["sticky"].user_data(Owned((T("t", 0), T("t", 1)), 3))
    new = ASSIGNORS["sticky"].user_data(Owned((T("t", 0),), 5))
    members = [member("a", "t", data=old), member("b", "t", data=new)]
    assert shown(ASSIGNORS["sticky"].assign(members, {"t": 2})) == {"a": "t-1", "b": "t-0"}


@pytest.mark.parametrize("data", [b"\0", b"\0\0\0\1\0\1t\0\0\0\5", b"\x7f\xff\xff\xff"])
def test_sticky_assignor_treats_malformed_user_data_as_no_owned_partitions(data: bytes) -> None:
    found = ASSIGNORS["sticky"].assign([member("a", "t", data=data), member("b", "t")], {"t": 4})
    assert sorted(map(len, found.values())) == [2, 2]


def test_cooperative_assignor_moves_a_partition_in_two_rebalances() -> None:
    assign = ASSIGNORS["cooperative-sticky"].assign
    first = assign([member("a", "t", owned="0123", generation=1), member("b", "t")], {"t": 4})
    assert shown(first) == {"a": "t-0 t-1", "b": ""}
    second = assign(
        [member("a", "t", owned="01", generation=2), member("b", "t", generation=2)], {"t": 4}
    )
    assert shown(second) == {"a": "t-0 t-1", "b": "t-2 t-3"}


def test_cooperative_members_that_claim_the_same_partition_both_give_it_up() -> None:
    members = [member("a", "t", owned="0", generation=3), member("b", "t", owned="0", generation=3)]
    found = ASSIGNORS["cooperative-sticky"].assign(members, {"t": 1})
    assert sorted(map(len, found.values())) == [0, 1]


def test_cooperative_assignor_reads_the_generation_from_old_user_data() -> None:
    members = [
        member("a", "t", owned="01", data=b"\0\0\0\5"),
        member("b", "t", owned="01", generation=4),
    ]
    found = ASSIGNORS["cooperative-sticky"].assign(members, {"t": 2})
    assert found["a"] != []
    assert set(found["a"]) | set(found["b"]) <= {T("t", 0), T("t", 1)}
    assert ASSIGNORS["cooperative-sticky"].user_data(Owned((), 5)) == b"\0\0\0\5"


def test_sticky_assignor_gives_each_of_200_members_5_of_1000_partitions() -> None:
    counts = {"t": 1000}
    shares: Shares = {"m000": [T("t", n) for n in range(1000)]}
    members = [
        member_with(f"m{i:03}", counts, Owned(tuple(shares[f"m{i:03}"]), 1))
        if f"m{i:03}" in shares
        else member_with(f"m{i:03}", counts, NOTHING_OWNED)
        for i in range(200)
    ]
    found = ASSIGNORS["sticky"].assign(members, counts)
    assert {len(share) for share in found.values()} == {5}


def test_error_about_an_unknown_assignor_names_it() -> None:
    with pytest.raises(ConfigError, match=r"some of range, roundrobin, .* got spread"):
        choose_assignors(["range", "spread"])
    with pytest.raises(ConfigError, match="got none"):
        choose_assignors([])


def test_member_is_cooperative_when_all_its_assignors_are() -> None:
    assert is_cooperative(choose_assignors(["cooperative-sticky"]))
    assert not is_cooperative(choose_assignors(["range", "cooperative-sticky"]))
