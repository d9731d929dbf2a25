"""Verdicts on small histories of sent and read records, most of them with one anomaly."""

from __future__ import annotations

import json
from hashlib import sha256

import pytest
from support.clients.readings import disagreements

from minikafka.checks.delivery import History, Payload, Reading, reads, verdict
from minikafka.checks.histories import Event, digest_of, parse


def sent(*payloads: Payload) -> History:
    """Return a history in which the outcome of every send is unknown."""
    history = History()
    for payload in payloads:
        history.sent(payload)
    return history


def acked(*payloads: str) -> History:
    """Return a history in which every send was acknowledged, in partition 0, at the offsets 0, 1, 2, …"""
    history = sent(*payloads)
    for ticket in range(len(payloads)):
        history.acked(ticket, 0, ticket)
    return history


def log(*payloads: str) -> Reading:
    return {0: list(enumerate(payloads))}


def anomalies(history: History, reading: Reading) -> dict[str, int]:
    return verdict([history], reading).anomalies()


def test_log_with_the_acked_records_in_order_has_no_anomaly() -> None:
    result = verdict([acked("a", "b")], log("a", "b"))
    assert result.ok
    assert (result.acked, result.read) == (2, 2)
    assert str(result) == "2 acked, 0 failed, 0 unknown, 2 read: no anomaly"


def test_acked_record_that_is_not_read_is_lost() -> None:
    assert anomalies(acked("a", "b"), log("a")) == {"lost": 1}
    assert anomalies(acked("a", "b"), {}) == {"lost": 2}


def test_acked_record_read_at_another_offset_counts_as_moved() -> None:
    history = sent("a")
    history.acked(0, 0, 5)
    assert anomalies(history, {0: [(6, "a")]}) == {"moved": 1}


def test_unsent_record_in_place_of_an_acked_one_counts_as_three_anomalies() -> None:
    assert anomalies(acked("a", "b"), log("a", "x")) == {"lost": 1, "altered": 1, "invented": 1}


def test_null_payload_is_distinguished_from_a_missing_record() -> None:
    history = History()
    for offset, payload in enumerate((None, "a")):
        history.acked(history.sent(payload), 0, offset)
    null = {0: [(0, None), (1, "a")]}
    assert anomalies(history, null) == {}
    assert anomalies(history, {0: [(1, "a")]}) == {"lost": 1}
    assert anomalies(history, {0: [(0, None), (1, None)]}) == {
        "lost": 1,
        "altered": 1,
        "duplicated": 1,
    }
    assert disagreements(null, {0: [(1, "a")]}) == [(0, 0)]


def test_record_read_more_often_than_sent_is_duplicated() -> None:
    assert anomalies(acked("a"), log("a", "a")) == {"duplicated": 1}
    assert anomalies(acked("", ""), log("", "")) == {}
    assert anomalies(acked("", ""), log("", "", "")) == {"duplicated": 1}


def test_sent_record_of_unknown_outcome_is_an_anomaly_only_when_read_twice() -> None:
    assert anomalies(sent("a"), {}) == {}
    assert anomalies(sent("a"), log("a")) == {}
    assert anomalies(sent("a"), log("a", "a")) == {"duplicated": 1}


def test_record_whose_send_failed_counts_as_aborted_when_it_is_read() -> None:
    history = sent("a")
    history.failed(0)
    assert anomalies(history, {}) == {}
    assert anomalies(history, log("a")) == {"aborted": 1}


def test_record_acked_without_an_offset_must_be_read() -> None:
    history = sent("a")
    history.acked(0, 0, -1001)
    assert verdict([history], log("a")).acked == 1
    assert anomalies(history, log("a")) == {}
    assert anomalies(history, {}) == {"lost": 1}


def test_second_record_acked_at_one_offset_counts_as_lost_and_reordered() -> None:
    history = sent("a", "b")
    history.acked(0, 0, 0)
    history.acked(1, 0, 0)
    assert anomalies(history, log("a")) == {"lost": 1, "reordered": 1}


def test_order_is_checked_per_partition_and_producer() -> None:
    swapped = sent("a", "b")
    swapped.acked(0, 0, 1)
    swapped.acked(1, 0, 0)
    assert anomalies(swapped, log("b", "a")) == {"reordered": 1}
    apart = sent("a", "b")
    apart.acked(0, 0, 1)
    apart.acked(1, 1, 0)
    assert anomalies(apart, {0: [(1, "a")], 1: [(0, "b")]}) == {}


def test_skipped_and_repeated_offsets_are_counted() -> None:
    history = sent("a", "b")
    history.acked(0, 0, 0)
    history.acked(1, 0, 3)
    assert anomalies(history, {0: [(0, "a"), (3, "b")]}) == {"skipped": 2}
    assert anomalies(acked("a", "b"), {0: [(0, "a"), (1, "b"), (0, "a")]}) == {"repeated": 1}


def test_record_that_was_never_sent_is_invented() -> None:
    assert anomalies(acked("a"), log("a", "z")) == {"invented": 1}


def test_records_of_several_producers_in_one_log_are_no_anomaly() -> None:
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
def test_records_changed_or_missing_when_a_log_is_read_again_are_found(
    later: Reading, found: list[tuple[int, int]]
) -> None:
    assert disagreements(log("a", "b"), later) == found


def test_rows_of_a_history_are_readable_by_the_check_pipeline():
    history = History()
    for payload in (b"a", (b"key", b"b"), b"c", b"d", None):
        history.sent(payload)
    history.acked(0, 2, 7)
    history.acked(1, 1, -1)
    history.failed(2)
    rows = list(history.rows("p", "t"))
    assert rows[0] == {
        "producer": "p",
        "sequence": 0,
        "topic": "t",
        "outcome": "ok",
        "partition": 2,
        "offset": 7,
        "value_sha256": sha256(b"a").hexdigest(),
    }
    assert (rows[1]["offset"], rows[1]["value_sha256"]) == (-1, sha256(b"b").hexdigest())
    assert [row["outcome"] for row in rows] == ["ok", "ok", "failed", "unknown", "unknown"]
    assert "value_sha256" not in rows[4]


def test_rows_are_plain_lines_of_the_events_of_a_history() -> None:
    history = sent(*((b"k", b"%d" % n) for n in range(4)), (b"k", None))
    history.acked(0, 1, 7)
    history.acked(1, 1, -1)
    history.failed(2)
    events = list(history.events("p", "t"))
    assert list(parse(json.dumps(row) + "\n" for row in history.rows("p", "t"))) == events
    assert [event.outcome for event in events] == ["ok", "ok", "failed", "unknown", "unknown"]
    assert (events[0].partition, events[0].offset, events[1].offset) == (1, 7, -1)
    assert (events[3].digest, events[4].digest) == (digest_of(b"3"), b"")


def test_records_of_a_reading_are_the_reads_of_one_consumer() -> None:
    reading: Reading = {1: [(4, b"a")], 0: [(0, (b"k", None))]}
    assert list(reads("c", "t", reading)) == [
        Event("c", 0, "read", "ok", topic="t", partition=1, offset=4, digest=digest_of(b"a")),
        Event("c", 1, "read", "ok", topic="t", partition=0, offset=0),
    ]
