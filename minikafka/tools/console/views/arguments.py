"""What an action of the console is: its arguments and their checks, its command, and what it does."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from minikafka.tools.console.errors import invalid

BROKER: Final = "broker"
TOPIC: Final = "topic"
PARTITION: Final = "partition"
INTEGER: Final = "integer"
CHOICE: Final = "choice"
TEXT: Final = "text"
SCRIPT: Final = "script"
"""The text of a file, which the page lets its user choose or write."""
RUN_S: Final = 90
"""Time for a command."""
ZOOKEEPER: Final = "zookeeper"
_NUMBER: Final = re.compile(r"[0-9]{1,18}")

Values = Mapping[str, str]
"""The arguments of one request; those that are not given are ""."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of an action. `label`: what the page calls it. `values`: those that it may have."""

    name: str
    kind: str
    label: str = ""
    required: bool = True
    values: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the argument for the page's forms."""
        found = {
            "name": self.name,
            "kind": self.kind,
            "label": self.label or self.name.replace("_", " "),
            "required": self.required,
        }
        return {**found, "values": list(self.values)} if self.values else found

    def check(self, text: str) -> str:
        """Return the value. Raises RequestRefused for a wrong one."""
        if not text:
            if self.required:
                raise invalid(f"the action needs the argument {self.name}")
            return ""
        if self.kind == BROKER and text.lower() != ZOOKEEPER and not _NUMBER.fullmatch(text):
            raise invalid(f"{self.name}={text!r} is neither the id of a broker nor zookeeper")
        if self.kind in (INTEGER, PARTITION) and not _NUMBER.fullmatch(text):
            raise invalid(f"{self.name}={text!r} is not a number from 0 on")
        if self.kind == CHOICE and text not in self.values:
            raise invalid(f"{self.name}={text!r} is not one of {', '.join(self.values)}")
        if self.kind == TOPIC and text.startswith("-"):
            raise invalid(f"{self.name}={text!r} begins like an option: use the command line")
        return text


@dataclass(frozen=True, slots=True)
class Action:
    """One action.

    `words(values)`: its command without the options that name the cluster. `effects(values)`: sentences about what it
    does. `plan(values)`: the command that plans it; None without one. `input(values)`: what the command reads from
    standard input; the command that plans it reads the same. `on_machine`: it works on processes of this machine.
    `needs_faults`: only on a cluster that was started with faults. `limit_s`: time for its command.
    """

    name: str
    arguments: tuple[Argument, ...]
    words: Callable[[Values], Sequence[str]]
    effects: Callable[[Values], Sequence[str]]
    plan: Callable[[Values], Sequence[str] | None] = lambda _: None
    input: Callable[[Values], str] = lambda _: ""
    on_machine: bool = False
    needs_faults: bool = False
    is_dangerous: bool = False
    limit_s: float = RUN_S

    def values(self, given: object) -> Values:
        """Return the checked arguments of a request. Raises RequestRefused."""
        if not isinstance(given, Mapping):
            raise invalid("arguments must be an object")
        known = {argument.name: argument for argument in self.arguments}
        if unknown := [name for name in given if name not in known]:
            raise invalid(
                f"{self.name} has no argument {unknown[0]}: it has {', '.join(known) or 'none'}"
            )
        return {
            name: argument.check(_text(name, given.get(name))) for name, argument in known.items()
        }


def _text(name: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise invalid(f"the argument {name} must be a text or a number")
    return str(value) if isinstance(value, str) and name in ("key", "value") else str(value).strip()
