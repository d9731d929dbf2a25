"""The ledgers that brokers left on disk, read back; also while they are being written, or after a crash.

Invariant: of one broker the lines come in the order of writing; of several in the order of time, but none
before what led to it: no effect before its request, no answer before the effect. What cannot be
understood (the last line of a process that was killed) is left out.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from minikafka.ledger.record import (
    ANSWER,
    DECISION,
    EFFECT,
    ISR,
    LOST,
    REQUEST,
    RESPONSE,
    STEP,
    WRITE,
)
from minikafka.ledger.writer import number_of

Line: TypeAlias = dict[str, Any]
_ABOUT_PARTITIONS: Final = tuple(
    f'"kind":"{kind}"'.encode() for kind in (ANSWER, DECISION, ISR, REQUEST, STEP, WRITE)
)


def read(directory: str | Path, mentioning: str = "") -> list[Line]:
    """The lines in one broker's ledger directory; none when there is no such directory.

    `mentioning` a topic: of the lines that are about partitions only those that name it.
    """
    folder = Path(directory)
    if not folder.is_dir():
        return []
    files = [(number_of(path.name), path) for path in folder.iterdir()]
    lines: list[Line] = []
    for _, path in sorted((number, path) for number, path in files if number is not None):
        try:
            data = path.read_bytes()
        except FileNotFoundError:  # the writer has just removed it
            continue
        lines += _understood(data, _mentions(mentioning))
    return lines


def _mentions(topic: str) -> tuple[bytes, ...]:
    """How a line names a topic: as a text, or within or at the end of a path."""
    return tuple(f"{a}{topic}{b}".encode() for a, b in ('""', "//", '/"')) if topic else ()


def _understood(data: bytes, mentions: tuple[bytes, ...]) -> Iterator[Line]:
    for text in data.splitlines():
        if (
            mentions
            and any(kind in text for kind in _ABOUT_PARTITIONS)
            and not any(mention in text for mention in mentions)
        ):
            continue
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and "kind" in line:
            yield line


def read_all(directories: Iterable[str | Path], mentioning: str = "") -> list[Line]:
    """The lines of several brokers, merged."""
    return merged([read(directory, mentioning) for directory in directories])


def merged(ledgers: Sequence[Sequence[Line]]) -> list[Line]:
    """The lines of several brokers, each in its order of writing, as one history."""
    order = _Order(ledgers)
    heads = [0] * len(ledgers)
    history: list[Line] = []
    while True:
        waiting = [i for i, ledger in enumerate(ledgers) if heads[i] < len(ledger)]
        if not waiting:
            return history
        ready = [i for i in waiting if order.may_come(ledgers[i][heads[i]])]
        first = min(ready or waiting, key=lambda i: (ledgers[i][heads[i]]["time"], i))
        line = ledgers[first][heads[first]]
        heads[first] += 1
        order.came(line)
        history.append(line)


class _Order:
    """Which lines have to wait for which: counted per request, because it may be sent and told more than once."""

    def __init__(self, ledgers: Sequence[Sequence[Line]]) -> None:
        self._total = Counter(key for ledger in ledgers for key in map(_key, ledger) if key)
        self._came: Counter[tuple[Any, ...]] = Counter()

    def may_come(self, line: Line) -> bool:
        """Whether no line that led to this one is still to come."""
        cause = _cause_of(line)
        if cause is None:
            return True
        next_one = self._came[(line["kind"], *cause[1:])] + 1
        return self._came[cause] >= min(next_one, self._total[cause])

    def came(self, line: Line) -> None:
        key = _key(line)
        if key:
            self._came[key] += 1


_CAUSES: Final = {EFFECT: REQUEST, RESPONSE: EFFECT}


def _key(line: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Names what was sent, done or answered; None for lines that nothing waits for and that wait for nothing."""
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
    """The broker that a request is for."""
    names = {REQUEST: "to", EFFECT: "broker", RESPONSE: "from"}
    return int(line[names[line["kind"]]])


def name_of(line: Mapping[str, Any]) -> str:
    """How a line is referred to: `2#417` is line 417 of broker 2."""
    return f"{line['broker']}#{line['n'] if line['kind'] != LOST else 'lost'}"
