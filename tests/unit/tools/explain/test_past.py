"""The history of one partition, computed from ledger lines, with references to these lines."""

from __future__ import annotations

import pytest
from support.ledger.ledger_lines import NAMES, TP, Lines

from minikafka.base.model import ReplicaAssignment
from minikafka.tools.explain.past import Past, Reference


@pytest.fixture
def ledger() -> Lines:
    return Lines()


def past(ledger: Lines) -> Past:
    return Past(ledger.lines, TP)


def test_partition_states_of_all_writers_are_ordered_by_zxid(ledger: Lines) -> None:
    ledger.state("4-2", 20, 2, 6, 2)
    ledger.isr(10, 1, 5, [1, 2], [1])
    found = [(state.zxid, state.leader, state.isr) for state in past(ledger).states]
    assert found == [(10, 1, (1,)), (20, 2, (2,))]


def test_partition_history_omits_the_state_of_a_refused_write(ledger: Lines) -> None:
    ledger.state("4-2", 20, 2, 6, 2).update(outcome="conflict", zxid=None)
    assert past(ledger).states == []
    assert not past(ledger).is_empty


def test_history_finds_the_last_removal_of_a_replica_from_the_isr(ledger: Lines) -> None:
    for zxid, isr in enumerate([[1, 2], [1], [1, 2], [1]]):
        ledger.state(f"4-{zxid}", zxid, 1, zxid, *isr)
    assert past(ledger).left_isr(2) == [Reference("4-3", "1#4")]
    assert past(ledger).left_isr(1) == []


def test_history_finds_the_first_state_write_of_the_current_leader_epoch(ledger: Lines) -> None:
    ledger.state("4-1", 1, 1, 1, 1, 2)
    ledger.state("4-2", 2, 2, 2, 1, 2)
    ledger.isr(3, 2, 2, [1, 2], [2])
    assert past(ledger).led_since() == [Reference("4-2", "1#2")]


def test_history_finds_the_event_in_which_a_broker_first_disappears(ledger: Lines) -> None:
    for cause, live in (("4-1", (1, 2)), ("4-2", (1,)), ("4-3", (1, 3))):
        ledger.live(cause, *live)
    assert past(ledger).broker_lost(2) == [Reference("4-2", "1#2")]
    assert past(ledger).broker_lost(3) == []


def test_partition_replicas_are_derived_from_replica_state_changes_in_the_ledger(
    ledger: Lines,
) -> None:
    for broker, to in ((3, "NewReplica"), (1, "OnlineReplica"), (2, "NonExistentReplica")):
        fields = {"verdict": "move", "machine": "replica", "replica": broker, "to": to}
        ledger.add("decision", "4-1", **fields, partitions=NAMES)
    assert past(ledger).replicas() == (1, 3)


def test_partition_assignment_is_that_of_the_last_accepted_topic_node_write(ledger: Lines) -> None:
    ledger.assignment("4-1", 5, partitions=[3, 1])
    ledger.assignment("4-2", 6, partitions=[2, 3, 1], adding_replicas=[2]).update(outcome="fenced")
    assert past(ledger).assignment() == ReplicaAssignment((3, 1))
    assert past(ledger).replicas() == ()


DAMAGED = ["[" * 100_000, "{}", "[]", '{"partitions":{"0":7}}', '{"leader":"1","isr":{}}', "NaN"]


@pytest.mark.parametrize("data", DAMAGED, ids=range(len(DAMAGED)))
def test_damaged_data_of_a_write_is_unknown(ledger: Lines, data: str) -> None:
    ledger.state("4-1", 4, 2, 6, 2)
    ledger.state("4-2", 5, 1, 7, 1)["operations"][0]["data"] = data
    ledger.assignment("4-3", 6, partitions=[3, 2])["operations"][0]["data"] = data
    assert [state.zxid for state in past(ledger).states] == [4]
    assert past(ledger).assignment() is None


def test_partition_assignment_too_large_for_a_ledger_line_is_unknown(ledger: Lines) -> None:
    ledger.assignment("4-1", 5, partitions=[3, 1])
    ledger.assignment("4-2", 6, partitions=[3, 2])["operations"][0]["data"] = None
    assert past(ledger).assignment() is None


@pytest.mark.parametrize(("last", "is_marked"), [(["t"], True), (["u"], False), ([], False)])
def test_topic_is_marked_for_deletion_only_if_the_last_deletion_event_lists_it(
    ledger: Lines, last: list[str], is_marked: bool
) -> None:
    ledger.event("ControllerElected", "4-0", deletions=["t"])
    ledger.event("DeletionsChanged", "4-1", topics=last)
    ledger.live("4-2", 1, 2)
    assert past(ledger).is_marked() is is_marked


def test_deletion_marks_spread_over_several_ledger_lines_are_all_read(ledger: Lines) -> None:
    ledger.event("DeletionsChanged", "4-1", topics=["t"], part=1, parts=2)
    ledger.event("DeletionsChanged", "4-1", topics=["u"], part=2, parts=2)
    assert past(ledger).is_marked()


def test_history_finds_the_last_event_that_lists_the_topic_as_marked_for_deletion(
    ledger: Lines,
) -> None:
    ledger.event("DeletionsChanged", "4-1", topics=["t"])
    ledger.event("ControllerElected", "5-1", deletions=["t", "u"])
    ledger.event("DeletionsChanged", "5-2", topics=["u"])
    ledger.event("UncleanElectionEnabled", "5-3", topics=["t"])
    assert past(ledger).deletion_marked() == [Reference("5-1", "1#2")]


def test_history_finds_the_last_addition_of_a_replica_to_the_isr(ledger: Lines) -> None:
    for zxid, isr in enumerate([[1, 2], [1], [1, 2], [2, 1, 3]]):
        ledger.state(f"4-{zxid}", zxid, 1, zxid, *isr)
    assert past(ledger).joined_isr(2) == [Reference("4-2", "1#3")]
    assert past(ledger).joined_isr(4) == []


def test_history_finds_the_oldest_unanswered_request_to_a_broker(ledger: Lines) -> None:
    ledger.live("4-1", 1, 2)
    ledger.request("4-1", 2)
    ledger.add("response", "4-1", request="LeaderAndIsr", error=0, errors={}, **{"from": 2})
    ledger.request("4-2", 2)
    ledger.request("4-3", 2)
    assert past(ledger).oldest_unanswered(2) == [Reference("4-2", "1#4")]
    assert past(ledger).oldest_unanswered(1) == []


def test_unanswered_requests_of_former_controllers_are_ignored(ledger: Lines) -> None:
    ledger.request("4-1", 2)
    ledger.live("5-1", 1, 2)
    assert past(ledger).oldest_unanswered(2) == []


def test_refused_partition_state_change_is_forgotten_after_an_accepted_one(ledger: Lines) -> None:
    head = {"machine": "partition", "partitions": NAMES}
    ledger.add("decision", "4-1", verdict="refuse", reason="x", **head)
    assert len(past(ledger).last_refusal()) == 1
    ledger.add("decision", "4-2", verdict="move", **head)
    assert past(ledger).last_refusal() == []


def test_refused_request_is_not_the_last_reassignment(ledger: Lines) -> None:
    accepted = ledger.event("ReassignmentsRequested", "4-1", targets=[["t", 0, [2]]])
    ledger.event("ReassignmentsRequested", "4-2", targets=[["t", 0, [9]]])
    refused = {"code": "INVALID_REPLICA_ASSIGNMENT", "message": "", "partitions": NAMES}
    ledger.add("answer", "4-2", ticket=1, results=[refused])
    assert past(ledger).reassignment_requested() == [Reference("4-1", f"1#{accepted['n']}")]


def test_history_of_a_partition_from_an_empty_ledger_is_empty(ledger: Lines) -> None:
    nothing = past(ledger)
    assert nothing.is_empty
    assert (nothing.replicas(), nothing.deletion_marked(), nothing.reassignment_requested()) == (
        (),
        [],
        [],
    )
    assert nothing.last_step("deletion") is None
    assert str(Reference("", "1#2")) == "1#2"
