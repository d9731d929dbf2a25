"""Records printed as lines, and start offsets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click import BadParameter, Context, Option

from minikafka.base.errors import KafkaError
from minikafka.cli.consume import (
    Offsets,
    _check_start,
    as_json_line,
    as_line,
    consume,
    parse_offsets,
)
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
def test_parse_offsets_accepts_names_an_offset_and_a_range(text: str, offsets: Offsets) -> None:
    assert parse_offsets(Context(consume), Option(["-o"]), text) == offsets


@pytest.mark.parametrize("text", ["", "-1", "5:", ":5", "first", "1:2:3", "9:5"])
def test_parse_offsets_refuses_other_text(text: str) -> None:
    with pytest.raises(BadParameter):
        parse_offsets(Context(consume), Option(["-o"]), text)


def test_line_is_the_value_with_or_without_key() -> None:
    assert as_line(RECORD, None) == b"value"
    assert as_line(RECORD, b"=>") == b"key=>value"
    assert as_line(RECORD._replace(key=None, value=None), b":") == b":"


def test_json_line_contains_the_whole_record_with_bytes_as_base64() -> None:
    assert json.loads(as_json_line("t", RECORD)) == {
        "topic": "t",
        "partition": 2,
        "offset": 7,
        "timestamp": 1_000,
        "key": "key",
        "value": "value",
        "headers": [["h", {"base64": "/w=="}], ["n", None]],
    }


class OffsetsOnly:
    """A client with only the first and end offsets of partitions."""

    def __init__(self, first: dict[int, int], end: dict[int, int]) -> None:
        self._offsets = {"earliest": first, "latest": end}

    async def list_offsets(
        self, topic: str, at: str, partitions: list[int] | None
    ) -> dict[int, int]:
        found = self._offsets[at]
        return {number: found[number] for number in partitions or found}


@pytest.mark.parametrize(
    ("partitions", "start", "expected"),
    [
        (None, 99, "OFFSET_OUT_OF_RANGE: t-0 has no offset 99: valid offsets are 5 to 10"),
        (None, 3, "OFFSET_OUT_OF_RANGE: t-0 has no offset 3: valid offsets are 5 to 10"),
        ([1], 8, "OFFSET_OUT_OF_RANGE: t-1 has no offset 8: valid offsets are 7 to 7"),
    ],
)
async def test_error_about_a_start_offset_has_the_valid_range(
    partitions: list[int] | None, start: int, expected: str
) -> None:
    client: Any = OffsetsOnly({0: 5, 1: 7}, {0: 10, 1: 7})
    with pytest.raises(KafkaError) as caught:
        await _check_start(client, "t", partitions, start)
    assert str(caught.value) == expected


@pytest.mark.parametrize("start", [5, 7, 10])
async def test_start_offset_may_be_the_end_of_the_partition(start: int) -> None:
    client: Any = OffsetsOnly({0: 5}, {0: 10})
    await _check_start(client, "t", [0], start)
