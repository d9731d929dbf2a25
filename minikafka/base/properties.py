"""Java's properties format: lines of NAME=VALUE, NAME:VALUE or NAME VALUE, with escapes and continuation lines.

The rules are those of the class Properties of Java, so a file means the same here and in Kafka's tools.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from minikafka.base.errors import ConfigError

_BLANKS: Final = " \t\f"
_LINE_ENDS: Final = re.compile(r"\r\n|\r|\n")
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_NAME: Final = re.compile(r"(?:[^\\=: \t\f]|\\.?)*", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|.?)", re.DOTALL)
_LETTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    """One entry. `line`: the number of its first line, from 1."""

    name: str
    value: str
    line: int


def decode_properties(data: bytes) -> list[Property]:
    """Return the entries of a file, which is in ISO 8859-1 as Java reads it. Raises ConfigError."""
    return parse_properties(data.decode("latin-1"))


def parse_properties(text: str) -> list[Property]:
    """Return the entries in the order of the text. Raises ConfigError, which names the line, for a wrong escape."""
    entries = []
    for number, line in _logical_lines(text):
        name = _NAME.match(line)
        assert name is not None
        separator = _SEPARATOR.match(line, name.end())
        assert separator is not None
        value = line[separator.end() :]
        entries.append(Property(_unescaped(name[0], number), _unescaped(value, number), number))
    return entries


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number of the first line and the content of each entry, without comments and continuations."""
    first, content, is_continued = 0, "", False
    for number, line in enumerate(_LINE_ENDS.split(text), 1):
        stripped = line.lstrip(_BLANKS)
        if not content:
            first = number
            if stripped.startswith(("#", "!")) or not (stripped or is_continued):
                continue
        content += stripped
        is_continued = _ends_with_escape(stripped)
        if is_continued:
            content = content[:-1]
        else:
            if content:
                yield first, content
            content = ""
    if content:
        yield first, content


def _ends_with_escape(line: str) -> bool:
    """True if the line ends with a backslash that is not itself escaped."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescaped(text: str, line: int) -> str:
    def replace(match: re.Match[str]) -> str:
        escape = match[1]
        if escape.startswith("u"):
            if len(escape) != 5:
                raise ConfigError(rf"line {line}: \u must be followed by four hexadecimal digits")
            return chr(int(escape[1:], 16))
        return _LETTERS.get(escape, escape)

    found = _ESCAPE.sub(replace, text)
    try:  # two escapes may be the two halves of one character
        return found.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise ConfigError(rf"line {line}: a \u escape is half of a character") from None


def encode_property(name: str, value: str) -> str:
    """Return the line of an entry whose name needs no escapes, in ASCII."""
    units = value.encode("utf-16-be")
    codes = [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]
    text = "".join(map(_escaped, codes))
    return f"{name}={chr(92) if text.startswith(' ') else ''}{text}"


def _escaped(code: int) -> str:
    if code == ord("\\"):
        return "\\\\"
    return chr(code) if 0x20 <= code < 0x7F else f"\\u{code:04x}"
