"""The queues of state-change requests: several writers, a full queue, and waiting until a request is consumed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

import pytest
from support.until import until

from minikafka.base.errors import (
    Closed,
    FollowerStateChangeQueueFull,
    KafkaError,
    StaleSession,
)
from minikafka.base.model import TopicPartition
from minikafka.base.ports import MultiOp, WatchKind
from minikafka.broker.modes.leaders.queue import QueuedRequest, StateChangeQueue
from minikafka.deciders.leaders.model import Operation, StateChange
from minikafka.deciders.leaders.shrinking import rescan
from minikafka.simulation.clocks import ManualClock
from minikafka.simulation.zookeeper import ZooKeeperInMemory
from minikafka.simulation.zookeeper_client import InMemoryClient
from minikafka.zookeeper.nodes.leaders import layout, tree

ID = bytes(range(16))
SENDER, RECEIVER = 0, 1
QUEUE = "/leaders/brokers/state/1"
MAXIMUM = 4


def start(partition: int = 0) -> StateChange:
    return StateChange(Operation.START, TopicPartition("t", partition), ID, 3, SENDER)


def close(partition: int = 0, epoch: int = 3) -> StateChange:
    return StateChange(Operation.CLOSE, TopicPartition("t", partition), ID, epoch, SENDER)


class World:
    """A sender, and a receiver that is registered and has a queue of at most four requests."""

    def __init__(self) -> None:
        self.ensemble, self.clock = ZooKeeperInMemory(), ManualClock()
        self.sessions = [InMemoryClient(self.ensemble) for _ in range(2)]
        self.sender, self.receiver = (
            StateChangeQueue(session, self.clock, broker_id, MAXIMUM)
            for broker_id, session in enumerate(self.sessions)
        )

    async def start(self) -> None:
        for session in self.sessions:
            await session.start()
            await tree.ensure(session)
        await self.receiver.open()
        await self.register()

    async def register(self) -> None:
        await self.sessions[RECEIVER].create("/leaders/brokers/ids/1", b"{}", ephemeral=True)

    def put(self, name: str, request: StateChange | bytes) -> None:
        data = request if isinstance(request, bytes) else layout.encode_request(request)
        self.ensemble.put(f"{QUEUE}/{name}", data)

    def requests(self) -> list[StateChange]:
        """Return the requests in the receiver's queue, in order."""
        names = layout.in_order(self.ensemble.children(QUEUE))
        nodes = [self.ensemble.nodes[f"{QUEUE}/{name}"] for name in names]
        return [layout.decode_request(node.data) for node in nodes]

    async def send(self, *requests: StateChange) -> list[QueuedRequest]:
        return [await self.sender.enqueue(RECEIVER, request) for request in requests]

    async def consume(self) -> StateChange:
        name, request = await self.receiver.first()
        await self.receiver.consume(name)
        return request

    def before_next_read(self, act: Callable[[], Awaitable[object]]) -> None:
        """Do this after the sender has listed the queue, before it reads the entries."""
        session = self.sessions[SENDER]
        read = session.get_many

        async def later(paths: Sequence[str]) -> object:
            session.get_many = read  # type: ignore[method-assign]
            await act()
            return await read(paths)

        session.get_many = later  # type: ignore[method-assign, assignment]


@pytest.fixture
async def world() -> World:
    world = World()
    await world.start()
    return world


@pytest.mark.row("C5", "C11")
async def test_requests_are_received_in_order_and_deleted_when_consumed(world: World) -> None:
    sent = [start(), close(), start(1)]
    await world.send(*sent)
    assert await world.receiver.first() == await world.receiver.first()
    assert [await world.consume() for _ in sent] == sent
    assert world.requests() == []
    assert not await world.receiver.has_requests()


async def test_next_requests_are_of_different_partitions_and_a_rescan_is_alone(
    world: World,
) -> None:
    sent = [start(0), start(1), close(0), rescan(SENDER)]
    for number, request in enumerate(sent):
        world.put(f"q-{number:010}", request)
    received = []
    for _ in range(3):
        part = await world.receiver.next_requests()
        received.append([request for _, request in part])
        for name, _ in reversed(part):
            await world.receiver.consume(name)
    assert received == [[start(0), start(1)], [close(0)], [rescan(SENDER)]]
    assert world.requests() == []


async def test_receiver_waits_for_a_request(world: World) -> None:
    waiting = asyncio.ensure_future(world.consume())
    for request in (start(), close()):
        await until(lambda: world.sessions[RECEIVER].watched())
        assert not waiting.done()
        await world.send(request)
        assert await waiting == request
        waiting = asyncio.ensure_future(world.consume())
    waiting.cancel()


async def test_receiver_has_one_watch_however_many_requests_it_consumes(world: World) -> None:
    for number in range(3):
        await world.send(start(number))
        await world.consume()
    waiting = asyncio.ensure_future(world.receiver.first())
    await until(lambda: world.sessions[RECEIVER].watched())
    assert world.sessions[RECEIVER].watched() == {(WatchKind.CHILDREN, QUEUE)}
    waiting.cancel()


async def test_request_that_was_not_consumed_is_received_again_after_a_restart(
    world: World,
) -> None:
    await world.send(start(), close())
    assert (await world.receiver.first())[1] == start()
    restarted = StateChangeQueue(world.sessions[RECEIVER], world.clock, RECEIVER, MAXIMUM)
    await restarted.open()
    assert (await restarted.first())[1] == start()


async def test_forged_entries_are_skipped_and_removed_if_their_name_is_in_order(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.put("q-0000000000", b"{")
    world.put("urgent", b"rm -rf")
    world.put("q-0000000007", close())
    with caplog.at_level(logging.ERROR):
        assert await world.consume() == close()
    assert world.ensemble.children(QUEUE) == ["urgent"]
    assert len(caplog.records) == 2


@pytest.mark.parametrize("fault", ["unsent", "lost", "unanswered", "lagging"])
async def test_entry_is_deleted_although_an_answer_is_lost(world: World, fault: str) -> None:
    await world.send(start(), close())
    world.sessions[RECEIVER].faults = [fault]
    assert await world.consume() == start()
    assert world.requests() == [close()]


@pytest.mark.parametrize("fault", ["unsent", "lost", "unanswered"])
async def test_request_is_in_the_queue_although_an_answer_is_lost(world: World, fault: str) -> None:
    session = world.sessions[SENDER]
    session.faults = [fault]
    [entry] = await world.send(start())
    assert set(world.requests()) == {start()}
    assert entry.name in world.ensemble.children(QUEUE)


async def test_request_of_an_ended_session_is_not_sent_in_the_next_session(world: World) -> None:
    session = world.sessions[SENDER]
    session.suspend()
    sending = asyncio.ensure_future(world.send(start()))
    await asyncio.sleep(0)
    await session.expire()
    await session.attach()
    with pytest.raises(StaleSession):
        await sending
    assert world.requests() == []


async def test_receiver_reads_its_queue_again_in_a_new_session(world: World) -> None:
    await world.send(start(), close())
    assert (await world.receiver.first())[1] == start()
    await world.sessions[RECEIVER].expire()
    world.ensemble.delete(f"{QUEUE}/q-0000000000")
    await world.sessions[RECEIVER].attach()
    assert (await world.receiver.first())[1] == close()


async def test_receiver_ends_with_the_closed_session(world: World) -> None:
    waiting = asyncio.ensure_future(world.receiver.first())
    await until(lambda: world.sessions[RECEIVER].watched())
    await world.sessions[RECEIVER].close()
    with pytest.raises(Closed):
        await waiting


async def test_queue_of_an_unknown_broker_is_refused_with_a_clear_error(world: World) -> None:
    for call in (world.sender.enqueue(7, start()), world.sender.make_room(7)):
        with pytest.raises(KafkaError, match="broker 7 has no queue of state-change requests"):
            await call
    assert "/leaders/brokers/state/7" not in world.ensemble.nodes


async def test_receiver_creates_its_queue_again_if_somebody_has_deleted_it(world: World) -> None:
    waiting = asyncio.ensure_future(world.receiver.first())
    await until(lambda: world.sessions[RECEIVER].watched())
    world.ensemble.delete(QUEUE)
    await until(lambda: QUEUE in world.ensemble.nodes)
    await world.send(start())
    assert (await waiting)[1] == start()


async def test_long_queue_is_read_once_for_many_requests(world: World) -> None:
    """A broker that returns after a long time looks after each request whether its queue is empty."""
    for number in range(250):
        world.put(f"q-{number:010d}", start(number))
    session = world.sessions[RECEIVER]
    read, reads = session.get_many, list[int]()

    async def counted(paths: Sequence[str]) -> object:
        reads.append(len(paths))
        return await read(paths)

    session.get_many = counted  # type: ignore[method-assign, assignment]
    for number in range(250):
        name, request = await world.receiver.first()
        assert request == start(number)
        assert await world.receiver.has_requests()
        await world.receiver.consume(name)
    assert reads == [100, 100, 50]
    assert not await world.receiver.has_requests()


# A full queue.


@pytest.mark.row("C12")
async def test_full_queue_keeps_the_newest_closes_and_one_rescan(world: World) -> None:
    await world.send(start(), close(epoch=3), start(1), close(epoch=4))
    await world.send(start(2))
    assert world.requests() == [close(epoch=4), rescan(SENDER), start(2)]


@pytest.mark.row("C13")
async def test_queue_that_is_full_of_closes_is_logged_and_refuses_requests(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    closes = [close(partition) for partition in range(MAXIMUM)]
    await world.send(*closes)
    for request in (start(), close(9)):
        with pytest.raises(FollowerStateChangeQueueFull, match="the queue of broker 1 has its max"):
            await world.send(request)
    assert world.requests() == closes
    assert "FollowerStateChangeQueueFull: the queue of broker 1 has 4 requests" in caplog.text
    await world.consume()
    await world.send(start())
    assert world.requests() == [*closes[1:], start()]


async def test_names_of_another_client_do_not_fill_a_queue(world: World) -> None:
    for number in range(MAXIMUM):
        world.put(f"note-{number}", b"")
    await world.send(start())
    assert (await world.receiver.first())[1] == start()


async def test_queue_that_another_sender_shrinks_meanwhile_is_not_full(world: World) -> None:
    await world.send(*(start(number) for number in range(MAXIMUM)))
    session = world.sessions[SENDER]
    exists = session.exists

    async def overtaken(path: str) -> object:
        found = await exists(path)
        await world.receiver.make_room(RECEIVER)
        return found

    session.exists = overtaken  # type: ignore[method-assign, assignment]
    await world.send(close())
    assert world.requests() == [rescan(RECEIVER), close()]


async def test_queue_shrinks_before_a_multi_adds_a_request(world: World) -> None:
    await world.send(*(start(number) for number in range(MAXIMUM)))
    await world.sender.make_room(RECEIVER)
    assert world.requests() == [rescan(SENDER)]


async def test_queue_is_shrunk_again_if_the_receiver_consumes_meanwhile(world: World) -> None:
    entries = await world.send(start(0), start(1), close(0), start(2))
    session = world.sessions[SENDER]

    def meanwhile(_: Sequence[MultiOp]) -> None:
        session.before_multi = lambda _: None
        world.ensemble.delete(f"{QUEUE}/{entries[0].name}")
        world.put("q-0000000009", start(9))

    session.before_multi = meanwhile
    await world.send(close(5))
    assert set(world.requests()) == {close(0), rescan(SENDER), close(5)}
    assert len(session.multis) == 2


async def test_receiver_consumes_a_request_that_a_shrinking_removed(world: World) -> None:
    await world.send(start(0), start(1), start(2), start(3))
    name, _ = await world.receiver.first()
    await world.send(close())
    await world.receiver.consume(name)
    assert rescan(SENDER) in world.requests()


async def test_large_queue_is_shrunk_in_several_multis_after_the_rescan_exists(
    world: World,
) -> None:
    for number in range(1200):
        world.put(f"q-{number:010d}", start(number))
    multis: list[Sequence[MultiOp]] = world.sessions[SENDER].multis
    await world.send(close())
    # The stand-in numbers a sequential node by the children ever created.
    assert world.requests() == [rescan(SENDER), close()]
    assert [len(multi) for multi in multis] == [500, 500, 201]


async def test_many_writers_lose_no_close_in_a_full_queue(world: World) -> None:
    """Each of three brokers sends starts, and closes of its own partitions, and retries while the queue is full."""
    others = [InMemoryClient(world.ensemble) for _ in range(3)]
    for other in others:
        await other.start()

    async def send(sender: int, session: InMemoryClient) -> None:
        queue = StateChangeQueue(session, world.clock, 10 + sender, 9)
        for number in range(6):
            for request in (start(number), close(10 * sender + number % 2, epoch=number)):
                await queue.enqueue(RECEIVER, request)
                await asyncio.sleep(0)

    await asyncio.gather(*map(send, range(3), others))
    left = world.requests()
    closed = {request.tp.partition for request in left if request.operation is Operation.CLOSE}
    assert closed == {0, 1, 10, 11, 20, 21}
    assert len(left) <= 9 + 3


# Waiting.


@pytest.mark.row("C22")
async def test_wait_ends_when_all_requests_are_consumed(world: World) -> None:
    entries = await world.send(start(), close())
    waiting = asyncio.ensure_future(world.sender.wait_until_consumed(entries, 1_000))
    await until(lambda: world.sessions[SENDER].watched())
    await world.consume()
    await until(lambda: world.sessions[SENDER].watched())
    assert not waiting.done()
    await world.consume()
    assert await waiting == []
    assert world.sessions[SENDER].watched() == set()


@pytest.mark.row("C22")
async def test_wait_returns_the_requests_that_were_not_consumed_in_time(world: World) -> None:
    entries = await world.send(start(), close())
    await world.consume()
    waiting = asyncio.ensure_future(world.sender.wait_until_consumed(entries, 1_000))
    await until(lambda: world.sessions[SENDER].watched())
    world.clock.advance(500)
    await world.ensemble.time_for_requests()
    assert not waiting.done()
    await _advance(world, waiting)
    assert await waiting == entries[1:]
    assert world.sessions[SENDER].watched() == set()


async def _advance(world: World, waiting: asyncio.Future[list[QueuedRequest]]) -> None:
    for _ in range(50):
        await asyncio.sleep(0)
        if not waiting.done():
            world.clock.advance(100)


async def test_wait_for_a_consumed_request_ends_at_once(world: World) -> None:
    """The watch would never fire."""
    entries = await world.send(start())
    await world.consume()
    assert await world.sender.wait_until_consumed(entries, 1_000) == []


@pytest.mark.row("C22")
async def test_durable_request_is_enough_for_a_dead_broker(world: World) -> None:
    entries = await world.send(start())
    waiting = asyncio.ensure_future(world.sender.wait_until_consumed(entries, 100_000))
    await until(lambda: world.sessions[SENDER].watched())
    await world.sessions[RECEIVER].close()
    await _advance(world, waiting)
    assert await waiting == []
    assert world.requests() == [start()]


@pytest.mark.row("C22")
@pytest.mark.parametrize(
    ("request_", "stands_at"), [(start(), 2), (close(epoch=2), 1)], ids=["start", "close"]
)
async def test_request_that_a_shrinking_removed_does_not_count_as_consumed(
    world: World, request_: StateChange, stands_at: int
) -> None:
    entries = await world.send(request_)
    await world.send(start(1), close(epoch=3), start(2), start(3))
    assert request_ not in world.requests()
    assert await world.sender.wait_until_consumed(entries, 0) == entries
    waiting = asyncio.ensure_future(world.sender.wait_until_consumed(entries, 100_000))
    for _ in range(stands_at):
        await until(lambda: world.sessions[SENDER].watched())
        assert not waiting.done()
        await world.consume()
    assert await waiting == []


async def test_shrinking_during_the_look_at_a_queue_does_not_end_the_wait(world: World) -> None:
    """The sender has listed the entry that replaced its request, but cannot read this entry any more."""
    entries = await world.send(start())
    await world.send(start(1), start(2), start(3))
    other = StateChangeQueue(world.sessions[RECEIVER], world.clock, 5, 2)
    await other.make_room(RECEIVER)
    await world.send(start(4))
    world.before_next_read(lambda: other.make_room(RECEIVER))
    assert await world.sender.wait_until_consumed(entries, 0) == entries


async def test_two_waits_for_one_queue_share_a_watch_and_end_apart(world: World) -> None:
    first, second = await world.send(start(), close())
    waits = [
        asyncio.ensure_future(world.sender.wait_until_consumed([entry], 100_000))
        for entry in (first, second)
    ]
    await until(lambda: world.sessions[SENDER].watched())
    await world.consume()
    assert await waits[0] == []
    await world.consume()
    assert await waits[1] == []


@pytest.mark.row("C39")
async def test_backlog_is_the_number_of_requests_of_each_broker(world: World) -> None:
    await world.sender.open()
    await world.send(start(), close())
    world.ensemble.put("/leaders/brokers/state/odd")
    assert await world.receiver.backlog() == {0: 0, 1: 2}
