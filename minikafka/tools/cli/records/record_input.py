"""The input of `produce`: records from lines, from lines of JSON, or from whole files."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import minikafka.client as clients
from minikafka.base.errors import MinikafkaError
from minikafka.base.names import read_json
from minikafka.tools.cli.arguments.options import EXISTING_FILE

CHUNK_BYTES: Final = 1024 * 1024
CHUNKS_MAX: Final = 4
"""Maximum number of chunks read from a file but not yet sent."""
STDIN: Final = 0
_FIELDS: Final = frozenset(
    {"key", "key_base64", "value", "value_base64", "headers", "partition", "timestamp"}
)
_IGNORED: Final = frozenset({"topic", "offset"})
"""Fields of `consume --json` that `produce --json` ignores: the former topic and offset of a record."""
_TIMESTAMPS: Final = range(-(2**63), 2**63)
_PARTITIONS: Final = range(2**31)

Header: TypeAlias = tuple[str, bytes | None]


class InputRecord(NamedTuple):
    """One record with its partition (None: the client chooses). `place`: line or file, for error messages."""

    record: clients.Record
    partition: int | None
    place: str


class Part(NamedTuple):
    """A part of the input as records, and its size in bytes.

    `problem`: None, except if a line is not a record. Then the part contains only the records before that line, and
    the text of the error names the line.
    """

    items: list[InputRecord]
    size: int
    problem: MinikafkaError | None = None


class InvalidLine(MinikafkaError):
    """A line of the input is not a record. The text gives the reason, without the line number and the file."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The rules that convert lines to records.

    `delimiter`: splits a line into key and value. `headers`: added to each record. `empty_is_null`: an empty
    value becomes null (a tombstone). `partition`: used for records that name no partition.
    """

    delimiter: bytes | None = None
    headers: tuple[Header, ...] = ()
    empty_is_null: bool = False
    partition: int | None = None

    def of_line(self, line: bytes, place: str) -> InputRecord:
        """Return a line as a record. If the line does not contain the delimiter, the record has no key."""
        delimiter = self.delimiter
        key, separator, value = line.partition(delimiter) if delimiter else (b"", b"", line)
        return self.item(key if separator else None, value if separator else line, place)

    def of_json(self, line: bytes, place: str) -> InputRecord:
        """Return a line of JSON as a record. Raises InvalidLine."""
        fields = _json_object(line)
        unknown = fields.keys() - _FIELDS - _IGNORED
        if unknown:
            known = "key, value, headers, partition, timestamp, key_base64 and value_base64"
            raise InvalidLine(f"unknown field {min(unknown)!r}: the fields are {known}")
        found = self.item(
            _bytes_field(fields, "key"), _bytes_field(fields, "value"), place, _headers(fields)
        )
        timestamp = _integer(fields, "timestamp", _TIMESTAMPS)
        partition = _integer(fields, "partition", _PARTITIONS)
        return found._replace(
            record=found.record
            if timestamp is None
            else found.record._replace(timestamp=timestamp),
            partition=found.partition if partition is None else partition,
        )

    def item(
        self, key: bytes | None, value: bytes | None, place: str, headers: tuple[Header, ...] = ()
    ) -> InputRecord:
        """Return a record with this key and value, the headers `headers + self.headers`, and the default partition."""
        value = None if self.empty_is_null and not value else value
        record = clients.Record(key=key, value=value, headers=headers + self.headers)
        return InputRecord(record, self.partition, place)


Parse: TypeAlias = Callable[[bytes, str], InputRecord]


async def line_items(
    files: Sequence[str], parse: Parse, *, skip_blank: bool
) -> AsyncIterator[Part]:
    """Yield records while lines arrive from the files (no files: from standard input).

    No part follows a part with a problem.
    """
    for name in files or [""]:
        number = 0
        async for lines in lines_of(name):
            items = []
            size = 0
            for line in lines:
                number += 1
                size += len(line) + 1
                place = f"line {number}" + (f" of {name}" if name else "")
                if skip_blank and not line.strip():
                    continue
                try:
                    items.append(parse(line, place))
                except InvalidLine as error:
                    yield Part(items, size, MinikafkaError(f"{place}: {error}"))
                    return
            yield Part(items, size)


async def file_items(files: Sequence[str], shape: Shape) -> AsyncIterator[Part]:
    """Yield each file as one record. The value is the content of the file."""
    for name in files:
        content = b"".join([chunk async for chunk in _chunks(name)])
        yield Part([shape.item(None, content, name)], len(content))


async def lines_of(name: str) -> AsyncIterator[list[bytes]]:
    """Yield lists of whole lines of a file, without line ends, as soon as the lines arrive.

    The name "" means standard input. The last line may lack a line end. Raises MinikafkaError.
    """
    rest = b""
    async for chunk in _chunks(name):
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield lines
    if rest:
        yield [rest]


async def _chunks(name: str) -> AsyncIterator[bytes]:
    """Yield chunks of a file. A daemon thread reads the file, so that a blocked read does not delay exit."""
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(CHUNKS_MAX)

    def read() -> None:
        chunk: bytes | OSError = b"-"
        descriptor = -1
        while chunk and not isinstance(chunk, OSError):
            room.acquire()
            try:
                if descriptor < 0:
                    descriptor = os.open(name, os.O_RDONLY) if name else STDIN
                chunk = os.read(descriptor, CHUNK_BYTES)
            except OSError as error:
                chunk = error
            with suppress(RuntimeError):  # raised when the loop is closed, because the command ends
                loop.call_soon_threadsafe(chunks.put_nowait, chunk)
        if name and descriptor >= 0:
            os.close(descriptor)

    threading.Thread(target=read, daemon=True, name="input").start()
    while chunk := await chunks.get():
        if isinstance(chunk, OSError):
            raise MinikafkaError(f"{name or 'standard input'}: {chunk.strerror}") from chunk
        yield chunk
        room.release()


def _json_object(line: bytes) -> Mapping[str, Any]:
    try:
        found = read_json(line.decode())
    except UnicodeDecodeError:
        raise InvalidLine("not UTF-8: give other bytes as base64 in value_base64") from None
    except ValueError as error:
        is_twice = "is given twice" in str(error)
        form = ' (headers of one name: "headers": [{"key": "h", "value": "v"}, ...])'
        raise InvalidLine(f"{error}{form if is_twice else ''}") from None
    if not isinstance(found, dict):
        raise InvalidLine('not a JSON object such as {"key": "k", "value": "v"}')
    return found


def _bytes_field(fields: Mapping[str, Any], name: str) -> bytes | None:
    """Return the bytes of the field `name` or `name`_base64; None for null. Raises InvalidLine."""
    text, encoded = fields.get(name), fields.get(f"{name}_base64")
    for given, label in ((text, name), (encoded, f"{name}_base64")):
        if given is not None and not isinstance(given, str):
            raise InvalidLine(f"{label} must be a string or null, got {json.dumps(given)}")
    if text is not None and encoded is not None:
        raise InvalidLine(f"give {name} or {name}_base64, not both")
    try:
        if encoded is not None:
            return base64.b64decode(encoded, validate=True)
        return None if text is None else text.encode()
    except ValueError:
        problem = f"{name}_base64 is not base64" if text is None else f"{name} is not valid Unicode"
        raise InvalidLine(problem) from None


def _integer(fields: Mapping[str, Any], name: str, allowed: range) -> int | None:
    number = fields.get(name)
    if number is None:
        return None
    if type(number) is not int or number not in allowed:
        limits = f"from {allowed[0]} to {allowed[-1]}"
        raise InvalidLine(f"{name} must be a whole number {limits}, got {json.dumps(number)}")
    return number


def _headers(fields: Mapping[str, Any]) -> tuple[Header, ...]:
    """Return the headers, from a list of objects or of pairs, or from one object of names and values.

    Raises InvalidLine.
    """
    given = fields.get("headers")
    if given is None:
        return ()
    rows = list(given.items()) if isinstance(given, dict) else given
    if not isinstance(rows, list):
        raise InvalidLine(f"headers must be a list or an object, got {json.dumps(given)}")
    return tuple(map(_header, rows))


def _header(row: Any) -> Header:
    if isinstance(row, dict) and row.keys() <= {"key", "value", "value_base64"}:
        name, value = row.get("key"), row
    elif isinstance(row, list | tuple) and len(row) == 2:
        name, value = row[0], {"value": row[1]}
    else:
        name = None
    if not isinstance(name, str):
        raise InvalidLine(f'a header must be {{"key": "h", "value": "v"}}, got {json.dumps(row)}')
    try:
        name.encode()
        return name, _bytes_field(value, "value")
    except (InvalidLine, UnicodeEncodeError) as error:
        raise InvalidLine(f"header {name!r}: {error}") from None


def check_files(files: Sequence[str]) -> None:
    """Raise UsageError for the first file that cannot be read, before anything is sent."""
    for name in files:
        EXISTING_FILE.convert(name, None, None)
