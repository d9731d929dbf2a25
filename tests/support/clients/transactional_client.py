"""A transactional producer and a read_committed reader over a MemoryCluster, one request at a time.

`TransactionalProducer` retries as clients do after errors that they retry, and raises `Fenced` or `MustAbort` after
all others. `committed_values` filters aborted batches as consumers do, by the list in each Fetch response.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from support.clients.group_client import RETRY_MS, TRIES, GroupClient, Unanswered

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.kafka.records.batch import Record, build, marker_of, records
from minikafka.kafka.records.header import (
    ATTRIBUTES,
    BASE_OFFSET,
    BATCH_LENGTH,
    CONTROL,
    HEADER,
    HEADER_BYTES,
    LAST_OFFSET_DELTA,
    OVERHEAD,
    PRODUCER_ID,
    TRANSACTIONAL,
)
from minikafka.kafka.wire.versions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FETCH,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    PRODUCE,
    TXN_OFFSET_COMMIT,
)
from minikafka.simulation.cluster import MemoryCluster

CLIENT_VERSION = 3
"""The highest version of AddPartitionsToTxn that clients send."""
TIMEOUT_MS = 60_000
READ_COMMITTED = 1
FENCED = frozenset(
    {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.FENCED_INSTANCE_ID}
)
BUSY = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
"""Errors of the coordinator after which a producer sends the same request again."""
MOVING = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""Errors of a partition's leader after which a client sends the same request again."""


class Fenced(Exception):
    """A later producer has the same transactional id."""


class MustAbort(Exception):
    """The transaction cannot be committed. The argument is the error code."""


class LeaderClient(GroupClient):
    """Sends requests to the leaders of partitions."""

    async def ask_leader(self, tp: TopicPartition, api: int, read: Any, **values: Any) -> Any:
        """Send a request to the leader of `tp` until `read(answer)` has no error of a leader that has moved.

        `read` returns the row of the partition in a response.
        """
        row: Any = None
        for _ in range(TRIES):
            port = self._leader_port(tp)
            if port is not None:
                try:
                    row = read(await self.send(port, api, **values))
                except OSError as error:
                    self._count(error)
                else:
                    if row.error_code not in MOVING:
                        return row
            await self.cluster.clock.sleep(RETRY_MS)
        raise Unanswered(f"{tp}: {row}")

    def _leader_port(self, tp: TopicPartition) -> int | None:
        """Return the port of the leader in the newest leader epoch that any broker knows."""
        states = [
            state
            for broker in self.cluster.brokers.values()
            if (state := broker.metadata.topics.get(tp.topic, {}).get(tp.partition)) is not None
        ]
        newest = max(states, key=lambda state: state.leader_epoch, default=None)
        return None if newest is None or newest.leader < 0 else 9092 + newest.leader


class TransactionalProducer(LeaderClient):
    """A producer with the transactional id `group`; its coordinator is found as that of a group."""

    key_type = 1

    def __init__(self, cluster: MemoryCluster, transactional_id: str, home: int = 0) -> None:
        super().__init__(cluster, transactional_id, home)
        self.leaders = LeaderClient(cluster, "")
        self.producer_id = self.producer_epoch = -1
        self.sequences: dict[TopicPartition, int] = {}
        self.added: set[Any] = set()
        """Partitions and groups in the current transaction."""

    @property
    def fields(self) -> dict[str, Any]:
        """The fields that identify the producer in requests."""
        return {
            "transactional_id": self.group,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
        }

    async def init(self, timeout_ms: int = TIMEOUT_MS, *, recovers: bool = False) -> None:
        """Send InitProducerId. `recovers`: with the producer's id and epoch (KIP-360)."""
        old = self.fields if recovers else {"transactional_id": self.group}
        answer = await self.until_free(
            INIT_PRODUCER_ID, None, **old, transaction_timeout_ms=timeout_ms
        )
        self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch
        self.sequences.clear()
        self.added.clear()

    async def until_free(self, api: int, version: int | None = None, **values: Any) -> Any:
        """Send a request to the coordinator until the error is not in BUSY. Raises Fenced or MustAbort."""
        for _ in range(TRIES):
            answer = await self.ask(api, version, **values)
            error = _error_of(answer)
            if error not in BUSY:
                _check(error)
                return answer
            await self.cluster.clock.sleep(RETRY_MS)
        raise Unanswered(f"{self.group}: {answer}")

    async def add(self, *partitions: TopicPartition) -> None:
        """Send AddPartitionsToTxn."""
        by_topic: dict[str, list[int]] = {}
        for tp in partitions:
            by_topic.setdefault(tp.topic, []).append(tp.partition)
        topics = [{"name": name, "partitions": numbers} for name, numbers in by_topic.items()]
        fields = {**self.fields, "topics": topics}
        await self.until_free(
            ADD_PARTITIONS_TO_TXN,
            CLIENT_VERSION,
            **{f"v3_and_below_{name}": value for name, value in fields.items()},
        )
        self.added |= set(partitions)

    async def produce(self, tp: TopicPartition, *values: bytes) -> int:
        """Add the partition to the transaction if necessary, and write the values as one batch; return its offset."""
        if tp not in self.added:
            await self.add(tp)
        sequence = self.sequences.get(tp, 0)
        row = await self.send_batch(tp, sequence, values)
        _check(row.error_code)
        self.sequences[tp] = sequence + len(values)
        return int(row.base_offset)

    async def send_batch(self, tp: TopicPartition, sequence: int, values: Sequence[bytes]) -> Any:
        """Send a batch to the leader of `tp`; return the partition's row in the response."""
        batch = build(
            [Record(0, self.cluster.clock.wall_ms(), None, value) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
            attributes=TRANSACTIONAL,
        )
        rows = [{"index": tp.partition, "records": batch}]
        return await self.leaders.ask_leader(
            tp,
            PRODUCE,
            lambda answer: answer.responses[0].partition_responses[0],
            transactional_id=self.group,
            acks=-1,
            timeout_ms=TIMEOUT_MS,
            topic_data=[{"name": tp.topic, "partition_data": rows}],
        )

    async def commit_offsets(
        self,
        group: GroupClient,
        offsets: Mapping[tuple[str, int], int],
        generation: int = -1,
        member_id: str = "",
        instance: str | None = None,
    ) -> None:
        """Add the group to the transaction if necessary, and commit offsets of it in the transaction."""
        if group.group not in self.added:
            await self.until_free(ADD_OFFSETS_TO_TXN, **self.fields, group_id=group.group)
            self.added.add(group.group)
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, partition), offset in offsets.items():
            row = {"partition_index": partition, "committed_offset": offset}
            topics.setdefault(topic, []).append({**row, "committed_metadata": ""})
        for _ in range(TRIES):
            answer = await group.ask(
                TXN_OFFSET_COMMIT,
                **self.fields,
                group_id=group.group,
                generation_id=generation,
                member_id=member_id,
                group_instance_id=instance,
                topics=[{"name": name, "partitions": rows} for name, rows in topics.items()],
            )
            codes = {int(row.error_code) for topic in answer.topics for row in topic.partitions}
            error = max(codes)
            if error not in MOVING:
                _check(error)
                return
            await self.cluster.clock.sleep(RETRY_MS)
        raise Unanswered(f"{group.group}: {answer}")

    async def end(self, *, commit: bool = True) -> None:
        """Send EndTxn, if the transaction has partitions."""
        if self.added:
            await self.until_free(END_TXN, **self.fields, committed=commit)
            self.added.clear()

    def close(self) -> None:
        """Close all connections of this client."""
        super().close()
        self.leaders.close()


def _error_of(answer: Any) -> int:
    codes = {int(getattr(answer, "error_code", 0))}
    for topic in getattr(answer, "results_by_topic_v3_and_below", ()):
        codes |= {int(row.partition_error_code) for row in topic.results_by_partition}
    codes.discard(ErrorCode.OPERATION_NOT_ATTEMPTED)
    return max(codes)


def _check(error: int) -> None:
    if error in FENCED:
        raise Fenced(error)
    if error:
        raise MustAbort(ErrorCode(error))


class CommittedReader(LeaderClient):
    """A consumer of one partition. `isolation`: 1 read_committed, 0 read_uncommitted."""

    def __init__(
        self, cluster: MemoryCluster, tp: TopicPartition, isolation: int = READ_COMMITTED
    ) -> None:
        super().__init__(cluster, "")
        self.tp = tp
        self.isolation = isolation
        self.position = 0

    async def poll(self, max_bytes: int = 1 << 20) -> list[tuple[int, bytes]]:
        """Return offset and value of the next records, [] if there are none yet."""
        row = {
            "partition": self.tp.partition,
            "fetch_offset": self.position,
            "partition_max_bytes": max_bytes,
        }
        topic_id = self.cluster.topic_id(self.tp.topic)
        answer = await self.ask_leader(
            self.tp,
            FETCH,
            _fetched,
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=self.isolation,
            session_epoch=-1,
            topics=[{"topic": self.tp.topic, "topic_id": topic_id, "partitions": [row]}],
            rack_id="",
        )
        assert not answer.error_code, answer
        return self._visible(answer)

    def _visible(self, answer: Any) -> list[tuple[int, bytes]]:
        """Return the visible records of a response, and move the position behind its last batch."""
        waiting = sorted(
            ((row.first_offset, row.producer_id) for row in answer.aborted_transactions or ()),
            reverse=True,
        )
        aborted: set[int] = set()
        found: list[tuple[int, bytes]] = []
        data = bytes(answer.records or b"")
        at = 0
        while len(data) - at >= HEADER_BYTES:
            header = HEADER.unpack_from(data, at)
            size = OVERHEAD + header[BATCH_LENGTH]
            if len(data) - at < size:
                break
            batch = memoryview(data)[at : at + size]
            at += size
            last = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
            while waiting and waiting[-1][0] <= last:
                aborted.add(waiting.pop()[1])
            if header[ATTRIBUTES] & CONTROL:
                if not marker_of(batch).committed:
                    aborted.discard(header[PRODUCER_ID])
            elif not (header[ATTRIBUTES] & TRANSACTIONAL and header[PRODUCER_ID] in aborted):
                found += [
                    (record.offset, record.value or b"")
                    for record in records(batch)
                    if record.offset >= self.position
                ]
            self.position = max(self.position, last + 1)
        return found

    async def end(self) -> int:
        """Return the end of the partition for this isolation level: the last stable offset for read_committed."""
        row = {"partition_index": self.tp.partition, "timestamp": -1}
        answer = await self.ask_leader(
            self.tp,
            LIST_OFFSETS,
            lambda answer: answer.topics[0].partitions[0],
            replica_id=-1,
            isolation_level=self.isolation,
            topics=[{"name": self.tp.topic, "partitions": [row]}],
        )
        return int(answer.offset)

    async def rest(self) -> list[bytes]:
        """Return the values of all records from the position up to the current end."""
        end = await self.end()
        values: list[bytes] = []
        while self.position < end:
            values += [value for _, value in await self.poll()]
        return values


def _fetched(answer: Any) -> Any:
    return answer.responses[0].partitions[0]


async def committed_values(cluster: MemoryCluster, tp: TopicPartition) -> list[bytes]:
    """Return the values that a read_committed consumer reads in the whole partition."""
    reader = CommittedReader(cluster, tp)
    values = await reader.rest()
    reader.close()
    return values
