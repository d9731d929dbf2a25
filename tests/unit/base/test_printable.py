"""Text from outside becomes one line that no terminal interprets."""

from __future__ import annotations

import json
import random

import pytest

from minikafka.base.printable import printable

ESCAPED = {
    "a\nb": r"a\nb",
    "a\r\tb": r"a\r\tb",
    "\x1b[2J": r"\u001b[2J",
    "\x7f\x85\x9b31m": r"\u007f\u0085\u009b31m",
    "\u2028\u2029": r"\u2028\u2029",
    "\u202eabc\u2066": r"\u202eabc\u2066",
    "a\u200b\ufeffb": r"a\u200b\ufeffb",
    "\ud800": r"\ud800",
    "\U000e0041": r"\udb40\udc41",
}


@pytest.mark.parametrize(("text", "expected"), ESCAPED.items())
def test_unprintable_characters_are_escaped(text: str, expected: str) -> None:
    assert printable(text) == expected


@pytest.mark.parametrize("text", ["", "a b", "größe 東京 😀 e\u0301", r"a\nb", "[red]:name:"])
def test_printable_text_does_not_change(text: str) -> None:
    assert printable(text) is text


def test_result_is_always_printable_and_can_be_encoded() -> None:
    chance = random.Random(1)
    for _ in range(200):
        text = "".join(chr(chance.randrange(0x110000)) for _ in range(200))
        result = printable(text)
        assert result.isprintable()
        assert result.encode()


def test_json_document_stays_the_same_document() -> None:
    content = {"a\x7f\u2028": ["\x9b", "\U000e0041", "\u202e\n"]}
    assert json.loads(printable(json.dumps(content, ensure_ascii=False))) == content
