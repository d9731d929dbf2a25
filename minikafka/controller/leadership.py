"""The compare-and-set loop behind every change of leadership (R3, D13).

Propose, write, and only for the partitions whose node had moved on: read again and propose again.
The old loop of Kafka went round with all it had begun with; this one goes round with the conflicts
alone. Invariant: the picture of leadership changes only by what ZooKeeper accepted, or by what it
said in the re-read.
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
    ReadLeaderAndIsr,
    Steps,
    WriteLeaderAndIsr,
)
from minikafka.controller.story import Story

Proposals: TypeAlias = dict[TopicPartition, LeaderAndIsr | Refusal | None]
"""For each partition asked about: a state to write, why there is none, or None when all is well as it is."""
Settled: TypeAlias = dict[TopicPartition, LeaderAndIsr | Refusal]


def change_leadership(
    context: Context,
    story: Story,
    partitions: Iterable[TopicPartition],
    propose: Callable[[list[TopicPartition]], Steps[Proposals]],
) -> Steps[Settled]:
    """Each partition's accepted state, or why it has none; partitions that needed no change are left out."""
    settled: Settled = {}
    remaining = list(partitions)
    while remaining:
        proposals = yield from propose(remaining)
        settled.update((tp, why) for tp, why in proposals.items() if isinstance(why, Refusal))
        states = {tp: state for tp, state in proposals.items() if isinstance(state, LeaderAndIsr)}
        if not states:
            break
        written = yield WriteLeaderAndIsr(states)
        assert isinstance(written, LeaderAndIsrWritten)
        settled.update(_accept(context, story, states, written))
        remaining = []
        if written.conflicts:
            remaining = yield from _read_again(context, story, written.conflicts, settled)
    return settled


def _accept(
    context: Context,
    story: Story,
    states: Mapping[TopicPartition, LeaderAndIsr],
    written: LeaderAndIsrWritten,
) -> Settled:
    settled: Settled = {}
    for tp, version in written.ok.items():
        accepted = replace(states[tp], zk_version=version)
        context.set_leadership(tp, accepted)
        settled[tp] = accepted
    for tp, reason in (written.failed or {}).items():
        story.say(
            logging.ERROR, tp, "Writing the leader and isr of partition %s failed: %s", tp, reason
        )
        settled[tp] = Refusal.WRITE_REFUSED
    return settled


def _read_again(
    context: Context, story: Story, conflicts: tuple[TopicPartition, ...], settled: Settled
) -> Steps[list[TopicPartition]]:
    """The conflicts that still have a state node, the picture brought up to date for them."""
    read = yield ReadLeaderAndIsr(conflicts)
    assert isinstance(read, LeaderAndIsrRead)
    found = []
    for tp in conflicts:
        state = read.states.get(tp)
        if state is None:
            settled[tp] = Refusal.NO_STATE
            continue
        story.say(
            logging.INFO,
            tp,
            "Another write to partition %s came first; it is now at zk version %d, retrying",
            tp,
            state.zk_version,
        )
        context.set_leadership(tp, state)
        found.append(tp)
    return found
