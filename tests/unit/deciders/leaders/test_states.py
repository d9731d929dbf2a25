"""The table of a replica's moves in the leader-coordinated mode, and what is done about a move that is not in it."""

from __future__ import annotations

import itertools
import logging

import pytest
from support.deciders.leaders_views import ID, T0

from minikafka.deciders.leaders.commands import Note
from minikafka.deciders.leaders.context import Context, Replica
from minikafka.deciders.leaders.states import LEGAL_FROM, HostedReplicaStatus, is_legal

ABSENT, WAITING, ELECTING, FOLLOWING, OPENING, LEADING = HostedReplicaStatus

ILLEGAL = {
    *((ABSENT, target) for target in HostedReplicaStatus if target is not WAITING),
    *((source, OPENING) for source in (WAITING, FOLLOWING, LEADING)),
    *((source, LEADING) for source in (WAITING, ELECTING, FOLLOWING)),
    *((source, ELECTING) for source in (OPENING, LEADING)),
}
PAIRS = list(itertools.product(HostedReplicaStatus, HostedReplicaStatus))


@pytest.mark.row("C41")
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_move_is_made_if_legal_and_noted_if_not(
    source: HostedReplicaStatus, target: HostedReplicaStatus, caplog: pytest.LogCaptureFixture
) -> None:
    context, replica = Context(1), Replica(T0, ID, is_new=False, status=source)
    legal = (source, target) not in ILLEGAL
    with caplog.at_level(logging.ERROR):
        assert context.move(replica, target) is legal
    assert is_legal(source, target) is legal
    assert replica.status is (target if legal else source)
    kinds = [
        command.fields["kind"] for command in context.take_commands() if isinstance(command, Note)
    ]
    if legal:
        assert kinds == ([] if source is target else ["move"])
        assert caplog.text == ""
    else:
        assert kinds == ["illegal"]
        text = f"partition t-0 cannot go from {source.value} to {target.value}"
        assert text in caplog.text


def test_every_status_can_be_left_and_reached() -> None:
    assert set(LEGAL_FROM) == set(HostedReplicaStatus)
    left = set().union(*LEGAL_FROM.values())
    assert left == set(HostedReplicaStatus)
