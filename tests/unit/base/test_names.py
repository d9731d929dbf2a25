"""Parsing of names and numbers from outside: valid texts are accepted, all others raise ValueError."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any

import pytest

from minikafka.base import names
from minikafka.base.model import TopicPartition

LENIENT = ["²", "٣", "३", "1_000", " 1", "1 ", "+1", "-1", "-0", "01", "00", "1.0", "1e3", "0x1"]
"""Texts that must not be parsed as numbers, although `int`, `str.isdigit` or `str.isdecimal` accepts most of them."""
TOPICS = ["", ".", "..", "a b", "a/b", "../t", "t\n", "t\0", "ü", "²", "\ud800", "😀", "x" * 250]


@pytest.mark.parametrize("text", ["0", "1", "7", "1000", str(2**31 - 1)])
def test_decimal_number_is_parsed_to_its_value(text: str) -> None:
    assert names.parse_number(text) == int(text)


@pytest.mark.parametrize("text", [*LENIENT, "", str(2**31), "9" * 30, "9" * 5000, "\ud800", "1\n"])
def test_number_in_any_other_form_than_plain_decimal_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a whole number from 0 to 2147483647"):
        names.parse_number(text)


def test_number_above_the_given_maximum_is_refused() -> None:
    assert names.parse_number("9223372036854775807", 2**63 - 1) == 2**63 - 1
    with pytest.raises(ValueError, match="is not a whole number"):
        names.parse_number("9223372036854775808", 2**63 - 1)


@pytest.mark.parametrize("name", ["t", "a.b", "_", "-", "...", "__consumer_offsets", "x" * 249])
def test_topic_name_that_kafka_allows_is_accepted(name: str) -> None:
    assert names.parse_topic(name) == name


@pytest.mark.parametrize("name", [*TOPICS, None, 1, b"t", ["t"]])
def test_invalid_topic_name_is_refused_with_a_short_ascii_message(name: object) -> None:
    with pytest.raises(ValueError, match="is not a topic name") as caught:
        names.parse_topic(name)
    assert str(caught.value).isascii()
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b'\xef\xbb\xbf{"a":1}',
        '{"a":1}'.encode("utf-16"),
        b"[]",
        b"1",
        b"null",
        b"{",
        b'{"a":NaN}',
        b'{"a":-Infinity}',
        b'{"a":1,"a":2}',
        b'{"a":{"b":1,"b":1}}',
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a":' + b"9" * 5000 + b"}",
        b"{'a':1}",
        b'{"a":1}x',
        b'{"a":1}\0',
    ],
)
def test_data_that_is_not_a_strict_json_object_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        names.parse_json(data)


JSON_FAULTS = {
    b"": "not JSON: expecting value at column 1",
    b'{"a": 1,\n "b" 2}': "not JSON: expecting ':' delimiter at line 2, column 6",
    b'{"a":1}{': "not JSON: extra data at column 8",
    b'{"a":NaN}': "not JSON: NaN is not a JSON number",
    b"[-Infinity]": "not JSON: -Infinity is not a JSON number",
    b'[{"a":1,"b":2,"b":3}]': "not JSON: the field 'b' is given twice",
    b'{"\\ud800":1,"\\ud800":1}': r"not JSON: the field '\ud800' is given twice",
    b'{"a":"\xff"}': "not JSON in UTF-8: byte 7 is invalid",
    b'\xef\xbb\xbf{"a":1}': "not JSON: it begins with a byte order mark; save it in UTF-8 without one",
    '{"a":1}'.encode("utf-16"): "not JSON in UTF-8: byte 1 is invalid",
    b"[" * 100_000: "the JSON is nested too deeply",
    b'{"a":' * 100_000: "the JSON is nested too deeply",
    b'{"a":' + b"9" * 5_000 + b"}": "the JSON has a number of more than 4300 digits",
}


@pytest.mark.parametrize("data", JSON_FAULTS, ids=range(len(JSON_FAULTS)))
def test_document_that_is_not_json_is_refused_with_the_reason_and_the_place(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        names.read_json(data)
    assert str(caught.value) == JSON_FAULTS[data]


@pytest.mark.parametrize("text", ["", "t", "ü", "\U0001f600", "\0"])
def test_string_of_valid_unicode_is_accepted(text: str) -> None:
    assert names.parse_text(text) == text


@pytest.mark.parametrize("text", ["\ud800", "a\udc00", None, 7, b"t"])
def test_invalid_unicode_or_a_value_that_is_not_a_string_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match=r"is not (a string|valid Unicode)"):
        names.parse_text(text)


def test_json_object_is_returned_with_its_fields() -> None:
    fields = {"a": [1, None, True, 1.5], "ü": "\U0001f600", "o": {"a": -1}}
    assert names.parse_json(json.dumps(fields).encode()) == fields
    assert names.parse_json(json.dumps(fields, ensure_ascii=False).encode()) == fields


@pytest.mark.parametrize(
    ("name", "tp"),
    [("t-0", TopicPartition("t", 0)), ("a-b.c--12", TopicPartition("a-b.c-", 12))],
)
def test_replica_directory_names_its_partition(name: str, tp: TopicPartition) -> None:
    assert names.parse_replica_directory(name) == tp


@pytest.mark.parametrize(
    "name",
    [
        "t",
        "t-",
        *(f"t-{number}" for number in LENIENT if not number.startswith("-")),
        *(f"{topic}-0" for topic in TOPICS),
    ],
)
def test_malformed_replica_directory_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        names.parse_replica_directory(name)


def test_files_of_a_log_are_named_by_offsets_of_twenty_digits() -> None:
    strange = ["7", f"{2**63:020d}", "٣" * 20, "²" * 20, f"{7:021d}", f"{-7:020d}", ""]
    found = [f"{2**63 - 1:020d}.log", f"{5:020d}.log", f"{6:020d}.index"]
    found += [f"{stem}.log" for stem in strange]
    assert names.offsets_of(found, ".log") == [5, 2**63 - 1]


def test_cluster_id_is_printable_ascii() -> None:
    assert names.parse_cluster_id("4L6g3nShT-eMCtK--X86sw") == "4L6g3nShT-eMCtK--X86sw"
    for text in ("", "a b", "a\r\nX-Evil: 1", "ü", "\ud800", "x" * 256, None, 7):
        with pytest.raises(ValueError, match="is not a cluster id"):
            names.parse_cluster_id(text)


@pytest.mark.parametrize(
    "parse",
    [
        names.parse_number,
        names.parse_topic,
        names.parse_cluster_id,
        names.parse_replica_directory,
        names.parse_topic_id,
    ],
)
def test_random_text_is_parsed_or_raises_value_error(parse: Callable[[str], Any]) -> None:
    chance = random.Random(6)
    letters = "09٣²-._tT \n\0/ü\ud800\U0001f600+"
    allowed = re.compile(r"[!-~]{1,255}")
    for _ in range(5_000):
        text = "".join(chance.choices(letters, k=chance.randrange(8)))
        try:
            parse(text)
        except ValueError:
            continue
        assert allowed.fullmatch(text)


def partitions(topic: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(count)]


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ([], ""),
        (partitions("b", 1) + partitions("a", 2), "a-0, a-1, b-0"),
        (partitions("a", 12), "a-0, a-1, a-2 and 9 more"),
        (partitions("__x", 50) + partitions("a", 1), "a-0 and 50 partitions of __x"),
        (
            partitions("__x", 50) + partitions("a", 5),
            "a-0, a-1, a-2, 2 more and 50 partitions of __x",
        ),
        (partitions("__x", 2) + partitions("__y", 2), "4 partitions of __x, __y"),
        (partitions("__x", 1) + partitions("a", 1), "a-0, __x-0"),
    ],
)
def test_list_of_partitions_names_those_of_users_and_counts_internal_ones(
    found: list[TopicPartition], text: str
) -> None:
    assert names.listed(found, 3) == text
