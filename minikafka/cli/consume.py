"""`consume`: records of a topic to standard output, one a line."""

from __future__ import annotations

import base64
import json
import sys
from typing import Any, NamedTuple

import click

from minikafka.base.errors import ErrorCode, KafkaError, MinikafkaError
from minikafka.cli.target import (
    bootstrap_option,
    bootstrap_servers,
    data_option,
    errors_name_topic,
    json_option,
    run,
    topic_argument,
)
from minikafka.client import Client
from minikafka.client.consumer import ConsumedRecord


class Offsets(NamedTuple):
    """Where to begin, and the offset at which each partition ends, if one was given."""

    start: Any
    end: int | None


def parse_offsets(context: click.Context, option: click.Parameter, text: str) -> Offsets:
    """earliest, latest, N, or N:M."""
    if text in ("earliest", "latest"):
        return Offsets(text, None)
    start, separator, end = text.partition(":")
    if start.isdecimal() and (end.isdecimal() or not separator):
        if separator and int(start) > int(end):
            raise click.BadParameter(f"{text!r} ends before it begins", context, option)
        return Offsets(int(start), int(end) if separator else None)
    problem = f"{text!r} is not earliest, latest, an offset or FROM:TO"
    raise click.BadParameter(problem, context, option)


@click.command()
@topic_argument
@click.option("-p", "--partition", type=click.IntRange(0), help="Default: all.")
@click.option(
    "-o",
    "--offset",
    callback=parse_offsets,
    default="earliest",
    show_default=True,
    metavar="WHERE",
    help="earliest, latest, an offset, or FROM:TO (TO is not read).",
)
@click.option("-e", "--exit", "until_end", is_flag=True, help="Stop at the end of the topic.")
@click.option("-c", "--count", type=click.IntRange(1), metavar="N", help="Stop after N records.")
@click.option("-K", "--key-delimiter", metavar="DELIM", help="Print KEY DELIM VALUE.")
@bootstrap_option
@data_option
@json_option
def consume(
    topic: str,
    partition: int | None,
    offset: Offsets,
    until_end: bool,
    count: int | None,
    key_delimiter: str | None,
    bootstrap: str | None,
    data: str | None,
    as_json: bool,
) -> None:
    """Print the records of TOPIC, in order per partition; waits for more unless told otherwise."""
    delimiter = key_delimiter.encode() if key_delimiter else None
    if sys.stdout is None:
        raise MinikafkaError("standard output is closed: nobody would see the records")

    async def work(servers: str) -> None:
        left = count
        async with Client(servers) as client:
            partitions = None if partition is None else [partition]
            if isinstance(offset.start, int):
                await _check_start(client, topic, partitions, offset.start)
            records = client.consume(
                topic,
                partitions=partitions,
                start=offset.start,
                until_end=until_end or offset.end is not None,
            )
            async for record in records:
                if offset.end is not None and record.offset >= offset.end:
                    continue
                _write(as_line(record, delimiter) if not as_json else as_json_line(topic, record))
                left = left and left - 1
                if left == 0:
                    break
            await records.aclose()

    with errors_name_topic(topic):
        run(work(bootstrap_servers(bootstrap, data)))


async def _check_start(
    client: Client, topic: str, partitions: list[int] | None, start: int
) -> None:
    """Raises KafkaError when a partition has no such offset, and is not about to have it next."""
    first = await client.list_offsets(topic, "earliest", partitions)
    end = await client.list_offsets(topic, "latest", list(first))
    for number, lowest in sorted(first.items()):
        if not lowest <= start <= end[number]:
            text = f"{topic}-{number} has no offset {start}: it can be read from {lowest}"
            highest = f" to {end[number]}, its end" if end[number] > lowest else ", its end, only"
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, text + highest)


def _write(line: bytes) -> None:
    """At once: somebody may be watching. Raises BrokenPipeError, and MinikafkaError for all else."""
    try:
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise MinikafkaError(f"standard output: {error.strerror}") from error


def as_line(record: ConsumedRecord, delimiter: bytes | None) -> bytes:
    """The value, behind the key if a delimiter was given."""
    value = record.value or b""
    return value if delimiter is None else (record.key or b"") + delimiter + value


def as_json_line(topic: str, record: ConsumedRecord) -> bytes:
    """The whole record; bytes that are not UTF-8 stand as {"base64": …}."""
    fields = {
        "topic": topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
    }
    return json.dumps(fields, ensure_ascii=False).encode()


def _text(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
