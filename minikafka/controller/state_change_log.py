"""What the controller did to each partition, in Kafka's words: the state-change log and its recent
memory.

Every line goes to the logger `state-change` with the prefix `[Controller id=0 epoch=1]`, and into a
bounded memory, from which `tell(tp)` reads what happened to one partition. For the ledger the same
facts are kept as `Decision` values, partitions that fared alike together, until `decisions` takes
them. Invariant: a line is put into words only when the log takes it or someone asks.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

from minikafka.base.errors import IllegalTransition
from minikafka.base.model import BrokerId, LeaderAndIsr, TopicPartition

state_change = logging.getLogger("state-change")

_REMEMBERED_LINES_MAX: Final = 20_000


class Decision(NamedTuple):
    """What was decided in one way for some partitions, or for their replicas on one broker.

    `verdict`: `choose` (this leadership is going to be written), `move` (from `source` to `target`, done),
    `refuse` (no change, `reason`), `illegal` (the table does not hold the move). Texts are Kafka's names
    of states and elections, "" where there is none.
    """

    verdict: str
    machine: str
    """`partition` or `replica`."""
    replica: BrokerId | None = None
    source: str = ""
    target: str = ""
    election: str = ""
    leader: BrokerId | None = None
    leader_epoch: int | None = None
    isr: tuple[BrokerId, ...] | None = None
    reason: str = ""


CHOOSE: Final = "choose"
MOVE: Final = "move"
REFUSE: Final = "refuse"
ILLEGAL: Final = "illegal"
PARTITION: Final = "partition"
REPLICA: Final = "replica"


def ids(brokers: Iterable[BrokerId]) -> str:
    """Broker ids as Kafka prints a list of them."""
    return ",".join(map(str, brokers))


def describe(state: LeaderAndIsr) -> str:
    """A leader-and-ISR state as Kafka prints it."""
    return (
        f"LeaderAndIsr(leader={state.leader}, leaderEpoch={state.leader_epoch}, "
        f"isr=List({', '.join(map(str, state.isr))}), zkVersion={state.zk_version})"
    )


class StateChangeLog:
    """The state-change log of one controller epoch; `now` and `cause` are those of the event at hand."""

    def __init__(self, controller_id: BrokerId, epoch: int) -> None:
        self.now = 0
        self.cause = ""
        """Id of the event at hand."""
        self._prefix = f"[Controller id={controller_id} epoch={epoch}]"
        self._lines: deque[tuple[int, TopicPartition, str, tuple[object, ...]]] = deque(
            maxlen=_REMEMBERED_LINES_MAX
        )
        self._decisions: dict[Decision, list[TopicPartition]] = {}
        self._moving: tuple[BrokerId | None, Enum | None, Enum | None] = (None, None, None)
        self._moved: list[TopicPartition] = []

    def record(self, decision: Decision, tp: TopicPartition) -> None:
        """Keep for the ledger what was decided for the partition."""
        self._decisions.setdefault(decision, []).append(tp)

    def record_replica_move(
        self, tp: TopicPartition, broker: BrokerId, previous: Enum, target: Enum
    ) -> None:
        """Keep that the broker's replica moved. Most move as the one before, and cost an append."""
        known_broker, known_previous, known_target = self._moving
        if broker != known_broker or previous is not known_previous or target is not known_target:
            move = Decision(MOVE, REPLICA, broker, previous.value, target.value)
            self._moved = self._decisions.setdefault(move, [])
            self._moving = (broker, previous, target)
        self._moved.append(tp)

    def record_choice(
        self,
        machine: str,
        tp: TopicPartition,
        state: LeaderAndIsr,
        *,
        replica: BrokerId | None = None,
        election: str = "",
    ) -> None:
        """Keep the leadership that is about to be written for the partition."""
        chosen = (state.leader, state.leader_epoch, state.isr)
        self.record(Decision(CHOOSE, machine, replica, "", "", election, *chosen), tp)

    def drain_decisions(self) -> dict[Decision, list[TopicPartition]]:
        """What was decided since the last call, in the order of deciding."""
        taken, self._decisions = self._decisions, {}
        self._moving = (None, None, None)
        return taken

    def log(self, level: int, tp: TopicPartition, message: str, *arguments: object) -> None:
        """Log and remember one line about a partition; `message` takes %-arguments."""
        self._lines.append((self.now, tp, message, arguments))
        if state_change.isEnabledFor(level):
            state_change.log(level, f"%s {message}", self._prefix, *arguments)

    def log_request(self, message: str, *arguments: object) -> None:
        """Log one line that is about no single partition."""
        state_change.info(f"%s {message}", self._prefix, *arguments)

    def record_illegal_move(
        self,
        tp: TopicPartition,
        subject: str,
        previous: Enum,
        target: Enum,
        replica: BrokerId | None = None,
    ) -> IllegalTransition:
        """Log a move that the table does not hold; the error carries the partition's story (F2, G12).

        `replica`: the broker whose replica was to move; None when it was the partition.
        """
        machine = PARTITION if replica is None else REPLICA
        self.record(Decision(ILLEGAL, machine, replica, previous.value, target.value), tp)
        lines = self.lines_of(tp)
        self.log(
            logging.ERROR,
            tp,
            "Controller initiated state change for %s from %s to %s failed: illegal transition",
            subject,
            previous.value,
            target.value,
        )
        error = IllegalTransition(
            f"{subject} cannot go from {previous.value} to {target.value}. Its story:\n"
            + "\n".join(lines)
        )
        state_change.error("%s %s", self._prefix, error)
        return error

    def lines_of(self, tp: TopicPartition) -> list[str]:
        """Every remembered line about the partition, oldest first, each with its time in monotonic ms."""
        return [
            f"{now} {message % arguments}"
            for now, about, message, arguments in self._lines
            if about == tp
        ]
