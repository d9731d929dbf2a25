"""Options of Kafka's tools: `--NAME VALUE` or `--NAME=VALUE`, without abbreviations, also several times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from minikafka.base.errors import MinikafkaError

COMMON_FLAGS: Final = "help version"


@dataclass(frozen=True, slots=True)
class Arguments:
    """The options of one call. `given`: name, without dashes → its values, none for a flag."""

    words: tuple[str, ...]
    given: Mapping[str, list[str]] = field(default_factory=dict)
    rest: tuple[str, ...] = ()

    def has(self, name: str) -> bool:
        """True if the option was given."""
        return name in self.given

    def value(self, name: str, default: str | None = None) -> str | None:
        """Return the only value of an option, else `default`. Raises MinikafkaError for several values."""
        found = self.given.get(name, [])
        if len(found) > 1:
            text = f"Found multiple arguments for option {name}, but you asked for only one"
            raise MinikafkaError(text)
        return found[0] if found else default

    def required(self, name: str) -> str:
        """Return the only value of an option. Raises MinikafkaError without it."""
        found = self.value(name)
        if found is None:
            raise MinikafkaError(f'Missing required argument "[{name}]"')
        return found

    def number(self, name: str, default: int | None = None) -> int | None:
        """Return the value of an option as a number. Raises MinikafkaError if it is none."""
        text = self.value(name)
        if text is None:
            return default
        try:
            return int(text)
        except ValueError:
            raise MinikafkaError(f"Cannot parse argument '{text}' of option {name}") from None

    def values(self, name: str) -> list[str]:
        """Return all values of an option, in order."""
        return self.given.get(name, [])

    def words_of(self, name: str) -> list[str]:
        """Return the words of an option whose values are lists separated by commas."""
        return [word.strip() for text in self.values(name) for word in text.split(",") if word]

    def only_one_of(self, names: Sequence[str]) -> str:
        """Return the action that was given. Raises MinikafkaError for none, and for several."""
        found = [name for name in names if self.has(name)]
        if len(found) != 1:
            actions = ", ".join(f"--{name}" for name in names)
            raise MinikafkaError(f"Command must include exactly one action: {actions}")
        return found[0]


class Names(NamedTuple):
    """The names of the options of a tool, by the number of their values: none, one, none or one, and any number."""

    flags: Sequence[str] = ()
    values: Sequence[str] = ()
    optional: Sequence[str] = ()
    lists: Sequence[str] = ()


def parse(words: Sequence[str], names: Names, *, has_rest: bool = False) -> Arguments:
    """Return the options in `words`. `has_rest`: words that are no options are allowed.

    Raises MinikafkaError for an unknown option, and for a word or value that is missing or too much.
    """
    given: dict[str, list[str]] = {}
    rest: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            if not has_rest:
                raise MinikafkaError(f"{word} is not an option: options begin with --")
            rest.append(word)
            continue
        found = [value] if equals else _values(name, names, left)
        if name not in (*names.values, *names.optional, *names.lists, *names.flags) or (
            equals and name in names.flags
        ):
            raise MinikafkaError(f"{word.partition('=')[0]} is not a recognized option")
        if name in names.values and not found:
            raise MinikafkaError(f"Option {name} requires an argument")
        given.setdefault(name, []).extend(found)
    return Arguments(tuple(words), given, tuple(rest))


def _values(name: str, names: Names, left: list[str]) -> list[str]:
    """Take the values of an option from the words after it."""
    if name in names.values:
        return [left.pop(0)] if left else []
    if name not in (*names.optional, *names.lists):
        return []
    found: list[str] = []
    while left and not left[0].startswith("--") and not (found and name in names.optional):
        found.append(left.pop(0))
    return found
