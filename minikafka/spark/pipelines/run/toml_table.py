"""One table of a TOML file, read strictly: errors name the file, the table, the key and what is allowed."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from minikafka.base.config.keys import INT_MAX, flatten
from minikafka.base.errors import ConfigError


class TomlTable:
    """The keys of a TOML table. `where`: the names of the file and the table, for error messages.

    The caller reads all known keys and then calls `finish` or `options`, which reject unknown keys.
    """

    def __init__(self, where: str, values: Any) -> None:
        if not isinstance(values, Mapping):
            raise ConfigError(f"{where} must be a table of keys, not {kind_of(values)}")
        self.where = where
        self.values: Mapping[str, Any] = values
        self._read: dict[str, None] = {}
        """The keys that were read so far, in the order in which they were read."""

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def error(self, text: str) -> ConfigError:
        """Return an error about this table."""
        return ConfigError(f"{self.where}: {text}")

    def optional(self, key: str) -> str | None:
        """Return the string value of a key; None if the key is missing."""
        self._read[key] = None
        if key not in self.values:
            return None
        value = self.values[key]
        if not isinstance(value, str) or not value.strip():
            raise self.error(f"{key} must be a string, not {shown(value)}")
        return value

    def text(self, key: str) -> str:
        """Return the string value of a required key."""
        found = self.optional(key)
        if found is None:
            raise self.error(f"{key} is missing")
        return found

    def choice(self, key: str, allowed: Collection[str], default: str | None = None) -> str:
        """Return the value of a key, one of the allowed words. The key is required if there is no default."""
        if default is not None and key not in self.values:
            self._read[key] = None
            return default
        if key not in self.values:
            raise self.error(f"{key} is missing: it must be {_either(allowed)}")
        value = self.values[key]
        self._read[key] = None
        if value not in allowed:
            raise self.error(f"{key} must be {_either(allowed)}, not {shown(value)}")
        return str(value)

    def positive(self, key: str, default: int) -> int:
        """Return the value of a key, a whole number from 1 to 2147483647; `default` if the key is missing."""
        self._read[key] = None
        value = self.values.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= INT_MAX:
            raise self.error(
                f"{key} must be a whole number from 1 to {INT_MAX}, not {shown(value)}"
            )
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the value of a key, which is a string or a list of strings, as a tuple; () if the key is missing."""
        self._read[key] = None
        value = self.values.get(key, [])
        found = [value] if isinstance(value, str) else value
        if not isinstance(found, list) or not all(isinstance(one, str) and one for one in found):
            raise self.error(f"{key} must be a string or a list of strings, not {shown(value)}")
        return tuple(found)

    def table(self, key: str) -> TomlTable | None:
        """Return the table that a key contains; None if the key is missing."""
        self._read[key] = None
        if key not in self.values:
            return None
        value = self.values[key]
        if not isinstance(value, Mapping):
            raise self.error(f"{key} must be a table of keys, not {kind_of(value)}")
        return TomlTable(f"{self.where} {key}", value)

    def mapping(self, key: str) -> dict[str, str]:
        """Return the table that a key contains, with its values as texts; {} if the key is missing."""
        found = self.table(key)
        return (
            {name: found._option(name, one) for name, one in found.values.items()} if found else {}
        )

    def tables(self, key: str) -> list[Any]:
        """Return the list of tables of a key (`[[key]]`). Empty if the key is missing."""
        self._read[key] = None
        value = self.values.get(key, [])
        if not isinstance(value, list):
            raise self.error(f"{key} must be a list of tables: write [[{key}]] before each")
        return value

    def options(self, allowed: Collection[str]) -> dict[str, str]:
        """Return Spark's options: all keys that were not read yet, spelled as in `allowed`.

        Upper and lower case are not distinguished. TOML parses an unquoted `kafka.x.y` as nested tables, so
        nested names are joined by dots. Raises ConfigError for a key that is not in `allowed`.
        """
        names = {name.lower(): name for name in allowed}
        found = {}
        for name, value in self._unread(names):
            if name.lower() not in names:
                raise self._unknown(name, (*self._read, *allowed))
            found[names[name.lower()]] = self._option(name, value)
        return found

    def texts_by_key(self) -> dict[str, str]:
        """Return all keys of the table as texts. Nested names are joined by dots."""
        return {name: self._option(name, value) for name, value in flatten(self.values).items()}

    def finish(self) -> None:
        """Raise ConfigError if the table has a key that was not read."""
        for name, _ in self._unread({}):
            raise self._unknown(name, tuple(self._read))

    def _unread(self, whole: Collection[str]) -> Iterator[tuple[str, object]]:
        for key, value in self.values.items():
            if key in self._read:
                continue
            begins_others = any(name.startswith(f"{key.lower()}.") for name in whole)
            if isinstance(value, Mapping) and (begins_others or key.lower() not in whole):
                yield from flatten({key: value}).items()
            else:
                yield key, value

    def _option(self, name: str, value: object) -> str:
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, str | int):
            return str(value)
        if isinstance(value, Mapping):
            return json.dumps(value, default=str)
        raise self.error(
            f"{name} must be a string, a whole number, true or false, not {kind_of(value)}"
        )

    def _unknown(self, name: str, known: Collection[str]) -> ConfigError:
        lowered = {one.lower(): one for one in known}
        if near := difflib.get_close_matches(name.lower(), lowered, n=1):
            return self.error(f"unknown key {name}: did you mean {lowered[near[0]]}?")
        return self.error(f"unknown key {name}: known keys are {', '.join(known)}")


def kind_of(value: object) -> str:
    """Return the kind of a TOML value for an error message that must not show the value: it may have a secret."""
    kinds = {str: "a string", list: "a list", bool: "a boolean", int: "a number", float: "a float"}
    return "a table" if isinstance(value, Mapping) else kinds.get(type(value), "a time")


def shown(value: object) -> str:
    """Return a TOML value as text for an error message."""
    text = json.dumps(value, default=str)
    return f"the table {text}" if isinstance(value, Mapping) else text


def _either(words: Collection[str]) -> str:
    return " or ".join(f'"{word}"' for word in words)
