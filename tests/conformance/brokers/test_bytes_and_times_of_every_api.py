"""A broker answers every request of every version, with any bytes in its strings and any number in its times.

The test encodes each request itself, and chooses the bytes of each string and the value of each integer.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field

import pytest
from support.kafka.raw_answers import answer

from minikafka.client import NewTopic
from minikafka.kafka.messages import table
from minikafka.kafka.messages.source import FORMATS
from minikafka.kafka.messages.table import Field, Structure
from minikafka.kafka.records.varints import uvarint
from minikafka.kafka.wire.codec import decode_response, is_flexible
from minikafka.kafka.wire.primitives import INT16, INT32
from minikafka.kafka.wire.versions import (
    FETCH,
    FIND_COORDINATOR,
    NAMES,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    PRODUCE,
    SERVED,
)
from minikafka.simulation.cluster import MemoryCluster


@dataclass(frozen=True)
class Filling:
    """The values of a request's fields.

    `texts` and `numbers` are values of fields by name. Any other string is `text`, any other number `number`.
    """

    text: bytes = b"t"
    number: int = 0
    texts: Mapping[str, bytes] = field(default_factory=dict)
    numbers: Mapping[str, int] = field(default_factory=dict)


def frame(api: int, version: int, filling: Filling, client_id: bytes = b"raw") -> bytes:
    """Return a request frame in which every array has one element."""
    flexible = is_flexible(api, version)
    head = INT16.pack(api) + INT16.pack(version) + INT32.pack(7)
    head += INT16.pack(len(client_id)) + client_id + (b"\0" if flexible else b"")
    data = head + structure(table.request(api).structure, version, flexible, filling)
    return INT32.pack(len(data)) + data


def structure(fields: Structure, version: int, flexible: bool, filling: Filling) -> bytes:
    """Return the encoded structure."""
    out = b""
    for item in fields.fields:
        if version not in item.versions or version in item.tagged:
            continue
        if item.is_array:
            out += uvarint(2) if flexible else INT32.pack(1)
        if item.structure is not None:
            out += structure(item.structure, version, flexible, filling)
        else:
            out += value(item, flexible, filling)
    return out + (b"\0" if flexible else b"")


def value(item: Field, flexible: bool, filling: Filling) -> bytes:
    """Return one encoded value of a field."""
    if item.type == "string":
        text = filling.texts.get(item.name, filling.text)
        return (uvarint(len(text) + 1) if flexible else INT16.pack(len(text))) + text
    if item.type in ("bytes", "records"):
        return b"\x01" if flexible else INT32.pack(0)
    if item.type == "uuid":
        return bytes(16)
    number = filling.numbers.get(item.name, filling.number)
    return struct.pack(f">{FORMATS[item.type]}", number)


def names_of(api: int, version: int, kind: str) -> set[str]:
    """Return the names of all fields of a type, in every structure of a request."""
    return set(_names_of(table.request(api).structure, version, kind))


def _names_of(fields: Structure, version: int, kind: str) -> Iterator[str]:
    for item in fields.fields:
        if version not in item.versions:
            continue
        if item.structure is not None:
            yield from _names_of(item.structure, version, kind)
        elif item.type == kind:
            yield item.name


pytestmark = pytest.mark.usefixtures("each_mode")

NOT_UTF8 = [b"\xff", b"caf\xe9", b"\xed\xa0\x80", b"\xc3", b"a\0\xfe", b"\x80" * 5_000]
REFUSED = {(PRODUCE, version) for version in range(3)}
"""Versions that are advertised, but refused, because librdkafka needs to see them."""
ANSWERED = [
    (api, version)
    for api, (low, high) in SERVED.items()
    for version in range(low, high + 1)
    if (api, version) not in REFUSED
]
TIMES = ("time", "wait")
ONE = {"offsets_topic_replication_factor": 1, "offsets_topic_num_partitions": 1}


@pytest.fixture
async def cluster() -> AsyncIterator[MemoryCluster]:
    async with asyncio.timeout(60), MemoryCluster(1, **ONE) as cluster:
        async with cluster.client() as client:
            await client.create_topics(NewTopic("t", 1, 1))
        yield cluster


async def unanswered(
    cluster: MemoryCluster, fillings: dict[tuple[int, int], list[Filling]]
) -> list[str]:
    """Return the requests that the broker did not answer."""
    return [
        f"{NAMES[api]} v{version}: {filling}"
        for (api, version), each in fillings.items()
        for filling in each
        if await answer(cluster, frame(api, version, filling)) is None
    ]


async def test_every_string_that_is_not_utf8_is_answered(cluster: MemoryCluster) -> None:
    numbers = {"acks": 1}
    fillings = {key: [Filling(text, 1, {}, numbers) for text in NOT_UTF8] for key in ANSWERED}
    assert await unanswered(cluster, fillings) == []


def with_extreme_times(api: int, version: int) -> list[Filling]:
    """Return a request for each extreme value of each field that holds a time."""
    return [
        Filling(b"t", 0, {}, {"acks": 1, name: number})
        for kafka_type, bits in (("int32", 31), ("int64", 63))
        for name in names_of(api, version, kafka_type)
        if any(part in name for part in TIMES)
        for number in (-(2**bits), 2**bits - 1, -2, 0)
        if not (api == FETCH and name == "max_wait_ms" and number > 0)
    ]


async def test_every_time_of_an_extreme_value_is_answered(cluster: MemoryCluster) -> None:
    fillings = {key: with_extreme_times(*key) for key in ANSWERED}
    assert sum(map(len, fillings.values())) > 200
    assert await unanswered(cluster, fillings) == []


async def commit_error(cluster: MemoryCluster, request: bytes) -> int:
    data = await answer(cluster, request)
    assert data is not None
    return int(decode_response(OFFSET_COMMIT, 2, data).topics[0].partitions[0].error_code)


async def test_commit_metadata_that_is_not_utf8_is_stored_with_u_fffd(
    cluster: MemoryCluster,
) -> None:
    numbers = {"generation_id_or_member_epoch": -1, "committed_offset": 5}
    texts = {"group_id": b"g\xff", "member_id": b"", "committed_metadata": b"caf\xe9!"}
    commit = frame(OFFSET_COMMIT, 2, Filling(b"t", 0, texts, numbers))
    async with asyncio.timeout(20):
        while error := await commit_error(cluster, commit):
            assert error in (14, 15, 16), error  # the coordinator is not ready yet
            await answer(cluster, frame(FIND_COORDINATOR, 0, Filling(b"g")))
    data = await answer(cluster, frame(OFFSET_FETCH, 1, Filling(b"t", 0, {"group_id": b"g\xfe"})))
    assert data is not None
    (partition,) = decode_response(OFFSET_FETCH, 1, data).topics[0].partitions
    assert (partition.committed_offset, partition.metadata) == (5, "caf\ufffd!")
