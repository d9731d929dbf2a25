"""Records of a topic: from an offset, a time or the end, or those with a key; and the tail as it grows.

Invariant: one answer reads at most SEARCHED_BYTES and lasts about SEARCH_MS. `next` says where to go on.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any, Final

from minikafka.base.errors import KafkaError
from minikafka.base.model import TopicPartition
from minikafka.client.log_offsets import EARLIEST, LATEST
from minikafka.kafka.records.batch import Record
from minikafka.tools.console.context import Asked, Console
from minikafka.tools.console.errors import invalid, unknown
from minikafka.tools.console.site import StreamEvent

LIMIT: Final = 100
LIMIT_MAX: Final = 1_000
SEARCH_MS: Final = 4_000
SEARCHED_BYTES: Final = 64 * 1024 * 1024
FETCH_BYTES: Final = 1024 * 1024
SHOWN_BYTES: Final = 16 * 1024
"""Bytes of a key or value that an answer shows."""
JSON_BYTES: Final = 64 * 1024
TAIL_MS: Final = 300
PING_TURNS: Final = 20
"""After this many turns without a record, the viewer gets a sign of life, which fails if it is gone."""
TAIL_MAX: Final = 200
"""Records of one partition in one message of the tail; of more, the newest are shown."""

Positions = dict[int, int]


async def show_records(console: Console, asked: Asked) -> dict[str, Any]:
    """Return records of a topic from a place on, with a key if one is given."""
    topic = asked.path["topic"]
    limit = min(max(1, asked.number("limit", LIMIT)), LIMIT_MAX)
    key = asked.query.get("key")
    wanted = None if not key else key.encode()
    starts, ends, unseen = await _ends(console, topic, asked.query.get("partition"))
    place = asked.query.get("from") or "end-50"
    positions = await _positions(console, topic, place, starts, ends, limit)
    search = _Search(console, topic, wanted, limit)
    found = await search.run(positions, ends)
    found.sort(key=_order)
    if place.startswith("end") and wanted is None:
        found = found[-limit:]
    else:
        for number, record in reversed(found[limit:]):
            positions[number] = record.offset  # it is shown by the next request
        found = found[:limit]
    return {
        "records": [as_object(number, record) for number, record in found],
        "next": {str(number): at for number, at in positions.items() if at < ends[number]},
        "searched": search.searched,
        "starts": {str(number): at for number, at in starts.items()},
        "ends": {str(number): at for number, at in ends.items()},
        "unseen": [*unseen, *search.errors],
    }


def _order(found: tuple[int, Record]) -> tuple[int, int, int]:
    number, record = found
    return record.timestamp, number, record.offset


async def _ends(
    console: Console, topic: str, partition: str | None
) -> tuple[Positions, Positions, list[str]]:
    """Return the first and the last offsets of the partitions whose leaders answer, and why the others are missing."""
    await console.watch.ready()
    numbers = sorted(
        int(name.rpartition("-")[2])
        for name in console.watch.grid.rows
        if name.rpartition("-")[0] == topic
    )
    if not numbers:
        try:
            [info] = await console.client.describe_topics(topic)
        except KafkaError as error:
            if error.code.name == "UNKNOWN_TOPIC_OR_PARTITION":
                raise unknown(f"topic {topic}") from error
            raise
        numbers = sorted(info.partitions)
    if partition:
        if not (partition.isascii() and partition.isdecimal() and int(partition) in numbers):
            raise unknown(f"partition {partition} of {topic}", f"it has 0 to {numbers[-1]}")
        numbers = [int(partition)]
    partitions = [TopicPartition(topic, number) for number in numbers]
    look_up = console.client.log_offsets.look_up_once
    (starts, errors), (ends, more) = await asyncio.gather(
        look_up(dict.fromkeys(partitions, EARLIEST)), look_up(dict.fromkeys(partitions, LATEST))
    )
    errors |= more
    unseen = [f"{tp}: {error.detail or error}" for tp, error in sorted(errors.items())]
    known = [tp for tp in partitions if tp not in errors]
    return (
        {tp.partition: starts[tp] for tp in known},
        {tp.partition: ends[tp] for tp in known},
        unseen,
    )


async def _positions(
    console: Console, topic: str, place: str, starts: Positions, ends: Positions, limit: int
) -> Positions:
    """Return where to start in each partition: `start`, `end-N`, `@TIME_MS`, an offset, or `P:OFFSET,P:OFFSET`.

    In the last form, the other partitions are left out. Raises RequestRefused.
    """
    if place == "start":
        return dict(starts)
    if place == "end" or place.startswith("end-"):
        count = _number(place.removeprefix("end").removeprefix("-") or str(limit), place)
        return {number: max(starts[number], end - count) for number, end in ends.items()}
    if place.startswith("@"):
        wall_ms = _number(place[1:], place)
        wanted = {TopicPartition(topic, number): wall_ms for number in starts}
        found, _ = await console.client.log_offsets.look_up_once(wanted)
        at = {tp.partition: offset for tp, offset in found.items()}
        return {n: at[n] if at.get(n, -1) >= 0 else end for n, end in ends.items()}
    if ":" in place:
        pairs = [part.partition(":") for part in place.split(",")]
        named = {_number(number, place): _number(at, place) for number, _, at in pairs}
        return {n: min(max(at, starts[n]), ends[n]) for n, at in named.items() if n in starts}
    offset = _number(place, place)
    return {n: min(max(offset, start), ends[n]) for n, start in starts.items()}


def _number(text: str, place: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise invalid(
            f"from={place!r} is not start, end-N, @TIME in Unix ms, an offset, or PARTITION:OFFSET,..."
        )
    return int(text)


class _Search:
    """A bounded search of one topic.

    `searched`: number of records read so far. `errors`: why partitions could not be read to their ends.
    """

    def __init__(self, console: Console, topic: str, key: bytes | None, limit: int) -> None:
        self._console = console
        self._topic = topic
        self._key = key
        self._limit = limit
        self._bytes = 0
        self.searched = 0
        self.errors: list[str] = []

    async def run(self, positions: Positions, ends: Positions) -> list[tuple[int, Record]]:
        """Return the records with the key, and advance the positions behind what was searched."""
        found: list[tuple[int, Record]] = []
        deadline = self._console.clock.now() + SEARCH_MS
        for number in positions:
            try:
                found += await self._search(number, positions, ends[number], deadline)
            except KafkaError as error:
                self.errors.append(f"{self._topic}-{number}: {error}")
        return found

    async def _search(
        self, number: int, positions: Positions, end: int, deadline: int
    ) -> list[tuple[int, Record]]:
        """Search one partition. Raises KafkaError."""
        found: list[tuple[int, Record]] = []
        while positions[number] < end and not self._is_over(deadline):
            for record in await self._read(number, positions, end):
                positions[number] = record.offset + 1
                if self._matches(record):
                    found.append((number, record))
                if len(found) == self._limit:
                    return found
        return found

    def _is_over(self, deadline: int) -> bool:
        return self._console.clock.now() >= deadline or self._bytes >= SEARCHED_BYTES

    async def _read(self, number: int, positions: Positions, end: int) -> list[Record]:
        """Return the records of one fetch. If there are none, the position moves behind what has none."""
        at = positions[number]
        fetched = await self._console.client.fetch(
            self._topic, number, at, max_wait_ms=0, max_bytes=FETCH_BYTES
        )
        records = [record for record in fetched.records if record.offset < end]
        self._bytes += sum(map(_size, records))
        self.searched += len(records)
        positions[number] = min(end, max(fetched.next_offset, at + 1)) if not records else at
        return records

    def _matches(self, record: Record) -> bool:
        return self._key is None or record.key == self._key


def _size(record: Record) -> int:
    return len(record.key or b"") + len(record.value or b"")


def as_object(number: int, record: Record) -> dict[str, Any]:
    """Return a record as JSON-able values: text if it is UTF-8, else only the bytes in hexadecimal."""
    return {
        "partition": number,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        "key": None if record.key is None else _bytes(record.key),
        "value": None if record.value is None else _bytes(record.value) | _json(record.value),
        "headers": [
            [name, None if value is None else value.decode(errors="replace")]
            for name, value in record.headers
        ],
    }


def _bytes(data: bytes) -> dict[str, Any]:
    shown = data[:SHOWN_BYTES]
    found: dict[str, Any] = {"size": len(data), "hex": shown.hex()}
    if len(shown) < len(data):
        found["is_cut"] = True
    try:
        # A cut may end in the middle of a character.
        found["text"] = shown.decode(errors="strict" if shown is data else "ignore")
        data.decode()
    except UnicodeDecodeError:
        found.pop("text", None)
    return found


def _json(data: bytes) -> dict[str, Any]:
    """Return the value as `json` if it is a JSON object or array; {} for anything else."""
    if not data.startswith((b"{", b"[")) or len(data) > JSON_BYTES:
        return {}
    try:
        return {"json": json.loads(data, parse_constant=_refuse)}
    except (ValueError, RecursionError):
        return {}


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


async def tail(console: Console, asked: Asked) -> AsyncGenerator[StreamEvent, None]:
    """Yield the records that are added to a topic. What is too much for a viewer is skipped, and counted."""
    topic, turn = asked.path["topic"], 0
    _, positions, unseen = await _ends(console, topic, None)
    yield StreamEvent("records", {"records": [], "skipped": 0, "unseen": unseen})
    while True:
        await console.clock.sleep(TAIL_MS)
        turn += 1
        starts, ends, now_unseen = await _ends(console, topic, None)
        skipped = 0
        for number, end in ends.items():
            at = max(positions.get(number, end), starts[number])
            first = max(at, end - TAIL_MAX)
            skipped += first - at
            positions[number] = first
        read = {number: positions[number] for number in ends}
        found = await _Search(console, topic, None, TAIL_MAX).run(read, ends)
        positions |= read
        if found or skipped or now_unseen != unseen:
            unseen = now_unseen
            records = [as_object(*one) for one in sorted(found, key=_order)]
            yield StreamEvent("records", {"records": records, "skipped": skipped, "unseen": unseen})
        elif turn % PING_TURNS == 0:
            yield StreamEvent("")
