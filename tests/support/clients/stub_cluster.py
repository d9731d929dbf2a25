"""In-memory brokers that serve only the Kafka APIs that a client needs, with faults on request.

All brokers answer from the same state. Only the leader of a partition serves the partition. Frames are decoded and
encoded with `minikafka.kafka.wire`, which has separate tests.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable
from struct import Struct
from typing import Any

from minikafka.base.errors import ErrorCode
from minikafka.base.fetch_rows import PartitionData
from minikafka.base.ports import Buffer, Link, Listener, Transport
from minikafka.kafka.records.batch import records
from minikafka.kafka.records.header import HEADER
from minikafka.kafka.wire import codec, fetch, versions

_HEADER = Struct(">ihhih")
HOST = "127.0.0.1"


class StubPartition:
    """A partition: its leader, and its batches with their base offsets."""

    def __init__(self, leader: int) -> None:
        self.leader = leader
        self.epoch = 1
        self.start = 0
        self.batches: list[bytes] = []
        self.sequences: dict[tuple[int, int], int] = {}

    @property
    def end(self) -> int:
        if not self.batches:
            return self.start
        header = HEADER.unpack_from(self.batches[-1])
        return int(header[0] + header[6] + 1)

    def append(self, batch: bytes) -> int:
        """Append a batch and return its base offset. A batch repeated by an idempotent producer is not appended."""
        header = HEADER.unpack_from(batch)
        key = (header[9], header[11])
        if header[9] >= 0 and key in self.sequences:
            return self.sequences[key]
        base = self.end
        self.sequences[key] = base
        self.batches.append(base.to_bytes(8, "big") + batch[8:])
        return base

    def values(self) -> list[bytes | None]:
        return [record.value for batch in self.batches for record in records(batch)]


class StubCluster:
    """Brokers with the ids 1 to n. `failures[api]`: error codes of the next responses of that API."""

    def __init__(self, transport: Transport, brokers: int = 3) -> None:
        self.transport = transport
        self.ports: dict[int, int] = dict.fromkeys(range(1, brokers + 1), 0)
        self.listeners: dict[int, Listener] = {}
        self.links: defaultdict[int, list[Link]] = defaultdict(list)
        self.controller = 1
        self.topics: dict[str, list[StubPartition]] = {}
        self.topic_ids: defaultdict[str, bytes] = defaultdict(lambda: bytes(15) + b"\1")
        self.auto_create = False
        self.failures: defaultdict[int, deque[int]] = defaultdict(deque)
        self.requests: list[tuple[int, int]] = []
        self.silent: set[int] = set()
        self.lose_answers_of: set[int] = set()
        self.producer_ids = 0
        self.known_by: dict[int, dict[tuple[str, int], tuple[int, int]]] = {}

    async def start(self) -> StubCluster:
        for broker in self.ports:
            await self.restart(broker)
        return self

    async def restart(self, broker: int) -> None:
        listener = await self.transport.listen(
            lambda: StubConnection(self, broker), HOST, self.ports[broker]
        )
        self.listeners[broker] = listener
        self.ports[broker] = listener.port

    async def kill(self, broker: int) -> None:
        await self.listeners.pop(broker).close()
        for link in self.links.pop(broker, []):
            link.abort()

    async def close(self) -> None:
        for broker in list(self.listeners):
            await self.kill(broker)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports.values())

    def create(self, topic: str, leaders: list[int]) -> list[StubPartition]:
        self.topics[topic] = [StubPartition(leader) for leader in leaders]
        return self.topics[topic]

    def lead(self, topic: str, partition: int, broker: int) -> None:
        led = self.topics[topic][partition]
        led.leader, led.epoch = broker, led.epoch + 1

    def asked(self, api: int) -> list[int]:
        """Return the ids of the brokers that got requests of this API, in order."""
        return [broker for broker, key in self.requests if key == api]

    def answer(self, broker: int, api: int, request: Any) -> Any:
        """Return the response's fields. For Fetch: (flag, topics); the flag is True if there are records or errors."""
        return _ANSWERS[api](self, broker, request)

    def failure(self, api: int) -> int:
        return self.failures[api].popleft() if self.failures[api] else 0

    def leader_error(self, broker: int, topic: str, partition: int, epoch: int = -1) -> int:
        if topic not in self.topics:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        led = self.topics[topic][partition]
        if led.leader != broker:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return 0 if epoch in (-1, led.epoch) else ErrorCode.FENCED_LEADER_EPOCH

    def metadata(self, broker: int, request: Any) -> Any:
        wanted = [t.name for t in request.topics] if request.topics is not None else self.topics
        topics = []
        for name in wanted:
            if name not in self.topics and self.auto_create and request.allow_auto_topic_creation:
                self.create(name, [1, 2])
                topics.append({"name": name, "error_code": ErrorCode.LEADER_NOT_AVAILABLE})
            elif name not in self.topics:
                topics.append({"name": name, "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
            else:
                topics.append(self._topic(broker, name))
        brokers = [
            {"node_id": i, "host": HOST, "port": port, "rack": None}
            for i, port in self.ports.items()
            if i in self.listeners
        ]
        return {
            "brokers": brokers,
            "cluster_id": "stub",
            "controller_id": self.controller,
            "topics": topics,
        }

    def _topic(self, broker: int, name: str) -> dict[str, Any]:
        partitions = []
        for number, led in enumerate(self.topics[name]):
            known = self.known_by.get(broker, {}).get((name, number), (led.leader, led.epoch))
            partitions.append(
                {
                    "partition_index": number,
                    "leader_id": known[0],
                    "leader_epoch": known[1],
                    "replica_nodes": list(self.ports),
                    "isr_nodes": list(self.listeners),
                }
            )
        return {"name": name, "topic_id": self.topic_ids[name], "partitions": partitions}

    def produce(self, broker: int, request: Any) -> Any:
        topic = request.topic_data[0]
        data = topic.partition_data[0]
        error = self.failure(versions.PRODUCE) or self.leader_error(broker, topic.name, data.index)
        base = -1 if error else self.topics[topic.name][data.index].append(data.records)
        answer = {"index": data.index, "error_code": error, "base_offset": base}
        return {"responses": [{"name": topic.name, "partition_responses": [answer]}]}

    def fetch(self, broker: int, request: Any) -> Any:
        failure = self.failure(versions.FETCH)
        topics = []
        for topic in request.topics:
            answers = []
            for asked in topic.partitions:
                error = failure or self.leader_error(
                    broker, topic.topic, asked.partition, asked.current_leader_epoch
                )
                answers.append(self._read(topic.topic, asked, error))
            topics.append((topic.topic.encode(), answers))
        found = any(answer.size or answer.error for _, answers in topics for answer in answers)
        return found, topics

    def _read(self, topic: str, asked: Any, error: int) -> PartitionData:
        if error:
            return PartitionData(asked.partition, error, -1, -1, -1, (), 0)
        led = self.topics[topic][asked.partition]
        if not led.start <= asked.fetch_offset <= led.end:
            return PartitionData(asked.partition, 1, -1, -1, -1, (), 0)
        data = b""
        for batch in led.batches:
            header = HEADER.unpack_from(batch)
            if header[0] + header[6] >= asked.fetch_offset and len(data) < 1000:
                data += batch
        return PartitionData(asked.partition, 0, led.end, led.end, led.start, (data,), len(data))

    def list_offsets(self, broker: int, request: Any) -> Any:
        failure = self.failure(versions.LIST_OFFSETS)
        topics = []
        for topic in request.topics:
            answers = [
                self._offset(broker, topic.name, asked, failure) for asked in topic.partitions
            ]
            topics.append({"name": topic.name, "partitions": answers})
        return {"topics": topics}

    def _offset(self, broker: int, topic: str, asked: Any, failure: int) -> dict[str, Any]:
        error = failure or self.leader_error(
            broker, topic, asked.partition_index, asked.current_leader_epoch
        )
        answer = {"partition_index": asked.partition_index, "error_code": error, "offset": -1}
        if not error:
            led = self.topics[topic][asked.partition_index]
            later = (
                record.offset
                for batch in led.batches
                for record in records(batch)
                if record.timestamp >= asked.timestamp
            )
            offsets = {-2: led.start, -1: led.end}
            answer["offset"] = offsets.get(asked.timestamp, next(later, -1))
        return answer

    def create_topics(self, broker: int, request: Any) -> Any:
        answers = []
        for topic in request.topics:
            error = 0 if broker == self.controller else ErrorCode.NOT_CONTROLLER
            if not error and topic.name in self.topics:
                error = ErrorCode.TOPIC_ALREADY_EXISTS
            if not error:
                leaders = [a.broker_ids[0] for a in topic.assignments]
                self.create(topic.name, leaders or [1] * topic.num_partitions)
            answers.append({"name": topic.name, "error_code": error, "error_message": None})
        return {"topics": answers}

    def delete_topics(self, broker: int, request: Any) -> Any:
        answers = []
        for name in request.topic_names:
            known = self.topics.pop(name, None) is not None
            error = 0 if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answers.append({"name": name, "error_code": error, "error_message": None})
        return {"responses": answers}

    def new_producer(self, broker: int, request: Any) -> Any:
        self.producer_ids += 1
        error = self.failure(versions.INIT_PRODUCER_ID)
        return {"error_code": error, "producer_id": self.producer_ids, "producer_epoch": 0}

    def describe_configs(self, broker: int, request: Any) -> Any:
        value = "true" if self.auto_create else "false"
        setting = {
            "name": "auto.create.topics.enable",
            "value": value,
            "read_only": True,
            "config_source": 4,
            "is_sensitive": False,
            "synonyms": [],
        }
        answers = [
            {
                "error_code": 0,
                "error_message": None,
                "resource_type": resource.resource_type,
                "resource_name": resource.resource_name,
                "configs": [setting],
            }
            for resource in request.resources
        ]
        return {"results": answers}


_ANSWERS: dict[int, Callable[[StubCluster, int, Any], Any]] = {
    versions.METADATA: StubCluster.metadata,
    versions.PRODUCE: StubCluster.produce,
    versions.FETCH: StubCluster.fetch,
    versions.LIST_OFFSETS: StubCluster.list_offsets,
    versions.CREATE_TOPICS: StubCluster.create_topics,
    versions.DELETE_TOPICS: StubCluster.delete_topics,
    versions.DESCRIBE_CONFIGS: StubCluster.describe_configs,
    versions.INIT_PRODUCER_ID: StubCluster.new_producer,
}


class StubConnection:
    """One connection to one of the brokers."""

    def __init__(self, cluster: StubCluster, broker: int) -> None:
        self._cluster = cluster
        self._broker = broker
        self._buffer = bytearray(64 * 1024)
        self._received = b""
        self._link: Link

    def connected(self, link: Link) -> None:
        self._link = link
        self._cluster.links[self._broker].append(link)

    def get_buffer(self, hint: int) -> Buffer:
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        self._received += self._buffer[:count]
        while len(self._received) >= 4:
            stop = 4 + int.from_bytes(self._received[:4], "big")
            if len(self._received) < stop:
                return
            frame, self._received = self._received[:stop], self._received[stop:]
            self._on_frame(frame)

    def disconnected(self, error: Exception | None) -> None: ...

    def drained(self) -> None: ...

    def _on_frame(self, frame: bytes) -> None:
        _, api, version, correlation, client = _HEADER.unpack_from(frame)
        request = codec.decode_request(api, version, memoryview(frame)[14 + max(client, 0) :])
        self._cluster.requests.append((self._broker, api))
        if self._broker in self._cluster.silent:
            return
        answer = self._cluster.answer(self._broker, api, request)
        if api in self._cluster.lose_answers_of:
            self._cluster.lose_answers_of.discard(api)
            self._link.abort()
        elif api == versions.FETCH:
            found, topics = answer
            slices = fetch.encode_response(correlation, version, 0, 0, topics)
            wait_ms = 0 if found else request.max_wait_ms
            asyncio.get_running_loop().call_later(wait_ms / 1000, self._link.send, slices)
        elif api != versions.PRODUCE or request.acks != 0:
            body = codec.response(api, version, **answer)
            self._link.send((codec.encode_response(correlation, api, version, body),))
