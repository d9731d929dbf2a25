"""The history of a partition in sentences."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
from support.ledger.ledger_lines import NAMES, TP, Lines

from minikafka.tools.explain.summary import Story
from minikafka.tools.explain.trace import chains

FULL = {"leader": 2, "leader_epoch": 4, "isr": [1, 2, 3]}


@pytest.fixture
def ledger() -> Lines:
    """Return a ledger of three live brokers in which broker 2 leads t-0 and all replicas are in sync."""
    ledger = Lines()
    ledger.live("4-0", 1, 2, 3)
    ledger.state("4-1", 8, 2, 4, 1, 2, 3)
    return ledger


def at(time: int, line: dict[str, Any]) -> dict[str, Any]:
    line["time"] = time
    return line


def fact(ledger: Lines, time: int, broker: int, name: str, **fields: Any) -> None:
    at(time, ledger.add("broker", "", broker, fact=name, **fields))


def led(ledger: Lines, time: int, leader: int, epoch: int, cause: str = "4-2") -> None:
    """Add the line with which broker `leader` records that it became the leader."""
    result = {"became": "leader", "error": 0, "leader_epoch": epoch, "partitions": NAMES}
    fields = {"phase": "completed", "from": 1, "error": 0, "results": [result]}
    at(time, ledger.add("effect", cause, leader, request="LeaderAndIsr", **fields))


def told(ledger: Lines, cause: str) -> str:
    history = chains(ledger.lines, TP)
    Story(ledger.lines, TP).summarize(history)
    return next(chain.summary for chain in history if chain.cause == cause)


def fail_over(ledger: Lines) -> None:
    """Add the lines of a failover: broker 2 dies, broker 3 is elected, and broker 3 leads 40 ms after the death."""
    at(10_100, ledger.live("4-2", 1, 3))
    at(10_110, ledger.state("4-2", 9, 3, 5, 1, 3))
    led(ledger, 10_140, 3, 5)


def test_summary_of_a_dead_leader_has_time_of_death_new_leader_and_outage_length(
    ledger: Lines,
) -> None:
    fact(ledger, 5_000, 3, "connection lost", to=2)
    fact(ledger, 5_010, 1, "connection lost", to=2)
    fail_over(ledger)
    assert told(ledger, "4-2") == (
        "broker 2 died at 00:00:05.000; 5.1 s until its session expired; "
        "controller 1 elected leader 3 from the ISR, which is 1,3 now; "
        "clients could write again after 5.1 s"
    )


def ends(ledger: Lines, *answering: int, read_ms: int = 5_500) -> list[str]:
    return Story(ledger.lines, TP).endings(read_ms, answering)


def test_lost_broker_is_shown_while_its_session_has_not_ended(ledger: Lines) -> None:
    assert ends(ledger, 1, 2, 3) == []
    fact(ledger, 5_000, 3, "connection lost", to=2)
    assert ends(ledger, 1, 3) == [
        "broker 2 was lost at 00:00:05.000; the ledgers up to 00:00:05.500 do not show that its session ended"
    ]
    assert ends(ledger, 1, 2, 3) == []
    fact(ledger, 7_000, 3, "connection lost", to=2)
    fail_over(ledger)
    assert ends(ledger, 1, 3) == []
    assert Story([], TP).endings(5_500, ()) == []


def test_broker_that_was_stopped_is_never_shown_as_lost(ledger: Lines) -> None:
    fact(ledger, 5_000, 3, "connection lost", to=2)
    fact(ledger, 5_010, 2, "stopping", controlled=True)
    fact(ledger, 5_020, 1, "connection lost", to=2)
    fact(ledger, 5_030, 2, "stopped", controlled=True)
    fact(ledger, 5_040, 3, "connection lost", to=2)
    assert ends(ledger, 1, 3) == [
        "broker 2 was stopped by a controlled shutdown at 00:00:05.030",
    ]


def test_end_of_all_brokers_says_that_they_were_stopped_cleanly(ledger: Lines) -> None:
    for broker in (1, 2, 3):
        fact(ledger, 5_000, broker, "connection lost", to=2)
        fact(ledger, 5_000 + broker, broker, "stopped", controlled=broker == 1)
    assert ends(ledger) == [
        "broker 1 was stopped by a controlled shutdown at 00:00:05.001",
        "brokers 2,3 were stopped cleanly, without handing over leaderships, the last one at 00:00:05.003",
    ]


def test_broker_killed_after_it_was_stopped_and_started_again_is_lost(ledger: Lines) -> None:
    fact(ledger, 5_000, 2, "stopped", controlled=True)
    fact(ledger, 6_000, 2, "started")
    fact(ledger, 7_000, 3, "connection lost", to=2)
    assert ends(ledger, 1, 3, read_ms=7_500) == [
        "broker 2 was lost at 00:00:07.000; the ledgers up to 00:00:07.500 do not show that its session ended"
    ]


def test_broker_without_a_line_about_its_end_is_said_not_to_answer(ledger: Lines) -> None:
    fact(ledger, 5_000, 2, "registered")
    fact(ledger, 6_000, 1, "stopping", controlled=False)
    assert ends(ledger, 3) == [
        "broker 1 began to stop at 00:00:06.000; no line shows that it finished",
        "broker 2 does not answer; its last line in the ledger is from 00:00:05.000, "
        "and no line shows that it stopped",
    ]


def test_broker_whose_ledger_was_not_seen_is_not_said_to_have_no_lines(ledger: Lines) -> None:
    fact(ledger, 5_000, 1, "registered")
    [sentence] = Story(ledger.lines, TP).endings(5_500, [1, 3], has_every_ledger=False)
    assert sentence == "broker 2 does not answer, and its ledger was not seen"


def test_connection_lost_before_a_brokers_last_sign_of_life_is_not_its_death(ledger: Lines) -> None:
    fact(ledger, 5_000, 3, "connection lost", to=2)
    fact(ledger, 7_000, 2, "registered")
    fail_over(ledger)
    assert told(ledger, "4-2").startswith("broker 2 died or did not answer; its session expired; ")
    assert told(ledger, "4-2").endswith("; clients could write again after 40 ms")


@pytest.mark.parametrize(
    ("next_fact", "words"),
    [("started", "broker 2 died;"), ("session lost", "broker 2 was paused or cut off;")],
)
def test_next_ledger_line_of_a_silent_broker_shows_whether_it_died_or_was_paused(
    ledger: Lines, next_fact: str, words: str
) -> None:
    fail_over(ledger)
    fact(ledger, 12_000, 2, next_fact)
    assert told(ledger, "4-2").startswith(f"{words} its session expired; controller 1 elected")


def test_broker_killed_and_restarted_at_once_is_shown_as_died_and_started(ledger: Lines) -> None:
    fact(ledger, 9_000, 3, "connection lost", to=2)
    fact(ledger, 10_080, 2, "started")
    fail_over(ledger)
    fact(ledger, 10_200, 2, "registered")
    assert told(ledger, "4-2").startswith(
        "broker 2 died at 00:00:09.000 and started again after 1.1 s; controller 1 elected"
    )


def test_broker_restarted_before_its_death_was_seen_is_shown_as_died_and_started(
    ledger: Lines,
) -> None:
    fact(ledger, 10_000, 2, "started")
    fact(ledger, 10_050, 2, "registered")
    at(10_100, ledger.event("BrokersChanged", "4-2", brokers={"1": 7, "2": 9, "3": 7}))
    ledger.state("4-2", 9, 3, 5, 1, 3)
    assert told(ledger, "4-2").startswith("broker 2 died and started again; controller 1 elected")


def test_summary_after_a_restart_of_all_brokers_names_the_stopped_brokers(ledger: Lines) -> None:
    for broker in (1, 2, 3):
        fact(ledger, 5_000 + broker, broker, "stopped", controlled=False)
        fact(ledger, 9_990, broker, "started")
    at(10_000, ledger.event("ControllerElected", "5-1", brokers={"1": 9, "3": 9}, deletions=[]))
    ledger.state("5-1", 9, 3, 5, 1, 3)
    assert told(ledger, "5-1").startswith(
        "broker 1 stopped at 00:00:05.001; broker 2 stopped at 00:00:05.002; "
        "broker 3 stopped at 00:00:05.003; broker 1 became the controller of epoch 5; "
    )


def test_stopped_broker_is_not_shown_as_died(ledger: Lines) -> None:
    fact(ledger, 10_050, 2, "stopped", controlled=False)
    fail_over(ledger)
    assert told(ledger, "4-2").startswith("broker 2 stopped at 00:00:10.050; controller 1 elected")
    assert told(ledger, "4-2").endswith("clients could write again after 90 ms")


def test_summary_of_a_leader_alone_in_the_isr_says_what_acks_all_needs(ledger: Lines) -> None:
    at(10_100, ledger.live("4-2", 3))
    ledger.state("4-2", 9, 3, 5, 3)
    led(ledger, 10_140, 3, 5)
    assert told(ledger, "4-2").endswith(
        "until another replica is in sync, acks=all works only with min.insync.replicas = 1"
    )


def test_summary_of_a_refused_election_has_its_reason(ledger: Lines) -> None:
    ledger.live("4-2", 1)
    reason = {"verdict": "refuse", "machine": "partition", "reason": "has no live replica"}
    ledger.add("decision", "4-2", **reason, partitions=NAMES)
    assert told(ledger, "4-2").endswith("; controller 1 elected no leader: it has no live replica")


def test_election_of_a_leader_outside_the_isr_is_called_unclean(ledger: Lines) -> None:
    ledger.state("4-1", 9, 2, 5, 2)
    ledger.event("UncleanElectionEnabled", "4-5", topics=["t"])
    ledger.state("4-5", 10, 3, 6, 3)
    assert told(ledger, "4-5") == (
        "unclean elections were allowed; controller 1 elected leader 3 from outside the ISR 2 "
        "(unclean): acknowledged records may be lost"
    )


def test_summary_of_a_dead_follower_has_the_smaller_isr(ledger: Lines) -> None:
    ledger.live("4-2", 1, 2)
    ledger.state("4-2", 9, 2, 5, 1, 2)
    assert told(ledger, "4-2").endswith("controller 1 removed 3 from the ISR, which is 1,2 now")


def test_summary_of_a_new_controller_names_the_death_of_the_former_controller(
    ledger: Lines,
) -> None:
    fact(ledger, 5_000, 3, "connection lost", to=2)
    at(10_000, ledger.event("ControllerElected", "5-1", brokers={"1": 7, "3": 7}, deletions=[]))
    at(10_010, ledger.state("5-1", 9, 3, 5, 1, 3))
    assert told(ledger, "5-1") == (
        "broker 2 died at 00:00:05.000; 5.0 s until its session expired; "
        "broker 1 became the controller of epoch 5; "
        "controller 1 elected leader 3 from the ISR, which is 1,3 now"
    )


def test_summary_of_a_suspected_leader_has_the_evidence_and_the_time_of_death(
    ledger: Lines,
) -> None:
    fact(ledger, 5_000, 3, "connection lost", to=2)
    evidence = {"of": 2, "broker_epoch": 7, "evidence": "connection to h:1 refused"}
    at(5_010, ledger.event("BrokerSuspected", "4-2", **evidence))
    at(5_020, ledger.state("4-2", 9, 3, 5, 1, 3))
    led(ledger, 5_040, 3, 5)
    at(10_100, ledger.live("4-3", 1, 3))
    assert told(ledger, "4-2") == (
        "broker 2 probably died at 00:00:05.000: connection to h:1 refused; "
        "controller 1 elected leader 3 from the ISR, which is 1,3 now; "
        "clients could write again after 40 ms"
    )


def test_summary_of_a_new_controller_names_the_suspects(ledger: Lines) -> None:
    live = {"1": 7, "2": 7, "3": 7}
    at(6_000, ledger.event("ControllerElected", "5-1", brokers=live, suspects={"2": 7}))
    at(6_010, ledger.state("5-1", 9, 3, 5, 1, 3))
    assert told(ledger, "5-1") == (
        "broker 1 became the controller of epoch 5; broker 2 refused a connection; "
        "controller 1 elected leader 3 from the ISR, which is 1,3 now"
    )


def test_summary_tells_the_request_and_the_completion_of_a_reassignment(ledger: Lines) -> None:
    ledger.event("ReassignmentsRequested", "4-3", targets=[["t", 0, [1, 3]]])
    ledger.add("step", "4-3", operation="reassignment", step="U1", partitions=NAMES)
    ledger.assignment("4-3", 9, partitions=[1, 3, 2], removing_replicas=[2])
    ledger.event("IsrChanged", "4-4", states=[])
    ledger.state("4-4", 10, 1, 5, 1, 3)
    ledger.add("step", "4-4", operation="reassignment", step="B6", partitions=NAMES)
    ledger.assignment("4-4", 11, partitions=[1, 3])
    assert told(ledger, "4-3") == "a reassignment was requested: replicas 1,3"
    assert told(ledger, "4-4") == (
        "controller 1 elected leader 1 from the ISR, which is 1,3 now; "
        "the reassignment is complete: replicas 1,3"
    )


@pytest.mark.parametrize(
    ("replicas", "said"),
    [
        ([1, 99], "a reassignment to the replicas 1,99 was rejected: INVALID_REQUEST: not now"),
        (None, "a request to cancel a reassignment was rejected: INVALID_REQUEST: not now"),
    ],
)
def test_refused_reassignment_is_told_as_rejected_with_the_reason(
    ledger: Lines, replicas: list[int] | None, said: str
) -> None:
    targets = [["t", 0, replicas], ["t", 1, [2]]]
    ledger.event("ReassignmentsRequested", "4-3", targets=targets)
    refused = {"code": "INVALID_REQUEST", "message": "not now", "partitions": NAMES}
    granted = {"code": "NONE", "message": "", "partitions": {"t": [1]}}
    ledger.add("answer", "4-3", ticket=1, results=[granted, refused])
    assert told(ledger, "4-3") == said


def test_target_in_zookeeper_that_the_controller_refused_is_told_as_rejected(
    ledger: Lines,
) -> None:
    ledger.event("ReassignmentsSubmitted", "4-3", targets=[["t", 0, [3, 3]]])
    refusal = {"verdict": "refuse", "machine": "reassignment", "reason": "Duplicate replica ids"}
    ledger.add("decision", "4-3", **refusal, partitions=NAMES)
    assert told(ledger, "4-3") == (
        "a reassignment to the replicas 3,3 was rejected: Duplicate replica ids"
    )


def test_events_that_changed_nothing_have_no_sentence_in_the_summary(ledger: Lines) -> None:
    ledger.event("IsrChanged", "4-4", states=[])
    ledger.request("4-4", 2)
    assert told(ledger, "4-4") == ""


def test_refused_isr_change_has_no_sentence_in_the_summary(ledger: Lines) -> None:
    line = ledger.isr(9, 2, 4, [1, 2, 3], [1, 2])
    line["outcome"] = "conflict"
    assert told(ledger, f"2#{line['n']}") == ""


def test_story_is_freed_without_a_garbage_collection(ledger: Lines) -> None:
    fail_over(ledger)
    story = Story(ledger.lines, TP)
    story.summarize(chains(ledger.lines, TP))
    freed = weakref.ref(story)
    del story
    assert freed() is None
