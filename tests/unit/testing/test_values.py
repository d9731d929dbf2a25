"""What `produce` accepts as records."""

from __future__ import annotations

import pytest

from minikafka.client import ConsumedRecord, Record
from minikafka.kafka.records.batch import UNDATED
from minikafka.testing.values import shown, to_records


def test_values_become_records_with_the_key_and_headers_of_the_call():
    records = to_records([b"a", "ü", None, ("k", "v")], "key", {"h": "x"}, 7)
    headers = (("h", b"x"),)
    assert records == [
        Record(timestamp=7, key=b"key", value=b"a", headers=headers),
        Record(timestamp=7, key=b"key", value="ü".encode(), headers=headers),
        Record(timestamp=7, key=b"key", value=None, headers=headers),
        Record(timestamp=7, key=b"k", value=b"v", headers=headers),
    ]


def test_list_of_values_is_the_same_as_its_values():
    assert to_records([[b"a", b"b"]]) == to_records([b"a", b"b"])


def test_record_is_sent_unchanged():
    record = Record(timestamp=3, key=b"k", value=b"v")
    assert to_records([record], "other", {"h": b"x"}, 9) == [record]


def test_value_without_timestamp_gets_the_time_of_the_client():
    [record] = to_records([bytearray(b"a")])
    assert (record.timestamp, record.value) == (UNDATED, b"a")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": 1}, "a value must be bytes, str or None, not dict: encode it first"),
        (7, "a value must be bytes, str or None, not int"),
        (("a", "b", "c"), "must be a pair of key and value"),
        ((1, "b"), "a key must be bytes, str or None, not int"),
    ],
)
def test_value_of_another_type_is_refused(value, text):
    with pytest.raises(TypeError, match=text):
        to_records([value])


def test_message_shows_ten_records_and_shortens_long_values():
    rows = [ConsumedRecord("t", 0, n, 0, None, b"x" * 100, ()) for n in range(12)]
    lines = shown(rows).splitlines()[1:]
    assert len(lines) == 11
    assert lines[0].endswith("… (100 bytes)")
    assert lines[-1] == "  … and 2 more"
