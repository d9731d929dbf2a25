"""Reading of ledgers from disk, also while brokers write them or after a crash.

Invariant: lines of one broker keep the order of writing. Lines of several brokers are merged by time, but
causes come first: no effect before its request, no response before its effect. A line that is not valid
JSON (the last one of a process that was killed) is skipped.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from minikafka.ledger.record import (
    ANSWER,
    DECISION,
    EFFECT,
    GROUP,
    ISR,
    LOST,
    REQUEST,
    RESPONSE,
    STEP,
    WRITE,
)
from minikafka.ledger.writer import number_of

Line: TypeAlias = dict[str, Any]
_ABOUT_GROUP: Final = f'"kind":"{GROUP}"'.encode()
_ABOUT_PARTITIONS: Final = tuple(
    f'"kind":"{kind}"'.encode() for kind in (ANSWER, DECISION, ISR, REQUEST, STEP, WRITE)
)


def read(directory: str | Path, mentioning: str = "") -> list[Line]:
    """Return the lines in one broker's ledger directory; [] if it does not exist.

    `mentioning`: a topic; lines about partitions that do not name this topic are skipped.
    """
    mentions = _mentions(mentioning)

    def is_wanted(text: bytes) -> bool:
        return (
            not mentions
            or not any(kind in text for kind in _ABOUT_PARTITIONS)
            or any(mention in text for mention in mentions)
        )

    return _lines_in(directory, is_wanted)


def read_group(directories: Iterable[str | Path], group: str) -> list[Line]:
    """Return what the ledgers of several brokers say about a consumer group, as one history."""
    name = f'"group":{json.dumps(group)}'.encode()

    def is_wanted(text: bytes) -> bool:
        return name in text and _ABOUT_GROUP in text

    return merged([_lines_in(directory, is_wanted) for directory in directories])


def _lines_in(directory: str | Path, is_wanted: Callable[[bytes], bool]) -> list[Line]:
    """Return the wanted lines of one broker's ledger directory, in the order of writing."""
    folder = Path(directory)
    if not folder.is_dir():
        return []
    files = [(number_of(path.name), path) for path in folder.iterdir()]
    lines: list[Line] = []
    for _, path in sorted((number, path) for number, path in files if number is not None):
        try:
            data = path.read_bytes()
        except FileNotFoundError:  # the writer has removed this file meanwhile
            continue
        lines += _parsed_lines(filter(is_wanted, data.splitlines()))
    return lines


def _mentions(topic: str) -> tuple[bytes, ...]:
    """Return the byte strings by which a line can name a topic: a JSON string, or parts of a path."""
    return tuple(f"{a}{topic}{b}".encode() for a, b in ('""', "//", '/"')) if topic else ()


def _parsed_lines(texts: Iterable[bytes]) -> Iterator[Line]:
    for text in texts:
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(line, dict) and "kind" in line:
            yield line


def read_all(directories: Iterable[str | Path], mentioning: str = "") -> list[Line]:
    """Read the ledgers of several brokers and return their lines as one history."""
    return merged([read(directory, mentioning) for directory in directories])


def merged(ledgers: Sequence[Sequence[Line]]) -> list[Line]:
    """Merge the lines of several brokers by time, except that each line follows the lines that caused it."""
    order = _Order(ledgers)
    heads = [0] * len(ledgers)
    history: list[Line] = []
    while True:
        waiting = [i for i, ledger in enumerate(ledgers) if heads[i] < len(ledger)]
        if not waiting:
            return history
        ready = [i for i in waiting if order.may_follow(ledgers[i][heads[i]])]
        first = min(ready or waiting, key=lambda i: (ledgers[i][heads[i]]["time"], i))
        line = ledgers[first][heads[first]]
        heads[first] += 1
        order.add(line)
        history.append(line)


class _Order:
    """The causal order of lines. Lines are counted by request, as a request may be sent more than once."""

    def __init__(self, ledgers: Sequence[Sequence[Line]]) -> None:
        self._total = Counter(key for ledger in ledgers for key in map(_key, ledger) if key)
        self._added: Counter[tuple[Any, ...]] = Counter()

    def may_follow(self, line: Line) -> bool:
        """True if every line that caused this one is already part of the history."""
        cause = _cause_of(line)
        if cause is None:
            return True
        number = self._added[(line["kind"], *cause[1:])] + 1
        return self._added[cause] >= min(number, self._total[cause])

    def add(self, line: Line) -> None:
        key = _key(line)
        if key:
            self._added[key] += 1


_CAUSES: Final = {EFFECT: REQUEST, RESPONSE: EFFECT}


def _key(line: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Return the identity of a request, completed effect or response.

    None for other lines, and for the later parts of a line that was split.
    """
    kind = line["kind"]
    if line.get("part", 1) != 1 or kind not in (REQUEST, EFFECT, RESPONSE):
        return None
    if kind == EFFECT and line["phase"] != "completed":
        return None
    return (kind, line["cause"], _broker_of(line), line["request"])


def _cause_of(line: Mapping[str, Any]) -> tuple[Any, ...] | None:
    kind = line["kind"]
    if kind not in _CAUSES:
        return None
    return (_CAUSES[kind], line["cause"], _broker_of(line), line["request"])


def _broker_of(line: Mapping[str, Any]) -> int:
    """Return the id of the broker to which the line's request was sent."""
    names = {REQUEST: "to", EFFECT: "broker", RESPONSE: "from"}
    return int(line[names[line["kind"]]])


def name_of(line: Mapping[str, Any]) -> str:
    """Return the name of a line: `2#417` is line 417 of broker 2."""
    return f"{line['broker']}#{line['n'] if line['kind'] != LOST else 'lost'}"
