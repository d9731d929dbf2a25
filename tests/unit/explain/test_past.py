"""What the lines of a ledger say of one partition, by reference."""

from __future__ import annotations

import pytest
from support.ledger_lines import NAMES, TP, Lines

from minikafka.base.model import ReplicaAssignment
from minikafka.explain.past import Past, Reference


@pytest.fixture
def ledger() -> Lines:
    return Lines()


def past(ledger: Lines) -> Past:
    return Past(ledger.lines, TP)


def test_states_come_in_the_order_of_zookeeper_whoever_wrote_them(ledger: Lines) -> None:
    ledger.state("4-2", 20, 2, 6, 2)
    ledger.isr(10, 1, 5, [1, 2], [1])
    found = [(state.zxid, state.leader, state.isr) for state in past(ledger).states]
    assert found == [(10, 1, (1,)), (20, 2, (2,))]


def test_a_refused_write_is_no_state(ledger: Lines) -> None:
    ledger.state("4-2", 20, 2, 6, 2).update(outcome="conflict", zxid=None)
    assert past(ledger).states == []
    assert not past(ledger).is_empty


def test_the_last_departure_from_the_isr_is_the_one_that_counts(ledger: Lines) -> None:
    for zxid, isr in enumerate([[1, 2], [1], [1, 2], [1]]):
        ledger.state(f"4-{zxid}", zxid, 1, zxid, *isr)
    assert past(ledger).left_isr(2) == [Reference("4-3", "1#4")]
    assert past(ledger).left_isr(1) == []


def test_a_leader_leads_since_its_epoch_began(ledger: Lines) -> None:
    ledger.state("4-1", 1, 1, 1, 1, 2)
    ledger.state("4-2", 2, 2, 2, 1, 2)
    ledger.isr(3, 2, 2, [1, 2], [2])
    assert past(ledger).led_since() == [Reference("4-2", "1#2")]


def test_a_broker_is_gone_since_the_first_event_without_it(ledger: Lines) -> None:
    for cause, live in (("4-1", (1, 2)), ("4-2", (1,)), ("4-3", (1, 3))):
        ledger.live(cause, *live)
    assert past(ledger).broker_lost(2) == [Reference("4-2", "1#2")]
    assert past(ledger).broker_lost(3) == []


def test_replicas_are_known_by_the_decisions_about_them(ledger: Lines) -> None:
    for broker, to in ((3, "NewReplica"), (1, "OnlineReplica"), (2, "NonExistentReplica")):
        fields = {"verdict": "move", "machine": "replica", "replica": broker, "to": to}
        ledger.add("decision", "4-1", **fields, partitions=NAMES)
    assert past(ledger).replicas() == (1, 3)


def test_the_assignment_is_what_was_written_last(ledger: Lines) -> None:
    ledger.assignment("4-1", 5, partitions=[3, 1])
    ledger.assignment("4-2", 6, partitions=[2, 3, 1], adding_replicas=[2]).update(outcome="fenced")
    assert past(ledger).assignment() == ReplicaAssignment((3, 1))
    assert past(ledger).replicas() == ()


def test_an_assignment_too_large_for_a_line_is_not_known(ledger: Lines) -> None:
    ledger.assignment("4-1", 5, partitions=[3, 1])
    ledger.assignment("4-2", 6, partitions=[3, 2])["operations"][0]["data"] = None
    assert past(ledger).assignment() is None


@pytest.mark.parametrize(("last", "is_marked"), [(["t"], True), (["u"], False), ([], False)])
def test_a_topic_is_marked_if_the_last_look_found_its_mark(
    ledger: Lines, last: list[str], is_marked: bool
) -> None:
    ledger.event("ControllerElected", "4-0", deletions=["t"])
    ledger.event("DeletionsChanged", "4-1", topics=last)
    ledger.live("4-2", 1, 2)
    assert past(ledger).is_marked() is is_marked


def test_a_look_at_many_marks_is_read_in_all_its_parts(ledger: Lines) -> None:
    ledger.event("DeletionsChanged", "4-1", topics=["t"], part=1, parts=2)
    ledger.event("DeletionsChanged", "4-1", topics=["u"], part=2, parts=2)
    assert past(ledger).is_marked()


def test_a_member_is_in_the_isr_since_it_joined_last(ledger: Lines) -> None:
    for zxid, isr in enumerate([[1, 2], [1], [1, 2], [2, 1, 3]]):
        ledger.state(f"4-{zxid}", zxid, 1, zxid, *isr)
    assert past(ledger).joined_isr(2) == [Reference("4-2", "1#3")]
    assert past(ledger).joined_isr(4) == []


def test_the_oldest_request_without_an_answer_is_what_a_broker_owes(ledger: Lines) -> None:
    ledger.live("4-1", 1, 2)
    ledger.request("4-1", 2)
    ledger.add("response", "4-1", request="LeaderAndIsr", error=0, errors={}, **{"from": 2})
    ledger.request("4-2", 2)
    ledger.request("4-3", 2)
    assert past(ledger).oldest_unanswered(2) == [Reference("4-2", "1#4")]
    assert past(ledger).oldest_unanswered(1) == []


def test_what_a_former_controller_asked_is_owed_to_nobody(ledger: Lines) -> None:
    ledger.request("4-1", 2)
    ledger.live("5-1", 1, 2)
    assert past(ledger).oldest_unanswered(2) == []


def test_only_a_refusal_that_was_the_last_word_counts(ledger: Lines) -> None:
    head = {"machine": "partition", "partitions": NAMES}
    ledger.add("decision", "4-1", verdict="refuse", reason="x", **head)
    assert len(past(ledger).last_refusal()) == 1
    ledger.add("decision", "4-2", verdict="move", **head)
    assert past(ledger).last_refusal() == []


def test_an_empty_ledger_knows_nothing(ledger: Lines) -> None:
    nothing = past(ledger)
    assert nothing.is_empty
    assert (nothing.replicas(), nothing.deletion_marked(), nothing.reassignment_requested()) == (
        (),
        [],
        [],
    )
    assert nothing.last_step("deletion") is None
    assert str(Reference("", "1#2")) == "1#2"
