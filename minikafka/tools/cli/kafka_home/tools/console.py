"""`kafka-console-producer.sh` and `kafka-console-consumer.sh`."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, Literal

from minikafka.base.errors import ErrorCode, MinikafkaError
from minikafka.base.model import TopicPartition
from minikafka.client import Client, ConsumedRecord, NewTopic, Record
from minikafka.client.administration.results import Resource, ResourceType
from minikafka.client.log_offsets import EARLIEST, LATEST
from minikafka.tools.cli.arguments.command_config import aiokafka_security
from minikafka.tools.cli.kafka_home.connection import bootstrap, connected, raise_first
from minikafka.tools.cli.kafka_home.options import Arguments
from minikafka.tools.cli.records.group_member import GroupReading
from minikafka.tools.cli.records.produce import ACKS, CODECS, Sending
from minikafka.tools.cli.records.record_format import unescape
from minikafka.tools.cli.records.record_input import InputRecord, InvalidLine, line_items
from minikafka.tools.cli.terminal.echo import echo

_OFFSETS: Final = {"earliest": EARLIEST, "latest": LATEST}
_READER: Final = ("parse.key", "key.separator", "parse.headers", "null.marker", "ignore.error")
_HEADERS_END: Final = b"\t"


def properties_of(arguments: Arguments, name: str) -> dict[str, str]:
    """Return the options `--property KEY=VALUE` and the like. Raises MinikafkaError."""
    found = {}
    for text in arguments.values(name):
        key, equals, value = text.partition("=")
        if not equals:
            raise MinikafkaError(f"Invalid command line properties: {text}")
        found[key] = value
    return found


def produce(arguments: Arguments) -> None:
    """Send each line of standard input as a record. Raises MinikafkaError."""
    topic = arguments.required("topic")
    reader = properties_of(arguments, "property")
    if unknown := reader.keys() - set(_READER):
        raise MinikafkaError(f"{min(unknown)} is not implemented; known: {', '.join(_READER)}")
    client = properties_of(arguments, "producer-property")
    acks = arguments.value("request-required-acks") or client.get("acks", "all")
    codec = arguments.value("compression-codec") or client.get("compression.type", "none")
    if acks not in ACKS or codec not in CODECS:
        raise MinikafkaError(
            f"acks must be one of {', '.join(ACKS)}, compression one of {', '.join(CODECS)}"
        )
    source = line_items((), _line_parser(reader), skip_blank=False)
    sending = Sending(topic, source, ACKS[acks], CODECS[codec], shows_bar=False, total=None)
    connected(arguments, sending.run)


def _line_parser(reader: Mapping[str, str]) -> Callable[[bytes, str], InputRecord]:
    """Return the function that makes a record of a line `[HEADERS TAB] [KEY SEPARATOR] VALUE`."""
    has_key = reader.get("parse.key", "false").lower() == "true"
    has_headers = reader.get("parse.headers", "false").lower() == "true"
    is_lenient = reader.get("ignore.error", "false").lower() == "true"
    separator = unescape(reader.get("key.separator", "\t"))
    null = reader["null.marker"].encode() if "null.marker" in reader else None

    def parse(line: bytes, place: str) -> InputRecord:
        headers: tuple[tuple[str, bytes | None], ...] = ()
        key: bytes | None = None
        if has_headers:
            text, found, line = line.partition(_HEADERS_END)
            if not found:
                raise InvalidLine("No headers found")
            pairs = (pair.partition(b":") for pair in text.split(b",") if pair)
            headers = tuple((name.decode(), _or_null(value, null)) for name, _, value in pairs)
        if has_key:
            before, found, after = line.partition(separator)
            if not found and not is_lenient:
                raise InvalidLine("No key separator found")
            key, line = (_or_null(before, null), after) if found else (None, line)
        return InputRecord(
            Record(key=key, value=_or_null(line, null), headers=headers), None, place
        )

    return parse


def _or_null(value: bytes, null: bytes | None) -> bytes | None:
    return None if value == null else value


def consume(arguments: Arguments) -> None:
    """Print the records of topics until Ctrl-C, --max-messages or --timeout-ms. Raises MinikafkaError."""
    printing = Printing(properties_of(arguments, "property"))
    client = properties_of(arguments, "consumer-property")
    group = arguments.value("group") or client.get("group.id")
    level = arguments.value("isolation-level") or client.get("isolation.level", "read_uncommitted")
    start = _start(arguments, client)
    arguments.only_one_of(("topic", "include", "whitelist"))
    reading = ConsoleReading(arguments, printing, start)
    work = reading.as_member(group) if group is not None else reading.alone
    try:
        connected(arguments, work, read_committed=level == "read_committed")
    finally:
        echo(f"Processed a total of {printing.count} messages", err=True)


def _start(arguments: Arguments, client: Mapping[str, str]) -> int:
    """Return where to begin: an offset, EARLIEST or LATEST. Raises MinikafkaError."""
    if arguments.has("from-beginning"):
        return EARLIEST
    text = (arguments.value("offset") or client.get("auto.offset.reset", "latest")).lower()
    if arguments.has("offset") and not arguments.has("partition"):
        raise MinikafkaError("The partition is required when offset is specified.")
    if text not in _OFFSETS and not text.isdecimal():
        raise MinikafkaError(
            f"The provided offset value '{text}' is incorrect: earliest, latest or a number"
        )
    return _OFFSETS[text] if text in _OFFSETS else int(text)


class Printing:
    """The format of the records on standard output, as `--property` says. `count`: the records that were printed."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties
        self._separator = unescape(properties.get("key.separator", "\t"))
        self._end = unescape(properties.get("line.separator", "\n"))
        self._null = properties.get("null.literal", "null").encode()
        self._between = properties.get("headers.separator", ",").encode()
        self.count = 0

    def _has(self, part: str, default: str = "false") -> bool:
        return self._properties.get(f"print.{part}", default).lower() == "true"

    def show(self, record: ConsumedRecord) -> None:
        """Print a record."""
        parts = []
        if self._has("timestamp"):
            kind = "LogAppendTime" if record.has_append_time else "CreateTime"
            parts.append(f"{kind}:{record.timestamp}".encode())
        if self._has("partition"):
            parts.append(f"Partition:{record.partition}".encode())
        if self._has("offset"):
            parts.append(f"Offset:{record.offset}".encode())
        if self._has("headers"):
            parts.append(self._headers(record))
        if self._has("key"):
            parts.append(self._bytes(record.key))
        if self._has("value", "true"):
            parts.append(self._bytes(record.value))
        sys.stdout.buffer.write(self._separator.join(parts) + self._end)
        sys.stdout.buffer.flush()
        self.count += 1

    def _bytes(self, data: bytes | None) -> bytes:
        return self._null if data is None else data

    def _headers(self, record: ConsumedRecord) -> bytes:
        pairs = (name.encode() + b":" + self._bytes(value) for name, value in record.headers)
        return self._between.join(pairs) or b"NO_HEADERS"


class ConsoleReading:
    """The records that the options of `kafka-console-consumer.sh` name. `start`: an offset, EARLIEST or LATEST."""

    def __init__(self, arguments: Arguments, printing: Printing, start: int) -> None:
        self._arguments = arguments
        self._printing = printing
        self._start = start
        self._left = arguments.number("max-messages")
        self._idle_ms = arguments.number("timeout-ms")

    async def alone(self, client: Client) -> None:
        """Read without a group. Raises MinikafkaError."""
        asked = self._arguments.number("partition")
        positions = {
            TopicPartition(topic, number): self._start
            for topic in await self._topics(client)
            for number in await client.list_offsets(topic, "earliest")
            if asked in (None, number)
        }
        if not positions:
            raise MinikafkaError(f"there is no partition {asked}")
        if self._left == 0:
            return
        reader = client.partition_reader(reset=self._start if self._start < 0 else LATEST)
        async with self._idle_limit() as timer:
            async for record in reader.read(positions, None):
                self._printing.show(record)
                self._reset(timer)
                if self._printing.count == self._left:
                    return

    def as_member(self, group: str) -> Callable[[Client], Coroutine[Any, Any, None]]:
        """Return the work of a member of a group."""

        async def work(client: Client) -> None:
            start: Literal["earliest", "latest"] = (
                "earliest" if self._start == EARLIEST else "latest"
            )
            topics = tuple(await self._topics(client))
            security = aiokafka_security()
            session = GroupReading(group, topics, start, False, self._left, True, security)
            async with self._idle_limit() as timer:

                def show(record: ConsumedRecord) -> None:
                    self._printing.show(record)
                    self._reset(timer)

                await session.run(client, bootstrap(self._arguments), show)

        return work

    @asynccontextmanager
    async def _idle_limit(self) -> AsyncIterator[asyncio.Timeout]:
        """Limit the time without a record to --timeout-ms. Its end is no error, as in Kafka."""
        try:
            async with asyncio.timeout(self._idle_ms and self._idle_ms / 1000) as timer:
                yield timer
        except TimeoutError:
            if not timer.expired():
                raise

    def _reset(self, timer: asyncio.Timeout) -> None:
        if self._idle_ms:
            timer.reschedule(asyncio.get_running_loop().time() + self._idle_ms / 1000)

    async def _topics(self, client: Client) -> list[str]:
        """Return the topics to read. One that is named, and does not exist, is created as brokers create topics."""
        pattern = self._arguments.value("include") or self._arguments.value("whitelist")
        if pattern is not None:
            expression = re.compile(pattern.replace(",", "|"))
            return [name for name in await client.list_topics() if expression.fullmatch(name)]
        name = self._arguments.required("topic")
        if name not in await client.list_topics() and await _creates_topics(client):
            outcome = (await client.admin.create_topics([NewTopic(name)]))[name]
            if outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise_first([outcome])
        return [name]


async def _creates_topics(client: Client) -> bool:
    """True if brokers create a topic that a client asks for."""
    brokers = (await client.describe_cluster()).brokers
    resource = Resource(ResourceType.BROKER, str(min(brokers)))
    held = (await client.admin.describe_configs([resource]))[resource]
    return any(
        one.name == "auto.create.topics.enable" and one.value == "true" for one in held.entries
    )
