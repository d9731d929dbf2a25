"""The state-change log of the controller, with the wording of Kafka's state-change log.

Every line is written to the logger `state-change` with the prefix `[Controller id=0 epoch=1]`. The
latest lines about partitions are also kept in memory, for `lines_of(tp)`. Decisions are also kept for
the ledger, as `Decision` values, until `drain_decisions` returns them. Partitions with equal decisions
share one `Decision`. Invariant: a line is formatted only when it is logged or read.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from enum import Enum
from itertools import islice
from typing import Final, NamedTuple

from minikafka.base.errors import IllegalTransition
from minikafka.base.model import BrokerId, LeaderAndIsr, TopicPartition

state_change = logging.getLogger("state-change")

_REMEMBERED_LINES_MAX: Final = 20_000
SHOWN: Final = 50
"""Maximum number of topics, partitions or replicas in one log line at the start of a controller."""


class Decision(NamedTuple):
    """One decision of a state machine about one or more partitions, or their replicas on one broker.

    `verdict` is one of: `choose` (a leader and ISR are about to be written), `move` (the state
    changed from `source` to `target`), `refuse` (no change, because of `reason`), `illegal` (the
    transition table forbids the move). States and elections have Kafka's names. A text that does not
    apply is "".
    """

    verdict: str
    machine: str
    """`partition` or `replica`; `reassignment` for a refused target in `/admin/reassign_partitions`."""
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


def describe(state: LeaderAndIsr) -> str:
    """Format a leader-and-ISR state as Kafka does."""
    return (
        f"LeaderAndIsr(leader={state.leader}, leaderEpoch={state.leader_epoch}, "
        f"isr=List({', '.join(map(str, state.isr))}), zkVersion={state.state_version})"
    )


class StateChangeLog:
    """The state-change log of one controller epoch.

    `now` and `cause` are the time and the id of the event in progress.
    """

    def __init__(self, controller_id: BrokerId, epoch: int) -> None:
        self.now = 0
        self.cause = ""
        """Id of the event in progress."""
        self._prefix = f"[Controller id={controller_id} epoch={epoch}]"
        self._lines: deque[tuple[int, TopicPartition, str, tuple[object, ...]]] = deque(
            maxlen=_REMEMBERED_LINES_MAX
        )
        self._decisions: dict[Decision, list[TopicPartition]] = {}
        self._moving: tuple[BrokerId | None, Enum | None, Enum | None] = (None, None, None)
        self._moved: list[TopicPartition] = []

    def record(self, decision: Decision, tp: TopicPartition) -> None:
        """Keep a decision about the partition until `drain_decisions` returns it."""
        self._decisions.setdefault(decision, []).append(tp)

    def record_replica_move(
        self, tp: TopicPartition, broker: BrokerId, previous: Enum, target: Enum
    ) -> None:
        """Keep a replica's change of state for the ledger.

        Consecutive calls with the same broker and states share one `Decision`: each of these calls only
        appends to a list.
        """
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
        """Keep the leader and ISR that are about to be written for the partition, for the ledger."""
        chosen = (state.leader, state.leader_epoch, state.isr)
        self.record(Decision(CHOOSE, machine, replica, "", "", election, *chosen), tp)

    def drain_decisions(self) -> dict[Decision, list[TopicPartition]]:
        """Return decision -> partitions, in order, for all decisions since the last call."""
        taken, self._decisions = self._decisions, {}
        self._moving = (None, None, None)
        return taken

    def log(self, level: int, tp: TopicPartition, message: str, *arguments: object) -> None:
        """Log one line about a partition and keep it in memory; `message` has %-placeholders for `arguments`."""
        self._lines.append((self.now, tp, message, arguments))
        if state_change.isEnabledFor(level):
            state_change.log(level, f"%s {message}", self._prefix, *arguments)

    def log_request(self, message: str, *arguments: object) -> None:
        """Log one line about a whole request to a broker, not about a single partition."""
        state_change.info(f"%s {message}", self._prefix, *arguments)

    def record_illegal_move(
        self,
        tp: TopicPartition,
        subject: str,
        previous: Enum,
        target: Enum,
        replica: BrokerId | None = None,
    ) -> IllegalTransition:
        """Log and record a state change that the transition table forbids; return the error (F2).

        The error's text includes the earlier state changes of the partition (`lines_of`). `replica`: the broker id
        of the replica whose state cannot change; None if it is the state of the partition itself.
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
            f"{subject} cannot go from {previous.value} to {target.value}. State changes so far:\n"
            + "\n".join(lines)
        )
        state_change.error("%s %s", self._prefix, error)
        return error

    def lines_of(self, tp: TopicPartition) -> list[str]:
        """Return the lines about the partition that are kept in memory, oldest first.

        Each line begins with its time in monotonic ms.
        """
        return [
            f"{now} {message % arguments}"
            for now, about, message, arguments in self._lines
            if about == tp
        ]


def shortened(items: Iterable[object], total: int) -> str:
    """Return a text with the first SHOWN of `total` items in brackets, and the number of items not shown.

    Only the shown items are read from `items` and formatted.
    """
    shown = ", ".join(map(str, islice(items, SHOWN)))
    return f"[{shown}, and {total - SHOWN} more]" if total > SHOWN else f"[{shown}]"
