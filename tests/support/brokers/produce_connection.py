"""One connection to a broker in memory, whose Produce requests a test passes to the handler itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minikafka.base.model import LeaderAndIsrRequest, PartitionState, TopicPartition
from minikafka.base.ports import Buffer
from minikafka.broker.coordinators.verification import TransactionVerifier
from minikafka.broker.produce.handler import WALL_UNKNOWN, ProduceApi
from minikafka.broker.services import ClientConnection
from minikafka.broker.turns import Scheduler
from minikafka.kafka.records.batch import Record, build
from minikafka.kafka.wire.codec import decode_response, encode_request, request
from minikafka.kafka.wire.versions import PRODUCE
from minikafka.simulation.cluster import MemoryCluster
from minikafka.storage.replication.purgatory import AnswerQueue

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
VERSION = 9
HEADER = 14 + len("client")


class Connected:
    """A connection to broker 0. The test itself sends the controller's requests."""

    def __init__(
        self,
        cluster: MemoryCluster,
        turns: Scheduler | None = None,
        verifier: TransactionVerifier | None = None,
    ) -> None:
        self.cluster = cluster
        self.broker = cluster.brokers[0]
        self.replicas = self.broker.replicas
        self.version = VERSION
        self.transactional_id: str | None = None
        self.answered: list[dict[TopicPartition, int]] = []
        self.append_times: list[int] = []
        self.rows: dict[TopicPartition, Any] = {}
        """The partitions in the last response."""
        self.leaders: list[dict[TopicPartition, tuple[int, int]]] = []
        """Id and leader epoch of the current leaders in each response, from version 10 on."""
        self.nodes: list[dict[int, tuple[str, int]]] = []
        """Host and port of the brokers that each response names."""
        queue = self.answers = AnswerQueue(self.replicas.purgatory, self._sent)
        client = ClientConnection(1, "PLAINTEXT")
        self.resumed = 0
        self.buf = bytearray()
        clock = self.broker.clock
        self.turns = turns or self.replicas.turns
        self.api = ProduceApi(
            client,
            self.replicas,
            queue,
            clock,
            self.turns,
            verifier or self.broker.verifier,
            self._close,
            self._resume,
            self.broker.access,
        )
        self.closed = 0

    def _close(self) -> None:
        self.closed += 1

    def _resume(self) -> None:
        self.resumed += 1

    def _sent(self, buffers: Sequence[Buffer]) -> None:
        data = b"".join(buffers)
        while data:
            size = 4 + int.from_bytes(data[:4], "big")
            answer = decode_response(PRODUCE, self.version, data[4:size])
            data = data[size:]
            self.rows = {
                TopicPartition(topic.name, row.index): row
                for topic in answer.responses
                for row in topic.partition_responses
            }
            self.append_times += [row.log_append_time_ms for row in self.rows.values()]
            self.answered.append({tp: int(row.error_code) for tp, row in self.rows.items()})
            leaders = {tp: getattr(row, "current_leader", None) for tp, row in self.rows.items()}
            self.leaders.append(
                {tp: (one.leader_id, one.leader_epoch) for tp, one in leaders.items() if one}
            )
            nodes = getattr(answer, "node_endpoints", ())
            self.nodes.append({node.node_id: (node.host, node.port) for node in nodes})

    async def lead(self, tp: TopicPartition, leader: int, epoch: int, *isr: int) -> None:
        state = PartitionState(tp, leader, epoch, isr, 5, 100, (0, 9), is_new=True)
        told = LeaderAndIsrRequest(
            0, 100, self.broker.info.epoch, (state,), (self.broker.info,), ()
        )
        (answer,) = (await self.broker.capabilities.roles.handle(told)).partitions
        assert answer[1] == 0

    def produce(
        self,
        *partitions: TopicPartition,
        acks: int = -1,
        codec: int = 0,
        producer: tuple[int, int, int] = (-1, -1, -1),
        attributes: int = 0,
    ) -> None:
        """Send one batch per partition, as `send` does. `producer`: producer id, epoch and first sequence number."""
        producer_id, epoch, sequence = producer
        records = build(
            [Record(0, 1000, None, b"x", ())],
            codec=codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            attributes=attributes,
        )
        self.send(dict.fromkeys(partitions, records), acks)

    def send(self, batches: Mapping[TopicPartition, bytes | None], acks: int = -1) -> None:
        """Send one Produce request with one records field per partition; then write the logs and the responses."""
        rows = [{"index": tp.partition, "records": field} for tp, field in batches.items()]
        topics = [{"name": "t", "partition_data": rows}]
        body = request(
            PRODUCE,
            self.version,
            transactional_id=self.transactional_id,
            acks=acks,
            timeout_ms=60_000,
            topic_data=topics,
        )
        self.buf = bytearray(encode_request(PRODUCE, self.version, 7, "client", body))
        self.handle()

    def handle(self) -> None:
        """Handle the request in `buf`, then write the logs and the responses. Another call repeats the request."""
        buf = self.buf
        self.api.now = self.broker.clock.now()
        self.api.wall_ms, self.api.parts = WALL_UNKNOWN, 0
        self.api.on_request(buf, memoryview(buf), self.version, 7, 0, HEADER, len(buf))
        self.replicas.purgatory.finish_tick(self.api.now)

    def end_of(self, tp: TopicPartition) -> int:
        return self.replicas.partitions[tp].log.log_end_offset
