"""Kafka's configuration keys as fields of frozen dataclasses: the class body is the table of keys.

A field named `log_segment_bytes` is the key `log.segment.bytes` (Kafka's names contain no
underscores); its type, default, bounds and documentation are next to it. Invariant: a value
returned by `Key.parse` has the key's kind and is within its bounds.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from typing import Any, Final

from minikafka.base.errors import ConfigError

_NEAR: Final = 0.7
"""The error for an unknown name suggests the most similar known name if their similarity is at least this."""
_FEW: Final = 5
"""If no known name is similar, and there are at most this many known names, the error lists all known names."""
INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1


class ConfigType(IntEnum):
    """Types of keys, with the numbers of DescribeConfigs (KIP-569)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


_WHOLE_NUMBERS: Final = {ConfigType.INT: INT_MAX, ConfigType.LONG: LONG_MAX}


@dataclass(frozen=True, slots=True)
class Key:
    """One configuration key: its type, default, bounds and documentation.

    `low` and `high`: the bounds of a number. For a STRING or PASSWORD with a value, `low` is the minimum length.
    `excluded`: a number between the bounds that is not allowed. `choices`: the allowed words of a STRING or LIST.
    `form`: the pattern that a STRING or each word of a LIST must match; the list `*` is also allowed.

    `synonyms`: for a topic key, the broker keys that can provide its default. The first broker key that is set
    provides the default. Each broker key has a factor, which converts the value to the topic key's unit.

    `waits_for`: the feature that the key needs and minikafka does not have. Such a key is checked, stored and
    shown, but has no effect. For all other keys, `waits_for` is empty.

    `mode`: the only coordination mode that reads the key; "" if both modes read it.
    """

    kind: ConfigType
    default: Any
    doc: str
    low: float | None = None
    high: float | None = None
    excluded: int | None = None
    choices: tuple[str, ...] = ()
    form: str = ""
    synonyms: tuple[tuple[str, int], ...] = ()
    waits_for: str = ""
    mode: str = ""
    name: str = ""

    @property
    def attribute(self) -> str:
        """The name of the dataclass field: `log.segment.bytes` is `log_segment_bytes`."""
        return self.name.replace(".", "_")

    @property
    def meaning(self) -> str:
        """The documentation, and the coordination mode if only one reads the key."""
        return f"{self.doc} Only the mode {self.mode} reads it." if self.mode else self.doc

    @property
    def sensitive(self) -> bool:
        """True if the value must never be shown."""
        return self.kind in (ConfigType.PASSWORD, ConfigType.UNKNOWN)

    def parse(self, value: object) -> Any:
        """Check and convert a value from TOML, Kafka's text form or ZooKeeper. Raises ConfigError."""
        match self.kind:
            case ConfigType.BOOLEAN:
                return self._boolean(value)
            case ConfigType.INT | ConfigType.LONG | ConfigType.DOUBLE:
                return self._within_bounds(self._number(value))
            case ConfigType.LIST:
                return self._words(value)
            case _:
                return self._text(value)

    def text(self, value: Any) -> str | None:
        """Return the value in Kafka's text form; None if it is unset or secret."""
        if value is None or self.sensitive:
            return None
        match self.kind:
            case ConfigType.BOOLEAN:
                return "true" if value else "false"
            case ConfigType.LIST:
                return ",".join(value)
            case _:
                return str(value)

    def bounds(self) -> str:
        """Describe the allowed values for a person; "" if there is no restriction."""
        if self.choices:
            return ", ".join(choice or "empty" for choice in self.choices)
        if self.kind is ConfigType.STRING and self.form:
            return f"text of the form {self.form}"
        if self.kind in (ConfigType.STRING, ConfigType.PASSWORD):
            return f"a length of at least {self.low}" if self.low is not None else ""
        if self.low is not None and self.high is not None:
            without = "" if self.excluded is None else f" without {self.excluded}"
            return f"{self.low} to {self.high}{without}"
        return f"at least {self.low}" if self.low is not None else ""

    def _boolean(self, value: object) -> bool:
        if isinstance(value, bool):
            return value
        word = value.strip().lower() if isinstance(value, str) else ""
        if word not in ("true", "false"):
            raise self._error(value, "true or false")
        return word == "true"

    def _number(self, value: object) -> int | float:
        convert = float if self.kind is ConfigType.DOUBLE else int
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise self._error(value, "a number")
        if isinstance(value, float) and convert is int:
            raise self._error(value, "a whole number")
        try:
            is_pythonic = isinstance(value, str) and "_" in value  # Kafka does not accept 1_000
            number = None if is_pythonic else convert(value)
        except (ValueError, OverflowError):
            number = None
        if number is None:
            raise self._error(value, "a number" if convert is float else "a whole number")
        return number

    def _within_bounds(self, number: int | float) -> int | float:
        top = _WHOLE_NUMBERS.get(self.kind)
        if top is not None and not -top - 1 <= number <= top:
            raise self._error(number, f"from {-top - 1} to {top}")
        # `not number >= low` refuses NaN; `number < low` would accept NaN.
        if (
            number == self.excluded
            or (self.low is not None and not number >= self.low)
            or (self.high is not None and not number <= self.high)
        ):
            raise self._error(number, self._range())
        return number

    def _words(self, value: object) -> tuple[str, ...]:
        if isinstance(value, str):
            items: Iterable[object] = value.split(",")
        elif isinstance(value, list | tuple):
            items = value
        else:
            raise self._error(value, "a list")
        trimmed = tuple(str(item).strip() for item in items)
        words = tuple(word for word in trimmed if word)
        if self.choices and trimmed != ("",) and not set(trimmed) <= set(self.choices):
            raise self._error(value, f"a list of words from {self.bounds()}")
        if self.form and words != ("*",) and not all(re.fullmatch(self.form, w) for w in words):
            raise self._error(value, f"* or a list of entries that match {self.form}")
        return words

    def _text(self, value: object) -> str:
        if self.choices and value not in self.choices:
            raise self._error(value, f"one of {self.bounds()}")
        if not isinstance(value, str):
            raise self._error(value, "text")
        if self.form and not re.fullmatch(self.form, value):
            raise self._error(value, self.bounds())
        if self.low is not None and len(value) < self.low:
            raise ConfigError(f"{self.name} must have {self.bounds()}")
        return value

    def _range(self) -> str:
        return self.bounds() if self.high is None else f"from {self.low} to {self.high}"

    def _error(self, value: object, allowed: str) -> ConfigError:
        shown = "" if self.sensitive else f", got {value!r}"
        return ConfigError(f"{self.name} must be {allowed}{shown}")


def key(kind: ConfigType, default: Any, doc: str, **rest: Any) -> Any:
    """Return the dataclass field of a configuration key. `rest`: further fields of the `Key`, for example `low`.

    The values of sensitive keys are not in the `repr` of the dataclass.
    """
    row = Key(kind, default, doc, **rest)
    return field(default=default, repr=not row.sensitive, metadata={"key": row})


def first_set(values: Mapping[str, Any], synonyms: Iterable[tuple[str, int]]) -> Any:
    """Return the first of `values` that is set, times its factor; None if no value is set.

    `synonyms`: (name, factor) in order of precedence. A negative value, such as -1 for "no limit", is not multiplied.
    """
    for name, factor in synonyms:
        value = values[name]
        if value is not None:
            return value * factor if factor != 1 and value >= 0 else value
    return None


def table(cls: Any) -> dict[str, Key]:
    """Return the keys of a config dataclass by Kafka name: in the order of the class body, then the inherited ones."""
    rows = {}
    for item in sorted(fields(cls), key=lambda item: item.name not in cls.__annotations__):
        if "key" in item.metadata:
            name = item.name.replace("_", ".")
            rows[name] = replace(item.metadata["key"], name=name)
    return rows


def parse_all(keys: Mapping[str, Key], values: Mapping[str, object]) -> dict[str, Any]:
    """Return the checked values by attribute name. Raises ConfigError for the first invalid key or
    value.
    """
    parsed = {}
    for name, value in values.items():
        row = keys.get(name)
        if row is None:
            raise unknown_key(name, keys)
        parsed[row.attribute] = row.parse(value)
    return parsed


def usable(
    keys: Mapping[str, Key], values: Mapping[str, str]
) -> tuple[dict[str, str], list[ConfigError]]:
    """Return the valid entries of `values`, and a ConfigError for each invalid entry."""
    kept, faults = {}, []
    for name, value in values.items():
        try:
            parse_all(keys, {name: value})
        except ConfigError as fault:
            faults.append(fault)
        else:
            kept[name] = value
    return kept, faults


def unknown_key(name: str, known: Iterable[str], subject: str = "unknown key") -> ConfigError:
    """Return the error for an unknown key, with the most similar known key if there is one. `subject` begins it."""
    names = list(known)
    nearest = difflib.get_close_matches(name, names, n=1, cutoff=_NEAR)
    if nearest:
        advice = f"did you mean {nearest[0]}?"
    elif len(names) <= _FEW:
        advice = f"known keys are {', '.join(names)}"
    else:
        advice = "docs/configuration.md lists all keys"
    return ConfigError(f"{subject} {name}; {advice}")


def flatten(values: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Return TOML's nested tables as one mapping with dotted names, such as `log.segment.bytes`.

    Raises ConfigError for a name that occurs twice, once quoted and once as nested tables.
    """
    flat: dict[str, object] = {}
    for name, value in values.items():
        full = prefix + name
        found = flatten(value, f"{full}.") if isinstance(value, Mapping) else {full: value}
        for twice in found.keys() & flat.keys():
            raise ConfigError(f"{twice} is given twice, once in quotes; remove one")
        flat.update(found)
    return flat
