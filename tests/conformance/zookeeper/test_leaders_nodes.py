"""The nodes of the leader-coordinated mode on every ZooKeeper server of the fixture.

kazoo, an independent client, writes forged requests and reads what our client has written.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from kazoo.client import KazooClient
from support.zookeeper.servers import InMemory, InProcess, RecordingClient, Zookeeper
from support.zookeeper.zookeepers import in_thread

from minikafka.base.errors import FollowerStateChangeQueueFull, MultiFailed
from minikafka.base.model import TopicPartition, topic_id_text
from minikafka.base.ports import Check, Create
from minikafka.broker.modes.leaders.queue import StateChangeQueue
from minikafka.deciders.leaders.model import (
    FROM_ADMINISTRATOR,
    Operation,
    PartitionView,
    StateChange,
)
from minikafka.runtime.clock import SystemClock
from minikafka.zookeeper.nodes.faults import Faults
from minikafka.zookeeper.nodes.leaders import partitions, reassignments, topics, tree

TP = TopicPartition("t", 0)
ID = bytes(range(16))
BASE = "/leaders/brokers/topics/t/0"
SENDER, RECEIVER = 0, 1
QUEUE = "/leaders/brokers/state/1"
MAXIMUM = 20
LONG_MS = 60_000
START = StateChange(Operation.START, TP, ID, FROM_ADMINISTRATOR, FROM_ADMINISTRATOR)
CLOSE = StateChange(Operation.CLOSE, TP, ID, 7, 2)


@pytest.fixture
async def client(zookeeper: Zookeeper) -> RecordingClient:
    """A client that has created the nodes of the mode, and the topic t with the replicas 1, 2 and 3."""
    client: RecordingClient = await zookeeper.connect()
    await tree.ensure(client)
    await client.multi([topics.creation("t", ID), *topics.assignment(TP, (1, 2, 3))])
    return client


def queue_of(client: RecordingClient, broker_id: int) -> StateChangeQueue:
    return StateChangeQueue(client, SystemClock(), broker_id, MAXIMUM)


@pytest.fixture
async def receiver(client: RecordingClient) -> StateChangeQueue:
    """The queue of broker 1, which is registered by the client's session."""
    queue = queue_of(client, RECEIVER)
    await queue.open()
    await client.create("/leaders/brokers/ids/1", b"{}", ephemeral=True)
    return queue


async def view(client: RecordingClient) -> PartitionView:
    views = await partitions.read_views(client, [TP], client.session_id, Faults())
    return views[TP]


async def texts(client: RecordingClient, path: str) -> dict[str, bytes]:
    names, _ = await client.children(path)
    nodes = await client.get_many([f"{path}/{name}" for name in names])
    return {name: node.data for name, node in zip(names, nodes, strict=True) if node is not None}


# What the mode needs of a multi.


async def test_multi_creates_ephemeral_and_sequential_nodes(client: RecordingClient) -> None:
    await client.create("/q", b"")
    stats = await client.multi(
        [
            Create("/q/e", b"1", ephemeral=True),
            Create("/q/s-", b"2", sequential=True),
            Create("/q/s-", b"3", ephemeral=True, sequential=True),
        ]
    )
    assert await texts(client, "/q") == {"e": b"1", "s-0000000001": b"2", "s-0000000002": b"3"}
    for name, stat in zip(("e", "s-0000000001", "s-0000000002"), stats, strict=True):
        assert await client.exists(f"/q/{name}") == stat
    owners = [stat.ephemeral_owner for stat in stats if stat is not None]
    assert owners == [client.session_id, 0, client.session_id]


async def test_refused_multi_uses_no_number_of_a_sequential_node(client: RecordingClient) -> None:
    await client.create("/q", b"")
    with pytest.raises(MultiFailed):
        await client.multi([Create("/q/s-", b"", sequential=True), Check("/missing", 0)])
    await client.multi([Create("/q/s-", b"", sequential=True)])
    assert await texts(client, "/q") == {"s-0000000000": b""}


# Leaders.


@pytest.mark.row("C3", "C19")
async def test_one_of_two_candidates_leads_and_the_next_leader_has_the_next_epoch(
    zookeeper: Zookeeper, client: RecordingClient
) -> None:
    other: RecordingClient = await zookeeper.connect()
    candidates = [(client, 1), (other, 2)]
    read = await view(client)
    outcomes = await asyncio.gather(
        *(one.multi(partitions.lead(TP, read, id_, 0, (1, 2))) for one, id_ in candidates),
        return_exceptions=True,
    )
    lost = [type(outcome) for outcome in outcomes if isinstance(outcome, Exception)]
    assert lost == [MultiFailed]
    won = outcomes[0] is not None and not isinstance(outcomes[0], Exception)
    leader, follower = (candidates if won else candidates[::-1])[:2]
    assert await texts(client, BASE) == {
        "replicas": b"1,2,3",
        "leader": b"%d;0" % leader[1],
        "ISR": b"1,2;0",
    }
    await follower[0].sync("/")
    assert not (await view(follower[0])).leader.is_ours  # type: ignore[union-attr]
    await leader[0].close()
    await follower[0].sync("/")
    read = await view(follower[0])
    assert (read.leader, read.epoch) == (None, 0)
    await follower[0].multi(partitions.lead(TP, read, follower[1], 1, (1, 2)))
    read = await view(follower[0])
    assert read.leader is not None
    assert (read.leader.broker_id, read.leader.epoch, read.leader.is_ours) == (follower[1], 1, True)


@pytest.mark.row("C31")
async def test_reassignment_completes_with_its_close_requests_in_one_transaction(
    client: RecordingClient, receiver: StateChangeQueue
) -> None:
    await client.multi(partitions.lead(TP, await view(client), 2, 6, (1, 2, 3)))
    await reassignments.ensure_parent(client, "t")
    await client.multi([reassignments.request(TP, (2, 3))])
    read = await view(client)
    multi = partitions.complete_reassignment(TP, read, 7, [(RECEIVER, CLOSE)])
    stats = [stat for stat in await client.multi(multi) if stat is not None]
    assert len({stat.mzxid for stat in stats}) == 1
    assert (await receiver.first())[1] == CLOSE
    assert await texts(client, BASE) == {"replicas": b"2,3", "leader": b"2;7", "ISR": b"2,3;7"}
    with pytest.raises(MultiFailed):
        await client.multi(multi)


# Queues.


@pytest.mark.row("C5", "C11", "C22", "C39")
async def test_sender_waits_until_the_receiver_has_consumed_its_requests(
    zookeeper: Zookeeper, client: RecordingClient, receiver: StateChangeQueue
) -> None:
    sender = queue_of(await zookeeper.connect(), SENDER)
    sent = [await sender.enqueue(RECEIVER, request) for request in (START, CLOSE)]
    assert await sender.backlog() == {RECEIVER: 2}
    waiting = asyncio.ensure_future(sender.wait_until_consumed(sent, LONG_MS))
    received = []
    for _ in sent:
        assert not waiting.done()
        name, request = await receiver.first()
        received.append(request)
        await receiver.consume(name)
    assert await waiting == []
    assert received == [START, CLOSE]
    assert await texts(client, QUEUE) == {}


@pytest.mark.row("C22")
async def test_wait_for_a_request_to_a_broker_that_is_down_ends_when_it_is_durable(
    zookeeper: Zookeeper, client: RecordingClient, receiver: StateChangeQueue
) -> None:
    other: RecordingClient = await zookeeper.connect()
    sender = queue_of(other, SENDER)
    entry = await sender.enqueue(RECEIVER, CLOSE)
    assert await sender.wait_until_consumed([entry], 0) == [entry]
    await client.close()
    await other.sync("/")
    assert await sender.wait_until_consumed([entry], LONG_MS) == []
    assert list(await texts(other, QUEUE)) == [entry.name]


@pytest.mark.row("C12", "C13")
async def test_several_senders_fill_the_queue_of_a_broker_and_lose_no_close(
    zookeeper: Zookeeper, client: RecordingClient, receiver: StateChangeQueue
) -> None:
    async def send(sender: int) -> None:
        queue = queue_of(await zookeeper.connect(), sender)
        for epoch in range(6):
            tp = TopicPartition("t", sender)
            await queue.enqueue(RECEIVER, replace(CLOSE, tp=tp, epoch=epoch))
            for _ in range(3):
                await queue.enqueue(RECEIVER, START)

    await asyncio.gather(*map(send, range(3)))
    newest: dict[TopicPartition, int] = {}
    operations: set[Operation] = set()
    while await receiver.has_requests():
        name, request = await receiver.first()
        await receiver.consume(name)
        if request.operation is Operation.CLOSE:
            assert request.epoch > newest.get(request.tp, -1)
            newest[request.tp] = request.epoch
        operations.add(request.operation)
    assert newest == {TopicPartition("t", sender): 5 for sender in range(3)}
    assert Operation.RESCAN in operations


def in_chroot(client: RecordingClient, path: str) -> str:
    return client.root + path


@pytest.mark.row("C11")
async def test_requests_of_another_client_are_received_and_forged_ones_are_skipped(
    zookeeper: Zookeeper, client: RecordingClient, receiver: StateChangeQueue
) -> None:
    close = {
        "operation": "close-replica",
        "topic": "t",
        "topic_id": topic_id_text(ID),
        "partition": 0,
        "epoch": 7,
        "sender": 2,
    }
    entries = [b"", b"\xff", b"{}", json.dumps(close | {"topic": "../t"}), json.dumps(close)]
    path = in_chroot(client, QUEUE)

    def forge(kazoo: KazooClient) -> None:
        for entry in entries:
            data = entry if isinstance(entry, bytes) else entry.encode()
            kazoo.create(f"{path}/q-", data, sequence=True)
        kazoo.create(f"{path}/q-forged", b"x")
        kazoo.create(f"{path}/lock-", b"x", ephemeral=True, sequence=True)

    await by_another_client(zookeeper, client, forge)
    name, request = await asyncio.wait_for(receiver.first(), 30)
    assert request == CLOSE
    await receiver.consume(name)
    await client.sync("/")
    assert "q-forged" in await texts(client, QUEUE)
    waiting = asyncio.ensure_future(receiver.first())
    await queue_of(client, SENDER).enqueue(RECEIVER, START)
    assert (await asyncio.wait_for(waiting, 30))[1] == START


@pytest.mark.row("C12", "C13")
async def test_queue_that_another_client_has_filled_is_shrunk_or_refuses_requests(
    zookeeper: Zookeeper, client: RecordingClient, receiver: StateChangeQueue
) -> None:
    path = in_chroot(client, QUEUE)

    def fill(kazoo: KazooClient) -> None:
        for number in range(2 * MAXIMUM):
            operation = "close-replica" if number % 2 else "start-replica"
            fields = {"operation": operation, "topic": "t", "topic_id": topic_id_text(ID)}
            fields |= {"partition": number // 8, "epoch": number, "sender": 2}  # type: ignore[dict-item]
            kazoo.create(f"{path}/q-", json.dumps(fields).encode(), sequence=True)

    await by_another_client(zookeeper, client, fill)
    sender = queue_of(client, SENDER)
    await sender.enqueue(RECEIVER, START)
    kept = [json.loads(text) for _, text in sorted((await texts(client, QUEUE)).items())]
    assert [(row["operation"], row["partition"], row["epoch"]) for row in kept] == [
        *(("close-replica", partition, 8 * partition + 7) for partition in range(5)),
        ("rescan", -1, -1),
        ("start-replica", 0, -1),
    ]
    closes = [replace(CLOSE, tp=TopicPartition("t", number)) for number in range(5, 40)]
    for close in closes[
        : MAXIMUM - len(kept) + 1
    ]:  # the last one drops the start, and keeps a rescan
        await sender.enqueue(RECEIVER, close)
    with pytest.raises(FollowerStateChangeQueueFull):
        await sender.enqueue(RECEIVER, closes[-1])
    assert len(await texts(client, QUEUE)) == MAXIMUM


async def by_another_client(
    zookeeper: Zookeeper, client: RecordingClient, work: Callable[[Any], None]
) -> None:
    """Let kazoo work on the real server, or direct writes into the server in memory with kazoo's methods."""
    if isinstance(zookeeper, InProcess):
        await in_thread(work, zookeeper.server)
        await client.sync("/")
    else:
        assert isinstance(zookeeper, InMemory)
        work(LikeKazoo(zookeeper))


class LikeKazoo:
    """The method of kazoo that these tests use, on the server in memory."""

    def __init__(self, zookeeper: InMemory) -> None:
        self._ensemble = zookeeper.ensemble
        self._session = self._ensemble.open_session()

    def create(
        self, path: str, data: bytes, *, ephemeral: bool = False, sequence: bool = False
    ) -> None:
        self._ensemble.apply(Create(path, data, ephemeral, sequence), self._session)


async def test_requests_are_in_order_when_their_numbers_become_negative() -> None:
    """Apache ZooKeeper names them like this; its counter cannot be set."""
    zookeeper = InMemory()
    client = await zookeeper.connect()
    receiver = queue_of(client, RECEIVER)
    await receiver.open()
    zookeeper.ensemble.nodes[in_chroot(client, QUEUE)].created = 2**31 - 2
    sent = [replace(CLOSE, epoch=epoch) for epoch in range(4)]
    for request in sent:
        await receiver.enqueue(RECEIVER, request)
    assert zookeeper.ensemble.children(in_chroot(client, QUEUE)) == [
        "q--2147483647",
        "q--2147483648",
        "q-2147483646",
        "q-2147483647",
    ]
    received = []
    for _ in sent:
        name, request = await receiver.first()
        received.append(request)
        await receiver.consume(name)
    assert received == sent
