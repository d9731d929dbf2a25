"""Texts in TOML: what the parser gives, and what is wrong with a text in words that name the place.

Invariant: a text that is no TOML is a ConfigError of one line.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any, Final

from minikafka.base.errors import ConfigError

_LINE: Final = re.compile(r"at line ([0-9]+)")


def read_toml(text: str) -> dict[str, Any]:
    """The document. Raises ConfigError."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(_not_toml(text, str(error))) from error


def _not_toml(text: str, said: str) -> str:
    """What the parser said, but for a key that is given twice: that is told by its name and line."""
    if not said.startswith("Cannot overwrite a value"):
        return f"not TOML: {said}"
    place = _LINE.search(said)
    lines = text.rstrip().splitlines()
    number = int(place[1]) if place else len(lines)
    name = lines[number - 1].partition("=")[0].strip()
    return f"{name} is given twice, the second time in line {number}: leave one out"


def table_of(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A table of the document, empty when it is not there. Raises ConfigError when that is no table."""
    section = document.get(name, {})
    if not isinstance(section, dict):
        raise ConfigError(f"{name} is a table: [{name}]")
    return section
