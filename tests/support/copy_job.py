"""A job that copies partitions exactly once over a MemoryCluster, and the producer of what it copies.

The job reads committed records, and writes them in a transaction together with its offsets. It keeps nothing but its
transactional id and its group: after any error it begins again with a new producer at the committed offsets, as Kafka
Streams does.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from support.group_client import RETRY_MS, GroupClient, Unanswered
from support.transactional_client import (
    CommittedReader,
    Fenced,
    MustAbort,
    TransactionalProducer,
    committed_values,
)

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.kafka.wire.versions import OFFSET_FETCH
from minikafka.simulation.cluster import MemoryCluster

SOURCE, TARGET = "source", "target"
PARTITIONS = 2
STEP_BYTES = 200
"""Maximum bytes that the job reads at once from a partition, so that it commits often."""


class Died(Exception):
    """The instance of the job has died."""


class CopyJob:
    """One instance of the job. `restarts`: the errors after which the job began again.

    `dies_at`: the number of the request that the instance sends last; it gets no response. None: the instance lives.
    """

    def __init__(
        self,
        cluster: MemoryCluster,
        name: str = "copy",
        home: int = 0,
        dies_at: int | None = None,
    ) -> None:
        self.cluster = cluster
        self.name = name
        self.home = home
        self.dies_at = dies_at
        self.requests = 0
        self.restarts: Counter[str] = Counter()
        self.transactions = 0
        self._clients: list[GroupClient] = []

    def start(self) -> asyncio.Task[None]:
        """Copy in a task, until the task is cancelled or the instance dies."""
        return asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while True:
            try:
                await self._session()
            except Died:
                return
            except (Fenced, MustAbort, Unanswered, OSError) as error:
                self.restarts[repr(error)] += 1
            finally:
                self.close()
            await self.cluster.clock.sleep(RETRY_MS)

    def close(self) -> None:
        """Close all connections of the job."""
        for client in self._clients:
            client.close()
        self._clients.clear()

    async def _session(self) -> None:
        producer = TransactionalProducer(self.cluster, self.name, self.home)
        group = GroupClient(self.cluster, self.name, self.home)
        readers = [
            CommittedReader(self.cluster, TopicPartition(SOURCE, number))
            for number in range(PARTITIONS)
        ]
        self._clients += [producer, producer.leaders, group, *readers]
        for client in self._clients:
            client.before_response = self._count_request
        await producer.init()
        positions = await stable_positions(group)
        for reader in readers:
            reader.position = positions[reader.tp.partition]
        while True:
            if not await self._copy_next(producer, group, readers):
                await self.cluster.clock.sleep(RETRY_MS)

    def _count_request(self) -> None:
        self.requests += 1
        if self.requests == self.dies_at:
            raise Died

    async def _copy_next(
        self,
        producer: TransactionalProducer,
        group: GroupClient,
        readers: list[CommittedReader],
    ) -> bool:
        """Copy what the next read of each partition returns, in one transaction. Return False if that is nothing."""
        offsets: dict[tuple[str, int], int] = {}
        for reader in readers:
            before = reader.position
            found = await reader.poll(STEP_BYTES)
            if found:
                target = TopicPartition(TARGET, reader.tp.partition)
                await producer.produce(target, *(transformed(value) for _, value in found))
            if reader.position > before:
                offsets[reader.tp] = reader.position
        if offsets:
            await producer.commit_offsets(group, offsets)
            await producer.end()
            self.transactions += 1
        return bool(offsets)


async def stable_positions(group: GroupClient) -> dict[int, int]:
    """Return the committed offset of each source partition, 0 without one; wait while an offset is unstable."""
    asked = [{"name": SOURCE, "partition_indexes": list(range(PARTITIONS))}]
    while True:
        answer = await group.ask(
            OFFSET_FETCH,
            groups=[{"group_id": group.group, "topics": asked}],
            require_stable=True,
        )
        rows = answer.groups[0].topics[0].partitions
        codes = {int(row.error_code) for row in rows}
        if codes == {0}:
            return {row.partition_index: max(row.committed_offset, 0) for row in rows}
        assert codes <= {0, int(ErrorCode.UNSTABLE_OFFSET_COMMIT)}, codes
        await group.cluster.clock.sleep(RETRY_MS)


def transformed(value: bytes) -> bytes:
    """Return the value that the job writes for a value that it has read."""
    return b"<" + value + b">"


class Source:
    """The producer of the source: it commits most of its transactions, and aborts every third."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self.cluster = cluster
        self.expected: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
        self.count = 0

    async def fill(self, transactions: int) -> None:
        """Write transactions with some records to every partition, on a healthy cluster."""
        producer = TransactionalProducer(self.cluster, "source")
        await producer.init()
        for _ in range(transactions):
            self.count += 1
            is_committed = self.count % 3 != 0
            for number in range(PARTITIONS):
                values = [b"%d-%d-%d" % (number, self.count, i) for i in range(3)]
                await producer.produce(TopicPartition(SOURCE, number), *values)
                if is_committed:
                    self.expected[number] += values
            await producer.end(commit=is_committed)
        producer.close()

    async def until_copied(self, seconds: float = 600) -> None:
        """Wait until the target holds as many committed records as the source. Raises AssertionError after a while."""
        readers = [
            CommittedReader(self.cluster, TopicPartition(TARGET, number))
            for number in range(PARTITIONS)
        ]
        found: list[list[bytes]] = [[] for _ in readers]
        try:
            async with asyncio.timeout(seconds):
                while any(len(self.expected[n]) > len(values) for n, values in enumerate(found)):
                    for reader, values in zip(readers, found, strict=True):
                        values += [value for _, value in await reader.poll()]
                    await self.cluster.clock.sleep(RETRY_MS)
        except TimeoutError:
            counts = [(len(self.expected[n]), len(values)) for n, values in enumerate(found)]
            raise AssertionError(f"(expected, copied) records: {counts}") from None
        finally:
            for reader in readers:
                reader.close()

    async def check(self) -> None:
        """Check that the target equals the transformed source: each record once, in order."""
        for number in range(PARTITIONS):
            copied = await committed_values(self.cluster, TopicPartition(TARGET, number))
            assert copied == [transformed(value) for value in self.expected[number]]
