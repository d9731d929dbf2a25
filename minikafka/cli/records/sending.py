"""The sending of the records of `produce`: a progress bar, errors about single records, and a summary."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from minikafka.base.errors import ErrorCode, KafkaError, MinikafkaError
from minikafka.cli.records.record_input import STDIN, Item, Part
from minikafka.cli.terminal.echo import echo
from minikafka.cli.terminal.topic_errors import unknown_topics

if TYPE_CHECKING:
    from minikafka.client import Client, NotProduced

_AUTO_CREATE: Final = "auto.create.topics.enable"
Acks = Literal[-1, 0, 1]


@dataclass(slots=True)
class Summary:
    """The records that were sent so far. `size`: bytes of their keys and values."""

    topic: str
    records: int = 0
    size: int = 0
    seconds: float = 0.0

    def add(self, items: Sequence[Item]) -> None:
        """Count records that were sent."""
        self.records += len(items)
        self.size += sum(
            len(item.record.key or b"") + len(item.record.value or b"") for item in items
        )

    def text(self) -> str:
        """Return the summary as a line, such as `sent 2 records (10 B) to events in 0.1 s`."""
        from minikafka.cli.terminal.progress import size

        count = f"{self.records:,} record{'' if self.records == 1 else 's'}"
        rate = f", {round(self.records / self.seconds):,} per second" if self.seconds else ""
        return f"sent {count} ({size(self.size)}) to {self.topic} in {self.seconds:.1f} s{rate}"

    def as_json(self) -> dict[str, Any]:
        """Return the summary as JSON-able values."""
        return {
            "topic": self.topic,
            "records": self.records,
            "bytes": self.size,
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True, slots=True)
class Sending:
    """The records of `source` on their way to a topic.

    `shows_bar`: show how much of the input was sent, if standard error is a terminal. `total`: bytes of the input,
    None if unknown.
    """

    topic: str
    source: AsyncIterator[Part]
    acks: Acks
    codec: int
    shows_bar: bool
    total: int | None

    async def run(self, client: Client) -> Summary:
        """Send all records; return when they are acknowledged. Raises KafkaError, MinikafkaError."""
        from minikafka.cli.terminal.progress import Amount, Progress, size
        from minikafka.runtime.clock import SystemClock

        clock = SystemClock()
        began, read = clock.now(), 0
        summary = Summary(self.topic)
        created = ""
        is_new = not await _exists(client, self.topic)
        if is_new:
            await _check_creation(client, self.topic)
        is_live = self.shows_bar and sys.stderr.isatty()
        try:
            with Progress(clock, "", shown=is_live) as progress:
                async for part in self.source:
                    await self._send(client, part.items, summary.records)
                    summary.add(part.items)
                    if is_new and part.items:
                        created, is_new = await _created(client, self.topic), False
                        if not is_live:
                            _print(created)
                    if part.problem is not None:
                        raise MinikafkaError(f"{part.problem}; {_count(summary.records)}")
                    read += part.size
                    note = f"{size(read)}, {summary.records:,} records"
                    progress.update({self.topic: Amount(read, self.total, note)})
        finally:
            if is_live:  # a line in between would damage the bar
                _print(created)
        summary.seconds = (clock.now() - began) / 1_000
        return summary

    async def _send(self, client: Client, items: Sequence[Item], done: int) -> None:
        """Produce these records. `done`: number of records that earlier calls have stored. Raises KafkaError."""
        from minikafka.client import NotProduced

        try:
            await client.produce(
                self.topic,
                [item.record for item in items],
                partition=[item.partition for item in items],
                acks=self.acks,
                codec=self.codec,
            )
        except NotProduced as error:
            raise not_stored(error, self.topic, items, done) from error


def input_size(files: Sequence[str]) -> int | None:
    """Return the bytes of these files, or of standard input without files; None if one is not a regular file."""
    total = 0
    sources: Sequence[str | int] = files or [STDIN]
    for source in sources:
        found = os.stat(source)
        if not stat.S_ISREG(found.st_mode):
            return None
        total += found.st_size
    return total


def _print(line: str) -> None:
    if line:
        echo(line, err=True)


async def _exists(client: Client, topic: str) -> bool:
    """True if the topic exists. If a broker does not know the topic, ask the controller: the broker may lag."""
    if (await client.admin.describe([topic]))[1]:
        return True
    return bool(await client.admin.describe_topics([topic]))


async def _check_creation(client: Client, topic: str) -> None:
    """Raise UnknownTopics at once if brokers do not create a topic that does not exist."""
    from minikafka.client.admin_results import Resource, ResourceType

    brokers = (await client.describe_cluster()).brokers
    resource = Resource(ResourceType.BROKER, str(min(brokers, default=0)))
    found = (await client.admin.describe_configs([resource]))[resource]
    if any(entry.name == _AUTO_CREATE and entry.value == "false" for entry in found.entries):
        raise unknown_topics([topic])


async def _created(client: Client, topic: str) -> str:
    """Return a line about a topic that was created, "" if the topic does not exist."""
    found = (await client.admin.describe_topics([topic])).get(topic)
    if found is None:
        return ""
    partitions = found.partitions.values()
    count = f"{len(partitions)} partition{'' if len(partitions) == 1 else 's'}"
    replicas = max(len(info.replicas) for info in partitions)
    return f"created topic {topic}: {count}, replication factor {replicas}"


def not_stored(error: NotProduced, topic: str, items: Sequence[Item], done: int) -> KafkaError:
    """Return the error for a record that was refused. `done`: number of records that earlier calls stored."""
    item, stored = items[error.index], _count(done + error.stored)
    place = item.place
    if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and item.partition is not None:
        partition = f"{topic}-{item.partition}"
        if error.detail == partition:
            hint = f"to list its partitions: minikafka topics describe {topic}"
            return KafkaError(
                error.code, f"{place}: there is no partition {partition}; {stored} ({hint})"
            )
    if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not done + error.stored:
        return error  # its text names the topic, which helps more than the input's line number
    if error.code is ErrorCode.MESSAGE_TOO_LARGE:
        limit = f"larger than max.message.bytes of topic {topic}"
        hint = f"to raise it: minikafka configs set --topic {topic} max.message.bytes=N"
        return KafkaError(error.code, f"{place} is {limit}; {stored} ({hint})")
    return KafkaError(error.code, f"{place} ({error.reason}); {stored}")


def _count(stored: int) -> str:
    return f"{stored} record{' was' if stored == 1 else 's were'} stored"
