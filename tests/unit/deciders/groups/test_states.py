import pytest

from minikafka.deciders.groups.group import Group
from minikafka.deciders.groups.offsets import GroupOffsets
from minikafka.deciders.groups.states import (
    COMPLETING,
    DEAD,
    EMPTY,
    LEGAL_FROM,
    PREPARING,
    STABLE,
    GroupState,
)

LEGAL = {
    (EMPTY, PREPARING),
    (PREPARING, COMPLETING),
    (PREPARING, EMPTY),
    (COMPLETING, STABLE),
    (COMPLETING, PREPARING),
    (STABLE, PREPARING),
    (EMPTY, DEAD),
    (PREPARING, DEAD),
    (COMPLETING, DEAD),
    (STABLE, DEAD),
}


@pytest.mark.parametrize("before", GroupState)
@pytest.mark.parametrize("after", GroupState)
def test_group_state_transitions_are_the_same_as_in_kafka(before, after):
    assert (before in LEGAL_FROM[after]) == ((before, after) in LEGAL)


def test_group_without_a_leader_cannot_complete_a_rebalance():
    group = Group("g", 0, GroupOffsets("g"), 0)
    group.move(PREPARING, 0)
    with pytest.raises(AssertionError, match="COMPLETING"):
        group.move(COMPLETING, 0)
    assert group.state is PREPARING
