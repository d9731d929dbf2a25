"""Requests to the coordinator as a whole: which groups it serves, and the first rebalance."""

from __future__ import annotations

from support.group_world import GroupWorld


def test_group_of_one_member_is_stable_and_keeps_a_commit_across_a_move():
    world = GroupWorld()
    [member] = world.stable()

    assert world.commit({("t", 0): 5}, member, 1) == {0}

    world.unload()
    world.lead(epoch=1)
    assert world.state == "Stable"
    assert world.offsets() == {("t", 0): 5}
    assert world.describe().members[0].assignment == member.encode()
