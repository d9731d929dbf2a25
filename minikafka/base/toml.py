"""TOML parsing with one-line errors that name the place of the mistake.

Invariant: invalid TOML raises ConfigError with a text of one line.

`statements` also reads the valid parts of an invalid document, so that a message about a key can name its line, and a
command that needs only one key can still find it.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from minikafka.base.errors import ConfigError

_LINE: Final = re.compile(r"at line ([0-9]+)")
_END: Final = "at end of document"
_KEY_OF_LISTENER: Final = re.compile(r"listener\.name\.[^.]+\.(?:[^.]+\.(?=sasl\.|connections\.))?")
"""What stands before a key that is set for one listener, and for one of its mechanisms."""
_WORD: Final = re.compile(r"[A-Za-z0-9_.-]*[A-Za-z0-9_-]")
_LINES_MAX: Final = 1_000
"""Maximum number of lines of one statement, such as a list."""


class Statement(NamedTuple):
    """One statement of a TOML document: a table header, or a key with its value.

    `line` and `column`: where it begins, from 1. `table`: the dotted name of its table; "?" below an invalid header.
    `values`: the values by dotted name without the table, {} for a header, None if the statement is invalid.
    """

    line: int
    column: int
    text: str
    table: str
    values: Mapping[str, object] | None

    @property
    def names(self) -> list[str]:
        """The dotted names that the statement defines, with the table."""
        return [f"{self.table}.{name}" if self.table else name for name in self.values or ()]


def read_toml(text: str) -> dict[str, Any]:
    """Parse a TOML document. Raises ConfigError."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(_not_toml(text, str(error))) from error
    except RecursionError:
        raise ConfigError("invalid TOML: it is nested too deeply") from None
    except ValueError:  # of int(), which does not name its text
        digits = sys.get_int_max_str_digits()
        raise ConfigError(f"invalid TOML: a number has more than {digits} digits") from None


def _not_toml(text: str, said: str) -> str:
    """Return the parser's message, or for a repeated key a message with the key's name and line."""
    if not said.startswith("Cannot overwrite a value"):
        return f"invalid TOML: {said.replace(_END, f'at line {_last_line(text)}, the last one')}"
    place = _LINE.search(said)
    lines = text.rstrip().splitlines()
    number = int(place[1]) if place else len(lines)
    name = lines[number - 1].partition("=")[0].strip()
    return f"{name} is given twice, the second time in line {number}; remove one"


def _last_line(text: str) -> int:
    return max(len(text.rstrip().splitlines()), 1)


def statements(text: str) -> Iterator[Statement]:
    """Yield the statements of a document, of which any may be invalid."""
    lines, at, table = text.splitlines(), 0, ""
    while at < len(lines):
        line, first = lines[at], at
        stripped = line.strip()
        column = len(line) - len(line.lstrip()) + 1
        at += 1
        if not stripped or stripped.startswith("#"):
            continue
        values, count = _parsed(lines[first : first + _LINES_MAX])
        at += count - 1
        if stripped.startswith("["):
            table = "?" if values is None else ".".join(_names(values))
            yield Statement(first + 1, column, stripped, table, None if values is None else {})
        else:
            flat = None if values is None else _flat(values)
            yield Statement(first + 1, column, stripped, table, flat)


def _parsed(lines: list[str]) -> tuple[dict[str, Any] | None, int]:
    """Return the statement at the start of these lines, None if it is invalid, and the number of its lines."""
    may_continue = any(mark in lines[0] for mark in ('"""', "'''", "[", "{"))
    for count in range(1, len(lines) + 1 if may_continue else 2):
        try:
            return tomllib.loads("\n".join(lines[:count])), count
        except tomllib.TOMLDecodeError:
            continue
    return None, 1


def _names(values: Mapping[str, Any] | list[Any]) -> Iterator[str]:
    """Yield the parts of the name of a table header."""
    found: Any = values[0] if isinstance(values, list) and values else values
    for name, inner in found.items() if isinstance(found, Mapping) else ():
        yield name
        yield from _names(inner)


def _flat(values: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            found |= _flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found


def place_of(text: str, message: str) -> str:
    """Return the line and column of the key or table of a document that a message names first; "" if it names none.

    Of several statements that set the key, the one with a value in the message is taken.
    """
    words = _WORD.findall(message)
    found = []
    for one in statements(text):
        names = [one.table] if one.values == {} else one.names
        names = [*names, *(name.partition(".")[2] for name in names)]
        names += [name.partition(".")[2] for name in names]
        names += [own for name in names if (own := _KEY_OF_LISTENER.sub("", name)) != name]
        ranks = [words.index(name) for name in names if name and name in words]
        if ranks:
            shown = any(_shows(message, value) for value in (one.values or {}).values())
            found.append((min(ranks), not shown, one.line, one.column))
    if not found:
        return ""
    *_, line, column = min(found)
    return f"line {line}, column {column}"


def _shows(message: str, value: object) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(repr(value))}(?!\w)", message) is not None


def table_of(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a table of the document, {} if it is missing. Raises ConfigError if it is not a table."""
    section = document.get(name, {})
    if not isinstance(section, dict):
        raise ConfigError(f"{name} must be a table: [{name}]")
    return section
