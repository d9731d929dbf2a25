"""Who may lead a partition without a leader, when, and with which ISR (C2, C3)."""

from __future__ import annotations

import pytest
from support.deciders.leaders_views import view

from minikafka.deciders.leaders.election import Candidate, ElectionVerdict, choose, next_epoch
from minikafka.deciders.leaders.model import PartitionView, Replicas

LEAD, WAIT, YIELD, STAY = ElectionVerdict


def candidate(
    id_: int = 1,
    *,
    latest: int = 0,
    waited: bool = False,
    dead: Replicas = (),
    knows_dead: bool = True,
) -> Candidate:
    return Candidate(id_, latest, waited, frozenset(dead), knows_dead)


@pytest.mark.row("C2")
@pytest.mark.parametrize(
    ("seen", "who", "verdict", "isr"),
    [
        pytest.param(view(), candidate(0), LEAD, (0,), id="first: the preferred replica leads"),
        pytest.param(view(), candidate(1), YIELD, (), id="first: another replica waits"),
        pytest.param(view(), candidate(1, waited=True), LEAD, (1,), id="first: it waits once"),
        pytest.param(view(), candidate(1, dead=(0,)), LEAD, (1,), id="first: preferred is dead"),
        pytest.param(view(), candidate(4), STAY, (), id="first: not assigned"),
        pytest.param(view(), candidate(0, latest=3), STAY, (), id="ISR lost: nobody leads"),
        pytest.param(
            view(unclean=True), candidate(0, latest=3), LEAD, (0,), id="ISR lost: unclean leads"
        ),
        pytest.param(
            view(None, target=(0, 1)), candidate(0), STAY, (), id="replica list does not exist"
        ),
        pytest.param(
            view(isr=(0, 1)), candidate(0), LEAD, (0, 1), id="clean: preferred leads, ISR stays"
        ),
        pytest.param(view(isr=(0, 1)), candidate(1), YIELD, (), id="clean: another waits"),
        pytest.param(view(isr=(0, 1)), candidate(1, waited=True), LEAD, (0, 1), id="clean: once"),
        pytest.param(view(isr=(0, 1)), candidate(1, dead=(0,)), LEAD, (0, 1), id="clean: dead"),
        pytest.param(
            view(isr=(1, 2)), candidate(1), LEAD, (1, 2), id="clean: preferred is not in sync"
        ),
        pytest.param(view(isr=(0, 1)), candidate(2, waited=True), STAY, (), id="not in sync"),
        pytest.param(
            view((0,), isr=(0, 1), target=(1,)),
            candidate(1, waited=True, dead=(0,)),
            STAY,
            (),
            id="in sync, but in RAR only",
        ),
        pytest.param(
            view(isr=(0, 1), target=()), candidate(0), WAIT, (), id="deletion: all wait a turn"
        ),
        pytest.param(
            view(isr=(0, 1), target=()),
            candidate(0, waited=True),
            LEAD,
            (0, 1),
            id="deletion: a leader must be found",
        ),
        pytest.param(
            view(isr=(0,), unclean=True),
            candidate(2, waited=True, dead=(0,), knows_dead=False),
            WAIT,
            (),
            id="unclean: not before the registration",
        ),
        pytest.param(
            view(isr=(0, 1), unclean=True),
            candidate(2, waited=True, dead=(0,)),
            WAIT,
            (),
            id="unclean: a member of the ISR lives",
        ),
        pytest.param(
            view((2, 0), isr=(0,), unclean=True),
            candidate(2, dead=(0,)),
            WAIT,
            (),
            id="unclean: the preferred replica waits too",
        ),
        pytest.param(
            view(isr=(0, 1), unclean=True),
            candidate(2, waited=True, dead=(0, 1)),
            LEAD,
            (2,),
            id="unclean: the ISR is dead",
        ),
    ],
)
def test_candidate_gets_the_verdict_of_the_rules(
    seen: PartitionView, who: Candidate, verdict: ElectionVerdict, isr: Replicas
) -> None:
    choice = choose(seen, who)
    assert (choice.verdict, choice.isr) == (verdict, isr)
    assert (choice.reason == "") is (verdict is LEAD)


@pytest.mark.row("C19")
@pytest.mark.parametrize(
    ("seen", "latest", "epoch"),
    [
        (view(), -1, 1),
        (view(isr=(0,), epoch=1), -1, 2),
        (view(isr=(0,), epoch=3), 8, 9),
        (view(leader=(0, 12), isr=(0,), epoch=3), 8, 13),
    ],
)
def test_next_epoch_is_above_every_known_epoch(
    seen: PartitionView, latest: int, epoch: int
) -> None:
    assert next_epoch(seen, latest) == epoch
