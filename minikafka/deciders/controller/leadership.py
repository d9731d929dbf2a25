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

from minikafka.base.model import NO_LEADER, LeaderAndIsr, TopicPartition
from minikafka.deciders.controller.commands import (
    ReadLeaderAndIsr,
    WriteLeaderAndIsr,
    WrittenStates,
)
from minikafka.deciders.controller.context import Context
from minikafka.deciders.controller.elections import Refusal
from minikafka.deciders.controller.request_batch import Shared
from minikafka.deciders.controller.state_change_log import StateChangeLog
from minikafka.deciders.decider import Procedure

Proposals: TypeAlias = dict[TopicPartition, LeaderAndIsr | Refusal | None]
"""Partition -> state to write, reason why no state is possible, or None if no change is needed."""
LeadershipResults: TypeAlias = dict[TopicPartition, LeaderAndIsr | Refusal]


def change_leadership(
    shared: Shared,
    partitions: Iterable[TopicPartition],
    propose: Callable[[list[TopicPartition]], Procedure[Proposals]],
) -> Procedure[LeadershipResults]:
    """Write the states that `propose` returns; return partition -> accepted state or reason for failure.

    Partitions that need no change are not in the result. `propose` is called again for partitions whose
    state node another program has changed.
    """
    context, state_changes, _, procedures = shared
    results: LeadershipResults = {}
    remaining = list(partitions)
    while remaining:
        proposals = yield from propose(remaining)
        results.update((tp, why) for tp, why in proposals.items() if isinstance(why, Refusal))
        states = {tp: state for tp, state in proposals.items() if isinstance(state, LeaderAndIsr)}
        if not states:
            break
        for tp, state in states.items():
            _check(context, tp, state)
        written: WrittenStates = yield WriteLeaderAndIsr(procedures.new_token(), states)
        results.update(_accept(context, state_changes, states, written))
        remaining = []
        if written.conflicts:
            read = yield ReadLeaderAndIsr(procedures.new_token(), written.conflicts)
            remaining = _adopt(context, state_changes, written.conflicts, read, results)
    return results


def _check(context: Context, tp: TopicPartition, proposed: LeaderAndIsr) -> None:
    """Assert that the controller may write this state."""
    known, isr = context.leadership.get(tp), proposed.isr
    assert proposed.controller_epoch == context.epoch, (tp, proposed)
    if known is None:
        assert proposed.leader_epoch == 0, (tp, proposed)
        assert proposed.leader in isr, (tp, proposed)
        assert all(member in context.replicas(tp) for member in isr), (tp, proposed)
        return
    # What does not change may break these rules: a tool has written it, and the controller must be able to go on.
    if proposed.leader != known.leader:
        assert proposed.leader == NO_LEADER or proposed.leader in isr, (tp, known, proposed)
    if isr != known.isr:
        assert isr, (tp, known, proposed)
        # Only a leader adds members. An unclean election leaves the new leader alone in the ISR.
        is_smaller = all(member in known.isr for member in isr)
        assert is_smaller or isr == (proposed.leader,), (tp, known, proposed)
    assert proposed.leader_epoch == known.leader_epoch + 1, (tp, known, proposed)
    assert proposed.controller_epoch >= known.controller_epoch, (tp, known, proposed)
    assert proposed.state_version == known.state_version, (tp, known, proposed)


def _accept(
    context: Context,
    state_changes: StateChangeLog,
    states: Mapping[TopicPartition, LeaderAndIsr],
    written: WrittenStates,
) -> LeadershipResults:
    results: LeadershipResults = {}
    for tp, version in written.ok.items():
        assert version > states[tp].state_version, (tp, version, states[tp])
        accepted = replace(states[tp], state_version=version)
        context.set_leadership(tp, accepted)
        results[tp] = accepted
    for tp, reason in written.failed.items():
        state_changes.log(
            logging.ERROR, tp, "Writing the leader and isr of partition %s failed: %s", tp, reason
        )
        results[tp] = Refusal.WRITE_REFUSED
    return results


def _adopt(
    context: Context,
    state_changes: StateChangeLog,
    conflicts: tuple[TopicPartition, ...],
    read: Mapping[TopicPartition, LeaderAndIsr],
    results: LeadershipResults,
) -> list[TopicPartition]:
    """Record the states that were read of partitions with a conflict; return the partitions that have a state node."""
    found = []
    for tp in conflicts:
        state = read.get(tp)
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
