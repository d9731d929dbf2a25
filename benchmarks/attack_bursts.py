"""Bursts of small requests that need much memory, for `benchmarks.attacks`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import Final, NamedTuple

import cramjam
import lz4.frame
import zstandard

from benchmarks.kafka import LENGTH, batch_of, fetch_request
from minikafka.kafka.records import batch
from minikafka.kafka.records.codecs import compress, crc32c
from minikafka.kafka.records.header import (
    ATTRIBUTES,
    BATCH_LENGTH,
    CRC,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    OVERHEAD,
)
from minikafka.kafka.records.inflate import GZIP, LZ4, SNAPPY, ZSTD
from minikafka.kafka.wire import codec
from minikafka.kafka.wire.versions import METADATA, PRODUCE

Address = tuple[str, int]
Step = tuple[bytes, int]
"""Bytes to send, and the number of responses to receive before the next step."""

TOPIC: Final = "burst"
INFLATED_BYTES: Final = 20 << 20
SECONDS_MAX: Final = 120.0
FETCH_WAIT_MS: Final = 2_000
LARGEST_WINDOW_LOG: Final = 27
"""Consumers refuse larger windows."""


class Burst(NamedTuple):
    """An attack: `connections` connections take the steps at the same time. `steps` takes the number of a connection.

    `broker`: settings of the broker. `partitions` and `configs`: those of the topic. `groups`: the broker must
    coordinate groups before the burst.
    """

    name: str
    connections: int
    steps: Callable[[int], Iterable[Step]]
    partitions: int = 1
    configs: Mapping[str, str] = {}
    broker: Mapping[str, object] = {}
    groups: bool = False
    is_refused: Callable[[bytes], bool] | None = None
    """True for a response that refuses a request for lack of memory; None if no request may be refused."""


async def carry_out(address: Address, burst: Burst, connections: int) -> int:
    """Open all connections, then take the steps on all of them at once.

    Return the number of refused requests. Raises TimeoutError, OSError.
    """
    opened = [await asyncio.open_connection(*address) for _ in range(connections)]
    try:
        async with asyncio.timeout(SECONDS_MAX), asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(_take_steps(burst, number, *streams))
                for number, streams in enumerate(opened)
            ]
        return sum(task.result() for task in tasks)
    finally:
        for _, writer in opened:
            writer.transport.abort()


async def _take_steps(
    burst: Burst, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> int:
    """Take the steps of one connection, and return the number of refused requests."""
    refused = 0
    for data, responses in burst.steps(number):
        writer.write(data)
        for _ in range(responses):
            (size,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
            response = await reader.readexactly(size)
            refused += burst.is_refused is not None and burst.is_refused(response)
    return refused


@cache
def _inflating(codec_number: int, compressor: Callable[[bytes], bytes], size: int) -> bytes:
    """Return a batch of one record of zeros, whose records `compressor` has compressed from about `size` bytes."""
    plain = batch.build([batch.Record(0, 0, None, bytes(size), ())])
    body = compressor(plain[HEADER_BYTES:])
    header = list(HEADER.unpack_from(plain))
    header[BATCH_LENGTH] = HEADER_BYTES - OVERHEAD + len(body)
    header[ATTRIBUTES] = codec_number
    data = bytearray(HEADER.pack(*header) + body)
    header[CRC] = crc32c(memoryview(data)[CRC_START:])
    HEADER.pack_into(data, 0, *header)
    return bytes(data)


def _snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


def _lz4(data: bytes) -> bytes:
    options = {"block_size": lz4.frame.BLOCKSIZE_MAX4MB, "block_linked": False}
    return bytes(lz4.frame.compress(data, store_size=False, **options))


def _zstd(data: bytes) -> bytes:
    return compress(ZSTD, data)


def _zstd_with_large_window(data: bytes) -> bytes:
    parameters = zstandard.ZstdCompressionParameters(window_log=LARGEST_WINDOW_LOG)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return stream.compress(data) + stream.flush()


def _gzip(data: bytes) -> bytes:
    return compress(GZIP, data)


def produce(
    data: bytes, partitions: Iterable[int] = (0,), topic: str = TOPIC, client: str = "attacker"
) -> bytes:
    """Return a Produce request with the same batch for each partition."""
    rows = [{"index": number, "records": data} for number in partitions]
    topics = [{"name": topic, "partition_data": rows}]
    body = codec.request(PRODUCE, 7, acks=-1, timeout_ms=30_000, topic_data=topics)
    return codec.encode_request(PRODUCE, 7, 1, client, body)


def _compressed(
    codec_number: int,
    compressor: Callable[[bytes], bytes],
    _: int,
    size: int = INFLATED_BYTES,
    partitions: int = 1,
) -> Iterable[Step]:
    """Return a request with a batch of `size` bytes of zeros for each partition."""
    data = _inflating(codec_number, compressor, size)
    return [(produce(data, range(partitions)), 1)]


def _client_ids(_: int) -> Iterable[Step]:
    """Return requests with different client ids of 30 KB, each sent after the response to the one before."""
    data = batch_of(100)
    return ((produce(data, client=f"{number:030000}"), 1) for number in range(1_500))


def _behind_a_fetch(_: int) -> Iterable[Step]:
    """Return a fetch that waits for records, with requests behind it whose responses wait for it."""
    limits = {"wait_ms": FETCH_WAIT_MS, "partition_bytes": 1 << 20, "total_bytes": 1 << 20}
    fetch = fetch_request(TOPIC, {0: 0}, **limits)
    requests = 100 * produce(batch_of(100), range(60), topic="unknown")
    return [(fetch + requests, 101)]


def _metadata(_: int) -> Iterable[Step]:
    topics = [{"name": f"unknown-{number:04}"} for number in range(850)]
    body = codec.request(METADATA, 9, topics=topics, allow_auto_topic_creation=False)
    return [(codec.encode_request(METADATA, 9, 1, "attacker", body), 1)]


LEVEL_22: Final = {"compression.type": "zstd", "compression.zstd.level": "22"}
BURSTS: Final = (
    Burst("snappy, 0.98 MB that inflate to 20 MiB", 40, partial(_compressed, SNAPPY, _snappy)),
    Burst("snappy, 0.98 MB that inflate to 20 MiB", 120, partial(_compressed, SNAPPY, _snappy)),
    Burst(
        "lz4 in blocks of 4 MiB, 82 KB that inflate to 20 MiB",
        40,
        partial(_compressed, LZ4, _lz4),
    ),
    Burst("zstd, 0.8 KB that inflate to 20 MiB", 40, partial(_compressed, ZSTD, _zstd)),
    Burst(
        "zstd with a window of 128 MiB, 0.8 KB that inflate to 20 MiB",
        40,
        partial(_compressed, ZSTD, _zstd_with_large_window),
    ),
    Burst(
        "4 batches of snappy, 0.98 MB that inflate to 20 MiB each",
        30,
        partial(_compressed, SNAPPY, _snappy, partitions=4),
        partitions=4,
    ),
    Burst(
        "60 batches of zstd in 7 KB, which inflate to 0.9 MB each, topic with `compression.type=uncompressed`",
        30,
        partial(_compressed, ZSTD, _zstd, size=900_000, partitions=60),
        partitions=60,
        configs={"compression.type": "uncompressed"},
    ),
    Burst(
        "gzip, 2 KB that inflate to 1.8 MB, topic with `compression.zstd.level=22`",
        40,
        partial(_compressed, GZIP, _gzip, size=1_800_000),
        configs=LEVEL_22,
    ),
    Burst("1,500 Produce requests, each with another client id of 30 KB", 10, _client_ids),
    Burst(
        "100 Produce requests for 60 unknown partitions each, behind a fetch that waits",
        60,
        _behind_a_fetch,
    ),
    Burst("one Metadata request of 12 KB, then nothing", 600, _metadata),
)
