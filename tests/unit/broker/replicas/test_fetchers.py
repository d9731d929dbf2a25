"""A follower's connection to a leader: the requests that are sent and the responses that are accepted."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from support.brokers.controller_bench import until
from support.brokers.endpoints import endpoints

from minikafka.base.config import BrokerConfig
from minikafka.base.endpoints import Endpoint
from minikafka.base.errors import ErrorCode
from minikafka.base.model import Broker, TopicPartition
from minikafka.base.ports import StreamHandler
from minikafka.broker.replicas import fetchers
from minikafka.broker.replicas.fetchers import Fetchers, LeaderConnection
from minikafka.client.login import Connector
from minikafka.kafka.wire.codec import decode_request, encode_response, response
from minikafka.kafka.wire.versions import FETCH, OFFSET_FOR_LEADER_EPOCH
from minikafka.runtime.clock import SystemClock
from minikafka.runtime.tasks import TaskRegistry
from minikafka.simulation.clocks import ManualClock
from minikafka.storage.replication.follower import FETCHING, Follower

_HEADER = 4 + 2 + 2 + 4 + 2 + len("f")
"""Bytes of a request before its body: length, API, version, correlation id, client id."""


def _ignore(*_: Any) -> None:
    """Do nothing: a callback of `Fetchers`."""


_IGNORED = (_ignore,) * 4


def parts_of(config: BrokerConfig) -> Any:
    """Return what a connection uses of the fetchers to which it belongs."""
    return SimpleNamespace(config=config, clock=ManualClock(), connector=None, tasks=None)


class Leader:
    """The leader's end of the connection, which keeps the requests and sends the responses given by the test."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.follower = Follower(
            1_000, 1_000, lambda partition, failure: None, lambda partition: None
        )
        fetcher: Any = SimpleNamespace(
            note_failure=lambda why, since: None,
            follower=self.follower,
            broker_id=4,
            client_id=b"f",
            leader=3,
            connection=None,
        )
        self.connection = LeaderConnection(fetcher, parts_of(BrokerConfig()), 0)
        self.connection.connected(SimpleNamespace(send=self._sent))

    def _sent(self, frames: Sequence[Any]) -> None:
        self.requests.append(b"".join(map(bytes, frames)))

    def asked(self) -> list[int]:
        """Return the API key of every request so far."""
        return [int.from_bytes(request[4:6], "big") for request in self.requests]

    def epoch_asked(self) -> int:
        """Return the current leader epoch in the latest OffsetForLeaderEpoch request."""
        body = self.requests[-1][_HEADER:]
        question = decode_request(OFFSET_FOR_LEADER_EPOCH, 4, memoryview(body))
        return int(question.topics[0].partitions[0].current_leader_epoch)

    def answer(self, error: ErrorCode, epoch: int, end_offset: int) -> None:
        """Answer an OffsetForLeaderEpoch request for t-0 with this error code, epoch and end offset."""
        row = {
            "error_code": int(error),
            "partition": 0,
            "leader_epoch": epoch,
            "end_offset": end_offset,
        }
        body = response(
            OFFSET_FOR_LEADER_EPOCH,
            4,
            throttle_time_ms=0,
            topics=[{"topic": "t", "partitions": [row]}],
        )
        frame = bytearray(encode_response(1, OFFSET_FOR_LEADER_EPOCH, 4, body))
        assert self.connection.parse(frame, memoryview(frame), 0, len(frame)) == len(frame)
        self.connection.finish()


def partition(epoch: int, number: int = 0, leader: int = 3) -> Any:
    log = SimpleNamespace(
        log_end_offset=0,
        log_start_offset=0,
        gaps=SimpleNamespace(lost_from=None),
        epochs=SimpleNamespace(latest=-1, truncate_from_end=lambda offset: None),
    )
    tp = TopicPartition("t", number)
    return SimpleNamespace(
        topic=b"t",
        tp=tp,
        leader=leader,
        leader_epoch=epoch,
        is_leader=False,
        log=log,
        high_watermark=0,
        follower_throttle=None,
    )


def test_error_response_for_a_former_leader_epoch_does_not_stop_the_follower() -> None:
    leader = Leader()
    leader.follower.add(partition(1))
    leader.connection.pump()
    assert leader.asked() == [OFFSET_FOR_LEADER_EPOCH]
    leader.follower.remove(TopicPartition("t", 0))
    leader.follower.add(partition(2))
    leader.connection.pump()
    leader.answer(ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
    assert leader.epoch_asked() == 2
    leader.answer(ErrorCode.NONE, -1, -1)
    assert leader.follower.followed[b"t", 0].state == FETCHING
    assert leader.asked() == [OFFSET_FOR_LEADER_EPOCH] * 2 + [FETCH]


class DeafOnce:
    """A transport whose first connection attempt never ends and whose second attempt is refused."""

    def __init__(self) -> None:
        self.tried = 0
        self.second = asyncio.Event()

    async def connect(self, factory: object, *_: object) -> StreamHandler:
        self.tried += 1
        if self.tried == 1:
            await asyncio.Event().wait()
        self.second.set()
        raise ConnectionRefusedError(111, "Connection refused")


async def test_fetcher_connects_again_when_the_leader_does_not_respond(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetchers, "_CONNECT_WITHIN_MS", 10)
    transport: Any = DeafOnce()
    tasks = TaskRegistry()
    made = Fetchers(4, BrokerConfig(), Connector(transport), SystemClock(), tasks, *_IGNORED)
    made.endpoints[3] = Endpoint("PLAINTEXT", "127.0.0.1", 9)
    made.add(partition(1))
    await asyncio.wait_for(transport.second.wait(), 30)
    await made.close()
    await tasks.close()


class Slow:
    """A transport that connects when the test allows it and records the close."""

    def __init__(self) -> None:
        self.asked, self.made, self.closed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def connect(self, factory: Any, *_: object) -> StreamHandler:
        self.asked.set()
        await self.made.wait()
        handler: LeaderConnection = factory()
        handler.connected(
            SimpleNamespace(send=lambda frames: None, close=self._close, abort=self._close)
        )
        self.handler = handler
        return handler

    def _close(self) -> None:
        self.closed.set()
        self.handler.disconnected(None)


class Refusing:
    """A transport that records the requested ports and never connects."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def connect(self, factory: Any, host: str, port: int, *_: object) -> StreamHandler:
        self.asked.append(port)
        await asyncio.Event().wait()
        raise AssertionError


@pytest.mark.row("R52")
async def test_all_partitions_of_one_leader_have_one_fetcher() -> None:
    transport: Any = Refusing()
    tasks = TaskRegistry()
    made = Fetchers(4, BrokerConfig(), Connector(transport), SystemClock(), tasks, *_IGNORED)
    for leader in (3, 5):
        made.endpoints[leader] = Endpoint("PLAINTEXT", "127.0.0.1", 9_000 + leader)
    for number in range(6):
        made.add(partition(1, number, leader=3 if number % 3 else 5))
    await until(lambda: 9_005 in transport.asked)
    assert sorted(transport.asked) == [9_003, 9_005]
    await tasks.close()


@pytest.mark.row("R52")
async def test_new_connection_is_closed_when_the_last_partition_was_removed_meanwhile() -> None:
    transport: Any = Slow()
    tasks = TaskRegistry()
    made = Fetchers(4, BrokerConfig(), Connector(transport), SystemClock(), tasks, *_IGNORED)
    made.endpoints[3] = Endpoint("PLAINTEXT", "127.0.0.1", 9)
    made.add(partition(1))
    await transport.asked.wait()
    made.remove(TopicPartition("t", 0))
    await until(lambda: not made._to_wake)  # the fetcher was woken, but has no connection yet
    transport.made.set()
    await asyncio.wait_for(transport.closed.wait(), 10)
    await tasks.close()


async def test_lost_connection_to_a_leader_is_reported_exactly_once() -> None:
    transport: Any = Slow()
    transport.made.set()
    tasks = TaskRegistry()
    lost: list[int] = []
    made = Fetchers(
        4,
        BrokerConfig(),
        Connector(transport),
        SystemClock(),
        tasks,
        lambda *_: None,
        lambda partition: None,
        lost.append,
        _ignore,
    )
    made.endpoints[3] = Endpoint("PLAINTEXT", "127.0.0.1", 9)
    made.add(partition(1))
    await transport.asked.wait()
    await until(lambda: made._fetchers[3].connection is not None)
    transport.handler.disconnected(ConnectionResetError())
    await until(lambda: lost == [3])
    await until(lambda: made._fetchers[3].connection is not None)
    made.remove(TopicPartition("t", 0))
    await until(lambda: not made._fetchers)
    assert lost == [3]
    await made.close()
    await tasks.close()


class Moody:
    """A transport that refuses connections until the test lets it connect. `at`: the times of the attempts."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.at: list[int] = []
        self.connects = False
        self.handlers: list[LeaderConnection] = []
        self.requests: list[list[int]] = []
        """The APIs of the requests on each connection."""

    async def connect(self, factory: Any, *_: object) -> StreamHandler:
        self.at.append(self.clock.now())
        if not self.connects:
            raise ConnectionRefusedError(111, "Connection refused")
        self.requests.append(asked := [])
        handler: LeaderConnection = factory()
        self.handlers.append(handler)
        handler.connected(
            SimpleNamespace(
                send=lambda frames: asked.append(int.from_bytes(bytes(frames[0])[4:6], "big")),
                close=lambda: handler.disconnected(None),
                abort=lambda: handler.disconnected(None),
            )
        )
        return handler


class Following:
    """A follower of leader 3, whose time the test moves."""

    def __init__(self) -> None:
        self.clock, self.tasks = ManualClock(), TaskRegistry()
        self.transport = Moody(self.clock)
        self.lost: list[int] = []
        self.not_connected: list[int] = []
        transport: Any = self.transport
        self.fetchers = Fetchers(
            4,
            BrokerConfig(),
            Connector(transport),
            self.clock,
            self.tasks,
            _ignore,
            _ignore,
            self.lost.append,
            self.not_connected.append,
        )
        self.fetchers.endpoints[3] = Endpoint("PLAINTEXT", "127.0.0.1", 9)
        self.fetchers.add(partition(1))

    async def pauses(self, attempts: int) -> list[int]:
        """Let time pass until further attempts have been made; return the pauses before them."""
        await self.idle()
        before = len(self.transport.at)
        while len(self.transport.at) < before + attempts:
            self.clock.advance(10)
            await self.idle()
        at = self.transport.at[before - 1 :]
        return [second - first for first, second in itertools.pairwise(at)]

    async def idle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def close(self) -> None:
        await self.fetchers.close()
        await self.tasks.close()


async def test_leader_that_refuses_connections_is_tried_and_reported_again_and_again() -> None:
    following = Following()
    assert await following.pauses(8) == [50, 100, 200, 400, 800, 1_000, 1_000, 1_000]
    assert following.not_connected == [3] * 9
    await following.close()


async def test_pause_before_a_reconnection_is_short_again_after_each_connection() -> None:
    following = Following()
    await following.pauses(4)
    following.transport.connects = True
    await following.pauses(1)
    for losses in range(1, 4):
        await following.idle()
        following.transport.handlers[-1].disconnected(ConnectionResetError())
        assert await following.pauses(1) == [50]
        assert following.lost == [3] * losses
    await following.close()


async def test_request_that_was_not_answered_is_sent_again_on_the_next_connection() -> None:
    following = Following()
    following.transport.connects = True
    for connections in range(1, 4):
        await following.pauses(1) if connections > 1 else await following.idle()
        await following.idle()
        assert following.transport.requests == [[OFFSET_FOR_LEADER_EPOCH]] * connections
        following.transport.handlers[-1].disconnected(ConnectionResetError())
    await following.close()


def test_partition_with_an_error_is_asked_for_again_after_each_pause() -> None:
    leader = Leader()
    clock: Any = leader.connection._clock
    leader.follower.add(partition(1))
    leader.connection.pump()
    for asked in range(1, 5):
        assert leader.asked() == [OFFSET_FOR_LEADER_EPOCH] * asked
        leader.answer(ErrorCode.UNKNOWN_SERVER_ERROR, -1, -1)
        clock.advance(999)
        assert leader.asked() == [OFFSET_FOR_LEADER_EPOCH] * asked
        clock.advance(1)


async def test_connection_is_closed_when_the_address_of_the_leader_changes() -> None:
    """Otherwise a dead host that left its connections open would block the partitions until the timeout."""
    transport: Any = Slow()
    transport.made.set()
    tasks = TaskRegistry()
    made = Fetchers(4, BrokerConfig(), Connector(transport), SystemClock(), tasks, *_IGNORED)
    made.brokers_changed({3: Broker(3, endpoints("127.0.0.1", 9, "127.0.0.1", 10))})
    made.add(partition(1))
    await transport.asked.wait()
    await until(lambda: made._fetchers[3].connection is not None)
    made.brokers_changed({3: Broker(3, endpoints("127.0.0.1", 9, "127.0.0.1", 10))})
    assert not transport.closed.is_set()
    made.brokers_changed({3: Broker(3, endpoints("127.0.0.1", 11, "127.0.0.1", 12))})
    assert transport.closed.is_set()
    await made.close()
    await tasks.close()


def test_leader_that_does_not_answer_is_disconnected_after_thirty_seconds() -> None:
    leader = Leader()
    aborted: list[int] = []
    leader.connection.link.abort = lambda: aborted.append(1)  # type: ignore[method-assign]
    leader.follower.add(partition(1))
    leader.connection.pump()
    for now in (0, 30_000):
        leader.connection.check(now)
    assert aborted == []
    leader.connection.check(30_001)
    assert aborted == [1]


def test_each_silence_of_a_leader_counts_from_its_own_request() -> None:
    leader = Leader()
    aborted: list[int] = []
    leader.connection.link.abort = lambda: aborted.append(1)  # type: ignore[method-assign]
    leader.follower.add(partition(1))
    leader.connection.pump()
    leader.connection.check(1_000)
    leader.answer(ErrorCode.NONE, -1, -1)
    assert leader.asked() == [OFFSET_FOR_LEADER_EPOCH, FETCH]
    for now in (100_000, 130_000):
        leader.connection.check(now)
    assert aborted == []
    leader.connection.check(130_001)
    assert aborted == [1]


def test_batch_of_maximum_request_size_fits_into_a_fetch_response() -> None:
    limits = BrokerConfig(socket_request_max_bytes=512 << 20)
    fetcher: Any = SimpleNamespace(
        follower=Follower(1, 1, lambda *_: None, lambda partition: None),
        broker_id=4,
        client_id=b"f",
        leader=3,
    )
    assert LeaderConnection(fetcher, parts_of(limits), 0).frame_max > 512 << 20
