"""The verdict on small histories, one anomaly at a time."""

from __future__ import annotations

import pytest

from minikafka.history import History, Reading, disagreements, verdict


def sent(*payloads: str) -> History:
    """A history in which nothing is known of any send."""
    history = History()
    for payload in payloads:
        history.sent(payload)
    return history


def acked(*payloads: str) -> History:
    """A history in which every send was acknowledged in partition 0, in order from offset 0."""
    history = sent(*payloads)
    for ticket in range(len(payloads)):
        history.acked(ticket, 0, ticket)
    return history


def log(*payloads: str) -> Reading:
    return {0: list(enumerate(payloads))}


def anomalies(history: History, reading: Reading) -> dict[str, int]:
    return verdict([history], reading).anomalies()


def test_a_log_that_holds_what_was_acked_in_order_has_no_anomaly() -> None:
    result = verdict([acked("a", "b")], log("a", "b"))
    assert result.ok
    assert (result.acked, result.read) == (2, 2)
    assert str(result) == "2 acked, 0 failed, 0 unknown, 2 read: no anomaly"


def test_an_acked_record_that_is_read_nowhere_is_lost() -> None:
    assert anomalies(acked("a", "b"), log("a")) == {"lost": 1}
    assert anomalies(acked("a", "b"), {}) == {"lost": 2}


def test_an_acked_record_that_stands_elsewhere_has_moved() -> None:
    history = sent("a")
    history.acked(0, 0, 5)
    assert anomalies(history, {0: [(6, "a")]}) == {"moved": 1}


def test_another_record_in_the_place_of_an_acked_one_is_altered_and_the_acked_one_lost() -> None:
    assert anomalies(acked("a", "b"), log("a", "x")) == {"lost": 1, "altered": 1, "invented": 1}


def test_a_record_read_once_more_than_sent_is_duplicated_also_when_payloads_repeat() -> None:
    assert anomalies(acked("a"), log("a", "a")) == {"duplicated": 1}
    assert anomalies(acked("", ""), log("", "")) == {}
    assert anomalies(acked("", ""), log("", "", "")) == {"duplicated": 1}


def test_an_unknown_send_may_be_there_once_or_not_at_all() -> None:
    assert anomalies(sent("a"), {}) == {}
    assert anomalies(sent("a"), log("a")) == {}
    assert anomalies(sent("a"), log("a", "a")) == {"duplicated": 1}


def test_a_send_that_failed_for_sure_must_not_be_read() -> None:
    history = sent("a")
    history.failed(0)
    assert anomalies(history, {}) == {}
    assert anomalies(history, log("a")) == {"aborted": 1}


def test_an_ack_without_an_offset_counts_as_acked_and_must_be_found() -> None:
    history = sent("a")
    history.acked(0, 0, -1001)
    assert verdict([history], log("a")).acked == 1
    assert anomalies(history, log("a")) == {}
    assert anomalies(history, {}) == {"lost": 1}


def test_two_acks_of_one_offset_cannot_both_be_true() -> None:
    history = sent("a", "b")
    history.acked(0, 0, 0)
    history.acked(1, 0, 0)
    assert anomalies(history, log("a")) == {"lost": 1, "reordered": 1}


def test_order_is_judged_within_a_partition_and_a_producer() -> None:
    swapped = sent("a", "b")
    swapped.acked(0, 0, 1)
    swapped.acked(1, 0, 0)
    assert anomalies(swapped, log("b", "a")) == {"reordered": 1}
    apart = sent("a", "b")
    apart.acked(0, 0, 1)
    apart.acked(1, 1, 0)
    assert anomalies(apart, {0: [(1, "a")], 1: [(0, "b")]}) == {}


def test_offsets_left_out_and_offsets_seen_twice_are_told() -> None:
    history = sent("a", "b")
    history.acked(0, 0, 0)
    history.acked(1, 0, 3)
    assert anomalies(history, {0: [(0, "a"), (3, "b")]}) == {"skipped": 2}
    assert anomalies(acked("a", "b"), {0: [(0, "a"), (1, "b"), (0, "a")]}) == {"repeated": 1}


def test_what_nobody_sent_is_invented() -> None:
    assert anomalies(acked("a"), log("a", "z")) == {"invented": 1}


def test_several_producers_share_one_reading() -> None:
    other = sent("c")
    other.acked(0, 0, 2)
    assert verdict([acked("a", "b"), other], log("a", "b", "c")).ok


@pytest.mark.parametrize(
    ("later", "found"),
    [
        (log("a", "b", "c"), []),
        (log("a"), [(0, 1)]),
        (log("a", "x"), [(0, 1)]),
        ({}, [(0, 0), (0, 1)]),
    ],
    ids=["grown", "gone", "changed", "all gone"],
)
def test_a_later_reading_must_agree_with_an_earlier_one(
    later: Reading, found: list[tuple[int, int]]
) -> None:
    assert disagreements(log("a", "b"), later) == found
