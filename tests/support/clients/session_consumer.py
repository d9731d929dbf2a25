"""A consumer that fetches in an incremental session (KIP-227), over a connection of the native client.

The consumer handles the session as Kafka's FetchSessionHandler does. The first request lists all partitions. Later
requests list only the partitions whose fetch position has changed. An error starts a new session.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from minikafka.client.connection import BrokerConnection
from minikafka.kafka.records.batch import records
from minikafka.kafka.wire.codec import decode_response, request
from minikafka.kafka.wire.fetch import TOPIC_IDS_SINCE
from minikafka.kafka.wire.versions import FETCH

Key = tuple[str, int]


class SessionConsumer:
    """A consumer connected to one broker. `positions`: next offset by partition. `received`: values read so far.

    `ids`: topic name -> topic id, which requests from version 13 on have instead of the name.
    """

    def __init__(
        self,
        connection: BrokerConnection,
        *,
        version: int = 12,
        rack: str = "",
        ids: Mapping[str, bytes] | None = None,
    ) -> None:
        self.connection = connection
        self.version = version
        self.rack = rack
        self.ids = dict(ids or {})
        self.leader_epoch = -1
        """The leader epoch in every request, from version 9 on."""
        self.session_id = 0
        self.epoch = 0
        self.positions: dict[Key, int] = {}
        self.sent: dict[Key, int] = {}
        """Fetch positions that the broker's session holds."""
        self.received: dict[Key, list[bytes]] = {}
        self.high_watermarks: dict[Key, int] = {}
        self.log_starts: dict[Key, int] = {}
        self.errors: dict[Key, int] = {}
        self.answered: list[Key] = []
        """The partitions in the last response."""
        self.preferred: dict[Key, int] = {}
        self.leaders: dict[Key, Any] = {}
        """The current leaders in the responses, from version 12 on; leader id -1 if there is none."""
        self.nodes: dict[int, tuple[str, int]] = {}
        """Host and port of the brokers that the last response named."""

    @classmethod
    async def connect(
        cls, transport: Any, clock: Any, port: int, **options: Any
    ) -> SessionConsumer:
        made = await transport.connect(
            partial(BrokerConnection, "consumer", clock), "127.0.0.1", port
        )
        return cls(made, **options)

    def assign(self, positions: dict[Key, int]) -> None:
        """Replace the partitions to read and their next offsets."""
        self.positions = dict(positions)

    async def poll(
        self,
        *,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        partition_max_bytes: int = 1 << 20,
        epoch: int | None = None,
    ) -> int:
        """Send one Fetch request and process the response; return the response's top-level error code."""
        changed = {
            key: offset for key, offset in self.positions.items() if self.sent.get(key) != offset
        }
        forgotten = [key for key in self.sent if key not in self.positions]
        body = request(
            FETCH,
            self.version,
            replica_id=-1,
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=0,
            session_id=self.session_id,
            session_epoch=self.epoch if epoch is None else epoch,
            topics=self._by_topic(changed, partition_max_bytes),
            forgotten_topics_data=self._forgotten(forgotten),
            rack_id=self.rack,
        )
        data = await self.connection.request(FETCH, self.version, body, max_wait_ms + 30_000)
        response = decode_response(FETCH, self.version, memoryview(data))
        error = int(getattr(response, "error_code", 0))
        if error:
            self.session_id = self.epoch = 0
            self.sent.clear()
            return error
        self.session_id = getattr(response, "session_id", 0)
        self.epoch = 0 if not self.session_id else self.epoch + 1
        self.sent = dict(self.positions) if self.session_id else {}
        self._process(response)
        return 0

    def _process(self, response: Any) -> None:
        self.answered.clear()
        found = getattr(response, "node_endpoints", ())
        self.nodes = {node.node_id: (node.host, node.port) for node in found}
        names = {topic_id: name for name, topic_id in self.ids.items()}
        for topic in response.responses:
            name = names[topic.topic_id] if self.version >= TOPIC_IDS_SINCE else topic.topic
            for row in topic.partitions:
                key = (name, row.partition_index)
                self.answered.append(key)
                self.errors[key] = int(row.error_code)
                self.high_watermarks[key] = row.high_watermark
                self.log_starts[key] = row.log_start_offset
                self.leaders[key] = getattr(row, "current_leader", None)
                self.preferred[key] = getattr(row, "preferred_read_replica", -1)
                for record in records(bytes(row.records or b"")):
                    if record.offset >= self.positions[key]:
                        self.received.setdefault(key, []).append(record.value or b"")
                        self.positions[key] = record.offset + 1

    async def close_session(self) -> None:
        """End the session with a Fetch request of the final epoch (-1), without partitions."""
        body = request(
            FETCH,
            self.version,
            replica_id=-1,
            max_wait_ms=30_000,
            min_bytes=1,
            max_bytes=1,
            isolation_level=0,
            session_id=self.session_id,
            session_epoch=-1,
            topics=[],
            forgotten_topics_data=[],
            rack_id=self.rack,
        )
        await self.connection.request(FETCH, self.version, body, 1_000)
        self.session_id = self.epoch = 0
        self.sent.clear()

    def _by_topic(self, positions: dict[Key, int], max_bytes: int) -> list[dict[str, Any]]:
        topics: dict[str, list[dict[str, int]]] = {}
        for (topic, number), offset in positions.items():
            row = {"partition": number, "fetch_offset": offset, "partition_max_bytes": max_bytes}
            row["current_leader_epoch"] = self.leader_epoch
            topics.setdefault(topic, []).append(row)
        return [{**self._topic(topic), "partitions": rows} for topic, rows in topics.items()]

    def _forgotten(self, keys: Iterable[Key]) -> list[dict[str, Any]]:
        topics: dict[str, list[int]] = {}
        for topic, number in keys:
            topics.setdefault(topic, []).append(number)
        return [{**self._topic(topic), "partitions": numbers} for topic, numbers in topics.items()]

    def _topic(self, name: str) -> dict[str, Any]:
        return {"topic": name, "topic_id": self.ids.get(name)}
