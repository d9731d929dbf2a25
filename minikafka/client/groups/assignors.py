"""Assignors: how the leader of a group divides partitions among the members (Kafka's names and rules).

An assignor gets the subscription of every member and the number of partitions of every topic, and returns
the partitions of each member. `range` and `roundrobin` return exactly the same partitions as in Kafka.
`sticky` and `cooperative-sticky` move as few partitions as a balanced result allows, but not always the same
partitions as in Kafka. (The sticky assignors of librdkafka differ from Kafka too.)

With the first three assignors (eager protocol), members give up all partitions before they join. With
`cooperative-sticky`, members keep their partitions while they join. A partition then moves in two rebalances:
the old owner gives up the partition in the first, and the new owner gets it in the second (KIP-429).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from minikafka.base.arguments import several
from minikafka.base.errors import ConfigError, ProtocolViolation
from minikafka.base.model import TopicPartition
from minikafka.client.groups.protocol import (
    NO_GENERATION,
    Reader,
    Subscription,
    encode_partitions,
)

_GENERATION: Final = Struct(">i")


class Member(NamedTuple):
    """A member of the group; `instance_id` is None for a dynamic member."""

    id: str
    instance_id: str | None
    subscription: Subscription


Members: TypeAlias = Sequence[Member]
Counts: TypeAlias = Mapping[str, int]
"""Number of partitions by topic; topics that do not exist are left out."""
Shares: TypeAlias = dict[str, list[TopicPartition]]
"""Partitions by member id, with an entry for every member."""


class Owned(NamedTuple):
    """The partitions that a member has, and the generation in which they were assigned."""

    partitions: tuple[TopicPartition, ...]
    generation: int


NOTHING_OWNED: Final = Owned((), NO_GENERATION)


class Assignor(NamedTuple):
    """An assignor with its Kafka name.

    `user_data`: returns the bytes that a member with these partitions adds to its subscription.
    `is_cooperative`: members keep their partitions while they join.
    """

    name: str
    assign: Callable[[Members, Counts], Shares]
    user_data: Callable[[Owned], bytes | None] = lambda owned: None
    is_cooperative: bool = False


def assign_ranges(members: Members, counts: Counts) -> Shares:
    """Assign consecutive partitions of each topic to each member.

    If the numbers cannot be equal, the first members get one partition more.
    """
    shares: Shares = {member.id: [] for member in members}
    for topic, count in sorted(counts.items()):
        readers = _in_order(m for m in members if topic in m.subscription.topics)
        for place, member in enumerate(readers):
            size, rest = divmod(count, len(readers))
            first = size * place + min(place, rest)
            numbers = range(first, first + size + (place < rest))
            shares[member.id] += [TopicPartition(topic, number) for number in numbers]
    return shares


def assign_in_turn(members: Members, counts: Counts) -> Shares:
    """Assign the partitions one by one, in turn, to the members that subscribe to the partition's topic."""
    shares: Shares = {member.id: [] for member in members}
    circle = _in_order(members)
    turn = 0
    for tp in _all_partitions(members, counts):
        while tp.topic not in circle[turn % len(circle)].subscription.topics:
            turn += 1
        shares[circle[turn % len(circle)].id].append(tp)
        turn += 1
    return shares


def assign_sticky(members: Members, counts: Counts) -> Shares:
    """Assign balanced shares; members keep as many as possible of the partitions in their user data."""
    return _balanced(members, counts, {member.id: _previous(member) for member in members})


def assign_cooperatively(members: Members, counts: Counts) -> Shares:
    """Assign balanced shares like `assign_sticky`, but without partitions that another member still owns."""
    owned = {member.id: _still_owned(member) for member in members}
    shares = _balanced(members, counts, owned)
    owners = {tp: id_ for id_, had in owned.items() for tp in had.partitions}
    return {
        id_: [tp for tp in share if owners.get(tp, id_) == id_ or tp in owned[id_].partitions]
        for id_, share in shares.items()
    }


def _in_order(members: Iterable[Member]) -> list[Member]:
    """Return members in Kafka's order: static members by instance id, then dynamic members by member id."""
    return sorted(members, key=lambda m: (m.instance_id is None, m.instance_id or "", m.id))


def _all_partitions(members: Members, counts: Counts) -> list[TopicPartition]:
    """Return the partitions of all topics to which a member subscribes, sorted."""
    topics = {topic for member in members for topic in member.subscription.topics}
    return [
        TopicPartition(topic, number)
        for topic in sorted(topics & counts.keys())
        for number in range(counts[topic])
    ]


def _previous(member: Member) -> Owned:
    """Read a `sticky` member's previous partitions, and their generation, from the member's user data."""
    try:
        reader = Reader(member.subscription.user_data or b"")
        partitions = reader.partitions() if reader.left else ()
        return Owned(partitions, reader.int32() if reader.left else NO_GENERATION)
    except ProtocolViolation:  # data of another client library: no partitions are known
        return NOTHING_OWNED


def _still_owned(member: Member) -> Owned:
    """Return the partitions that a cooperative member owns, and their generation.

    Subscriptions of old clients have no generation; the generation is then read from the user data.
    """
    subscription = member.subscription
    generation = subscription.generation
    data = subscription.user_data or b""
    if generation == NO_GENERATION and len(data) == _GENERATION.size:
        (generation,) = _GENERATION.unpack(data)
    return Owned(subscription.owned, generation)


def _balanced(members: Members, counts: Counts, owned: Mapping[str, Owned]) -> Shares:
    shares = _kept(members, counts, owned)
    readers: defaultdict[str, list[str]] = defaultdict(list)
    for member in _in_order(members):
        for topic in member.subscription.topics:
            readers[topic].append(member.id)
    taken = {tp for share in shares.values() for tp in share}
    unowned = [tp for tp in _all_partitions(members, counts) if tp not in taken]
    # Assign the partitions with the fewest possible owners first; the later, more flexible ones balance the shares.
    for tp in sorted(unowned, key=lambda tp: (len(readers[tp.topic]), tp)):
        least = min(readers[tp.topic], key=lambda id_: len(shares[id_]))
        shares[least].append(tp)
    while _move_one(shares, readers):
        pass
    return {id_: sorted(share) for id_, share in shares.items()}


def _kept(members: Members, counts: Counts, owned: Mapping[str, Owned]) -> Shares:
    """Return by member id the partitions that the member may keep.

    If two members claim a partition, the member with the higher generation keeps it. If the generations are
    equal, neither member keeps the partition, because either one may have been fenced.
    """
    claims: defaultdict[TopicPartition, list[tuple[int, str]]] = defaultdict(list)
    for member in members:
        for tp in owned[member.id].partitions:
            if tp.topic in member.subscription.topics and 0 <= tp.partition < counts.get(
                tp.topic, 0
            ):
                claims[tp].append((owned[member.id].generation, member.id))
    shares: Shares = {member.id: [] for member in members}
    for tp, claimed in sorted(claims.items()):
        latest = max(generation for generation, _ in claimed)
        keepers = [id_ for generation, id_ in claimed if generation == latest]
        if len(keepers) == 1:
            shares[keepers[0]].append(tp)
    return shares


def _move_one(shares: Shares, readers: Mapping[str, Collection[str]]) -> bool:
    """Move one partition to a member that has at least two partitions fewer than the partition's owner.

    Return False if there is no such member. Each move decreases the sum of the squared share sizes, so the
    number of moves is finite.
    """
    for giver in sorted(shares, key=lambda id_: -len(shares[id_])):
        size = len(shares[giver])
        best: tuple[int, str, TopicPartition] | None = None
        for topic in dict.fromkeys(tp.topic for tp in shares[giver]):
            taker = min(readers[topic], key=lambda id_: len(shares[id_]))
            room = len(shares[taker])
            if room <= size - 2 and (best is None or room < best[0]):
                last = max(tp for tp in shares[giver] if tp.topic == topic)
                best = room, taker, last
        if best is not None:
            _, taker, moved = best
            shares[giver].remove(moved)
            shares[taker].append(moved)
            return True
    return False


def _sticky_user_data(owned: Owned) -> bytes | None:
    """Return version 1 of the user data of Kafka's StickyAssignor; None before the first assignment."""
    if owned.generation == NO_GENERATION:
        return None
    return encode_partitions(owned.partitions) + _GENERATION.pack(owned.generation)


def _cooperative_user_data(owned: Owned) -> bytes:
    """Return version 0 of the user data of Kafka's CooperativeStickyAssignor: the generation."""
    return _GENERATION.pack(owned.generation)


ASSIGNORS: Final = {
    assignor.name: assignor
    for assignor in (
        Assignor("range", assign_ranges),
        Assignor("roundrobin", assign_in_turn),
        Assignor("sticky", assign_sticky, _sticky_user_data),
        Assignor("cooperative-sticky", assign_cooperatively, _cooperative_user_data, True),
    )
}
"""All assignors by name."""


def is_cooperative(assignors: Iterable[Assignor]) -> bool:
    """True if all these assignors are cooperative: then a member keeps its partitions while it joins."""
    return all(assignor.is_cooperative for assignor in assignors)


def choose_assignors(names: Sequence[str]) -> list[Assignor]:
    """Return the assignors with these names. Raises ConfigError for an unknown name or an empty list."""
    names = several(str, names)
    unknown = [name for name in names if name not in ASSIGNORS]
    if unknown or not names:
        known = ", ".join(ASSIGNORS)
        raise ConfigError(f"assignors must be some of {known}, got {', '.join(unknown) or 'none'}")
    return [ASSIGNORS[name] for name in names]
