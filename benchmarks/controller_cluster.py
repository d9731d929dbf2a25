"""Measures the creation of many partitions, and the move of many leaders, with three real brokers.

A client sends CreateTopics, and later SIGTERM to one broker. The client reads the progress from the Metadata
responses of all running brokers. There is no other load.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Sequence
from struct import Struct
from typing import NamedTuple

from benchmarks.closed_loop import LoadError
from benchmarks.kafka import CLIENT_ID, LENGTH, Session
from minikafka import LocalCluster
from minikafka.kafka.wire import codec
from minikafka.kafka.wire.versions import CREATE_TOPICS, METADATA
from minikafka.tools.cluster.processes import send_signal

REPLICAS = 3
DEADLINE_SECONDS = 120.0
POLL_SECONDS = 0.02
STATE = Struct(">hiii")
"""Fields of a partition in Metadata v4: error, index, leader, number of replicas."""


class Created(NamedTuple):
    """Seconds until every partition has a leader and a full ISR in every broker's Metadata."""

    partitions: int
    seconds: float


class Moved(NamedTuple):
    """Seconds from SIGTERM until no remaining broker reports the stopped broker as the leader of a partition."""

    leaders: int
    partitions: int
    is_controller: bool
    seconds: float


class View:
    """One broker's Metadata of one topic, requested repeatedly over one connection."""

    def __init__(self, host: str, port: int, topic: str) -> None:
        self.session = Session(host, port)
        wanted = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
        body = codec.request(METADATA, 4, **wanted)
        self._request = codec.encode_request(METADATA, 4, 1, CLIENT_ID, body)
        self._answer = b""
        self.controller = -1
        self.partitions: list[tuple[int, int]] = []
        """(leader, ISR size) of each partition."""

    def look(self) -> list[tuple[int, int]]:
        """Request the metadata, and return (leader, ISR size) of each partition.

        A response equal to the previous response is not parsed again.
        """
        self.session.socket.sendall(self._request)
        answer = self.session.receive()
        if answer != self._answer:
            self._answer = answer
            self._parse(answer)
        return self.partitions

    def _parse(self, data: bytes) -> None:
        brokers, at = _int(data, 8)
        for _ in range(brokers):
            at = _text(data, _text(data, at + 4) + 4)
        self.controller, at = _int(data, _text(data, at))
        topics, at = _int(data, at)
        self.partitions = []
        for _ in range(topics):
            count, at = _int(data, _text(data, at + 2) + 1)
            for _ in range(count):
                _, _, leader, replicas = STATE.unpack_from(data, at)
                isr, at = _int(data, at + STATE.size + 4 * replicas)
                at += 4 * isr
                self.partitions.append((leader, isr))


async def measure(
    partitions: int, *, stop_the_controller: bool, settle_seconds: float
) -> tuple[Created, Moved]:
    """Start a cluster, create the partitions, then shut down one broker."""
    config = {"zookeeper.session.timeout.ms": 6_000}
    async with LocalCluster(brokers=3, config=config) as cluster:
        topic = f"bench-{partitions}"
        addresses = {broker.id: ("127.0.0.1", broker.port) for broker in cluster.record.brokers}
        views = {id_: View(*address, topic) for id_, address in addresses.items()}
        view = next(iter(views.values()))
        view.look()
        controller = view.controller
        await asyncio.sleep(settle_seconds / 3)
        created = await asyncio.to_thread(
            _create, addresses[controller], topic, partitions, list(views.values())
        )
        await asyncio.sleep(settle_seconds)
        victim = next(id_ for id_ in views if (id_ == controller) is stop_the_controller)
        process = cluster.process(victim)
        assert process is not None
        staying = [view for id_, view in views.items() if id_ != victim]
        seconds, leaders = await asyncio.to_thread(
            _shut_down, lambda: send_signal(process, signal.SIGTERM), victim, staying
        )
        for view in views.values():
            view.session.socket.close()
    return created, Moved(leaders, partitions, stop_the_controller, seconds)


def _create(
    controller: tuple[str, int], topic: str, partitions: int, views: Sequence[View]
) -> Created:
    wanted = {"name": topic, "num_partitions": partitions, "replication_factor": REPLICAS}
    body = codec.request(CREATE_TOPICS, 2, topics=[wanted], timeout_ms=60_000)
    with Session(*controller) as session:
        started = time.perf_counter()
        session.socket.sendall(codec.encode_request(CREATE_TOPICS, 2, 1, CLIENT_ID, body))
        _until(lambda: all(_is_whole(view.look(), partitions) for view in views))
        seconds = time.perf_counter() - started
        answer = codec.decode_response(CREATE_TOPICS, 2, memoryview(session.receive()))
    if code := int(answer.topics[0].error_code):
        raise LoadError(f"{topic} was not created: error {code}")
    return Created(partitions, seconds)


def _is_whole(found: Sequence[tuple[int, int]], partitions: int) -> bool:
    return len(found) == partitions and all(
        leader >= 0 and isr == REPLICAS for leader, isr in found
    )


def _shut_down(
    stop: Callable[[], object], victim: int, staying: Sequence[View]
) -> tuple[float, int]:
    """Shut down a broker. Return (seconds until its leaders have moved, number of moved leaders)."""
    leaders = sum(leader == victim for leader, _ in staying[0].look())
    started = time.perf_counter()
    stop()
    _until(
        lambda: all(
            all(leader not in (victim, -1) for leader, _ in view.look()) for view in staying
        )
    )
    return time.perf_counter() - started, leaders


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise LoadError(f"the expected state was not reached within {DEADLINE_SECONDS:.0f} s")
        time.sleep(POLL_SECONDS)


def _int(data: bytes, at: int) -> tuple[int, int]:
    return LENGTH.unpack_from(data, at)[0], at + 4


def _text(data: bytes, at: int) -> int:
    """Return the end position of the string that begins at `at`."""
    size = int.from_bytes(data[at : at + 2], signed=True)
    return at + 2 + max(size, 0)
