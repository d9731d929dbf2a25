"""The lines of a history: events, plain lines, invalid lines, and those of a killed client."""

from __future__ import annotations

import json

import pytest

from minikafka.checks.histories import (
    COMMIT,
    INVOKED,
    OK,
    Event,
    HistoryError,
    Recorder,
    digest_of,
    event_of,
    line_of,
    parse,
)
from minikafka.checks.isolation.operations import Fate, join

PLACE = {"topic": "t", "partition": 0, "offset": 0}
WRITE = {"client": "c", "number": 0, "event": "write", "outcome": "ok", "topic": "t"}


def test_recorder_writes_lines_that_are_parsed_back() -> None:
    lines: list[str] = []
    recorder = Recorder("c", "id", lines.append, lambda: 1.5)
    recorder.ended(recorder.begin())
    recorder.ended(recorder.write("t", b"a", 2), partition=2, offset=7)
    recorder.ended(recorder.offsets("g", "in", 0, 9))
    recorder.read("in", 0, 8, None)
    number = recorder.commit()
    events = list(parse(lines))
    assert [event.kind for event in events] == [
        *("begin", "begin", "write", "write", "offsets", "offsets", "read", "commit")
    ]
    assert (events[3].partition, events[3].offset, events[3].digest) == (2, 7, digest_of(b"a"))
    assert (events[0].transactional_id, events[5].group, events[5].offset) == ("id", "g", 9)
    assert (events[6].transaction, events[6].digest, events[6].time) == (1, b"", 1.5)
    assert (events[7].kind, events[7].outcome, events[7].number) == (COMMIT, INVOKED, number)


def test_commit_without_an_outcome_is_unknown() -> None:
    lines: list[str] = []
    recorder = Recorder("c", "id", lines.append, lambda: 0.0)
    recorder.begin()
    number = recorder.commit()
    (transaction,) = join(parse(lines)).transactions
    assert transaction.fate is Fate.UNKNOWN
    recorder.ended(number, OK)
    (transaction,) = join(parse(lines)).transactions
    assert transaction.fate is Fate.COMMITTED


def test_transaction_that_is_aborted_after_a_failed_commit_is_aborted() -> None:
    lines: list[str] = []
    recorder = Recorder("c", "id", lines.append, lambda: 0.0)
    recorder.begin()
    recorder.ended(recorder.commit(), "unknown")
    recorder.ended(recorder.abort())
    recorder.begin()
    recorder.ended(recorder.commit(), "failed")
    first, second = join(parse(lines)).transactions
    assert (first.fate, second.fate) == (Fate.ABORTED, Fate.ABORTED)


def test_cut_off_last_line_is_ignored() -> None:
    line = json.dumps(WRITE)
    assert len(list(parse([line + "\n", line[:20]]))) == 1


def test_plain_line_is_a_write_outside_of_transactions_or_a_read() -> None:
    place = {"topic": "t", "partition": 1, "offset": 7, "value": "a"}
    rows = (
        {"producer": "p", "sequence": 3, "outcome": "ok", **place},
        {"producer": "p", "sequence": 4, "outcome": "failed", "topic": "t"},
        {"consumer": "c", "position": 5, **place},
    )
    write, failed, read = parse(json.dumps(row) + "\n" for row in rows)
    known = {"topic": "t", "partition": 1, "offset": 7, "digest": digest_of(b"a"), "value": "a"}
    assert write == Event("p", 3, "write", "ok", **known)
    assert failed == Event("p", 4, "write", "failed", topic="t")
    assert read == Event("c", 5, "read", "ok", **known)


def test_plain_write_of_an_aborted_transaction_must_not_become_visible() -> None:
    row = {"producer": "p", "sequence": 3, "topic": "t", "outcome": "aborted"}
    (transaction,) = join(parse([json.dumps(row) + "\n"])).transactions
    assert transaction.fate is Fate.ABORTED
    assert [write.topic for write in transaction.writes] == ["t"]


def test_last_plain_line_needs_no_line_break_but_must_be_whole() -> None:
    lines = [json.dumps({"consumer": "c", "position": n, **PLACE}) for n in range(2)]
    assert len(list(parse([lines[0] + "\n", "\n", lines[1]]))) == 2
    with pytest.raises(HistoryError, match="line 2: "):
        list(parse([lines[0] + "\n", lines[1][:20]]))


def test_line_of_an_event_is_parsed_back() -> None:
    event = Event("c", 1, "write", "ok", 2, "id", "t", 3, 4, digest_of(b"a"), None, 0.5)
    assert list(parse([line_of(event)])) == [event]


def test_event_wins_over_the_names_of_plain_lines() -> None:
    assert event_of(WRITE) == next(parse([json.dumps(WRITE | {"producer": "p"}) + "\n"]))


def test_value_is_given_as_text_or_as_a_hash() -> None:
    as_text = event_of(WRITE | {"value": "a"})
    assert event_of(WRITE | {"value_sha256": as_text.digest.hex()}).digest == as_text.digest
    assert event_of(WRITE).digest == b""


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"event": "wrote"}, "event 'wrote' must be one of begin, write"),
        ({"outcome": "done"}, "outcome 'done' must be one of invoked, ok"),
        ({"number": "0"}, "number is '0', it must be of type int"),
        ({"number": True}, "number is True"),
        ({"client": None}, "it has no client"),
        ({"topic": None}, "event write needs a topic"),
        ({"event": "commit"}, "event commit needs a transaction"),
        ({"event": "read"}, "event read needs a partition and an offset"),
        ({"event": None}, "it has no event"),
        ({"event": "offsets", "transaction": 1, "partition": 0, "offset": 0}, "needs a group"),
        ({"value_sha256": "aa"}, "is not 64 hexadecimal digits"),
        ({"offset": 5}, "a write with an offset needs a partition"),
    ],
)
def test_invalid_line_is_reported_with_its_number(wrong: dict[str, object], said: str) -> None:
    lines = [json.dumps(WRITE) + "\n", json.dumps(WRITE | wrong) + "\n"]
    with pytest.raises(HistoryError, match=r"^sent\.jsonl, line 2: ") as caught:
        list(parse(lines, "sent.jsonl"))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("[" * 100_000, "the JSON is nested too deeply"),
        ('{"number":' + "9" * 5_000 + "}", "a number of more than 4300 digits"),
        ('{"number":NaN}', "NaN is not a JSON number"),
        ('{"client":"a","client":"b"}', "the field 'client' is given twice"),
        ("[]", "not a JSON object"),
        ('{"client":"\udcff"}', "not JSON: character 12 is invalid"),
        (json.dumps(WRITE | {"value_sha256": None, "value": "\ud800"}), "surrogates not allowed"),
    ],
)
def test_line_that_is_not_json_is_reported_with_its_number(line: str, said: str) -> None:
    with pytest.raises(HistoryError, match=r"^sent\.jsonl, line 1: ") as caught:
        list(parse([line + "\n"], "sent.jsonl"))
    assert said in str(caught.value)
    assert len(str(caught.value)) < 300


def test_operation_that_ends_twice_is_refused() -> None:
    line = json.dumps(WRITE) + "\n"
    with pytest.raises(HistoryError, match="an operation is invoked once and ends once"):
        join(parse([line, line]))
