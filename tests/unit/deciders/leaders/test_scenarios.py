"""Generated schedules of brokers in the leader-coordinated mode: invariants after each step, recovery at the end."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

import pytest
from support.deciders.leaders_views import ID, OTHER_ID, T0, view
from support.deciders.leaders_world import SimBroker, World, check_commands

from minikafka.deciders.leaders import commands as c
from minikafka.deciders.leaders import events as e
from minikafka.deciders.leaders.model import (
    IsrNode,
    LeaderNode,
    Operation,
    PartitionView,
    StateChange,
)

WRITES: Final = (c.RaiseEpoch, c.CompleteReassignment, c.GiveUpLeadership)


@pytest.mark.row("C19", "C42")
@pytest.mark.parametrize("seed", range(40))
def test_random_schedule_keeps_the_invariants_and_settles(seed: int) -> None:
    world = World(seed)
    for _ in range(4):
        world.run(600)
        world.settle()


def any_view(random: Random, epoch: int) -> PartitionView:
    """Return a view with any nodes, as another program may write them. `epoch`: about the epochs in it."""

    def some() -> tuple[int, ...]:
        return tuple(random.sample(range(4), random.randint(1, 3)))

    broker = random.choice((0, 1, 1, 1, 2, 3))
    return view(
        random.choice((None, some(), some(), some())),
        leader=random.choice((None, (broker, epoch + random.randrange(3)))),
        ours=broker == 1 and random.random() < 0.7,
        isr=random.choice((None, some(), some())),
        epoch=random.choice((None, None, epoch + random.randrange(3))),
        target=random.choice((None, None, (), some())),
        topic_id=random.choice((ID, ID, ID, ID, OTHER_ID, None)),
        readable=random.random() < 0.9,
        unclean=random.random() < 0.2,
    )


def any_event(random: Random, epoch: int) -> e.Event:
    seen, live = any_view(random, epoch), frozenset(random.sample(range(4), 2))
    readable = replace(seen, is_readable=True)
    topic_id = random.choice((ID, ID, OTHER_ID, None))
    operation = random.choice((Operation.START, Operation.START, Operation.CLOSE))
    known = random.choice((-1, seen.epoch, epoch))
    change = StateChange(operation, T0, topic_id, known, random.randrange(-1, 4))
    on_disk = random.choice(({}, {T0: topic_id}))
    return random.choice(
        (
            *(e.PartitionRead(T0, seen, live),) * 4,
            *(e.RequestReceived("1", change, seen, live),) * 3,
            e.Scanned({T0: readable}, on_disk, live),
            e.ElectionWaitEnded(T0, seen, live),
            *(e.CaughtUp(T0, (1,)),) * 3,
            e.IsrConflict(T0, seen, live),
            e.BalanceDue({T0: seen}, live, may_move=random.random() < 0.5),
            e.Registered(),
            e.LeaseEnded(),
        )
    )


def accepted(command: c.TryToLead | c.RaiseEpoch) -> e.Event:
    """Return the event after a write that was carried out."""
    isr = IsrNode(command.isr, command.epoch, version=1)
    leader = LeaderNode(1, command.epoch, version=1, is_ours=True)
    return e.PartitionRead(T0, replace(command.view, leader=leader, isr=isr), frozenset())


@pytest.mark.parametrize("seed", range(20))
def test_nodes_with_any_content_break_no_invariant_of_a_broker(seed: int) -> None:
    random, broker = Random(seed), SimBroker(1)
    seen: set[type] = set()
    following: e.Event | None = None
    for number in range(2000):
        event, following = following or any_event(random, epoch=number // 10), None
        before = {T0: broker.machine.status(T0)}
        commands = broker.machine.handle(event, 0)
        check_commands(broker, event, commands, before)
        for command in commands:
            seen.add(type(command))
            if isinstance(command, c.TryToLead | c.RaiseEpoch) and random.random() < 0.5:
                following = accepted(command)
            if isinstance(command, c.CloseReplica):
                broker.role_epochs.clear()
            if isinstance(command, WRITES):
                assert command.view.leader is not None, (event, command)
                assert command.view.isr is not None, (event, command)
    assert {c.BecomeLeader, c.BecomeFollower, c.Open, c.CloseReplica} <= seen
