"""Which faults apply to one direction of a connection, and what they do to its bytes together. Pure.

The two ends of a connection are *peers*: a broker (its id), all clients of a broker, or ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple, TypeAlias

Peer: TypeAlias = int | str
"""The id of a broker, CLIENTS or ZOOKEEPER."""
CLIENTS: Final = "clients"
ZOOKEEPER: Final = "zookeeper"

CUT: Final = "cut"
DELAY: Final = "delay"
DROP: Final = "drop"
RESET: Final = "reset"

ALL: Final = "all"
CONTROL: Final = "control"
FETCH: Final = "fetch"
LINKS: Final = (ALL, CONTROL, FETCH, ZOOKEEPER)
"""Kinds of connections. FETCH: to a port for Kafka requests, by followers and clients. ZOOKEEPER: to ZooKeeper."""
BOTH: Final = "both"
ONE: Final = "one"
DIRECTIONS: Final = (BOTH, ONE)
DELAY_MAX_MS: Final = 3_600_000


class Way(NamedTuple):
    """One direction of a connection: the peer that sends, the peer that receives, and the kind of the connection."""

    sender: Peer
    receiver: Peer
    link: str


class FaultRule(NamedTuple):
    """One fault between `a` and `b`. `direction` ONE: only what `a` sends to `b`."""

    verb: str
    a: Peer
    b: Peer
    direction: str = BOTH
    link: str = ALL
    ms: int = 0

    def applies_to(self, way: Way) -> bool:
        """True if the fault concerns what is sent this way.

        Clients have no link but FETCH: the tools of the cluster, which call brokers too, are not harmed.
        """
        ends = way.sender, way.receiver
        if CLIENTS in ends and way.link != FETCH:
            return False
        is_between = ends == (self.a, self.b)
        is_back = self.direction == BOTH and ends == (self.b, self.a)
        return (is_between or is_back) and self.link in (ALL, way.link)

    def concerns(self, a: Peer | None, b: Peer | None) -> bool:
        """True if each of these peers, as far as one is given, is an end of the fault."""
        given = {peer for peer in (a, b) if peer is not None}
        return given <= {self.a, self.b}

    def __str__(self) -> str:
        words = [self.verb, str(self.a), str(self.b)]
        words += [f"{self.ms} ms"] if self.verb == DELAY else []
        words += ["in one direction"] if self.direction == ONE else []
        words += [f"on the link {self.link}"] if self.link != ALL else []
        return " ".join(words)


class Effect(NamedTuple):
    """What all faults together do to the bytes of one way. `rules`: the keys of the faults that do it."""

    is_held: bool = False
    is_dropped: bool = False
    delay_ms: int = 0
    rules: tuple[int, ...] = ()

    @property
    def is_open(self) -> bool:
        """True if bytes pass, now or later."""
        return not self.is_held and not self.is_dropped


NO_EFFECT: Final = Effect()


def effect_of(rules: Iterable[tuple[int, FaultRule]], way: Way) -> Effect:
    """Return what these faults, each with its key, do to a way. Delays add up."""
    found = [(key, rule) for key, rule in rules if rule.applies_to(way)]
    if not found:
        return NO_EFFECT
    verbs = {rule.verb for _, rule in found}
    delay_ms = sum(rule.ms for _, rule in found if rule.verb == DELAY)
    return Effect(CUT in verbs, DROP in verbs, delay_ms, tuple(key for key, _ in found))


def problem_of(rule: FaultRule, brokers: Collection[int], *, has_zookeeper: bool) -> str:
    """Return why a cluster with these brokers cannot have this fault, in one sentence; "" if it can."""
    for peer in (rule.a, rule.b):
        if problem := peer_problem(peer, brokers):
            return problem
    if rule.a == rule.b:
        return f"the two ends of a connection must differ, got {rule.a} twice"
    ends = {rule.a, rule.b}
    if ends == {CLIENTS, ZOOKEEPER}:
        return "clients do not connect to ZooKeeper: name a broker in place of one of them"
    if ZOOKEEPER in ends and not has_zookeeper:
        return (
            "the cluster runs no ZooKeeper of its own, and the proxy is not in front of another one"
        )
    return _value_problem(rule, ends)


def peer_problem(peer: object, brokers: Collection[int]) -> str:
    """Return why this is no end of a connection in a cluster with these brokers; "" if it is."""
    if isinstance(peer, bool) or not isinstance(peer, int | str):
        return f"an end of a connection must be a broker id, {CLIENTS} or {ZOOKEEPER}, got {peer!r}"
    if isinstance(peer, int) and peer not in brokers:
        ids = ", ".join(map(str, sorted(brokers)))
        return f"there is no broker {peer}, the cluster has {ids}"
    if isinstance(peer, str) and peer not in (CLIENTS, ZOOKEEPER):
        return f"an end of a connection must be a broker id, {CLIENTS} or {ZOOKEEPER}, got {peer!r}"
    return ""


def _value_problem(rule: FaultRule, ends: Collection[Peer]) -> str:
    if rule.direction not in DIRECTIONS:
        return f"direction must be {' or '.join(DIRECTIONS)}, got {rule.direction!r}"
    if rule.link not in LINKS:
        return f"link must be one of {', '.join(LINKS)}, got {rule.link!r}"
    if rule.link not in (ALL, *_links_of(ends)):
        names = " and ".join(_links_of(ends))
        return f"between {rule.a} and {rule.b} there is no link {rule.link}, but {names}"
    if rule.verb == DELAY and not _is_delay(rule.ms):
        return f"ms must be a whole number from 1 to {DELAY_MAX_MS}, got {rule.ms!r}"
    return ""


def _is_delay(value: object) -> bool:
    return type(value) is int and 1 <= value <= DELAY_MAX_MS


def _links_of(ends: Collection[Peer]) -> tuple[str, ...]:
    if ZOOKEEPER in ends:
        return (ZOOKEEPER,)
    return (FETCH,) if CLIENTS in ends else (CONTROL, FETCH)
