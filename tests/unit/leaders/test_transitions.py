"""The table of a replica's moves in the leader-coordinated mode, and what is done about a move that is not in it."""

from __future__ import annotations

import itertools
import logging

import pytest
from support.leaders_views import ID, T0

from minikafka.leaders import transitions
from minikafka.leaders.events import Note
from minikafka.leaders.model import ReplicaStatus
from minikafka.leaders.picture import Picture, Replica

ABSENT, WAITING, ELECTING, FOLLOWING, OPENING, LEADING = ReplicaStatus

ILLEGAL = {
    *((ABSENT, target) for target in ReplicaStatus if target is not WAITING),
    *((source, OPENING) for source in (WAITING, FOLLOWING, LEADING)),
    *((source, LEADING) for source in (WAITING, ELECTING, FOLLOWING)),
    *((source, ELECTING) for source in (OPENING, LEADING)),
}
PAIRS = list(itertools.product(ReplicaStatus, ReplicaStatus))


@pytest.mark.row("C41")
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_move_is_made_if_legal_and_noted_if_not(
    source: ReplicaStatus, target: ReplicaStatus, caplog: pytest.LogCaptureFixture
) -> None:
    picture, replica = Picture(1), Replica(T0, ID, is_new=False, status=source)
    is_legal = (source, target) not in ILLEGAL
    with caplog.at_level(logging.ERROR):
        assert picture.move(replica, target) is is_legal
    assert transitions.is_legal(source, target) is is_legal
    assert replica.status is (target if is_legal else source)
    kinds = [effect.fields["kind"] for effect in picture.drain() if isinstance(effect, Note)]
    if is_legal:
        assert kinds == ([] if source is target else ["move"])
        assert caplog.text == ""
    else:
        assert kinds == ["illegal"]
        text = f"partition t-0 cannot go from {source.value} to {target.value}"
        assert text in caplog.text


def test_every_status_can_be_left_and_reached() -> None:
    assert set(transitions.LEGAL_NEXT) == set(ReplicaStatus)
    reached = set().union(*transitions.LEGAL_NEXT.values())
    assert reached == set(ReplicaStatus)
