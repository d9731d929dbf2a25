"""Random schedules of client requests, appends and coordinator changes. `GroupStorm` checks the invariants."""

from __future__ import annotations

import pytest
from support.deciders.group_storm import GroupStorm

from minikafka.base.errors import IllegalTransition
from minikafka.deciders.groups.group import Group
from minikafka.deciders.groups.offsets import GroupOffsets
from minikafka.deciders.groups.rebalance import Rebalances
from minikafka.deciders.groups.states import DEAD
from minikafka.deciders.groups.timers import Timers


def storm(seed):
    return GroupStorm(seed, clients=2 + seed % 7, moves=seed % 3 > 0)


@pytest.mark.parametrize("seed", range(40))
def test_group_invariants_hold_in_generated_schedules_of_client_requests(seed):
    schedule = storm(seed)

    schedule.run()

    assert schedule.answers > 100
    assert schedule.syncs > 0


def forget_assignments(group, value, real=Group.restore):
    real(group, value)
    for member in group.members.values():
        member.assignment = b""


def start_never_earlier(timers, timer, at, real=Timers.start):
    if timer.queued_at is None:
        real(timers, timer, at)
    timer.at = at


def end_silently(rebalances, group):
    del rebalances._context.groups[group.group_id]
    group.move(DEAD, 0)


PLANTED = {
    "loaded members have no assignment": (Group, "restore", forget_assignments),
    "commits are answered and dropped": (GroupOffsets, "complete", GroupOffsets.fail),
    "removed members are not answered": (Rebalances, "dismiss", lambda *_: None),
    "groups that move answer nobody": (Rebalances, "end", end_silently),
    "a member that did not join leads": (Group, "elect_joined_leader", lambda _: True),
    "timers are never moved earlier": (Timers, "start", start_never_earlier),
    "sessions never start": (Rebalances, "restart_session", lambda *_: None),
    "commits that failed are kept": (GroupOffsets, "fail", GroupOffsets.complete),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_generated_schedules_find_a_planted_bug(bug, monkeypatch):
    owner, name, broken = PLANTED[bug]
    monkeypatch.setattr(owner, name, broken)

    with pytest.raises((AssertionError, LookupError, ValueError, IllegalTransition)):  # noqa: PT012
        for seed in range(40):
            storm(seed).run()
