"""A follower's connection to a leader: the requests that are sent and the responses that are accepted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from support.controller_bench import until
from support.endpoints import endpoints
from support.manual_clock import ManualClock

from minikafka.base.config import BrokerConfig
from minikafka.base.endpoints import Endpoint
from minikafka.base.errors import ErrorCode
from minikafka.base.model import Broker, TopicPartition
from minikafka.base.ports import StreamHandler
from minikafka.broker.replicas import fetchers
from minikafka.broker.replicas.fetchers import Fetchers, LeaderConnection
from minikafka.replication.follower import FETCHING, Follower
from minikafka.runtime.clock import SystemClock
from minikafka.runtime.tasks import TaskRegistry
from minikafka.wire.codec import decode_request, encode_response, response
from minikafka.wire.versions import FETCH, OFFSET_FOR_LEADER_EPOCH

_HEADER = 4 + 2 + 2 + 4 + 2 + len("f")
"""Bytes of a request before its body: length, API, version, correlation id, client id."""


def _ignore(*_: Any) -> None:
    """Do nothing: a callback of `Fetchers`."""


_IGNORED = (_ignore,) * 4


class Leader:
    """The leader's end of the connection, which keeps the requests and sends the responses given by the test."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.follower = Follower(
            1_000, 1_000, lambda partition, failure: None, lambda partition: None
        )
        fetcher: Any = SimpleNamespace(
            follower=self.follower, broker_id=4, client_id=b"f", leader=3, connection=None
        )
        self.connection = LeaderConnection(fetcher, BrokerConfig(), ManualClock())
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
            throttle_time=0,
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
    made = Fetchers(4, BrokerConfig(), transport, SystemClock(), tasks, *_IGNORED)
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
    made = Fetchers(4, BrokerConfig(), transport, SystemClock(), tasks, *_IGNORED)
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
    made = Fetchers(4, BrokerConfig(), transport, SystemClock(), tasks, *_IGNORED)
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
        transport,
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


async def test_connection_is_closed_when_the_address_of_the_leader_changes() -> None:
    """Otherwise a dead host that left its connections open would block the partitions until the timeout."""
    transport: Any = Slow()
    transport.made.set()
    tasks = TaskRegistry()
    made = Fetchers(4, BrokerConfig(), transport, SystemClock(), tasks, *_IGNORED)
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


def test_batch_of_maximum_request_size_fits_into_a_fetch_response() -> None:
    limits = BrokerConfig(socket_request_max_bytes=512 << 20)
    fetcher: Any = SimpleNamespace(
        follower=Follower(1, 1, lambda *_: None, lambda partition: None),
        broker_id=4,
        client_id=b"f",
        leader=3,
    )
    assert LeaderConnection(fetcher, limits, ManualClock()).frame_max > 512 << 20
