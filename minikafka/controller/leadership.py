"""The compare-and-set loop that every change of leadership uses (R3).

The loop writes the states that its caller proposes. If another program has written a state node in the
meantime, the loop reads the node, and the caller proposes a new state for the partition. The loop retries
only partitions with such a node; Kafka's old loop retried every partition.
Invariant: the known leadership changes only to states that ZooKeeper accepted or returned.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from minikafka.base.model import LeaderAndIsr, TopicPartition
from minikafka.controller.context import Context
from minikafka.controller.elections import Refusal
from minikafka.controller.events import (
    LeaderAndIsrRead,
    LeaderAndIsrWritten,
    Procedure,
    ReadLeaderAndIsr,
    WriteLeaderAndIsr,
)
from minikafka.controller.state_change_log import StateChangeLog

Proposals: TypeAlias = dict[TopicPartition, LeaderAndIsr | Refusal | None]
"""Partition -> state to write, reason why no state is possible, or None if no change is needed."""
LeadershipResults: TypeAlias = dict[TopicPartition, LeaderAndIsr | Refusal]


def change_leadership(
    context: Context,
    state_changes: StateChangeLog,
    partitions: Iterable[TopicPartition],
    propose: Callable[[list[TopicPartition]], Procedure[Proposals]],
) -> Procedure[LeadershipResults]:
    """Write the states that `propose` returns; return partition -> accepted state or reason for failure.

    Partitions that need no change are not in the result. `propose` is called again for partitions whose
    state node another program has changed.
    """
    results: LeadershipResults = {}
    remaining = list(partitions)
    while remaining:
        proposals = yield from propose(remaining)
        results.update((tp, why) for tp, why in proposals.items() if isinstance(why, Refusal))
        states = {tp: state for tp, state in proposals.items() if isinstance(state, LeaderAndIsr)}
        if not states:
            break
        written = yield WriteLeaderAndIsr(states)
        assert isinstance(written, LeaderAndIsrWritten)
        results.update(_accept(context, state_changes, states, written))
        remaining = []
        if written.conflicts:
            remaining = yield from _read_again(context, state_changes, written.conflicts, results)
    return results


def _accept(
    context: Context,
    state_changes: StateChangeLog,
    states: Mapping[TopicPartition, LeaderAndIsr],
    written: LeaderAndIsrWritten,
) -> LeadershipResults:
    results: LeadershipResults = {}
    for tp, version in written.ok.items():
        accepted = replace(states[tp], state_version=version)
        context.set_leadership(tp, accepted)
        results[tp] = accepted
    for tp, reason in (written.failed or {}).items():
        state_changes.log(
            logging.ERROR, tp, "Writing the leader and isr of partition %s failed: %s", tp, reason
        )
        results[tp] = Refusal.WRITE_REFUSED
    return results


def _read_again(
    context: Context,
    state_changes: StateChangeLog,
    conflicts: tuple[TopicPartition, ...],
    results: LeadershipResults,
) -> Procedure[list[TopicPartition]]:
    """Read the state nodes that were not written because of a conflict, and update the known leadership.

    `conflicts`: the partitions of these nodes. Returns the partitions that still have a state node.
    """
    read = yield ReadLeaderAndIsr(conflicts)
    assert isinstance(read, LeaderAndIsrRead)
    found = []
    for tp in conflicts:
        state = read.states.get(tp)
        if state is None:
            results[tp] = Refusal.NO_STATE
            continue
        state_changes.log(
            logging.INFO,
            tp,
            "The state node of partition %s was changed by another write to zk version %d; retrying",
            tp,
            state.state_version,
        )
        context.set_leadership(tp, state)
        found.append(tp)
    return found
