"""Java's properties format, compared with what Java reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minikafka.base.errors import ConfigError
from minikafka.base.properties import Property, decode_properties, parse_properties

CASES = Path(__file__).with_name("java_properties.jsonl")
"""One line per text: the text, and the entries that Java 17 found; null if it refused the text."""


def read(text: str) -> dict[str, str] | None:
    try:
        found = {item.name: item.value for item in decode_properties(text.encode("latin-1"))}
    except ConfigError:
        return None
    return with_names(found)


def with_names(found: dict[str, str] | None) -> dict[str, str] | None:
    """Return the entries that have a name: Kafka has no key without one."""
    return found and {name: value for name, value in found.items() if name}


def test_entries_are_those_that_java_reads() -> None:
    for line in CASES.read_text("utf-8").splitlines():
        text, expected = json.loads(line)
        assert read(text) == with_names(expected), text


def test_each_entry_has_the_number_of_its_first_line() -> None:
    text = "# comment\n\na = 1\r\nb = 2 \\\n  3\n! comment\nc\n"
    assert parse_properties(text) == [
        Property("a", "1", 3),
        Property("b", "2 3", 4),
        Property("c", "", 7),
    ]


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ('sasl.jaas.config=a b="c=d";', "sasl.jaas.config", 'a b="c=d";'),
        ("key : value ", "key", "value "),
        ("key value=1", "key", "value=1"),
        (r"a\ b\=c=\ d", "a b=c", " d"),
        (r"k=\u00e9\ud83d\ude00", "k", "é😀"),
        (r"k=C:\\new\q", "k", r"C:\newq"),
    ],
)
def test_names_and_values_have_separators_and_escapes(line: str, name: str, value: str) -> None:
    assert parse_properties(line) == [Property(name, value, 1)]


@pytest.mark.parametrize(
    ("line", "reason"),
    [(r"k=\u12", "four hexadecimal digits"), (r"k=\ud83d", "half of a character")],
)
def test_wrong_escape_is_an_error_that_names_the_line(line: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=rf"^line 2: .*{reason}"):
        parse_properties(f"a=1\n{line}")
