"""TOML parsing with one-line errors that name the place of the mistake.

Invariant: invalid TOML raises ConfigError with a text of one line.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any, Final

from minikafka.base.errors import ConfigError

_LINE: Final = re.compile(r"at line ([0-9]+)")


def read_toml(text: str) -> dict[str, Any]:
    """Parse a TOML document. Raises ConfigError."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(_not_toml(text, str(error))) from error


def _not_toml(text: str, said: str) -> str:
    """Return the parser's message, or for a repeated key a message with the key's name and line."""
    if not said.startswith("Cannot overwrite a value"):
        return f"invalid TOML: {said}"
    place = _LINE.search(said)
    lines = text.rstrip().splitlines()
    number = int(place[1]) if place else len(lines)
    name = lines[number - 1].partition("=")[0].strip()
    return f"{name} is given twice, the second time in line {number}; remove one"


def table_of(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a table of the document, {} if it is missing. Raises ConfigError if it is not a table."""
    section = document.get(name, {})
    if not isinstance(section, dict):
        raise ConfigError(f"{name} must be a table: [{name}]")
    return section
