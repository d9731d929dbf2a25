"""Parsing of Spark's option map: names in upper or lower case, default values, and errors that name the option.

Invariant: an option that is in no table of options raises `ConfigError`, and an option without an effect is in
`OptionMap.ignored` with what happens instead. So no option is silently ignored.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Final

from minikafka.base.errors import ConfigError
from minikafka.base.known_cluster import Address
from minikafka.spark import client_settings

SERVERS: Final = "kafka.bootstrap.servers"
_BOOLEANS: Final = {"true": True, "false": False}
_WHOLE: Final = re.compile(r"0*[0-9]{1,19}")
"""A number that is not long: Python refuses to convert more than 4,300 digits, even zeros."""
_PORT: Final = re.compile(r"[0-9]{1,5}")
_SHOWN_MAX: Final = 100
_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1
CHECKPOINT: Final = "checkpointLocation"
_OF_SPARK: Final = frozenset({CHECKPOINT.lower(), "queryname"})
"""Lower-case names of options that Spark itself uses but also passes to data sources."""
_PROVIDER: Final = "provider"
"""The property of a table from which `CREATE TABLE … USING` takes the data source."""
_OPTION_OF_TABLE: Final = "option."
"""The prefix that Spark adds to the user's options among the properties of a table."""
_PATH: Final = "the options name the topics"
_PATHS: Final = {"path": _PATH, "paths": _PATH}
"""The argument of `load`, `save` and `start`, which Spark's Kafka connector ignores too."""


class OptionMap:
    """The options that the user gave, and the defaults of all other options."""

    def __init__(
        self,
        given: Mapping[str, str],
        defaults: Mapping[str, str | None],
        refused: Mapping[str, str],
        ignored: Mapping[str, str],
    ) -> None:
        """Check the names of the user's options. Raises `ConfigError` for an unknown or refused name.

        `refused`: lower-case names of options that only Spark's Kafka connector has, each with the reason why
        this data source does not support the option. `ignored`: options that have no effect here, each with
        what happens instead.
        """
        lowered = _of_the_user(given)
        if not lowered:
            raise ConfigError(_NOTHING_GIVEN)
        names = {name.lower(): name for name in (*_PATHS, *ignored, *defaults)}
        effects = {**ignored, **_PATHS}
        self.checkpoint = {name.lower(): text for name, text in given.items()}.get(
            CHECKPOINT.lower()
        )
        """The checkpoint that the user has given to Spark."""
        self.ignored: dict[str, str] = {}
        self._given = set[str]()
        for name, value in lowered.items():
            known = names.get(name, name)
            if client_settings.is_plaintext(name, value):
                self.ignored[name] = client_settings.UNPROTECTED
            elif name in refused or known not in (*effects, *defaults):
                raise ConfigError(_unknown(name, defaults, names, refused))
            elif known in defaults:
                self._given.add(known)
            else:
                self.ignored[known] = effects[known]
        self._text = {name: lowered.get(name.lower(), text) for name, text in defaults.items()}

    def ignore(self, name: str, instead: str) -> None:
        """Note that an option has no effect in this read or write, if the user gave it."""
        if name in self._given:
            self.ignored[name] = instead

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
        return _whole(name, self.text(name), 1, most)

    def not_negative(self, name: str) -> int:
        """Return the option as a whole number from 0 to 2^63 - 1."""
        return _whole(name, self.text(name), 0, _LONG_MAX)

    def optional_positive(self, name: str) -> int | None:
        """Return the option as a whole number from 1 to 2^63 - 1; None if the option is missing or blank."""
        value = self.optional(name)
        return None if value is None else _whole(name, value, 1, _LONG_MAX)

    def servers(self) -> tuple[Address, ...]:
        """Return the bootstrap servers as (host, port)."""
        value = self.text(SERVERS)
        found = []
        for entry in filter(None, (part.strip() for part in value.split(","))):
            host, _, port = entry.rpartition(":")
            if not host or not _PORT.fullmatch(port) or not 0 < int(port) < 65536:
                raise ConfigError(f"option {SERVERS}: {entry!r} is not host:port")
            found.append((host.strip("[]"), int(port)))
        if not found:
            raise ConfigError(f"option {SERVERS} names no broker: {value!r}")
        return tuple(found)


_NOTHING_GIVEN: Final = (
    f"option {SERVERS} must be given. Spark does not pass the options of CREATE TABLE to queries of the table:"
    f" use CREATE TEMPORARY VIEW, or name the options after the table, as in t WITH ('{SERVERS}' = '…')"
)


def _of_the_user(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options that the user gave, by lower-case name, without those that Spark adds.

    For CREATE TABLE, Spark passes all properties of the table, such as its owner and its comment. Among these,
    the options of the user are those with the prefix `option.`.
    """
    lowered = {name.lower(): value for name, value in given.items()}
    if _PROVIDER in lowered:
        start = len(_OPTION_OF_TABLE)
        lowered = {
            name[start:]: value
            for name, value in lowered.items()
            if name.startswith(_OPTION_OF_TABLE)
        }
    return {name: value for name, value in lowered.items() if name not in _OF_SPARK}


def _whole(name: str, value: str, least: int, most: int) -> int:
    if not _WHOLE.fullmatch(value) or not least <= int(value) <= most:
        raise ConfigError(
            f"option {name} must be a whole number from {least} to {most}, not {value[:_SHOWN_MAX]!r}"
        )
    return int(value)


def _unknown(
    name: str, supported: Iterable[str], names: Mapping[str, str], refused: Mapping[str, str]
) -> str:
    if reason := refused.get(name) or client_settings.unprotected(name):
        return f"option {name} of Spark's Kafka connector is not supported: {reason}"
    if near := difflib.get_close_matches(name, names, n=1):
        return f"unknown option {name}: did you mean {names[near[0]]}?"
    return f"unknown option {name}: supported options are {', '.join(supported)}"
