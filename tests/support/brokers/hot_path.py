"""The hot path of one broker in memory, and the objects and instructions that each of its requests costs.

    python -m support.brokers.hot_path

One broker leads a partition, with a follower in the ISR that the test plays. Requests are handed to the broker's
connections as the bytes that a client sends, one request per tick. `MEASURED` has the counts of CPython 3.11, which do
not depend on the machine or on hash values. A budget is 5% above. As a program, this module prints all counts, and for
a count above its budget the lines of the product that cost the most; it then ends with 1. After a change that costs
more or less on purpose, copy the printed counts to `MEASURED`.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Awaitable, Callable
from contextlib import nullcontext

from support.clients.group_client import GroupClient
from support.until import until

from benchmarks.allocations import Allocations, Cost
from minikafka.base.model import LeaderAndIsrRequest, PartitionState, TopicPartition
from minikafka.base.ports import Link
from minikafka.client import NewTopic
from minikafka.kafka.records.batch import Record, build
from minikafka.kafka.wire.codec import encode_request, request
from minikafka.kafka.wire.fetch import encode_request as encode_follower_request
from minikafka.kafka.wire.versions import FETCH, OFFSET_COMMIT, PRODUCE
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded
from minikafka.simulation.transport import MemoryLink

T0 = TopicPartition("t", 0)
FOLLOWER = 9
LEADER_EPOCH = 3
WARM_UP, REQUESTS = 4, 4
SLACK = 1.05
MEASURED = {
    "produce": Cost(70.75, 1815.25),
    "commit": Cost(27.0, 953.0),
    "follower fetch": Cost(45.25, 1506.25),
    "consumer fetch": Cost(91.25, 2140.0),
    "consumer fetch by id": Cost(114.0, 2349.0),
    "offset commit": Cost(482.5, 5971.5),
}


class Client:
    """A client of the broker. `answered`: number of bytes of responses."""

    link: MemoryLink

    def __init__(self) -> None:
        self.answered = 0
        self._buffer = bytearray(64 << 10)

    def connected(self, link: Link) -> None:
        assert isinstance(link, MemoryLink)
        self.link = link

    def disconnected(self, error: Exception | None) -> None:
        pass

    def get_buffer(self, hint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        self.answered += count

    def drained(self) -> None:
        pass

    def send(self, data: bytes) -> None:
        """Hand a request to the broker's connection, as the event loop does."""
        connection = self.link.other._handler
        memoryview(connection.get_buffer(-1))[: len(data)] = data
        connection.buffer_updated(len(data))


class Stage:
    """The broker, its partition and three clients. `costs`: what each kind of request has cost."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self.cluster = cluster
        self.broker = cluster.brokers[0]
        self.costs = {kind: Allocations() for kind in MEASURED}
        self.is_counting = False
        self.fetches = 0
        self.produce_request = produce_request()

    async def connect(self) -> None:
        """Make this broker the leader, with the follower in the ISR, and connect the clients."""
        state = PartitionState(
            T0, 0, LEADER_EPOCH, (0, FOLLOWER), 5, 100, (0, FOLLOWER), is_new=True
        )
        told = LeaderAndIsrRequest(
            0, 100, self.broker.info.epoch, (state,), (self.broker.info,), ()
        )
        await self.broker.capabilities.roles.handle(told)
        self.partition = self.broker.replicas.partitions[T0]
        clients = [await self._client() for _ in range(5)]
        self.producer, self.follower, self.consumer, self.by_id, self.committer = clients

    async def _client(self) -> Client:
        client = Client()
        await self.cluster.transport.connect(lambda: client, "127.0.0.1", 9092)
        return client

    def send(self, kind: str, client: Client, data: bytes) -> None:
        """Send a request, and count its cost if `is_counting`."""
        if not self.is_counting:
            client.send(data)
            return
        with self.costs[kind].counted():
            client.send(data)

    def follower_fetch(self, kind: str, offset: int) -> None:
        rows = [(0, LEADER_EPOCH, offset, LEADER_EPOCH, 0, 1 << 20)]
        limits, session = (60_000, 1, 1 << 20), (int(self.fetches > 0), self.fetches)
        data = encode_follower_request(7, b"", FOLLOWER, limits, session, [(b"t", rows)], ())
        self.fetches += 1
        self.send(kind, self.follower, data)

    def round(self) -> None:
        """Produce two records with acks=all; the follower fetches and commits them, and a consumer reads one.

        The waiting fetch of the follower gets the first record in the tick of its produce request. The next fetch
        commits the first record and gets the second, and the fetch after it commits the second record and waits.
        """
        offset = self.partition.log.log_end_offset
        self.send("produce", self.producer, self.produce_request)
        self.producer.send(self.produce_request)
        self.follower_fetch("follower fetch", offset + 1)
        self.follower_fetch("commit", offset + 2)
        assert self.partition.high_watermark == offset + 2
        self.send("consumer fetch", self.consumer, consumer_fetch(offset))
        topic_id = self.partition.log.topic_id
        self.send("consumer fetch by id", self.by_id, consumer_fetch(offset, 17, topic_id))

    async def commit_offset(self) -> None:
        """Commit an offset of a group without members. The broker answers in later turns of the event loop."""
        client, answered = self.committer, self.committer.answered
        self.send("offset commit", client, COMMIT_REQUEST)
        counts = self.costs["offset commit"].counted() if self.is_counting else nullcontext()
        with counts:
            await until(lambda: client.answered > answered)


def produce_request() -> bytes:
    """Return a request with one batch of one record, acks=all."""
    row = {"index": 0, "records": build([Record(0, 1000, b"key", b"value" * 20, ())])}
    topics = [{"name": "t", "partition_data": [row]}]
    body = request(PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=60_000, topic_data=topics)
    return encode_request(PRODUCE, 9, 7, "producer", body)


def consumer_fetch(offset: int, version: int = 11, topic_id: bytes | None = None) -> bytes:
    """Return a request without a session for the records from `offset` on."""
    row = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    topics = [{"topic": "t", "topic_id": topic_id, "partitions": [row]}]
    body = request(
        FETCH, version, replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=topics
    )
    return encode_request(FETCH, version, 7, "consumer", body)


def commit_request() -> bytes:
    """Return an OffsetCommit of one partition."""
    row = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
    body = request(
        OFFSET_COMMIT,
        8,
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[{"name": "t", "partitions": [row]}],
    )
    return encode_request(OFFSET_COMMIT, 8, 7, "committer", body)


COMMIT_REQUEST = commit_request()
CONFIG = {"offsets_topic_num_partitions": 1, "offsets_topic_replication_factor": 1}


def run(scenario: Callable[[Stage], Awaitable[None]]) -> None:
    """Run a scenario in virtual time, so that the counts do not depend on the speed of the machine."""

    async def scene() -> None:
        async with MemoryCluster(1, **CONFIG) as cluster, cluster.client() as admin:
            await admin.create_topics(NewTopic("t", 1, 1))
            user = GroupClient(cluster, "g")
            assert await user.commit({("t", 0): 1}) == {0}
            user.close()
            stage = Stage(cluster)
            await stage.connect()
            await scenario(stage)

    run_seeded(1, scene())


async def count_costs(stage: Stage) -> None:
    """Count the cost of `REQUESTS` requests of each kind, in `stage.costs`."""
    stage.is_counting = True
    for number in range(WARM_UP + REQUESTS):
        if number == WARM_UP:
            # CPython allocates once for each code object that is traced, and keeps freed objects.
            gc.collect()
            for cost in stage.costs.values():
                cost.reset()
        stage.round()
        await stage.commit_offset()


def main() -> int:
    """Print the counts, and the lines with the most of each count above its budget; return 1 if there is one."""
    excess = []

    async def scenario(stage: Stage) -> None:
        await count_costs(stage)
        for kind, measured in MEASURED.items():
            print(f"{kind}: {stage.costs[kind].mean(REQUESTS)}; recorded: {measured}")
            budget = Cost(*(SLACK * count for count in measured))
            if found := stage.costs[kind].excess(REQUESTS, budget):
                excess.append(f"{kind}: {found}")

    gc.disable()
    run(scenario)
    print("\n".join(excess))
    return 1 if excess else 0


if __name__ == "__main__":
    sys.exit(main())
