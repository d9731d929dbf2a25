"""Responses with records for slow clients: how much is read in advance, and the memory budget for all clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import pytest

from minikafka.base.errors import RecordsGone
from minikafka.base.ports import QUEUE_MARK_BYTES, Buffer
from minikafka.broker.network.unsent import (
    BUDGET_BYTES,
    CONSUMER_TURN_BYTES,
    HELD_TURNS,
    LONG_YIELD_NS,
    PIECE_MAX,
    PIECE_MIN,
    PRODUCE_MS,
    SHORT_TURN_BYTES,
    ReadAhead,
    SendTurns,
    UnsentResponses,
)
from minikafka.broker.turns import Scheduler
from minikafka.simulation.ports import IdleProcessor
from minikafka.storage.log.deferred import Deferred

MOST = 1 << 20


class Client:
    """The link to a client that receives nothing until the test calls `receive`."""

    def __init__(self) -> None:
        self.queue = b""

    def send(self, slices: Sequence[Buffer]) -> None:
        self.queue += b"".join(slices)

    def queued_bytes(self) -> int:
        return len(self.queue)

    def receive(self) -> bytes:
        data, self.queue = self.queue, b""
        return data


class Records(Deferred):
    """A stand-in for records that are read from a log in pieces: `size` bytes `r`."""

    def __init__(self, size: int) -> None:
        self._size = self.left = size

    def read(self, max_bytes: int) -> bytes:
        count = min(self.left, max_bytes)
        self.left -= count
        return b"r" * count


def waiting(ahead: ReadAhead, *slices: Any) -> tuple[UnsentResponses, Client]:
    unsent, client = UnsentResponses(ahead), Client()
    unsent.add(slices)
    unsent.send(cast("Any", client), MOST)
    return unsent, client


def test_at_most_piece_max_bytes_are_read_for_a_client_that_reads_no_responses() -> None:
    ahead = ReadAhead()
    unsent, client = waiting(ahead, b"head", Records(50 << 20), b"tail")
    for _ in range(5):
        assert unsent.send(cast("Any", client), MOST) is False
    assert ahead.used == len(client.queue) == PIECE_MAX


def test_parts_of_a_response_reach_the_client_complete_and_in_order() -> None:
    ahead = ReadAhead()
    unsent, client = waiting(ahead, b"head", Records(1 << 20), b"middle", Records(7), b"tail")
    data = client.receive()
    while unsent.slices:
        unsent.send(cast("Any", client), MOST)
        data += client.receive()
    assert data == b"head" + b"r" * (1 << 20) + b"middle" + b"r" * 7 + b"tail"
    assert ahead.used == 0


def test_each_send_to_a_consumer_has_at_most_the_maximum_number_of_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Client, "queued_bytes", lambda self: 0)
    unsent, client = UnsentResponses(ReadAhead()), Client()
    unsent.add([Records(1 << 20)])
    sent = []
    while unsent.slices:
        unsent.send(cast("Any", client), CONSUMER_TURN_BYTES)
        sent.append(len(client.receive()))
    assert sent == [CONSUMER_TURN_BYTES] * 8


class Produces:
    """A stand-in for the purgatory: the count of Produce requests that were answered."""

    finished_produces = 0


class Loop:
    """A stand-in for the event loop. `turn` runs the callbacks that were queued before the turn."""

    def __init__(self) -> None:
        self.ms = 0
        self.callbacks: list[Callable[[], None]] = []

    def now(self) -> int:
        return self.ms

    def call_later(self, ms: float, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)

    def turn(self) -> None:
        due, self.callbacks = self.callbacks, []
        for callback in due:
            callback()


def send_turns(loop: Any, produces: Any, processor: Any) -> SendTurns:
    sending = Scheduler(loop, lambda now: None).sending
    return SendTurns(sending, loop, produces, processor)


def test_waiting_consumers_are_served_one_per_event_loop_turn() -> None:
    loop = Loop()
    turns = send_turns(loop, Produces(), IdleProcessor())
    sent = ""

    def send(name: str, pieces: int) -> None:
        nonlocal sent
        sent += name
        if pieces > 1:
            turns.ask(partial(send, name, pieces - 1))

    for name, pieces in (("a", 3), ("b", 1), ("c", 2)):
        turns.ask(partial(send, name, pieces))
    after_each_turn = []
    while loop.callbacks:
        loop.turn()
        after_each_turn.append(sent)
    assert after_each_turn == ["a", "ab", "abc", "abca", "abcac", "abcaca"]


class Turns:
    """The `SendTurns` under test. `yields`: number of times that the processor was yielded to other processes."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.purgatory = Produces()
        self.took_ns = self.yields = 0
        self.turns = send_turns(self.loop, self.purgatory, self)

    def yield_ns(self) -> int:
        self.yields += 1
        return self.took_ns

    def time_ns(self) -> int:
        raise AssertionError("no time is measured")

    def turn(self) -> None:
        self.turns.ask(lambda: None)
        self.loop.turn()


def test_consumer_gets_fewer_bytes_per_turn_just_after_a_produce_was_answered() -> None:
    turns = Turns()
    assert turns.turns.turn_bytes() == CONSUMER_TURN_BYTES
    turns.purgatory.finished_produces += 1
    assert turns.turns.turn_bytes() == SHORT_TURN_BYTES
    turns.loop.ms += PRODUCE_MS - 1
    assert turns.turns.turn_bytes() == SHORT_TURN_BYTES
    turns.loop.ms += 1
    assert turns.turns.turn_bytes() == CONSUMER_TURN_BYTES


def test_broker_yields_the_processor_before_each_send_unless_a_yield_took_long() -> None:
    turns = Turns()
    for _ in range(10):
        turns.turn()
    assert turns.yields == 10
    turns.took_ns = LONG_YIELD_NS + 1
    for _ in range(1 + HELD_TURNS):
        turns.turn()
    assert turns.yields == 11
    turns.turn()
    assert turns.yields == 12


def test_many_small_parts_of_responses_are_sent_together() -> None:
    slices = [part for _ in range(20) for part in (b"x", Records(100))]
    unsent, client = waiting(ReadAhead(), *slices)
    assert len(client.queue) == 20 * 101
    assert not unsent.slices


def test_less_of_each_response_is_read_as_the_memory_budget_is_used_up() -> None:
    ahead = ReadAhead()
    clients = [waiting(ahead, Records(50 << 20))[1] for _ in range(1_000)]
    sizes = [len(client.queue) for client in clients]
    least = QUEUE_MARK_BYTES + PIECE_MIN
    assert sizes[0] == PIECE_MAX
    assert max(sizes[-100:]) <= least
    assert sum(sizes) == ahead.used < BUDGET_BYTES + 1_000 * least


def test_client_that_keeps_reading_gets_its_response_when_the_budget_is_exceeded() -> None:
    ahead = ReadAhead()
    ahead.used = 2 * BUDGET_BYTES
    unsent, client = waiting(ahead, Records(1 << 20))
    received = 0
    while unsent.slices or client.queue:
        received += len(client.receive())
        unsent.send(cast("Any", client), MOST)
    assert received == 1 << 20


def test_one_send_to_a_fast_client_has_a_limited_number_of_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Client, "queued_bytes", lambda self: 0)
    unsent, client = waiting(ReadAhead(), Records(10 << 20))
    assert 0 < len(client.queue) < 2 << 20
    while unsent.send(cast("Any", client), MOST):
        pass
    assert len(client.queue) == 10 << 20


def test_memory_budget_of_a_connection_is_released_when_it_closes() -> None:
    ahead = ReadAhead()
    unsent, client = waiting(ahead, Records(50 << 20))
    assert ahead.used > 0
    unsent.clear()
    assert (ahead.used, unsent.slices) == (0, type(unsent.slices)())
    assert len(client.queue) > QUEUE_MARK_BYTES


def test_sending_deleted_records_raises_records_gone() -> None:
    class Gone(Records):
        def read(self, max_bytes: int) -> bytes:
            raise RecordsGone("deleted")

    with pytest.raises(RecordsGone):
        waiting(ReadAhead(), b"head", Gone(100))
