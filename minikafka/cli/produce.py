"""`produce`: send lines of standard input as records, in order; exit code 1 unless all were acknowledged."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal

import click

from minikafka.base.errors import ErrorCode, KafkaError, MinikafkaError
from minikafka.cli.execution import run_with_client
from minikafka.cli.find_cluster import bootstrap_servers
from minikafka.cli.options import bootstrap_option, data_option, topic_argument
from minikafka.cli.topic_errors import explain_topic_errors

if TYPE_CHECKING:
    from minikafka.client import Client, NotProduced, Record

CODECS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
ACKS: Final[dict[str, Literal[-1, 0, 1]]] = {"all": -1, "-1": -1, "0": 0, "1": 1}
CHUNK_BYTES: Final = 1024 * 1024
CHUNKS_MAX: Final = 4
"""Maximum number of chunks read from standard input but not yet sent."""
_STDIN: Final = 0


@click.command()
@topic_argument
@click.option(
    "-p",
    "--partition",
    type=click.IntRange(0),
    metavar="N",
    help="Partition of all records (default: by key, else in turn).",
)
@click.option(
    "-K", "--key-delimiter", metavar="DELIM", help="Split each line into key and value at DELIM."
)
@click.option(
    "--acks",
    type=click.Choice(list(ACKS)),
    default="all",
    show_default=True,
    help="Wait for every in-sync replica (all or -1), for the leader (1), or not at all (0).",
)
@click.option(
    "--compression",
    type=click.Choice(list(CODECS)),
    default="none",
    show_default=True,
    help="Codec of the batches.",
)
@bootstrap_option
@data_option
def produce(
    topic: str,
    partition: int | None,
    key_delimiter: str | None,
    acks: str,
    compression: str,
    bootstrap: str | None,
    data: str | None,
) -> None:
    """Send each line of standard input to TOPIC as a record, until all are acknowledged."""
    from minikafka.client import NotProduced

    delimiter = key_delimiter.encode() if key_delimiter else None
    if sys.stdin is None:
        raise MinikafkaError(f"standard input is closed: minikafka produce {topic} < FILE")

    async def work(client: Client) -> None:
        done = 0
        async for lines in stdin_lines():
            try:
                await client.produce(
                    topic,
                    [record_of(line, delimiter) for line in lines],
                    partition=partition,
                    acks=ACKS[acks],
                    codec=CODECS[compression],
                )
            except NotProduced as error:
                raise not_stored(error, topic, done) from error
            done += len(lines)

    with explain_topic_errors(topic):
        run_with_client(work, bootstrap_servers(bootstrap, data))


def not_stored(error: NotProduced, topic: str, before: int) -> KafkaError:
    """Return the error for a refused line; `before`: number of lines that earlier calls stored."""
    line, stored = before + error.index + 1, before + error.stored
    count = f"{stored} record{' was' if stored == 1 else 's were'} stored"
    if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not stored:
        return error  # its text names the topic, which matters more than the line
    if error.code is ErrorCode.MESSAGE_TOO_LARGE:
        limit = f"larger than max.message.bytes of topic {topic}"
        hint = f"to raise it: minikafka configs set --topic {topic} max.message.bytes=N"
        return KafkaError(error.code, f"line {line} is {limit}; {count} ({hint})")
    return KafkaError(error.code, f"line {line} ({error.detail}); {count}")


def record_of(line: bytes, delimiter: bytes | None) -> Record:
    """Return a line as a record; a line without the delimiter gives a record without key."""
    from minikafka.client import Record

    key, separator, value = line.partition(delimiter) if delimiter else (b"", b"", line)
    return Record(-1, -1, key, value, ()) if separator else Record(-1, -1, None, line, ())


async def stdin_lines() -> AsyncIterator[list[bytes]]:
    """Yield lists of whole lines without line ends, as they arrive; the last line may lack its line end."""
    rest = b""
    async for chunk in _stdin_chunks():
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield lines
    if rest:
        yield [rest]


async def _stdin_chunks() -> AsyncIterator[bytes]:
    """Yield chunks of standard input; a daemon thread reads them, so a blocked read does not delay exit."""
    import asyncio

    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(CHUNKS_MAX)

    def read() -> None:
        chunk: bytes | OSError = b"-"
        while chunk and not isinstance(chunk, OSError):
            room.acquire()
            try:
                chunk = os.read(_STDIN, CHUNK_BYTES)
            except OSError as error:
                chunk = error
            with suppress(RuntimeError):  # the loop is closed: the command is ending
                loop.call_soon_threadsafe(chunks.put_nowait, chunk)

    threading.Thread(target=read, daemon=True, name="stdin").start()
    while chunk := await chunks.get():
        if isinstance(chunk, OSError):
            raise MinikafkaError(f"standard input: {chunk.strerror}") from chunk
        yield chunk
        room.release()
