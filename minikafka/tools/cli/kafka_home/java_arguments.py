"""The arguments of a Java process of Kafka: options of the virtual machine, the class, and the arguments of the class.

A script of a Kafka distribution makes them from environment variables such as KAFKA_OPTS and KAFKA_HEAP_OPTS. Only
system properties (`-DNAME=VALUE`) have an effect: there is no virtual machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

_WITH_VALUE: Final = ("-cp", "-classpath", "--class-path", "-jar")
_PROPERTY: Final = "-D"


class JavaArguments(NamedTuple):
    """The system properties, the name of the class, "" if there is none, and the arguments of the class."""

    properties: dict[str, str]
    main_class: str
    arguments: list[str]


def parse_java_arguments(words: Sequence[str]) -> JavaArguments:
    """Return the parts of the arguments of `java`. Of two properties with one name the last one counts."""
    properties: dict[str, str] = {}
    at = 0
    while at < len(words) and words[at].startswith("-"):
        word = words[at]
        if word.startswith(_PROPERTY):
            name, _, value = word.removeprefix(_PROPERTY).partition("=")
            properties[name] = value
        at += 2 if word in _WITH_VALUE else 1
    rest = list(words[at:])
    return JavaArguments(properties, rest[0] if rest else "", rest[1:])
