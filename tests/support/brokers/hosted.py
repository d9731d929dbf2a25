"""The replicas of one in-memory broker, to which the test sends the controller's requests."""

from __future__ import annotations

from minikafka.base.model import (
    NO_EPOCH,
    ControllerRequest,
    ControllerResponse,
    LeaderAndIsrRequest,
    PartitionState,
    StopReplicaPartition,
    StopReplicaRequest,
    TopicPartition,
)
from minikafka.broker.replicas.manager import ReplicaManager
from minikafka.kafka.records.batch import Record, build
from minikafka.simulation.cluster import MemoryCluster

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
EPOCH = 100
"""The controller epoch of the test's requests. It is high, so that requests of the real controller are stale."""


def batch(*values: bytes) -> bytes:
    """Return a batch with one record per value."""
    return build([Record(0, 1000, None, value, ()) for value in values])


def state(
    tp: TopicPartition = T0,
    leader: int = 0,
    epoch: int = 3,
    replicas: tuple[int, ...] = (0,),
    isr: tuple[int, ...] | None = None,
) -> PartitionState:
    """Return the state of a new partition. By default all replicas are in the ISR."""
    committed = replicas if isr is None else isr
    return PartitionState(tp, leader, epoch, committed, 5, EPOCH, replicas, is_new=True)


class Hosted:
    """Broker 0 of the cluster. Its follower, broker 9, does not run: the test makes the fetches of broker 9."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self.cluster = cluster
        self.broker = cluster.brokers[0]

    @property
    def replicas(self) -> ReplicaManager:
        return self.broker.replicas

    @property
    def epoch(self) -> int:
        return self.broker.info.epoch

    async def handle(self, request: ControllerRequest) -> ControllerResponse:
        return await self.broker.capabilities.roles.handle(request)

    async def tell(self, *states: PartitionState, topic_id: bytes | None = None) -> list[int]:
        """Send a LeaderAndIsr request; return the error code of each partition."""
        ids = (("t", topic_id),) if topic_id else ()
        request = LeaderAndIsrRequest(0, EPOCH, self.epoch, states, (self.broker.info,), ids)
        return [code for _, code in (await self.handle(request)).partitions]

    async def stop(self, tp: TopicPartition, leader_epoch: int = NO_EPOCH, *, delete: bool) -> int:
        """Send a StopReplica request; return the error code of the partition."""
        partitions = (StopReplicaPartition(tp, leader_epoch, delete),)
        answer = await self.handle(StopReplicaRequest(0, EPOCH, self.epoch, partitions))
        return answer.partitions[0][1]

    def produce(self, tp: TopicPartition, *values: bytes, acks: int = -1) -> int:
        """Append and write one batch; return the offset after the batch, or minus the error code."""
        data, purgatory = bytearray(batch(*values)), self.replicas.purgatory
        partition = self.replicas.partitions[tp]
        end = purgatory.append(partition, memoryview(data), acks, 0, 0)
        purgatory.finish_tick(self.broker.clock.now())
        return end

    def follower_has(self, offset: int, tp: TopicPartition = T0) -> None:
        """Let broker 9 fetch from the offset, which acknowledges all records below the offset."""
        partition, now = self.replicas.partitions[tp], self.broker.clock.now()
        if partition.record_follower_fetch(partition.followers[9], offset, now):
            self.replicas.purgatory.high_watermark_moved(partition)
        self.replicas.purgatory.finish_tick(now)
