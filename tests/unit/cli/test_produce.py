"""Lines as records."""

from __future__ import annotations

import os
import threading

import pytest

from minikafka.cli import produce
from minikafka.cli.produce import record, stdin_lines


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
def test_a_line_is_cut_at_the_first_delimiter(
    line: bytes, delimiter: bytes | None, key: bytes | None, value: bytes
) -> None:
    found = record(line, delimiter)
    assert (found.key, found.value) == (key, value)


async def test_lines_come_whole_in_order_and_the_last_may_lack_its_end(
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
