"""The two clients of `benchmarks.attacks`: attackers in a process of their own, and another client that is measured."""

from __future__ import annotations

import asyncio
import os
import selectors
import signal
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from multiprocessing import get_context
from typing import Any, Final, NamedTuple

from benchmarks import kafka
from benchmarks.closed_loop import LoadError
from benchmarks.peer import in_thread
from minikafka.runtime.spawning import die_with

Address = tuple[str, int]

PAUSE_SECONDS: Final = 0.005
"""The other client sends a request each time this has passed."""
START_SECONDS: Final = 30.0
RECEIVE_BYTES: Final = 1 << 18
PRODUCE_VERSION: Final = 7


class Attack(NamedTuple):
    """What the attackers do: each connection sends `data`, and receives the responses only if `receives`.

    `repeats`: each connection sends the data again and again. A closed connection is opened again.
    """

    data: bytes
    repeats: bool
    receives: bool
    connections: int


class Traffic(NamedTuple):
    """The bytes that all attackers sent and received, and the connections that the broker closed."""

    sent: int
    received: int
    closed: int


@asynccontextmanager
async def attackers(address: Address, attack: Attack) -> AsyncIterator[Any]:
    """Attack the broker during the `with` body. Yield an array with the figures of `Traffic`. Raises LoadError."""
    spawned = get_context("spawn")
    started = spawned.Event()
    traffic = spawned.RawArray("q", len(Traffic._fields))  # a killed process would keep a lock
    process = spawned.Process(
        target=_attack, args=(os.getpid(), address, attack, started, traffic), daemon=True
    )
    process.start()
    try:
        if not await in_thread(partial(started.wait, START_SECONDS)):
            raise LoadError(f"the attackers did not start within {START_SECONDS:g} s")
        yield traffic
    finally:
        process.kill()
        process.join()


def _attack(parent: int, address: Address, attack: Attack, started: Any, traffic: Any) -> None:
    """Attack until this process is killed. Ctrl-C ends the parent process, which kills this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with(parent)
    with selectors.DefaultSelector() as selector:
        for _ in range(attack.connections):
            _open(selector, address, attack)
        started.set()
        while True:
            for key, ready in selector.select():
                try:
                    _turn(selector, key, ready, attack, traffic)
                except OSError:
                    traffic[2] += 1
                    selector.unregister(key.fileobj)
                    key.fileobj.close()  # type: ignore[union-attr]
                    _open(selector, address, attack)


def _open(selector: selectors.BaseSelector, address: Address, attack: Attack) -> None:
    """Open a connection, and register it. Its data is the number of bytes that were sent of `attack.data`."""
    while True:
        with suppress(OSError):
            connection = socket.create_connection(address, timeout=1)
            break
    connection.setblocking(False)
    events = selectors.EVENT_WRITE | (selectors.EVENT_READ if attack.receives else 0)
    selector.register(connection, events, 0)


def _turn(
    selector: selectors.BaseSelector,
    key: selectors.SelectorKey,
    ready: int,
    attack: Attack,
    traffic: Any,
) -> None:
    """Receive, and send what the connection takes. Raises OSError if the connection is closed."""
    connection: Any = key.fileobj
    if ready & selectors.EVENT_READ:
        received = len(connection.recv(RECEIVE_BYTES))
        if not received:
            raise ConnectionResetError
        traffic[1] += received
    if ready & selectors.EVENT_WRITE:
        sent = connection.send(memoryview(attack.data)[key.data :])
        traffic[0] += sent
        position = key.data + sent
        events = key.events
        if position == len(attack.data):
            position = 0
            if not attack.repeats:
                events = selectors.EVENT_READ  # the connection waits for its end
        selector.modify(connection, events, position)


async def latencies(address: Address, topic: str, seconds: float) -> list[float]:
    """Send a small Produce request every 5 ms, and return the latencies in ms, sorted.

    A request is sent later if the response to the one before comes later. Raises LoadError.
    """
    request = kafka.produce_request(PRODUCE_VERSION, topic, 0, kafka.batch_of(259), 1)
    answer = kafka.produce_answer(PRODUCE_VERSION, topic)
    reader, writer = await asyncio.open_connection(*address)
    found = []
    try:
        end = time.perf_counter() + seconds
        began = 0.0
        while began < end:
            await asyncio.sleep(began + PAUSE_SECONDS - time.perf_counter())
            began = time.perf_counter()
            writer.write(request)
            frame = await reader.readexactly(answer.size)
            found.append((time.perf_counter() - began) * 1_000)
            if answer.fields.unpack(frame) != answer.expected:
                raise LoadError("a produce request of the other client was refused")
    finally:
        writer.close()
    return sorted(found)
