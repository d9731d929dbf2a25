"""The orders of a coordination mode to the replicas of its broker, as a mode without a controller gives them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.brokers.hosted import T0, T1, batch

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import NO_EPOCH, Broker, PartitionState
from minikafka.broker.replicas.manager import ReplicaManager
from minikafka.broker.replicas.orders import ReplicaOrders
from minikafka.simulation.cluster import MemoryCluster
from minikafka.storage.replication.isr import PendingShrink

STALE = ErrorCode.STALE_CONTROLLER_EPOCH


class Ordered:
    """Broker 0 of the cluster, to which the test gives orders. Its followers 8 and 9 do not run."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self.broker = cluster.brokers[0]
        self.orders = ReplicaOrders(
            self.replicas, self.broker.capabilities.topics, self.broker.clock
        )

    @property
    def replicas(self) -> ReplicaManager:
        return self.broker.replicas

    async def role(
        self,
        leader: int,
        epoch: int,
        replicas: tuple[int, ...] = (0, 9),
        isr: tuple[int, ...] | None = None,
        *,
        opens_later: bool = False,
    ) -> int:
        """Give broker 0 a role for t-0; return the error code."""
        state = PartitionState(
            T0, leader, epoch, replicas if isr is None else isr, epoch, NO_EPOCH, replicas
        )
        leaders = [Broker(leader, self.broker.info.endpoints)]
        results = await self.orders.change_roles([state], {}, leaders, opens_later=opens_later)
        return dict(results)[T0]

    def follower_has(self, follower: int, offset: int) -> None:
        """Let a follower fetch from the offset, which acknowledges all records below the offset."""
        partition, now = self.replicas.partitions[T0], self.broker.clock.now()
        partition.record_follower_fetch(partition.followers[follower], offset, now)
        self.replicas.purgatory.finish_tick(now)


@pytest.fixture
async def ordered() -> AsyncIterator[Ordered]:
    async with MemoryCluster(1) as cluster:
        yield Ordered(cluster)


@pytest.mark.row("C35")
async def test_leader_whose_role_ends_fails_waiting_produce_requests_at_once(
    ordered: Ordered,
) -> None:
    await ordered.role(0, 3)
    waiting = ordered.replicas.appends.append(T0, batch(b"m"))
    ordered.orders.end_roles([T0, T1])
    assert isinstance(waiting.exception(), KafkaError)
    partition = ordered.replicas.partitions[T0]
    assert partition.check_leader_epoch(-1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.check_follower(3) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(KafkaError, match="NOT_LEADER"):
        await ordered.replicas.appends.append(T0, batch(b"m"))
    assert partition.log.log_end_offset == 1, "the files are kept"


@pytest.mark.row("C35")
async def test_broker_fetches_nothing_after_its_roles_have_ended(ordered: Ordered) -> None:
    await ordered.role(9, 3)
    fetched = ordered.replicas.fetchers._where
    assert T0 in fetched
    ordered.orders.end_roles([T0])
    assert T0 not in fetched
    assert not ordered.replicas.partitions[T0].is_follower


@pytest.mark.row("C35")
async def test_role_in_the_same_epoch_is_taken_only_to_follow_the_same_leader_again(
    ordered: Ordered,
) -> None:
    await ordered.role(9, 3, (0, 8, 9))
    assert await ordered.role(9, 3, (0, 8, 9)) == STALE, "its role has not ended"
    ordered.orders.end_roles([T0])
    ordered.orders.end_roles([T0])
    assert await ordered.role(8, 3, (0, 8, 9)) == STALE
    assert await ordered.role(0, 3, (0, 8, 9)) == STALE
    assert await ordered.role(9, 2, (0, 8, 9)) == STALE
    assert await ordered.role(9, 3, (0, 8, 9)) == 0
    assert ordered.replicas.partitions[T0].is_follower
    assert await ordered.role(9, 3, (0, 8, 9)) == STALE


@pytest.mark.row("C35")
async def test_leader_whose_role_has_ended_leads_again_only_in_a_higher_epoch(
    ordered: Ordered,
) -> None:
    await ordered.role(9, 2)
    await ordered.role(0, 3)
    ordered.orders.end_roles([T0])
    for leader in (0, 9, -1):
        assert await ordered.role(leader, 3) == STALE
    assert await ordered.role(0, 4) == 0


async def test_replica_that_the_mode_stops_resumes_no_role(ordered: Ordered) -> None:
    await ordered.role(9, 3)
    ordered.orders.end_roles([T0])
    ordered.replicas.partitions[T0].stop()
    assert await ordered.role(9, 3) == STALE


@pytest.mark.row("C18", "C28")
async def test_leader_that_opens_proposes_the_isr_without_members_that_lag(
    ordered: Ordered,
) -> None:
    await ordered.role(0, 1, (0, 8, 9), opens_later=True)
    ordered.follower_has(9, 0)
    assert await ordered.orders.caught_up(T0, 1, 10, lambda broker: broker != 8) == (0, 9)
    assert ordered.orders.open(T0, 1, (0, 9))
    isr_state = ordered.replicas.partitions[T0].isr_state
    assert isr_state == PendingShrink((0, 8, 9), frozenset({8}))


@pytest.mark.row("C30")
async def test_end_offset_of_a_replica_is_forgotten_when_a_reassignment_adds_it(
    ordered: Ordered,
) -> None:
    """The files of broker 9 may have been deleted between the roles: only a fetch counts it in sync again."""
    await ordered.role(0, 1, (0, 9), isr=(0,))
    await ordered.replicas.appends.append(T0, batch(b"m"))
    ordered.follower_has(9, 1)
    partition = ordered.replicas.partitions[T0]
    assert await ordered.role(0, 2, (0, 9), isr=(0,)) == 0
    partition.is_alive = lambda broker: True
    assert not partition.may_expand_isr(partition.followers[9])
    ordered.follower_has(9, 0)
    assert not partition.may_expand_isr(partition.followers[9])
    ordered.follower_has(9, 1)
    assert partition.may_expand_isr(partition.followers[9])
