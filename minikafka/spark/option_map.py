"""Parsing of Spark's option map: names in upper or lower case, default values, and errors that name the option.

Invariant: an option that is not in the table of options raises `ConfigError`. So no option is silently
ignored.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final, TypeAlias

from minikafka.base.errors import ConfigError

Address: TypeAlias = tuple[str, int]

SERVERS: Final = "kafka.bootstrap.servers"
_BOOLEANS: Final = {"true": True, "false": False}
_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1


class OptionMap:
    """The options that the user gave, and the defaults of all other options."""

    def __init__(
        self,
        given: Mapping[str, str],
        defaults: Mapping[str, str | None],
        refused: Mapping[str, str],
    ) -> None:
        """Check the names of the user's options. Raises `ConfigError` for an unknown or refused name.

        `refused`: lower-case names of options that only Spark's Kafka connector has, each with the reason why
        this data source does not support the option.
        """
        lowered = {name.lower(): value for name, value in given.items()}
        names = {name.lower(): name for name in defaults}
        for name in lowered.keys() - names.keys():
            raise ConfigError(_unknown(name, names, refused))
        self._given = {names[name] for name in lowered}
        self._text = {name: lowered.get(name.lower(), text) for name, text in defaults.items()}

    def given(self, name: str) -> bool:
        """True if the user gave the option."""
        return name in self._given

    def optional(self, name: str) -> str | None:
        """Return the option's text without surrounding spaces; None if the option is missing or blank."""
        return (self._text[name] or "").strip() or None

    def text(self, name: str) -> str:
        """Return the text of a required option. Raises `ConfigError` if the option is missing or blank."""
        if found := self.optional(name):
            return found
        raise ConfigError(f"option {name} must be given")

    def boolean(self, name: str) -> bool:
        """Return the option as a boolean. Raises `ConfigError` if the text is not true or false."""
        value = self.text(name).lower()
        if value not in _BOOLEANS:
            raise ConfigError(f"option {name} must be true or false, not {value!r}")
        return _BOOLEANS[value]

    def choice(self, name: str, *words: str) -> str:
        """Return the option's text in lower case. Raises `ConfigError` if the text is not in `words`."""
        value = self.text(name).lower()
        if value not in words:
            raise ConfigError(f"option {name} must be {' or '.join(words)}, not {value!r}")
        return value

    def positive(self, name: str, most: int = _INT_MAX) -> int:
        """Return the option as a whole number from 1 to `most`."""
        return _positive(name, self.text(name), most)

    def optional_positive(self, name: str) -> int | None:
        """Return the option as a whole number from 1 to 2^63 - 1; None if the option is missing or blank."""
        value = self.optional(name)
        return None if value is None else _positive(name, value, _LONG_MAX)

    def servers(self) -> tuple[Address, ...]:
        """Return the bootstrap servers as (host, port)."""
        value = self.text(SERVERS)
        found = []
        for entry in filter(None, (part.strip() for part in value.split(","))):
            host, _, port = entry.rpartition(":")
            if not host or not port.isdecimal() or not 0 < int(port) < 65536:
                raise ConfigError(f"option {SERVERS}: {entry!r} is not host:port")
            found.append((host.strip("[]"), int(port)))
        if not found:
            raise ConfigError(f"option {SERVERS} names no broker: {value!r}")
        return tuple(found)


def _positive(name: str, value: str, most: int) -> int:
    if not (value.isascii() and value.isdecimal()) or not 0 < int(value) <= most:
        raise ConfigError(f"option {name} must be a whole number from 1 to {most}, not {value!r}")
    return int(value)


def _unknown(name: str, names: Mapping[str, str], refused: Mapping[str, str]) -> str:
    if name in refused:
        return f"option {name} of Spark's Kafka connector is not supported: {refused[name]}"
    if near := difflib.get_close_matches(name, names, n=1):
        return f"unknown option {name}: did you mean {names[near[0]]}?"
    return f"unknown option {name}: supported options are {', '.join(names.values())}"
