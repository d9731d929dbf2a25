"""The progress and the results of reassignments that `reassign` shows.

Invariant: a partition counts as completed only if the controller has no reassignment for it and its
replicas equal the target, in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

from minikafka.base.model import BrokerId, ReplicaAssignment, TopicPartition
from minikafka.base.names import ids
from minikafka.base.ports import Clock
from minikafka.client.administration.admin import METADATA_LAG_MS, Admin
from minikafka.client.administration.results import Outcome
from minikafka.tools.cli.arguments.placement import Plan
from minikafka.tools.cli.execution.waiting import Blocked
from minikafka.tools.cli.reassign import throttle
from minikafka.tools.cli.reassign.throttle import Limits
from minikafka.tools.cli.terminal.progress import Amount, Progress, size

SAMPLE_MS: Final = 1_000
"""Time between two measurements of the log directories for the progress display."""
SHORT_PATIENCE_MS: Final = 1_000
"""Time to wait for metadata that lags behind the controller, where a command only reports the state."""
_SILENT: Final = "does not answer"


class MoveState(Enum):
    """State of one partition's reassignment."""

    COMPLETED = "completed"
    IN_PROGRESS = "in_progress"
    DIFFERENT = "different"
    REJECTED = "rejected"


class MoveResult(NamedTuple):
    """The result of moving one partition to `target`.

    `replicas`: the current replicas. If the partition is being moved to another target, `replicas` is that other
    target. If the replicas are not known, or if the partition does not exist, `replicas` is (). `error`: set if
    the move was rejected.
    """

    target: tuple[BrokerId, ...]
    state: MoveState
    replicas: tuple[BrokerId, ...] = ()
    error: Outcome | None = None

    def sentence(self, tp: TopicPartition) -> str:
        """Return the result as a sentence, with the wording of kafka-reassign-partitions.sh."""
        if self.state is MoveState.COMPLETED:
            return f"Reassignment of partition {tp} is completed."
        if self.state is MoveState.IN_PROGRESS:
            return f"Reassignment of partition {tp} is still in progress."
        if self.state is MoveState.REJECTED:
            return f"Reassignment of partition {tp} was rejected: {self.error}"
        if not self.replicas:
            return f"There is no partition {tp}."
        found, target = ids(self.replicas), ids(self.target)
        return (
            f"There is no active reassignment of partition {tp} to {target}: "
            f"its replicas are, or will be, {found}."
        )

    def as_json(self, tp: TopicPartition) -> dict[str, Any]:
        """Return the JSON object of the result, for `--json`."""
        has_target = self.state in (MoveState.COMPLETED, MoveState.IN_PROGRESS)
        return {
            "topic": tp.topic,
            "partition": tp.partition,
            "target": list(self.target),
            "state": self.state.value,
            "replicas": list(self.replicas or (self.target if has_target else ())),
            "error": self.error.code.name if self.error else None,
            "message": self.error.message if self.error else None,
        }


async def read_results(
    admin: Admin, plan: Plan, patience_ms: int = METADATA_LAG_MS
) -> dict[TopicPartition, MoveResult]:
    """Return the current result for each partition of the plan.

    `patience_ms`: how long to wait for metadata that lags behind the controller.
    """
    active = await admin.list_reassignments(plan)
    at_rest = {tp: target for tp, target in plan.items() if tp not in active}
    differing = await admin.find_misplaced(at_rest, patience_ms) if at_rest else {}
    found = {tp: ReplicaAssignment(replicas) for tp, replicas in (at_rest | differing).items()}
    found |= active
    return {tp: result_of(target, found[tp]) for tp, target in plan.items()}


def result_of(target: tuple[BrokerId, ...], found: ReplicaAssignment | None) -> MoveResult:
    """Return the result of moving a partition to `target`, from its current assignment (None: no such partition)."""
    if found is None or found.target != target:
        return MoveResult(target, MoveState.DIFFERENT, found.target if found else ())
    state = MoveState.IN_PROGRESS if found.is_being_reassigned else MoveState.COMPLETED
    return MoveResult(target, state, found.replicas)


async def show_progress(
    admin: Admin, clock: Clock, plan: Plan, progress: Progress, target: Sequence[str] = ()
) -> None:
    """Show the progress of the moves until no partition of the plan is being moved to its target.

    The display names the throttle of each move, and the reason why a partition makes no progress. `target`: the
    options that name the cluster.
    """
    told: list[str] = []
    sampled = clock.now() - SAMPLE_MS
    before: dict[str, Amount] = {}
    blocked = Blocked()
    async for active in admin.follow_reassignments(plan):
        if clock.now() - sampled < SAMPLE_MS:
            continue
        limited = await throttle.limits(admin, active)
        for line in throttle.raising_lines(limited.values(), target):
            if line not in told:
                progress.say(line)
                told.append(line)
        amounts = await measure(admin, active, limited)
        stuck = [tp for tp in active if is_stuck(amounts[str(tp)], before.get(str(tp)))]
        reasons = await blocked.reasons(stuck)
        shown = {
            name: amount._replace(note=reasons.get(name, amount.note))
            for name, amount in amounts.items()
        }
        progress.update(shown, len(plan) - len(active))
        sampled, before = clock.now(), amounts


def is_stuck(amount: Amount, before: Amount | None) -> bool:
    """True if a new broker does not answer, or if nothing was copied since the last sample."""
    return _SILENT in amount.note or (before is not None and before.done == amount.done)


async def measure(
    admin: Admin, active: Mapping[TopicPartition, ReplicaAssignment], limited: Limits
) -> dict[str, Amount]:
    """Return by partition the number of bytes copied to the adding replicas, and the total number to copy.

    `limited`: the throttles of the moves, which the notes name.
    """
    brokers = {replica for moving in active.values() for replica in moving.replicas}
    found = await admin.describe_log_dirs(active, brokers)
    sizes = {
        broker: {tp: count for directory in dirs for tp, count in directory.sizes.items()}
        for broker, dirs in found.items()
    }
    amounts = {tp: _amount(tp, moving, sizes) for tp, moving in active.items()}
    for tp, rates in limited.items():
        notes = [note for note in (amounts[tp].note, throttle.limit_note(rates)) if note]
        amounts[tp] = amounts[tp]._replace(note=", ".join(notes))
    return {str(tp): amount for tp, amount in amounts.items()}


def _amount(
    tp: TopicPartition,
    moving: ReplicaAssignment,
    sizes: Mapping[BrokerId, Mapping[TopicPartition, int]],
) -> Amount:
    whole = max((sizes.get(broker, {}).get(tp, 0) for broker in moving.origin), default=0)
    total = whole * len(moving.adding)
    silent = [broker for broker in moving.adding if broker not in sizes]
    note = f"broker {ids(silent)} {_SILENT}" if silent else ""
    if not total:
        return Amount(0, None, note)
    done = sum(min(sizes.get(broker, {}).get(tp, 0), whole) for broker in moving.adding)
    return Amount(done, total, note or f"{size(done)} of {size(total)}")


def count(results: Iterable[MoveResult], state: MoveState) -> int:
    """Return the number of results with this state."""
    return sum(result.state is state for result in results)
