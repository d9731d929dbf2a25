"""Lines of standard input as records, and errors about them."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from minikafka.base.errors import ErrorCode, KafkaError, MinikafkaError
from minikafka.cli import produce
from minikafka.cli.produce import not_stored, record_of, stdin_lines
from minikafka.client import NotProduced


@pytest.mark.parametrize(
    ("line", "delimiter", "key", "value"),
    [
        (b"a:b", None, None, b"a:b"),
        (b"a:b:c", b":", b"a", b"b:c"),
        (b"a", b":", None, b"a"),
        (b":", b":", b"", b""),
        (b"", None, None, b""),
        (b"k=>v", b"=>", b"k", b"v"),
    ],
)
def test_line_is_split_at_the_first_delimiter(
    line: bytes, delimiter: bytes | None, key: bytes | None, value: bytes
) -> None:
    found = record_of(line, delimiter)
    assert (found.key, found.value) == (key, value)


async def test_stdin_lines_are_whole_and_in_order_without_a_last_line_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading, writing = os.pipe()
    monkeypatch.setattr(produce, "_STDIN", reading)
    monkeypatch.setattr(produce, "CHUNK_BYTES", 7)
    text = b"one\n\ntwo and more than a chunk\nx\nlast"

    def write() -> None:
        os.write(writing, text)
        os.close(writing)

    threading.Thread(target=write).start()
    lines = [line async for some in stdin_lines() for line in some]
    os.close(reading)
    assert lines == text.split(b"\n")


@pytest.mark.parametrize(
    ("code", "detail", "stored", "expected"),
    [
        (
            ErrorCode.MESSAGE_TOO_LARGE,
            "t-0",
            2,
            "MESSAGE_TOO_LARGE: line 14 is larger than max.message.bytes of topic t; "
            "12 records were stored (to raise it: minikafka configs set --topic t max.message.bytes=N)",
        ),
        (
            ErrorCode.NOT_ENOUGH_REPLICAS,
            "t-0",
            0,
            "NOT_ENOUGH_REPLICAS: line 14 (t-0); 10 records were stored",
        ),
    ],
)
def test_error_has_the_refused_line_and_the_number_of_stored_records(
    code: ErrorCode, detail: str, stored: int, expected: str
) -> None:
    error = NotProduced(KafkaError(code, detail), index=3, stored=stored)
    assert str(not_stored(error, "t", before=10)) == expected


def test_error_about_an_unknown_topic_names_the_topic_instead_of_a_line() -> None:
    unknown = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "t: no such topic")
    assert str(not_stored(NotProduced(unknown, index=0, stored=0), "t", before=0)) == str(unknown)


async def test_error_says_that_standard_input_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    monkeypatch.setattr(produce, "_STDIN", directory)
    with pytest.raises(MinikafkaError, match=r"^standard input: Is a directory$"):
        _ = [lines async for lines in stdin_lines()]
    os.close(directory)
