"""Records as lines."""

from __future__ import annotations

import json

import pytest
from click import BadParameter, Context, Option

from minikafka.cli.consume import Offsets, as_json_line, as_line, consume, parse_offsets
from minikafka.client.consumer import ConsumedRecord

RECORD = ConsumedRecord(2, 7, 1_000, b"key", b"value", (("h", b"\xff"), ("n", None)))


@pytest.mark.parametrize(
    ("text", "offsets"),
    [
        ("earliest", Offsets("earliest", None)),
        ("latest", Offsets("latest", None)),
        ("5", Offsets(5, None)),
        ("5:9", Offsets(5, 9)),
    ],
)
def test_where_to_begin_and_end(text: str, offsets: Offsets) -> None:
    assert parse_offsets(Context(consume), Option(["-o"]), text) == offsets


@pytest.mark.parametrize("text", ["", "-1", "5:", ":5", "first", "1:2:3"])
def test_what_is_no_offset_is_refused(text: str) -> None:
    with pytest.raises(BadParameter):
        parse_offsets(Context(consume), Option(["-o"]), text)


def test_a_line_is_the_value_or_key_and_value() -> None:
    assert as_line(RECORD, None) == b"value"
    assert as_line(RECORD, b"=>") == b"key=>value"
    assert as_line(RECORD._replace(key=None, value=None), b":") == b":"


def test_json_holds_the_whole_record_and_bytes_that_are_no_text() -> None:
    assert json.loads(as_json_line("t", RECORD)) == {
        "topic": "t",
        "partition": 2,
        "offset": 7,
        "timestamp": 1_000,
        "key": "key",
        "value": "value",
        "headers": [["h", {"base64": "/w=="}], ["n", None]],
    }
