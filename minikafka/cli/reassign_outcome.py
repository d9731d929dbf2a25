"""Reassignments as the command line follows them: how far they are, and what became of each.

Invariant: a partition is called completed only when the controller knows of no reassignment of it and its
replicas are the target's, in that order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from minikafka.base.model import BrokerId, ReplicaAssignment, TopicPartition
from minikafka.base.ports import Clock
from minikafka.cli.placement import Plan
from minikafka.cli.progress import Amount, Progress, size
from minikafka.client.admin import METADATA_LAG_MS, POLL_MS, Admin
from minikafka.client.admin_results import Outcome

SAMPLE_MS = 1_000
"""How often log directories are measured for the progress display."""


class State(Enum):
    """What became of one partition's reassignment."""

    COMPLETED = "completed"
    IN_PROGRESS = "in_progress"
    DIFFERENT = "different"
    REJECTED = "rejected"


class Verdict(NamedTuple):
    """One partition. `replicas`: those it has, or is moved to, when they are not the target; `error`: why rejected."""

    target: tuple[BrokerId, ...]
    state: State
    replicas: tuple[BrokerId, ...] = ()
    error: Outcome | None = None

    def sentence(self, tp: TopicPartition) -> str:
        """For a person, in the words of Kafka's own tool."""
        if self.state is State.COMPLETED:
            return f"Reassignment of partition {tp} is completed."
        if self.state is State.IN_PROGRESS:
            return f"Reassignment of partition {tp} is still in progress."
        if self.state is State.REJECTED:
            return f"Reassignment of partition {tp} was rejected: {self.error}"
        if not self.replicas:
            return f"There is no partition {tp}."
        found, target = ids(self.replicas), ids(self.target)
        return (
            f"There is no active reassignment of partition {tp} to {target}: "
            f"its replicas are, or shall be, {found}."
        )

    def as_json(self, tp: TopicPartition) -> dict[str, Any]:
        """For a program."""
        is_going_there = self.state in (State.COMPLETED, State.IN_PROGRESS)
        return {
            "topic": tp.topic,
            "partition": tp.partition,
            "target": list(self.target),
            "state": self.state.value,
            "replicas": list(self.replicas or (self.target if is_going_there else ())),
            "error": self.error.code.name if self.error else None,
            "message": self.error.message if self.error else None,
        }


def ids(replicas: Sequence[BrokerId]) -> str:
    """`1,2,3`."""
    return ",".join(map(str, replicas))


async def look(
    admin: Admin, plan: Plan, patience_ms: int = METADATA_LAG_MS
) -> dict[TopicPartition, Verdict]:
    """What became of each so far. `patience_ms`: how long metadata that lags behind is waited for."""
    active = await admin.list_reassignments(plan)
    at_rest = {tp: target for tp, target in plan.items() if tp not in active}
    differing = await admin.find_misplaced(at_rest, patience_ms) if at_rest else {}
    verdicts = {}
    for tp, target in plan.items():
        if tp in active and active[tp].target == target:
            verdicts[tp] = Verdict(target, State.IN_PROGRESS, active[tp].replicas)
        elif tp in active:
            verdicts[tp] = Verdict(target, State.DIFFERENT, active[tp].target)
        elif tp in differing:
            verdicts[tp] = Verdict(target, State.DIFFERENT, differing[tp])
        else:
            verdicts[tp] = Verdict(target, State.COMPLETED)
    return verdicts


async def wait(admin: Admin, clock: Clock, plan: Plan, progress: Progress) -> None:
    """Until none of the plan is under way: done, cancelled, or replaced by another reassignment."""
    pending: Collection[TopicPartition] = plan
    sampled = clock.now() - SAMPLE_MS
    while True:
        active = await admin.list_reassignments(pending)
        active = {tp: moving for tp, moving in active.items() if moving.target == plan[tp]}
        pending = list(active)
        if not pending:
            return
        if clock.now() - sampled >= SAMPLE_MS:
            amounts = await measure(admin, active)
            progress.update(amounts, len(plan) - len(pending))
            sampled = clock.now()
        await clock.sleep(POLL_MS)


async def measure(
    admin: Admin, active: Mapping[TopicPartition, ReplicaAssignment]
) -> dict[str, Amount]:
    """By partition: the bytes that the adding replicas have, of those that the others have."""
    brokers = {replica for moving in active.values() for replica in moving.replicas}
    found = await admin.describe_log_dirs(active, brokers)
    sizes = {
        broker: {tp: count for directory in dirs for tp, count in directory.sizes.items()}
        for broker, dirs in found.items()
    }
    return {str(tp): _amount(tp, moving, sizes) for tp, moving in active.items()}


def _amount(
    tp: TopicPartition,
    moving: ReplicaAssignment,
    sizes: Mapping[BrokerId, Mapping[TopicPartition, int]],
) -> Amount:
    whole = max((sizes.get(broker, {}).get(tp, 0) for broker in moving.origin), default=0)
    total = whole * len(moving.adding)
    silent = [broker for broker in moving.adding if broker not in sizes]
    note = f"broker {ids(silent)} does not answer" if silent else ""
    if not total:
        return Amount(0, None, note)
    done = sum(min(sizes.get(broker, {}).get(tp, 0), whole) for broker in moving.adding)
    return Amount(done, total, note or f"{size(done)} of {size(total)}")


def count(verdicts: Iterable[Verdict], state: State) -> int:
    """How many are so."""
    return sum(verdict.state is state for verdict in verdicts)
