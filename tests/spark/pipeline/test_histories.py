"""The histories of clients as tables of `pipeline check`: events become the rows that the isolation checker knows."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from minikafka.checks.histories import (
    FAILED,
    OK,
    READ,
    UNKNOWN,
    WRITE,
    Recorder,
    parse,
)
from minikafka.checks.isolation.operations import Fate, Write, join
from minikafka.checks.replicas.history_tables import Histories
from minikafka.spark.pipelines.session.failures import PipelineError


def random_history(client: str, chance: random.Random) -> list[str]:
    """Return the history of a client with operations of every outcome, some of which never end."""
    lines: list[str] = []
    recorder = Recorder(client, client, lines.append, lambda: 0.0)
    outcomes = (OK, OK, FAILED, UNKNOWN, "")

    def end(number: int, **facts: Any) -> bool:
        outcome = chance.choice(outcomes)
        if outcome:
            recorder.ended(number, outcome, **(facts if outcome == OK else {}))
        return outcome == OK

    is_open = False
    for number in range(60):
        if chance.random() < 0.8:
            recorder.begin()
            is_open = True
        for _ in range(chance.randrange(3)):
            value = chance.choice((None, b"%d" % number))
            end(recorder.write("t", value, chance.randrange(2)), offset=chance.randrange(-1, 9))
        for _ in range(chance.randrange(3)):
            if is_open:
                operation = recorder.commit if chance.random() < 0.5 else recorder.abort
                is_open = not end(operation())
    return lines


def outcome_of(write: Write) -> str:
    """Return the outcome that a plain line has for a write with this outcome in a transaction with this fate."""
    fate = Fate.COMMITTED if write.transaction.number is None else write.transaction.fate
    ends = {Fate.COMMITTED: write.outcome, Fate.ABORTED: "aborted", Fate.UNKNOWN: UNKNOWN}
    return write.outcome if write.outcome == FAILED else ends[fate]


def written(path: Path, lines: Iterable[str]) -> str:
    path.write_text("".join(lines))
    return str(path)


def test_writes_have_the_outcomes_that_the_isolation_checker_sees(spark, tmp_path):
    chance = random.Random(50)
    lines = [line for name in "abc" for line in random_history(name, chance)]
    transactions = join(parse(lines)).transactions
    digests = [write.digest for one in transactions for write in one.writes]
    expected = [
        (one.client, write.number, write.topic, write.partition, outcome_of(write), write.offset)
        for one in transactions
        for write in one.writes
    ]
    history = written(tmp_path / "h.jsonl", lines)
    table, counts = Histories((history,), WRITE, None).read(spark)
    names = ("producer", "sequence", "topic", "partition", "outcome", "offset")
    found = [
        (*row[:5], -1 if row.offset is None else row.offset)
        for row in table.select(*names).collect()
    ]
    assert {row[4] for row in expected} == {OK, FAILED, UNKNOWN, "aborted"}
    assert sorted(found) == sorted(expected)
    assert counts == {
        ("t", outcome): sum(row[4] == outcome for row in expected)
        for outcome in {row[4] for row in expected}
    }
    assert table.where("content = xxhash64('')").count() == sum(one == b"" for one in digests)


def test_histories_of_both_forms_may_be_mixed(spark, tmp_path):
    lines: list[str] = []
    recorder = Recorder("c", None, lines.append, lambda: 0.0)
    recorder.ended(recorder.write("t", b"a"), partition=0, offset=0)
    plain = {"producer": "p", "sequence": 0, "topic": "t", "outcome": "ok", "value": "a"}
    lines.append(json.dumps({**plain, "partition": 0, "offset": 1}) + "\n")
    lines.append('{"client":"c","num')  # the client was killed
    table, counts = Histories((written(tmp_path / "h.jsonl", lines),), WRITE, None).read(spark)
    rows = sorted((row.producer, row.offset, row.content) for row in table.collect())
    assert [row[:2] for row in rows] == [("c", 0), ("p", 1)]
    assert rows[0][2] == rows[1][2]
    assert counts == {("t", "ok"): 2}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"event": "wrote"}, r"h\.jsonl, line 2: .*event 'wrote'.*must be one of begin, write"),
        ({"outcome": "fine"}, r"line 2: .*outcome 'fine'.* an outcome of invoked, ok"),
        ({"topic": None}, r"line 2: .*client 'c'.* the event write needs topic"),
        ({"event": "commit"}, "the event commit needs transaction"),
        ({}, "client c, number 0, is in the histories more than once"),
    ],
)
def test_invalid_event_is_refused_with_its_line(spark, tmp_path, changes, said):
    event = {"client": "c", "number": 0, "event": "write", "outcome": "ok", "topic": "t"}
    lines = (json.dumps(row) + "\n" for row in (event, event | changes))
    histories = Histories((written(tmp_path / "h.jsonl", lines),), WRITE, None)
    with pytest.raises(PipelineError, match=said):
        histories.read(spark)


def test_read_after_a_seek_is_in_the_next_run_of_its_consumer(spark, tmp_path):
    lines: list[str] = []
    recorder = Recorder("c", None, lines.append, lambda: 0.0)
    for offset in (0, 1):
        recorder.read("t", 0, offset, b"a")
    recorder.seek("t", 0, 1)
    recorder.read("t", 0, 1, b"a")
    recorder.ended(recorder.write("t", b"b"))
    table, counts = Histories((written(tmp_path / "h.jsonl", lines),), READ, None).read(spark)
    assert sorted((row.run, row.offset) for row in table.collect()) == [(0, 0), (0, 1), (1, 1)]
    assert counts == {("t",): 3}
