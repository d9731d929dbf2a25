"""The files of a ledger after one loop iteration, a crash, a full disk, and a full file."""

from __future__ import annotations

import errno
import json
import logging
from typing import Any

import pytest
from support.ledger.sparse_lines import fields

from minikafka.broker.ledger import writer
from minikafka.broker.ledger.record import DECISION, EVENT, LOST, STEP, WRITE
from minikafka.broker.ledger.writer import LedgerWriter, directory_of, file_name, number_of
from minikafka.simulation.clocks import ManualClock
from minikafka.simulation.storage import MemoryStorage

DIRECTORY = directory_of("/data/broker-1")
FIRST = f"{DIRECTORY}/{file_name(1)}"


def opened(storage: MemoryStorage, clock: ManualClock | None = None) -> LedgerWriter:
    ledger = LedgerWriter(storage, DIRECTORY, 1, clock or ManualClock())
    ledger.open()
    return ledger


def lines(storage: MemoryStorage, path: str = FIRST) -> list[dict[str, Any]]:
    return [json.loads(line) for line in storage.read(path).splitlines()]


@pytest.fixture
def storage() -> MemoryStorage:
    return MemoryStorage()


def test_ledger_directory_is_next_to_the_log_directory() -> None:
    assert (
        directory_of("/data/broker-1") == directory_of("/data/broker-1/") == "/data/broker-1-ledger"
    )


def test_ledger_line_is_written_in_the_next_iteration_of_the_event_loop(
    storage: MemoryStorage,
) -> None:
    clock = ManualClock(wall_ms=5_000)
    ledger = opened(storage, clock)
    ledger.record(DECISION, "3-7", fields(DECISION, verdict="move", isr=(1, 2)))
    assert lines(storage) == []
    clock.advance(0)
    assert lines(storage) == [
        {
            "time": 5_000,
            "broker": 1,
            "n": 1,
            "kind": "decision",
            "cause": "3-7",
            "verdict": "move",
            "machine": "x",
            "partitions": {"t": [0]},
            "to": "x",
            "isr": [1, 2],
        }
    ]
    assert clock.waiting() == 0


@pytest.mark.parametrize("kind", [EVENT, STEP])
def test_event_and_step_lines_are_written_at_once_after_all_pending_lines(
    storage: MemoryStorage, kind: str
) -> None:
    ledger = opened(storage)
    ledger.record(WRITE, "1-1", fields(WRITE))
    ledger.record(kind, "1-2", fields(kind))
    assert [line["kind"] for line in lines(storage)] == ["write", kind]


def test_pending_ledger_lines_are_written_when_they_exceed_a_size_limit(
    storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_PENDING_BYTES_MAX", 500)
    ledger = opened(storage)
    for _ in range(10):
        ledger.record(DECISION, "", fields(DECISION, text="x" * 100))
    assert len(lines(storage)) >= 6


def test_line_numbers_continue_after_a_restart(storage: MemoryStorage) -> None:
    first = opened(storage)
    first.record(EVENT, "1-1", fields(EVENT))
    first.record(DECISION, "1-1", fields(DECISION))
    first.close()
    second = opened(storage)
    second.record(EVENT, "1-2", fields(EVENT))
    assert [line["n"] for line in lines(storage)] == [1, 2, 3]


def test_restart_removes_only_the_unfinished_line(storage: MemoryStorage) -> None:
    ledger = opened(storage)
    ledger.record(EVENT, "1-1", fields(EVENT))
    whole = len(storage.read(FIRST))
    file = storage.open(FIRST)
    file.pwritev((b'{"time":1,"bro',), whole)
    again = opened(storage)
    again.record(EVENT, "1-2", fields(EVENT))
    assert [line["cause"] for line in lines(storage)] == ["1-1", "1-2"]


def test_full_file_is_followed_by_a_new_one_and_the_oldest_is_removed(
    storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "FILE_BYTES", 300)
    monkeypatch.setattr(writer, "FILES_MAX", 3)
    ledger = opened(storage)
    for i in range(20):
        ledger.record(EVENT, f"1-{i}", fields(EVENT))
    names = storage.names(DIRECTORY)
    assert len(names) == 3
    kept = [line for name in names for line in lines(storage, f"{DIRECTORY}/{name}")]
    assert [line["n"] for line in kept] == list(range(kept[0]["n"], 21))
    assert all(len(storage.read(f"{DIRECTORY}/{name}")) <= 300 for name in names)


def test_full_disk_is_logged_once_and_the_ledger_counts_the_lost_lines(
    storage: MemoryStorage, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    ledger = opened(storage, clock)
    ledger.record(EVENT, "1-1", fields(EVENT))
    storage.fail(DIRECTORY, errno.ENOSPC)
    with caplog.at_level(logging.WARNING):
        for i in range(3):
            ledger.record(EVENT, f"2-{i}", fields(EVENT))
        ledger.record(DECISION, "2-3", fields(DECISION))
        clock.advance(0)
    assert len(caplog.records) == 1
    assert ledger.lost == 4
    storage.heal()
    ledger.record(EVENT, "3-1", fields(EVENT))
    before, lost, after = lines(storage)
    assert (before["n"], after["n"]) == (1, 6)
    assert (lost["kind"], lost["lines"]) == (LOST, 4)
    assert "No space left" in lost["error"]
    assert ledger.lost == 0


def test_ledger_in_a_directory_that_cannot_be_created_counts_its_lines_as_lost(
    storage: MemoryStorage,
) -> None:
    storage.fail("/data", errno.EACCES)
    ledger = opened(storage)
    ledger.record(EVENT, "1-1", fields(EVENT))
    ledger.close()
    assert ledger.lost == 1


def test_line_that_cannot_be_encoded_is_counted_as_lost(storage: MemoryStorage) -> None:
    ledger = opened(storage)
    ledger.record(EVENT, "1-1", fields(EVENT, brokers={(1, 2): 3}))
    ledger.record(EVENT, "1-2", fields(EVENT))
    assert [(line["kind"], line.get("lines")) for line in lines(storage)] == [
        (LOST, 1),
        (EVENT, None),
    ]


def test_lines_before_open_and_after_close_are_discarded(storage: MemoryStorage) -> None:
    ledger = LedgerWriter(storage, DIRECTORY, 1, ManualClock())
    ledger.record(EVENT, "1-1", fields(EVENT))
    ledger.open()
    ledger.record(EVENT, "1-2", fields(EVENT))
    ledger.close()
    ledger.record(EVENT, "1-3", fields(EVENT))
    assert [line["cause"] for line in lines(storage)] == ["1-2"]


@pytest.mark.parametrize("name", ["ledger-1.jsonl", "ledger-000001.json", "x", "ledger-.jsonl"])
def test_ledger_file_name_has_a_number_of_at_least_six_digits_and_ends_in_jsonl(name: str) -> None:
    assert number_of(name) is None
    assert number_of(file_name(7)) == 7


def test_line_without_a_field_of_its_form_is_counted_as_lost(storage: MemoryStorage) -> None:
    clock = ManualClock()
    ledger = opened(storage, clock)
    ledger.record(DECISION, "1-1", fields(DECISION) | {"partitions": None})
    ledger.record(EVENT, "1-2", fields(EVENT))

    lost, event = lines(storage)
    assert (lost["kind"], lost["lines"], event["kind"]) == ("lost", 1, "event")
    assert lost["error"] == "a line of kind decision needs another field partitions"
