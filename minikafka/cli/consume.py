"""`consume`: print the records of a topic to standard output, one per line."""

from __future__ import annotations

import base64
import json
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from minikafka.base.errors import ErrorCode, KafkaError, MinikafkaError
from minikafka.cli.execution import run_with_client
from minikafka.cli.find_cluster import bootstrap_servers
from minikafka.cli.options import bootstrap_option, data_option, json_option, topic_argument
from minikafka.cli.topic_errors import explain_topic_errors

if TYPE_CHECKING:
    from minikafka.client import Client
    from minikafka.client.consumer import ConsumedRecord


class Offsets(NamedTuple):
    """The offset at which to start (or earliest, latest), and the offset before which to stop, if any."""

    start: Any
    end: int | None


def parse_offsets(context: click.Context, option: click.Parameter, text: str) -> Offsets:
    """Parse the value of --offset: earliest, latest, N or N:M; a click callback. Raises BadParameter."""
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
@click.option(
    "-p",
    "--partition",
    type=click.IntRange(0),
    metavar="N",
    help="Read only this partition (default: all).",
)
@click.option(
    "-o",
    "--offset",
    callback=parse_offsets,
    default="earliest",
    show_default=True,
    metavar="WHERE",
    help="Where to start: earliest, latest, an offset, or FROM:TO (stops before TO).",
)
@click.option(
    "-e", "--exit", "until_end", is_flag=True, help="Stop at the end that each partition has now."
)
@click.option("-c", "--count", type=click.IntRange(1), metavar="N", help="Stop after N records.")
@click.option(
    "-K", "--key-delimiter", metavar="DELIM", help="Print the key and DELIM in front of each value."
)
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
    """Print the records of TOPIC, in order within each partition, and wait for more until Ctrl-C."""
    delimiter = key_delimiter.encode() if key_delimiter else None
    if sys.stdout is None:
        raise MinikafkaError("standard output is closed: the records cannot be printed")

    async def work(client: Client) -> None:
        left = count
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

    with explain_topic_errors(topic):
        run_with_client(work, bootstrap_servers(bootstrap, data))


async def _check_start(
    client: Client, topic: str, partitions: list[int] | None, start: int
) -> None:
    """Raise KafkaError unless `start` is from the first to the end offset of each partition."""
    first = await client.list_offsets(topic, "earliest", partitions)
    end = await client.list_offsets(topic, "latest", list(first))
    for number, lowest in sorted(first.items()):
        if not lowest <= start <= end[number]:
            text = f"{topic}-{number} has no offset {start}: valid offsets are {lowest} to {end[number]}"
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, text)


def _write(line: bytes) -> None:
    """Write a line to standard output and flush it. Raises BrokenPipeError and MinikafkaError."""
    try:
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise MinikafkaError(f"standard output: {error.strerror}") from error


def as_line(record: ConsumedRecord, delimiter: bytes | None) -> bytes:
    """Return a record as a line: its value, with the key and `delimiter` in front if that is given."""
    value = record.value or b""
    return value if delimiter is None else (record.key or b"") + delimiter + value


def as_json_line(topic: str, record: ConsumedRecord) -> bytes:
    """Return a record as a line of JSON; bytes that are not UTF-8 become {"base64": …}."""
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
