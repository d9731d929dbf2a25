"""Assignors: how the leader of a group divides partitions among the members (Kafka's names and rules).

An assignor gets the subscription of every member and the number of partitions of every topic, and returns
the partitions of each member. `range` and `roundrobin` give exactly what Kafka's assignors of these names
give. The sticky ones move as few partitions as a balanced result allows, but not always the partitions that
Kafka's would move; librdkafka's also differ from Kafka's. Under the eager protocol members give up everything
before they join; `cooperative-sticky` lets them keep what does not move, and moves a partition in two
rebalances: its owner gives it up in the first one and its new owner gets it in the second one (KIP-429).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

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
    """A member as the leader sees it; `instance_id` is that of a static member."""

    id: str
    instance_id: str | None
    subscription: Subscription


Members: TypeAlias = Sequence[Member]
Counts: TypeAlias = Mapping[str, int]
"""Number of partitions by topic; a topic that does not exist is left out."""
Shares: TypeAlias = dict[str, list[TopicPartition]]
"""Partitions by member id, with an entry for every member."""


class Owned(NamedTuple):
    """The partitions that a member has, and the generation in which it got them."""

    partitions: tuple[TopicPartition, ...]
    generation: int


NOTHING_OWNED: Final = Owned((), NO_GENERATION)


class Assignor(NamedTuple):
    """An assignor under its Kafka name.

    `user_data`: what a member with these partitions adds to its subscription. `is_cooperative`: members keep
    their partitions while they join.
    """

    name: str
    assign: Callable[[Members, Counts], Shares]
    user_data: Callable[[Owned], bytes | None] = lambda owned: None
    is_cooperative: bool = False


def assign_ranges(members: Members, counts: Counts) -> Shares:
    """Return shares of consecutive partitions of each topic; if uneven, the first members get one more."""
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
    """Return shares made by dealing out partitions one by one to members that subscribe to their topic."""
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
    """Return balanced shares that keep as many as possible of the partitions named in the user data."""
    return _balanced(members, counts, {member.id: _previous(member) for member in members})


def assign_cooperatively(members: Members, counts: Counts) -> Shares:
    """Return balanced shares like `assign_sticky`, but without partitions that another member still owns."""
    owned = {member.id: _still_owned(member) for member in members}
    shares = _balanced(members, counts, owned)
    owners = {tp: id_ for id_, had in owned.items() for tp in had.partitions}
    return {
        id_: [tp for tp in share if owners.get(tp, id_) == id_ or tp in owned[id_].partitions]
        for id_, share in shares.items()
    }


def _in_order(members: Iterable[Member]) -> list[Member]:
    """Return members in Kafka's order: static ones by instance id, then the others by member id."""
    return sorted(members, key=lambda m: (m.instance_id is None, m.instance_id or "", m.id))


def _all_partitions(members: Members, counts: Counts) -> list[TopicPartition]:
    """Return the partitions of every topic that some member reads, sorted."""
    topics = {topic for member in members for topic in member.subscription.topics}
    return [
        TopicPartition(topic, number)
        for topic in sorted(topics & counts.keys())
        for number in range(counts[topic])
    ]


def _previous(member: Member) -> Owned:
    """Return the partitions that a `sticky` member had before, and their generation, from its user data."""
    try:
        reader = Reader(member.subscription.user_data or b"")
        partitions = reader.partitions() if reader.left else ()
        return Owned(partitions, reader.int32() if reader.left else NO_GENERATION)
    except ProtocolViolation:  # another client's data: this member begins without partitions
        return NOTHING_OWNED


def _still_owned(member: Member) -> Owned:
    """Return the partitions that a cooperative member owns, and their generation.

    The generation comes from the user data if the subscription has none, as with old clients.
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
    # Partitions that few members can take come first: later ones fill the gaps that these leave.
    for tp in sorted(unowned, key=lambda tp: (len(readers[tp.topic]), tp)):
        least = min(readers[tp.topic], key=lambda id_: len(shares[id_]))
        shares[least].append(tp)
    while _move_one(shares, readers):
        pass
    return {id_: sorted(share) for id_, share in shares.items()}


def _kept(members: Members, counts: Counts, owned: Mapping[str, Owned]) -> Shares:
    """Return the partitions that members may keep.

    Of two members that claim the same partition, the one with the higher generation keeps it; with equal
    generations neither does, because either may have been fenced.
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
    """Move one partition from a member to one that has at least two fewer; return False if there is none.

    Each move makes the sum of the squared sizes smaller, so the moves come to an end.
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
    """Return version 1 of the user data of Kafka's StickyAssignor; None for a member that had nothing."""
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
"""Every assignor by its name."""


def is_cooperative(assignors: Iterable[Assignor]) -> bool:
    """True if a member with these assignors keeps its partitions while it joins: all are cooperative."""
    return all(assignor.is_cooperative for assignor in assignors)


def choose_assignors(names: Sequence[str]) -> list[Assignor]:
    """Return the assignors with these names. Raises ConfigError for an unknown name or no name."""
    unknown = [name for name in names if name not in ASSIGNORS]
    if unknown or not names:
        known = ", ".join(ASSIGNORS)
        raise ConfigError(f"assignors must be some of {known}, got {', '.join(unknown) or 'none'}")
    return [ASSIGNORS[name] for name in names]
