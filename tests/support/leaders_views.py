"""Short builders for the views, requests and effects of the leader-coordinated mode."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from minikafka.base.model import TopicPartition
from minikafka.leaders.events import (
    BecomeFollower,
    CaughtUp,
    Effect,
    Note,
    PartitionRead,
    RequestReceived,
    Scanned,
)
from minikafka.leaders.machine import LeadersMachine
from minikafka.leaders.model import (
    IsrNode,
    LeaderNode,
    Operation,
    PartitionView,
    Reassignment,
    Replicas,
    StateChange,
)

T0 = TopicPartition("t", 0)
ID, OTHER_ID = b"i" * 16, b"o" * 16
EVERYONE = frozenset(range(6))
KindT = TypeVar("KindT")


def view(
    replicas: Iterable[int] | None = (0, 1, 2),
    *,
    leader: tuple[int, int] | None = None,
    ours: bool = False,
    isr: Replicas | None = None,
    epoch: int | None = None,
    target: Replicas | None = None,
    topic_id: bytes | None = ID,
    readable: bool = True,
    has_roles: bool = False,
    unclean: bool = False,
) -> PartitionView:
    """Return a view; without `epoch`, the ISR has the leader's epoch (7 without a leader)."""
    written = epoch if epoch is not None else 7 if leader is None else leader[1]
    return PartitionView(
        topic_id,
        None if replicas is None else tuple(replicas),
        0,
        None if leader is None else LeaderNode(*leader, version=0, is_ours=ours),
        None if isr is None else IsrNode(isr, written, version=written),
        None if target is None else Reassignment(target, 0),
        readable,
        readable or has_roles,
        unclean,
    )


def request(
    operation: Operation = Operation.START,
    *,
    epoch: int = -1,
    sender: int = -1,
    topic_id: bytes | None = ID,
    tp: TopicPartition = T0,
) -> StateChange:
    """Return a request; without arguments, the start request of an administrator."""
    return StateChange(operation, tp, topic_id, epoch, sender)


class Bench:
    """One machine, the effects of its latest event, and short ways to pass events."""

    def __init__(self, broker_id: int = 1) -> None:
        self.machine = LeadersMachine(broker_id)
        self.effects: list[Effect] = []

    def handle(self, event: object) -> list[Effect]:
        """Pass an event, keep all its effects, and return those that are no notes."""
        self.effects = self.machine.handle(event)  # type: ignore[arg-type]
        return [effect for effect in self.effects if not isinstance(effect, Note)]

    def read(self, seen: PartitionView, live: frozenset[int] = EVERYONE) -> list[Effect]:
        return self.handle(PartitionRead(T0, seen, live))

    def scan(
        self, seen: PartitionView, disk: bytes | None = ID, live: frozenset[int] = EVERYONE
    ) -> list[Effect]:
        """Scan one partition with a log on this broker's disk."""
        return self.handle(Scanned({T0: seen}, {T0: disk}, live))

    def receive(self, change: StateChange, seen: PartitionView) -> list[Effect]:
        return self.handle(RequestReceived("q-1", change, seen, EVERYONE))

    def follow(self, seen: PartitionView) -> None:
        """Make the replica a follower."""
        self.scan(seen)
        assert any(isinstance(effect, BecomeFollower) for effect in self.effects), self.effects

    def lead(self, seen: PartitionView, *, is_open: bool = True) -> list[Effect]:
        """Make the replica, which must be preferred, the leader of the view; return the last effects."""
        before = view(seen.replicas, isr=() if seen.isr is None else seen.isr.ids, epoch=0)
        self.scan(before)
        effects = self.read(seen)
        if is_open:
            assert seen.isr is not None
            effects = self.handle(CaughtUp(T0, seen.isr.ids))
        return effects

    def texts(self) -> list[str]:
        """The texts of the notes of the latest event."""
        return [effect.text for effect in self.effects if isinstance(effect, Note)]

    def kinds(self) -> list[object]:
        """The kinds of the notes of the latest event."""
        return [effect.fields["kind"] for effect in self.effects if isinstance(effect, Note)]


def only(effects: Iterable[object], kind: type[KindT]) -> list[KindT]:
    """Return the effects of one kind."""
    return [effect for effect in effects if isinstance(effect, kind)]
