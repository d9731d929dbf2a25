"""What the design's own rules do where this mode decided otherwise: the records that they lose, the topic they delete.

Each test runs one schedule with the rules of the design page, as a variant that exists in this file only, and with the
rules of the product. The rows of docs/conformance.md name the deviations.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import pytest
from support.brokers.leaders_cluster import T0, LeadersCluster
from support.storage import replication
from support.storage.replication import Replicas as ReplicasInMemory

from minikafka.base.config.keys import LONG_MAX
from minikafka.base.model import (
    EPOCH_DURING_DELETE,
    NO_EPOCH,
    BrokerId,
    PartitionState,
    StopReplicaPartition,
    TopicPartition,
)
from minikafka.broker.modes.leaders.commands import OwnReplicas
from minikafka.broker.modes.leaders.host import LeadersHost
from minikafka.broker.modes.leaders.lease import Lease
from minikafka.broker.modes.leaders.queue import StateChangeQueue
from minikafka.deciders.leaders import requests, shrinking
from minikafka.deciders.leaders.commands import CloseReplica
from minikafka.deciders.leaders.context import Replica
from minikafka.deciders.leaders.model import (
    FROM_ADMINISTRATOR,
    Operation,
    PartitionView,
    Replicas,
    StateChange,
)
from minikafka.deciders.leaders.reassignment import LedReassignments
from minikafka.deciders.leaders.shrinking import Shrinking
from minikafka.simulation.cluster import LOG_DIR
from minikafka.simulation.loop import run_seeded
from minikafka.simulation.storage import MemoryStorage
from minikafka.storage.replication.partition import Partition
from minikafka.zookeeper.nodes.leaders import queues, reassignments, topics

PAGE, PRODUCT = "the page", "the product"
both = pytest.mark.parametrize("rules", [PAGE, PRODUCT])
TOPIC_ID = b"t" * 16
DIRECTORY = f"{LOG_DIR}/t-0"
SLOW = 2
SENT = -100
"""Instead of an epoch: the close requests are sent."""


# ---- the high watermark of a new leader, and the truncation of a new follower


class TruncatingToTheHighWatermark(Partition):
    """The page: a new follower truncates its log to its high watermark; epochs are not compared."""

    __slots__ = ()

    def become_follower(self, state: PartitionState) -> bool:
        self.log.truncate_to(self.high_watermark)
        return super().become_follower(state)

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        return epoch, LONG_MAX

    def diverging(self, last_fetched_epoch: int, fetch_offset: int) -> tuple[int, int] | None:
        return None


class RaisingTheHighWatermark(TruncatingToTheHighWatermark):
    """The page: the high watermark of a new leader is its log end."""

    __slots__ = ()

    def become_leader(self, state: PartitionState, now: int, *, opens_later: bool = False) -> bool:
        is_new = super().become_leader(state, now, opens_later=opens_later)
        self._set_high_watermark(self.log.log_end_offset)
        return is_new


def acknowledged(replicas: ReplicasInMemory, leader: int) -> int:
    """Return the number of requests that the leader has answered without an error."""
    return sum(answer.split(b":")[1] == b"0" for answer in replicas[leader].sent)


@pytest.mark.row("C17", "X17")
@pytest.mark.parametrize(
    ("rules", "kept"),
    [
        (RaisingTheHighWatermark, [b"a", b"b"]),
        (TruncatingToTheHighWatermark, [b"a", b"c"]),
        (Partition, [b"a", b"c"]),
    ],
)
def test_new_leader_that_raises_its_high_watermark_keeps_a_record_instead_of_an_acknowledged_one(
    monkeypatch: pytest.MonkeyPatch, rules: type[Partition], kept: list[bytes]
) -> None:
    """Broker 1 has the uncommitted b, and leads for a moment: with hw := leo, b stays when it follows again.

    The next leader, 2, has c in the place of b. Broker 1 fetches behind both, so that c counts as committed.
    """
    monkeypatch.setattr(replication, "Partition", rules)
    r = ReplicasInMemory()
    r.elect(0)
    r.produce(0, b"a")
    r.sync(0, 1, 2)
    r.produce(0, b"b")
    r.fetch(1, 0)
    r.crash(0)
    r.elect(1, isr=(1, 2), to=(1,), opens_later=True)
    r.elect(2)
    r.produce(2, b"c")
    r.sync(2, 1)
    assert acknowledged(r, 2) == 1
    r.crash(2)
    r.elect(1, isr=(1,))
    assert r[1].values() == kept


@pytest.mark.row("C16", "X18")
@pytest.mark.parametrize(
    ("rules", "kept"),
    [(TruncatingToTheHighWatermark, [b"a"]), (Partition, [b"a", b"b"])],
)
def test_follower_that_truncates_to_its_high_watermark_loses_an_acknowledged_record(
    monkeypatch: pytest.MonkeyPatch, rules: type[Partition], kept: list[bytes]
) -> None:
    """The in-sync follower starts again before it has learned that b is committed; then the leader dies."""
    monkeypatch.setattr(replication, "Partition", rules)
    r = ReplicasInMemory((0, 1))
    r.elect(0)
    r.produce(0, b"a")
    r.sync(0, 1)
    r.produce(0, b"b")
    r.sync(0, 1)
    assert acknowledged(r, 0) == 2
    r.crash(1)
    r.restart(1, checkpoint=1)
    r.send_leader_and_isr(1)
    r.crash(0)
    r.elect(1, isr=(1,))
    assert r[1].values() == kept


# ---- requests and reassignments, on whole brokers


class PageCluster(LeadersCluster):
    """A cluster whose topics are created by a client of ZooKeeper, as `addPartition` does, but without its wait."""

    def queue(self) -> StateChangeQueue:
        """Return a sender of requests that has a session of its own."""
        maximum = int(str(self.config.get("minikafka.leaders.queue.max", 1_000)))
        return StateChangeQueue(self.sessions[0], self.clock, 0, maximum)

    async def add_topic(self, topic: str, replicas: Replicas) -> None:
        """Create a topic with partition 0 on these brokers, and send them start requests."""
        tp = TopicPartition(topic, 0)
        nodes = [topics.creation(topic, TOPIC_ID), *topics.assignment(tp, replicas)]
        await self.sessions[0].multi(nodes)
        for broker_id in replicas:
            request = StateChange(Operation.START, tp, TOPIC_ID, NO_EPOCH, FROM_ADMINISTRATOR)
            await self.queue().enqueue(broker_id, request)

    async def until_consumed(self, *brokers: BrokerId) -> None:
        """Wait until the queues of these brokers are empty."""
        nodes = [self.ensemble.nodes[queues.path_of(broker_id)] for broker_id in brokers]
        await self.until(lambda: not any(node.children for node in nodes))

    def hosts(self) -> set[BrokerId]:
        """Return the brokers that have t-0 on their disk."""
        return {number for number, disk in self.storages.items() if disk.exists(DIRECTORY)}


def run_page(
    seed: int, scenario: Callable[[PageCluster], Awaitable[None]], **config: object
) -> None:
    """Run a scenario with three brokers in a seeded loop."""

    async def whole() -> None:
        async with PageCluster(**config) as cluster:
            await scenario(cluster)

    run_seeded(seed, whole())


def close_without_a_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page: a close request closes and deletes the replica, whatever topic and replicas there are now."""

    async def close(self: OwnReplicas, lease: Lease, command: CloseReplica) -> bool:
        self.orders.end_roles([command.tp])
        stop = StopReplicaPartition(command.tp, EPOCH_DURING_DELETE, delete=True)
        await self.orders.stop_replicas([stop])
        return False

    monkeypatch.setattr(requests, "_close_fence", lambda *_: "")
    monkeypatch.setattr(OwnReplicas, "close", close)


@pytest.mark.row("C7", "C15")
@both
def test_close_request_without_a_fence_deletes_a_topic_that_was_created_again(
    monkeypatch: pytest.MonkeyPatch, rules: str
) -> None:
    """The sender of the earlier topic's close requests got no answer, and adds them again."""
    if rules == PAGE:
        close_without_a_fence(monkeypatch)

    async def scenario(cluster: PageCluster) -> None:
        await cluster.add_topic("t", (0, 1, 2))
        await cluster.produce(b"a")
        await cluster.until_in_sync()
        late = StateChange(Operation.CLOSE, T0, b"the earlier topi", 7, 0)
        for broker_id in cluster.brokers:
            await cluster.queue().enqueue(broker_id, late)
        await cluster.until_consumed(*cluster.brokers)
        await asyncio.sleep(120)  # the files of a deleted replica stay for a minute
        if rules == PAGE:
            assert cluster.hosts() == set()
        else:
            assert cluster.hosts() == {0, 1, 2}
            assert await cluster.consumed() == [b"a"]

    run_page(1, scenario)


def shrink_without_a_rescan(
    entries: Mapping[str, StateChange | None], sender: BrokerId
) -> Shrinking:
    """The page: of each partition the close request with the latest epoch stays, and no start request."""
    kept: dict[TopicPartition, str] = {}
    for name, request in entries.items():
        if request is not None and request.operation is Operation.CLOSE:
            former = entries.get(kept.get(request.tp, ""))
            if former is None or former.epoch <= request.epoch:
                kept[request.tp] = name
    return Shrinking(tuple(name for name in entries if name not in kept.values()), ())


@pytest.mark.row("C12", "C13")
@both
def test_start_request_that_a_full_queue_drops_leaves_a_record_with_one_copy_instead_of_two(
    monkeypatch: pytest.MonkeyPatch, rules: str
) -> None:
    """A slow broker never learns of its replica; then the disk of the only other one is lost."""
    if rules == PAGE:
        monkeypatch.setattr(shrinking, "shrink", shrink_without_a_rescan)
    is_fast = asyncio.Event()
    handle = LeadersHost.handle_request

    async def handle_slowly(
        self: LeadersHost, lease: Lease, entry: str, request: StateChange
    ) -> None:
        if self._broker_id == SLOW:
            await is_fast.wait()
        await handle(self, lease, entry, request)

    monkeypatch.setattr(LeadersHost, "handle_request", handle_slowly)

    async def scenario(cluster: PageCluster) -> None:
        await cluster.add_topic("first", (SLOW,))
        await asyncio.sleep(1)  # the broker begins to handle it
        await cluster.add_topic("t", (1, SLOW))
        await cluster.add_topic("last", (SLOW,))  # the queue is full
        is_fast.set()
        await cluster.until_consumed(SLOW)
        await asyncio.sleep(10)
        await cluster.produce(b"a")
        cluster.kill_with_session(1)
        cluster.storages[1] = MemoryStorage()
        await asyncio.sleep(10)
        await cluster.start(1)
        assert await cluster.consumed() == ([] if rules == PAGE else [b"a"])

    run_page(1, scenario, minikafka_leaders_queue_max=2)


def complete_in_the_order_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page: close requests are sent as soon as RAR has caught up; AR is written when they have left.

    The writes that follow are not made: in this schedule, the leader dies before them.
    """

    def complete(
        self: LedReassignments, replica: Replica, view: PartitionView, target: Replicas
    ) -> None:
        if replica.started_epoch != SENT:
            replica.started_epoch = SENT
            others = set(view.replicas or ()).difference(target, [self._context.broker_id])
            self._send(Operation.CLOSE, replica, view, sorted(others))

    monkeypatch.setattr(LedReassignments, "_complete", complete)


@pytest.mark.row("C30", "C31")
@both
def test_replica_that_is_closed_before_it_leaves_the_assigned_ones_loses_every_record(
    monkeypatch: pytest.MonkeyPatch, rules: str
) -> None:
    """Broker 1 has deleted its log, and is still in AR and ISR when the leader dies: it leads without a record.

    The page's close requests have no fence.
    """
    if rules == PAGE:
        close_without_a_fence(monkeypatch)
        complete_in_the_order_of_the_page(monkeypatch)

    async def scenario(cluster: PageCluster) -> None:
        await cluster.add_topic("t", (0, 1))
        await cluster.until(lambda: cluster.isr == {0, 1})
        await cluster.produce(b"a")
        await reassignments.ensure_parent(cluster.sessions[0], "t")
        await cluster.sessions[0].multi([reassignments.request(T0, (0, 2))])
        await cluster.until(lambda: 1 not in cluster.hosts())
        await cluster.until_consumed(1)
        cluster.kill_with_session(0)
        await cluster.stop(1)
        await cluster.start(1)
        assert await cluster.consumed() == ([] if rules == PAGE else [b"a"])

    run_page(1, scenario)
