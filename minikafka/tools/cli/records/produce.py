"""`produce`: send lines, JSON or files as records, in order. Exit code 1 if a record was not acknowledged.

Progress, errors about single records and a summary are printed on standard error.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import click

import minikafka.client as clients
import minikafka.client.administration.results as administration
import minikafka.tools.cli.terminal.progress as displays
from minikafka.base.errors import ErrorCode, KafkaError, MinikafkaError
from minikafka.runtime.clock import SystemClock
from minikafka.tools.cli.arguments import completion
from minikafka.tools.cli.arguments.find_cluster import bootstrap_servers
from minikafka.tools.cli.arguments.options import connection_options, timeout_option
from minikafka.tools.cli.execution.running import run_with_client
from minikafka.tools.cli.records.record_format import unescape
from minikafka.tools.cli.records.record_input import (
    STDIN,
    Header,
    InputRecord,
    Part,
    Shape,
    check_files,
    file_items,
    line_items,
)
from minikafka.tools.cli.terminal.echo import as_line, echo
from minikafka.tools.cli.terminal.topic_errors import explain_topic_errors, unknown_topics

CODECS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
ACKS: Final[dict[str, Literal[-1, 0, 1]]] = {"all": -1, "-1": -1, "0": 0, "1": 1}

_EPILOG = r"""
A record with a key goes to the partition of its key, the same as with Kafka's clients. Records without
a key are spread: 16 KiB of them go to one partition, the next 16 KiB to the next one, and so on, from a
random one; input that is typed line by line goes to another partition with each line.

A line of --json is an object with any of "key", "value", "headers", "partition" and "timestamp" (Unix ms,
also below 0; default: now), as `minikafka consume --json` prints it. Keys and values are strings or null;
"key_base64" and "value_base64" hold other bytes. Headers are objects: [{"key": "h", "value": "v"}].
"""


def _parse_headers(
    context: click.Context, option: click.Parameter, texts: Sequence[str]
) -> tuple[Header, ...]:
    headers = []
    for text in texts:
        name, separator, value = text.partition("=")
        if not name or not separator:
            raise click.BadParameter(f"{text!r} is not KEY=VALUE", context, option)
        try:
            name.encode()
        except UnicodeEncodeError:
            problem = f"the name of a header must be UTF-8, got {name!r}"
            raise click.BadParameter(problem, context, option) from None
        headers.append((name, value.encode(errors="surrogateescape")))
    return tuple(headers)


@click.command(epilog=_EPILOG)
@click.argument(
    "words", nargs=-1, metavar="TOPIC [FILE]...", shell_complete=completion.topic_then_files
)
@click.option(
    "-t",
    "--topic",
    "named",
    metavar="TOPIC",
    help="Same as TOPIC.",
    shell_complete=completion.topics,
)
@click.option(
    "-p",
    "--partition",
    type=click.IntRange(0),
    metavar="N",
    help="Partition of all records that name none (default: see below).",
)
@click.option("-l", "--lines", is_flag=True, help="Send each line of the FILEs as a record.")
@click.option(
    "-K",
    "--key-delimiter",
    metavar="DELIM",
    help=r"Split each line into key and value at DELIM; \t is a tab. A line without DELIM has no key.",
)
@click.option("--json", "as_json", is_flag=True, help="Read each line as a JSON object; see below.")
@click.option(
    "-H",
    "--header",
    "headers",
    multiple=True,
    callback=_parse_headers,
    metavar="KEY=VALUE",
    help="Add a header to every record; may be repeated.",
)
@click.option("-Z", "--tombstone", is_flag=True, help="Send empty values as null (tombstones).")
@click.option(
    "--acks",
    type=click.Choice(list(ACKS)),
    default="all",
    show_default=True,
    help="Wait for every in-sync replica (all or -1), for the leader (1), or not at all (0).",
)
@click.option(
    "-z",
    "--compression",
    type=click.Choice(list(CODECS)),
    default="none",
    show_default=True,
    help="Codec of the batches.",
)
@click.option(
    "--summary",
    type=click.Choice(["text", "json", "none"]),
    help="At the end, print the number of records, bytes and seconds: as a line on standard error (the default with "
    "-l and with FILEs), as a JSON object on standard output, or not at all.",
)
@connection_options
@timeout_option
def produce(
    words: tuple[str, ...],
    named: str | None,
    partition: int | None,
    lines: bool,
    key_delimiter: str | None,
    as_json: bool,
    headers: tuple[Header, ...],
    tombstone: bool,
    acks: str,
    compression: str,
    summary: str | None,
    bootstrap: str | None,
    data: str | None,
) -> None:
    """Send each line of standard input to TOPIC as a record, and wait until all are acknowledged.

    With FILEs, send each whole file as one record; with -l or --json, each line of a file is one record. A terminal
    then shows a progress bar.
    """
    if named is None and not words:
        raise click.UsageError("name a topic, as TOPIC or as -t TOPIC")
    topic, files = (words[0], words[1:]) if named is None else (named, words)
    is_whole = bool(files) and not (lines or as_json)
    delimiter = _delimiter(key_delimiter, splits_lines=not (as_json or is_whole))
    shape = Shape(delimiter, headers, tombstone, partition)
    if not files and sys.stdin is None:
        raise MinikafkaError(f"standard input is closed: minikafka produce {topic} < FILE")
    check_files(files)
    parse = shape.of_json if as_json else shape.of_line

    source = file_items(files, shape) if is_whole else line_items(files, parse, skip_blank=as_json)
    is_bulk = lines or bool(files)
    is_typed = not files and sys.stdin.isatty()
    sending = Sending(
        topic,
        source,
        ACKS[acks],
        CODECS[compression],
        shows_bar=is_bulk and not is_typed,
        total=input_size(files),
    )
    with explain_topic_errors(topic):
        sent = run_with_client(sending.run, bootstrap_servers(bootstrap, data))
    summary = summary or ("text" if is_bulk else "none")
    if summary == "json":
        echo(as_line(sent.as_json()))
    elif summary == "text":
        echo(sent.text(), err=True)


def _delimiter(given: str | None, *, splits_lines: bool) -> bytes | None:
    """Return the value of `-K` without escapes, None if it is not given. Raises UsageError."""
    if given is None:
        return None
    if not given:
        raise click.UsageError("-K must not be empty")
    if not splits_lines:
        raise click.UsageError("-K splits lines: it cannot be combined with --json or whole files")
    return unescape(given)


_AUTO_CREATE: Final = "auto.create.topics.enable"
Acks = Literal[-1, 0, 1]


@dataclass(slots=True)
class ProduceSummary:
    """The records that were sent so far. `size`: bytes of their keys and values."""

    topic: str
    records: int = 0
    size: int = 0
    seconds: float = 0.0

    def add(self, items: Sequence[InputRecord]) -> None:
        """Count records that were sent."""
        self.records += len(items)
        self.size += sum(
            len(item.record.key or b"") + len(item.record.value or b"") for item in items
        )

    def text(self) -> str:
        """Return the summary as a line, such as `sent 2 records (10 B) to events in 0.1 s`."""
        count = f"{self.records:,} record{'' if self.records == 1 else 's'}"
        rate = f", {round(self.records / self.seconds):,} per second" if self.seconds else ""
        return f"sent {count} ({displays.size(self.size)}) to {self.topic} in {self.seconds:.1f} s{rate}"

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

    async def run(self, client: clients.Client) -> ProduceSummary:
        """Send all records; return when they are acknowledged. Raises KafkaError, MinikafkaError."""
        clock = SystemClock()
        began, read = clock.now(), 0
        summary = ProduceSummary(self.topic)
        created = ""
        is_new = not await _exists(client, self.topic)
        if is_new:
            await _check_creation(client, self.topic)
        is_live = self.shows_bar and sys.stderr.isatty()
        try:
            with displays.Progress(clock, "", shown=is_live) as progress:
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
                    note = f"{displays.size(read)}, {summary.records:,} records"
                    progress.update({self.topic: displays.Amount(read, self.total, note)})
        finally:
            if is_live:  # a line in between would damage the bar
                _print(created)
        summary.seconds = (clock.now() - began) / 1_000
        return summary

    async def _send(self, client: clients.Client, items: Sequence[InputRecord], done: int) -> None:
        """Produce these records. `done`: number of records that earlier calls have stored. Raises KafkaError."""
        try:
            await client.produce(
                self.topic,
                [item.record for item in items],
                partition=[item.partition for item in items],
                acks=self.acks,
                codec=self.codec,
            )
        except clients.NotProduced as error:
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


async def _exists(client: clients.Client, topic: str) -> bool:
    """True if the topic exists. If a broker does not know the topic, ask the controller: the broker may lag."""
    if (await client.admin.describe([topic]))[1]:
        return True
    return bool(await client.admin.describe_topics([topic]))


async def _check_creation(client: clients.Client, topic: str) -> None:
    """Raise UnknownTopics at once if brokers do not create a topic that does not exist."""
    brokers = (await client.describe_cluster()).brokers
    resource = administration.Resource(
        administration.ResourceType.BROKER, str(min(brokers, default=0))
    )
    found = (await client.admin.describe_configs([resource]))[resource]
    if any(entry.name == _AUTO_CREATE and entry.value == "false" for entry in found.entries):
        raise unknown_topics([topic])


async def _created(client: clients.Client, topic: str) -> str:
    """Return a line about a topic that was created, "" if the topic does not exist."""
    found = (await client.admin.describe_topics([topic])).get(topic)
    if found is None:
        return ""
    partitions = found.partitions.values()
    count = f"{len(partitions)} partition{'' if len(partitions) == 1 else 's'}"
    replicas = max(len(info.replicas) for info in partitions)
    return f"created topic {topic}: {count}, replication factor {replicas}"


def not_stored(
    error: clients.NotProduced, topic: str, items: Sequence[InputRecord], done: int
) -> KafkaError:
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
