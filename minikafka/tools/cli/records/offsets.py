"""The option `-o` of `consume`: where reading starts and stops, in the syntax of kcat and rpk."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple

import click

import minikafka.client as clients
from minikafka.base.errors import ErrorCode, KafkaError

_NAMES: Final[Mapping[str, Literal["earliest", "latest"]]] = {
    "beginning": "earliest",
    "start": "earliest",
    "earliest": "earliest",
    "end": "latest",
    "latest": "latest",
}
_SECONDS_DIGITS: Final = 10
"""A time with this many digits is in seconds, as in rpk. In milliseconds, such a time would be in 1970."""
_OFFSET_MAX: Final = 2**63 - 1


class Time(NamedTuple):
    """A point in time, in Unix ms."""

    wall_ms: int


class Tail(NamedTuple):
    """Start of reading: `size` offsets before the end of each partition."""

    size: int


class Skip(NamedTuple):
    """Start of reading: `size` offsets after the beginning of each partition."""

    size: int


Start = Literal["earliest", "latest"] | int | Time | Tail | Skip


class Range(NamedTuple):
    """Where reading starts, and the offset or time before which reading stops (None: it does not stop)."""

    start: Start
    stop: int | Time | None = None


def parse_offsets(context: click.Context, option: click.Parameter, texts: Sequence[str]) -> Range:
    """Parse the values of `-o`; a click callback. Raises BadParameter."""
    try:
        return _combined([_parse(text) for text in texts])
    except ValueError as error:
        raise click.BadParameter(str(error), context, option) from None


def _combined(parts: Sequence[tuple[Start | None, int | Time | None]]) -> Range:
    starts = [start for start, _ in parts if start is not None]
    stops = [stop for _, stop in parts if stop is not None]
    if len(starts) > 1 or len(stops) > 1:
        raise ValueError("only one place to start and one to stop can be given")
    found = Range(starts[0] if starts else "earliest", stops[0] if stops else None)
    if isinstance(found.start, Time) and isinstance(found.stop, Time) and found.start > found.stop:
        raise ValueError("the time to stop is before the time to start")
    return found


def _parse(text: str) -> tuple[Start | None, int | Time | None]:
    """Return (start, stop) of one value of `-o`; None for a part that the value does not set. Raises ValueError."""
    if text in _NAMES:
        return _NAMES[text], None
    if text.startswith("e@"):
        return None, parse_time(text[2:])
    if text.startswith(("s@", "@")):
        return parse_time(text.partition("@")[2]), None
    if re.fullmatch(r"[0-9]+:[0-9]+", text):
        start, stop = map(_number, text.split(":"))
        if start > stop:
            raise ValueError(f"{text!r} ends before it begins")
        return start, stop
    if re.fullmatch(r"[-+]?[0-9]+", text):
        number = _number(text.lstrip("+-"))
        signed: dict[str, Start] = {"-": Tail(number), "+": Skip(number)}
        return signed.get(text[0], number), None
    allowed = "beginning, end, N, -N, +N, FROM:TO, s@TIME or e@TIME"
    raise ValueError(f"{text!r} is not {allowed}")


def _number(text: str) -> int:
    number = int(text) if len(text) < 20 else _OFFSET_MAX + 1
    if number > _OFFSET_MAX:
        raise ValueError(f"{text} is not an offset: offsets are at most {_OFFSET_MAX}")
    return number


def parse_time(text: str) -> Time:
    """Parse Unix ms, Unix seconds (ten digits), or a date and time (UTC if it has no zone). Raises ValueError."""
    if re.fullmatch("[0-9]{1,15}", text):
        return Time(int(text) * (1000 if len(text) == _SECONDS_DIGITS else 1))
    try:
        found = datetime.fromisoformat(text)
        found = found if found.tzinfo else found.replace(tzinfo=UTC)
        return Time(max(0, round(found.timestamp() * 1000)))
    except (ValueError, OverflowError):
        allowed = "Unix milliseconds, or a date and time such as 2026-11-22T13:00:00Z"
        raise ValueError(f"{text!r} is not a time: give {allowed}") from None


async def resolve(
    client: clients.Client, topic: str, partitions: list[int] | None, where: Range, until_end: bool
) -> tuple[dict[int, int], dict[int, int] | None]:
    """Return by partition the first offset to read, and the offset before which to stop, if any.

    A stop beyond the last record is replaced by the current end of the partition. Raises KafkaError, for
    example for an offset that a partition does not have.
    """
    first = await client.list_offsets(topic, "earliest", partitions)
    end = await client.list_offsets(topic, "latest", list(first))
    positions = await _positions(client, topic, first, end, where.start)
    if where.stop is None:
        return positions, end if until_end else None
    if isinstance(where.stop, int):
        return positions, {number: min(where.stop, last) for number, last in end.items()}
    found = await client.list_offsets(topic, where.stop.wall_ms, list(first))
    return positions, {number: at if at >= 0 else end[number] for number, at in found.items()}


async def _positions(
    client: clients.Client, topic: str, first: dict[int, int], end: dict[int, int], start: Start
) -> dict[int, int]:
    match start:
        case "earliest":
            return first
        case "latest":
            return end
        case Time(wall_ms):
            found = await client.list_offsets(topic, wall_ms, list(first))
            return {number: at if at >= 0 else end[number] for number, at in found.items()}
        case Tail(size):
            return {number: max(lowest, end[number] - size) for number, lowest in first.items()}
        case Skip(size):
            return {number: min(lowest + size, end[number]) for number, lowest in first.items()}
    for number, lowest in sorted(first.items()):
        if not lowest <= start <= end[number]:
            text = f"{topic}-{number} has no offset {start}: valid offsets are {lowest} to {end[number]}"
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, text)
    return dict.fromkeys(first, start)
