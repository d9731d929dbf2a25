"""Records in the form that the page gets."""

from __future__ import annotations

import json

import pytest

from minikafka.kafka.records.batch import Record
from minikafka.tools.console.views import records
from minikafka.tools.console.views.records import as_object


def value_of(data: bytes) -> dict[str, object]:
    shown = as_object(0, Record(0, 1, None, data, ()))["value"]
    json.dumps(shown, allow_nan=False)
    return dict(shown)


def test_value_is_shown_as_text_hex_and_json() -> None:
    assert value_of(b'{"a": [1]}') == {
        "size": 10,
        "hex": b'{"a": [1]}'.hex(),
        "text": '{"a": [1]}',
        "json": {"a": [1]},
    }
    assert value_of(b"<script>") == {"size": 8, "hex": b"<script>".hex(), "text": "<script>"}
    assert value_of(b"\xff") == {"size": 1, "hex": "ff"}


@pytest.mark.parametrize("data", [b"[NaN]", b"[1", b"[" * 10_000, b"[Infinity]"])
def test_value_that_is_no_json_has_no_json(data: bytes) -> None:
    assert "json" not in value_of(data)


def test_long_value_is_cut_at_a_whole_character(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "SHOWN_BYTES", 4)
    assert value_of("aaaé".encode()) == {
        "size": 5,
        "hex": "616161c3",
        "is_cut": True,
        "text": "aaa",
    }
    assert "text" not in value_of(b"aaaaa\xff")


def test_missing_key_value_and_header_are_null() -> None:
    found = as_object(3, Record(7, 9, None, None, (("h", None), ("i", b"\xff"))))
    assert found == {
        "partition": 3,
        "offset": 7,
        "timestamp_ms": 9,
        "key": None,
        "value": None,
        "headers": [["h", None], ["i", "\ufffd"]],
    }
