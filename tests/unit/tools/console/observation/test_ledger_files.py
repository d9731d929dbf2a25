"""The newest lines of ledger files."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from minikafka.broker.ledger.writer import file_name
from minikafka.tools.console.observation import ledger_files
from minikafka.tools.console.observation.ledger_files import LedgerFiles, newest_lines


def line(number: int) -> bytes:
    fields = {"time": number, "broker": 1, "n": number, "kind": "broker", "cause": ""}
    return json.dumps({**fields, "fact": "started"}).encode()


SIZE = len(line(100)) + 1


def write(folder: Path, number: int, numbers: range, end: bytes = b"") -> None:
    data = b"".join(line(n) + b"\n" for n in numbers)
    (folder / file_name(number)).write_bytes(data + end)


def numbers(lines: list[dict[str, Any]]) -> list[int]:
    return [one["n"] for one in lines]


def test_newest_lines_are_limited_by_what_is_searched_and_by_what_is_wanted(tmp_path: Path) -> None:
    write(tmp_path, 9, range(100, 110))
    write(tmp_path, 10, range(110, 120))
    (tmp_path / "other.jsonl").write_text("x")
    many = 1_000_000
    found = newest_lines(tmp_path, lambda _: True, many, many)
    assert (numbers(found.lines), found.is_cut) == ([*range(100, 120)], False)
    found = newest_lines(tmp_path, lambda _: True, 12 * SIZE + 5, many)
    assert (numbers(found.lines), found.is_cut) == ([*range(108, 120)], True)
    found = newest_lines(tmp_path, lambda _: True, many, 3 * SIZE)
    assert (numbers(found.lines), found.is_cut) == ([117, 118, 119], True)
    found = newest_lines(tmp_path, lambda text: b'"n": 105' in text, many, SIZE)
    assert (numbers(found.lines), found.is_cut) == ([105], False)
    assert newest_lines(tmp_path / "none", lambda _: True, many, many) == ([], False)


def test_newest_lines_are_whole_wherever_the_pieces_end_that_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 1, range(100, 103))
    write(tmp_path, 2, range(103, 107), end=b'{"half')
    for size in range(1, 5 * SIZE):
        monkeypatch.setattr(ledger_files, "_READ_BYTES", size)
        found = newest_lines(tmp_path, lambda _: True, 1_000, 1_000)
        assert (numbers(found.lines), found.is_cut) == ([*range(100, 107)], False)


def test_newest_lines_take_no_memory_for_what_is_not_wanted(tmp_path: Path) -> None:
    (tmp_path / file_name(1)).write_bytes((b"x" * 9_999 + b"\n") * 800)
    tracemalloc.start()
    try:
        assert newest_lines(tmp_path, lambda _: False, 1 << 30, 1 << 30) == ([], False)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_reader_gets_each_new_line_once_also_of_a_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_files, "_FIRST_BYTES", 2 * SIZE + 5)
    reader, folders = LedgerFiles(), {1: tmp_path, 2: tmp_path / "none"}
    assert reader.read(folders) == []
    write(tmp_path, 1, range(100, 110), end=b'{"half')
    assert numbers(reader.read(folders)) == [109]
    assert reader.read(folders) == []
    write(tmp_path, 1, range(100, 112))
    write(tmp_path, 2, range(112, 114))
    assert numbers(reader.read(folders)) == [110, 111, 112, 113]
    (tmp_path / file_name(1)).unlink()
    write(tmp_path, 2, range(112, 115))
    assert numbers(reader.read(folders)) == [114]
