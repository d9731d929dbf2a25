"""Pipelined Produce requests whose records are checked in steps, in turns that end at any time."""

from __future__ import annotations

from random import Random

import pytest
from support.kafka.encoders import CODECS, raw_batch
from support.kafka.produced_batches import record
from support.kafka.silent_client import Reader, join
from support.until import until

from minikafka.base.errors import ErrorCode
from minikafka.client import NewTopic
from minikafka.kafka.records.codecs import compress
from minikafka.kafka.wire.codec import decode_response, encode_request, request
from minikafka.kafka.wire.versions import PRODUCE
from minikafka.simulation.clocks import LoopClock
from minikafka.simulation.cluster import MemoryCluster

LONG = compress(CODECS["lz4"], record(value=bytes(300_000)))
BATCHES = {
    "short": (raw_batch(record(), 1), 0),
    "long": (raw_batch(LONG, 1, codec=CODECS["lz4"]), 0),
    "long and invalid": (raw_batch(LONG, 2, codec=CODECS["lz4"]), ErrorCode.INVALID_RECORD),
}
"""Batches, each with the error code of its check. The check of a long batch takes several turns."""
REQUESTS = 10
PARTITIONS = 8


class UnevenClock(LoopClock):
    """A clock that advances by 0 or 1 ms when it is read, so that a turn ends after any piece of work."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self._random = random
        self._time = 0

    def now(self) -> int:
        self._time += self._random.choice((0, 0, 1))
        return self._time


def produce_request(number: int, names: list[str]) -> bytes:
    rows = [{"index": index, "records": BATCHES[name][0]} for index, name in enumerate(names)]
    topics = [{"name": "t", "partition_data": rows}]
    body = request(PRODUCE, 9, transactional_id=None, acks=1, timeout_ms=60_000, topic_data=topics)
    return encode_request(PRODUCE, 9, number, "pipelined", body)


def errors(response: bytes) -> list[int]:
    (topic,) = decode_response(PRODUCE, 9, response).responses
    return [row.error_code for row in topic.partition_responses]


@pytest.mark.parametrize("seed", range(8))
async def test_every_pipelined_request_is_answered_after_its_records_were_checked(
    seed: int,
) -> None:
    """A step taken before the check has ended appends an unchecked batch, and then nothing continues the request."""
    random = Random(seed)
    memory = MemoryCluster(1)
    memory.clock = UnevenClock(random)
    async with memory as cluster, cluster.client() as other:
        await other.create_topics(NewTopic("t", PARTITIONS, 1))
        expected: dict[Reader, list[list[int]]] = {}
        for _ in range(3):
            client = await join(cluster)
            client.link.resume_reading()
            asked = [
                random.choices([*BATCHES], k=random.choice((1, 4, PARTITIONS)))
                for _ in range(REQUESTS)
            ]
            expected[client] = [[BATCHES[name][1] for name in names] for names in asked]
            client.link.send([produce_request(*numbered) for numbered in enumerate(asked)])
        await until(
            lambda: all(len(client.responses()) == REQUESTS for client in expected), seconds=20
        )
        for client, codes in expected.items():
            assert [errors(response) for response in client.responses()] == codes
