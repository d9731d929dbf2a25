"""Functions that read ledgers from disk, also while brokers are writing or after a crash.

Invariant: lines of one broker keep the order of writing. Lines of several brokers are merged by time, after the times
of brokers with wrong clocks have been corrected. Whatever the times, an effect follows its request, and a response
follows its effect. A line that is not valid JSON, or does not fit the form of its kind, is
skipped (for example, the last line of a killed process).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from minikafka.broker.ledger.alignment import aligned
from minikafka.broker.ledger.forms import EVERY, misfit
from minikafka.broker.ledger.pages import Wanted
from minikafka.broker.ledger.record import (
    ANSWER,
    DECISION,
    EFFECT,
    GROUP,
    ISR,
    LOST,
    REQUEST,
    RESPONSE,
    STATE_CHANGE,
    STEP,
    WRITE,
)
from minikafka.broker.ledger.writer import number_of

Line: TypeAlias = dict[str, Any]
_ABOUT_GROUP: Final = f'"kind":"{GROUP}"'.encode()
_ABOUT_PARTITIONS: Final = tuple(
    f'"kind":"{kind}"'.encode()
    for kind in (ANSWER, DECISION, ISR, REQUEST, STATE_CHANGE, STEP, WRITE)
)


def read(directory: str | Path, mentioning: str = "") -> list[Line]:
    """Return the lines in one broker's ledger directory; [] if the directory does not exist.

    `mentioning`: name of a topic. If given, a line of a kind in `_ABOUT_PARTITIONS` is returned only if the
    line names the topic.
    """
    return _lines_in(directory, about_topic(mentioning))


def about_topic(topic: str) -> Wanted:
    """Return the test for the lines that `read` returns for a topic; for all lines if it is ""."""
    mentions = _mentions(topic)

    def is_wanted(text: bytes) -> bool:
        return (
            not mentions
            or not any(kind in text for kind in _ABOUT_PARTITIONS)
            or any(mention in text for mention in mentions)
        )

    return is_wanted


def about_group(group: str) -> Wanted:
    """Return the test for the lines about a consumer group."""
    name = f'"group":{json.dumps(group)}'.encode()

    def is_wanted(text: bytes) -> bool:
        return name in text and _ABOUT_GROUP in text

    return is_wanted


def read_group(directories: Iterable[str | Path], group: str) -> list[Line]:
    """Return the lines about a consumer group in the ledgers of several brokers, merged (see `merged`)."""
    return merged([_lines_in(directory, about_group(group)) for directory in directories])


def _lines_in(directory: str | Path, is_wanted: Wanted) -> list[Line]:
    """Return the lines of one broker's ledger directory for which `is_wanted` is true, in order of writing."""
    folder = Path(directory)
    if not folder.is_dir():
        return []
    files = [(number_of(path.name), path) for path in folder.iterdir()]
    lines: list[Line] = []
    for _, path in sorted((number, path) for number, path in files if number is not None):
        try:
            data = path.read_bytes()
        except FileNotFoundError:  # the writer removed this file after the listing
            continue
        lines += parsed_lines(filter(is_wanted, data.splitlines()))
    return lines


def _mentions(topic: str) -> tuple[bytes, ...]:
    """Return byte strings for a quick search: a line that names the topic contains at least one of them.

    In a line, the topic is either a JSON string or a part of a path.
    """
    return tuple(f"{a}{topic}{b}".encode() for a, b in ('""', "//", '/"')) if topic else ()


def parsed_lines(texts: Iterable[bytes]) -> Iterator[Line]:
    """Yield the lines that are whole: valid JSON that fits the form of its kind."""
    for text in texts:
        try:
            line = json.loads(text)  # `parse_json` is slower, and ledgers are long
        except (ValueError, RecursionError):
            continue
        if isinstance(line, dict) and _is_whole(line):
            yield line


def _is_whole(line: Line) -> bool:
    """True if the line has the fields of every line, with their types, and those of its kind."""
    if any(type(line.get(name)) is not wanted for name, wanted in EVERY.items()):
        return False
    return not misfit(line["kind"], line)


def read_all(directories: Iterable[str | Path], mentioning: str = "") -> list[Line]:
    """Read the ledgers of several brokers and return the merged lines (see `merged`)."""
    if isinstance(directories, str | Path):
        directories = [directories]
    return merged([read(directory, mentioning) for directory in directories])


def merged(ledgers: Sequence[Sequence[Line]]) -> list[Line]:
    """Merge the lines of several brokers by time, but place each line after the line that caused it.

    If the brokers' clocks differ, the lines get the times of one clock (`alignment.py`).
    """
    ledgers = aligned(ledgers)
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
    """The lines merged so far, and the rule that a line comes after the line that caused it.

    A request can be sent more than once, so several lines can have the same key (see `_key`). The lines with each
    key are counted.
    """

    def __init__(self, ledgers: Sequence[Sequence[Line]]) -> None:
        self._total = Counter(key for ledger in ledgers for key in map(_key, ledger) if key)
        self._added: Counter[tuple[Any, ...]] = Counter()

    def may_follow(self, line: Line) -> bool:
        """Return True if the line that caused this line has already been added, or is in no ledger."""
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
    """Return the key of a line about a request, a completed effect or a response; None for other lines.

    `_Order` counts the lines with the same key. The second and later parts of a split line have no key (None).
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
    """Return the name of a line in output: `2#417` is line 417 of broker 2."""
    return f"{line['broker']}#{line['n'] if line['kind'] != LOST else 'lost'}"
