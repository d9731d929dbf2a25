"""`produce`: lines of standard input become records, in order; the exit code tells whether all were acked."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final, Literal

import click

from minikafka.base.errors import ErrorCode, KafkaError, MinikafkaError
from minikafka.cli.target import (
    bootstrap_option,
    bootstrap_servers,
    data_option,
    errors_name_topic,
    run,
    topic_argument,
)
from minikafka.client import Client, NotProduced, Record

CODECS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
ACKS: Final[dict[str, Literal[-1, 0, 1]]] = {"all": -1, "-1": -1, "0": 0, "1": 1}
CHUNK_BYTES: Final = 1024 * 1024
CHUNKS_MAX: Final = 4
"""Chunks read ahead of the brokers."""
_STDIN: Final = 0


@click.command()
@topic_argument
@click.option("-p", "--partition", type=click.IntRange(0), help="Default: by key, else in turn.")
@click.option("-K", "--key-delimiter", metavar="DELIM", help="A line is KEY DELIM VALUE.")
@click.option("--acks", type=click.Choice(list(ACKS)), default="all", show_default=True)
@click.option("--compression", type=click.Choice(list(CODECS)), default="none", show_default=True)
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
    """Send each line of standard input to TOPIC; ends when all are acknowledged."""
    delimiter = key_delimiter.encode() if key_delimiter else None
    if sys.stdin is None:
        raise MinikafkaError(f"standard input is closed: minikafka produce {topic} < FILE")

    async def work(servers: str) -> None:
        done = 0
        async with Client(servers) as client:
            async for lines in stdin_lines():
                try:
                    await client.produce(
                        topic,
                        [record(line, delimiter) for line in lines],
                        partition=partition,
                        acks=ACKS[acks],
                        codec=CODECS[compression],
                    )
                except NotProduced as error:
                    raise not_stored(error, topic, done) from error
                done += len(lines)

    with errors_name_topic(topic):
        run(work(bootstrap_servers(bootstrap, data)))


def not_stored(error: NotProduced, topic: str, before: int) -> KafkaError:
    """The error for a line that was refused, `before` lines being stored by earlier calls."""
    line, stored = before + error.index + 1, before + error.stored
    told = f"{stored} record{' was' if stored == 1 else 's were'} stored"
    if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not stored:
        return error  # there is more to say of the topic than of the line
    if error.code is ErrorCode.MESSAGE_TOO_LARGE:
        limit = f"larger than max.message.bytes of topic {topic} allows"
        fix = f"to raise it: minikafka configs set --topic {topic} max.message.bytes=N"
        return KafkaError(error.code, f"line {line} is {limit}; {told} ({fix})")
    return KafkaError(error.code, f"line {line} ({error.detail}); {told}")


def record(line: bytes, delimiter: bytes | None) -> Record:
    """A line as a record; without the delimiter in it, a record without key."""
    key, separator, value = line.partition(delimiter) if delimiter else (b"", b"", line)
    return Record(-1, -1, key, value, ()) if separator else Record(-1, -1, None, line, ())


async def stdin_lines() -> AsyncIterator[list[bytes]]:
    """Whole lines without their ends, as many as there are at a time; the last may lack its end."""
    rest = b""
    async for chunk in _stdin_chunks():
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield lines
    if rest:
        yield [rest]


async def _stdin_chunks() -> AsyncIterator[bytes]:
    """What standard input gives, read by a thread that nobody has to wait for when the command ends."""
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
            with suppress(RuntimeError):  # the loop is closed: the command has ended
                loop.call_soon_threadsafe(chunks.put_nowait, chunk)

    threading.Thread(target=read, daemon=True, name="stdin").start()
    while chunk := await chunks.get():
        if isinstance(chunk, OSError):
            raise MinikafkaError(f"standard input: {chunk.strerror}") from chunk
        yield chunk
        room.release()
