"""`produce`: send lines, JSON or files as records, in order. Exit code 1 if a record was not acknowledged."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal

import click

from minikafka.base.errors import ErrorCode, KafkaError, MinikafkaError
from minikafka.cli import completion
from minikafka.cli.execution import run_with_client
from minikafka.cli.find_cluster import bootstrap_servers
from minikafka.cli.options import bootstrap_option, data_option, timeout_option
from minikafka.cli.record_format import unescape
from minikafka.cli.record_input import Header, Item, Shape, check_files, file_items, line_items
from minikafka.cli.topic_errors import explain_topic_errors

if TYPE_CHECKING:
    from minikafka.client import Client, NotProduced

CODECS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
ACKS: Final[dict[str, Literal[-1, 0, 1]]] = {"all": -1, "-1": -1, "0": 0, "1": 1}

_EPILOG = r"""
A record with a key goes to the partition of its key, the same as with Kafka's clients. Records without
a key are spread: 16 KiB of them go to one partition, the next 16 KiB to the next one, and so on, from a
random one; input that is typed line by line goes to another partition with each line.

A line of --json is an object with any of "key", "value", "headers", "partition" and "timestamp" (Unix ms,
default: now), as `minikafka consume --json` prints it. Keys and values are strings or null;
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
        headers.append((name, value.encode(errors="surrogateescape")))
    return tuple(headers)


@click.command(epilog=_EPILOG)
@click.argument(
    "words", nargs=-1, metavar="TOPIC [FILE]…", shell_complete=completion.topic_then_files
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
@bootstrap_option
@data_option
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
    bootstrap: str | None,
    data: str | None,
) -> None:
    """Send each line of standard input to TOPIC as a record, and wait until all are acknowledged.

    With FILEs, send each whole file as one record; with -l or --json, each line of a file is one record.
    """
    if named is None and not words:
        raise click.UsageError("name a topic, as TOPIC or as -t TOPIC")
    topic, files = (words[0], words[1:]) if named is None else (named, words)
    is_whole = bool(files) and not (lines or as_json)
    if key_delimiter == "":
        raise click.UsageError("-K must not be empty")
    if key_delimiter and (as_json or is_whole):
        raise click.UsageError("-K splits lines: it cannot be combined with --json or whole files")
    delimiter = unescape(key_delimiter) if key_delimiter else None
    shape = Shape(delimiter, headers, tombstone, partition)
    if not files and sys.stdin is None:
        raise MinikafkaError(f"standard input is closed: minikafka produce {topic} < FILE")
    check_files(files)
    parse = shape.of_json if as_json else shape.of_line

    async def work(client: Client) -> None:
        done = 0
        source = (
            file_items(files, shape) if is_whole else line_items(files, parse, skip_blank=as_json)
        )
        is_new = not await _exists(client, topic)
        async for items, problem in source:
            await _send(client, topic, items, ACKS[acks], CODECS[compression], done)
            if is_new and items:
                await _report_created(client, topic)
                is_new = False
            done += len(items)
            if problem is not None:
                raise MinikafkaError(f"{problem}; {_count(done)}")

    with explain_topic_errors(topic):
        run_with_client(work, bootstrap_servers(bootstrap, data))


async def _exists(client: Client, topic: str) -> bool:
    """True if the topic exists. If a broker does not know the topic, ask the controller: the broker may lag."""
    if (await client.admin.describe([topic]))[1]:
        return True
    return bool(await client.admin.describe_topics([topic]))


async def _report_created(client: Client, topic: str) -> None:
    found = (await client.admin.describe_topics([topic])).get(topic)
    if found is not None:
        partitions = found.partitions.values()
        count = f"{len(partitions)} partition{'' if len(partitions) == 1 else 's'}"
        replicas = max(len(info.replicas) for info in partitions)
        click.echo(f"created topic {topic}: {count}, replication factor {replicas}", err=True)


async def _send(
    client: Client,
    topic: str,
    items: Sequence[Item],
    acks: Literal[-1, 0, 1],
    codec: int,
    done: int,
) -> None:
    """Produce these records. `done`: number of records that earlier calls have stored. Raises KafkaError."""
    from minikafka.client import NotProduced

    try:
        await client.produce(
            topic,
            [item.record for item in items],
            partition=[item.partition for item in items],
            acks=acks,
            codec=codec,
        )
    except NotProduced as error:
        raise not_stored(error, topic, items, done) from error


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
