"""Which replicas of this broker have changed since an observer's last question, so that frequent questions get little.

Nothing happens when records are written: each question compares all replicas with what the last one saw, which takes
about a microsecond for each replica. A broker that is never asked keeps nothing.

Invariant: an answer has every replica that has changed since its position, or says that it has all replicas.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from minikafka.base.model import TopicPartition
from minikafka.storage.replication.partition import Partition

GONE_MAX: Final = 10_000
"""Number of removed replicas that are remembered. Observers that missed more of them get all replicas."""


class ChangesSince(NamedTuple):
    """What has changed since a position. `position`: for the next question. `is_whole`: `changed` has all replicas."""

    position: str
    is_whole: bool
    changed: list[Partition]
    gone: list[TopicPartition]

    def as_json(self) -> dict[str, Any]:
        """Return the changes without the replicas."""
        gone = [[tp.topic, tp.partition] for tp in self.gone]
        return {"position": self.position, "is_whole": self.is_whole, "gone": gone}


class ReplicaChanges:
    """The replicas as the last question saw them. `run`: distinguishes the positions of this run of the broker."""

    def __init__(self, run: int) -> None:
        self._run = run
        self._turn = 0
        self._oldest = 0
        """The lowest turn since which all removed replicas are remembered."""
        self._seen: dict[TopicPartition, tuple[int, tuple[object, ...]]] = {}
        """By replica: the turn in which its last change was seen, and what was seen."""
        self._gone: dict[TopicPartition, int] = {}

    def since(self, position: str, replicas: Mapping[TopicPartition, Partition]) -> ChangesSince:
        """Return what has changed since the position of an earlier answer; all replicas if it is not known."""
        self._turn += 1
        self._look(replicas)
        following = f"{self._run}-{self._turn}"
        turn = self._turn_of(position)
        if turn is None:
            return ChangesSince(following, True, [*replicas.values()], [])
        changed = [replicas[tp] for tp, (at, _) in self._seen.items() if at > turn]
        gone = [tp for tp, at in self._gone.items() if at > turn]
        return ChangesSince(following, False, changed, gone)

    def _look(self, replicas: Mapping[TopicPartition, Partition]) -> None:
        """Note in this turn which replicas differ from what the last question saw."""
        seen, turn = self._seen, self._turn
        for tp, partition in replicas.items():
            sight = _sight_of(partition)
            known = seen.get(tp)
            if known is None:
                self._gone.pop(tp, None)
            if known is None or known[1] != sight:
                seen[tp] = turn, sight
        for tp in seen.keys() - replicas.keys():
            del seen[tp]
            self._gone[tp] = turn
        if len(self._gone) > GONE_MAX:
            self._gone.clear()
            self._oldest = turn

    def _turn_of(self, position: str) -> int | None:
        """Return the turn of a position; None if it is of another run, or too old."""
        run, _, turn = position.partition("-")
        if run != str(self._run) or not (turn.isascii() and turn.isdecimal()) or len(turn) > 18:
            return None
        return int(turn) if self._oldest <= int(turn) < self._turn else None


def _sight_of(partition: Partition) -> tuple[object, ...]:
    """Return the values that make up the state of a replica; if one of them differs, it has changed."""
    log = partition.log
    return (
        log.log_end_offset,
        partition.high_watermark,
        partition.last_stable_offset,
        log.log_start_offset,
        log.size,
        partition.leader_epoch,
        partition.leader,
        partition.is_leader,
        partition.is_open,
        partition.offline,
        partition.isr,
        partition.replicas,
        partition.adding,
        partition.removing,
    )
