"""The memory budget for large requests: which connection waits, which gets memory next, and which is closed."""

from __future__ import annotations

import pytest

from minikafka.broker.network.frame_room import FrameRoom


class Receiver:
    def __init__(self, room: FrameRoom) -> None:
        self.room = room
        self.has_room = False
        self.arrived: int | None = 0
        self.reason = ""

    def ask(self, size: int) -> bool:
        self.has_room = self.room.reserve(self, size)
        return self.has_room

    def room_given(self) -> None:
        self.has_room = True

    def give_up(self, reason: str) -> None:
        self.reason = reason
        self.room.release(self)

    def received(self) -> int | None:
        return self.arrived


@pytest.fixture
def receivers() -> list[Receiver]:
    """Return four connections that share a memory budget of 10 MB for large requests."""
    room = FrameRoom(10_000_000)
    return [Receiver(room) for _ in range(4)]


def test_large_requests_wait_for_memory_in_the_order_of_arrival(receivers: list[Receiver]) -> None:
    first, second, third, _ = receivers
    assert first.ask(6_000_000)
    assert not second.ask(6_000_000)
    assert not third.ask(1_000_000), "it fits, but the second one waits"
    first.room.release(first)
    assert (second.has_room, third.has_room) == (True, True)


def test_request_larger_than_the_whole_memory_budget_is_received_alone(
    receivers: list[Receiver],
) -> None:
    first, second, *_ = receivers
    assert first.ask(100_000_000)
    assert not second.ask(1)
    first.room.release(first)
    assert second.has_room


def test_connection_that_asks_for_memory_again_is_not_counted_twice(
    receivers: list[Receiver],
) -> None:
    first, second, *_ = receivers
    assert first.ask(6_000_000)
    assert first.ask(6_000_000)
    assert second.ask(4_000_000)


def test_slow_client_is_disconnected_while_another_client_waits_for_memory(
    receivers: list[Receiver],
) -> None:
    stalled, slow, sending, waiting = receivers
    for receiver in (stalled, slow, sending):
        assert receiver.ask(3_000_000)
    stalled.room.sweep()
    stalled.room.sweep()
    assert stalled.reason == ""
    assert not waiting.ask(3_000_000)
    stalled.room.sweep()
    slow.arrived, sending.arrived = 10_000, 500_000
    stalled.room.sweep()
    assert (bool(stalled.reason), bool(slow.reason), bool(sending.reason)) == (True, True, False)
    assert waiting.has_room


def test_connection_with_a_complete_request_is_not_closed_as_slow(
    receivers: list[Receiver],
) -> None:
    whole, waiting, *_ = receivers
    whole.ask(10_000_000)
    whole.arrived = None
    waiting.ask(1)
    for _ in range(5):
        whole.room.sweep()
    assert (whole.reason, waiting.reason) == ("", "")


def test_connection_that_still_waits_for_memory_at_the_31st_check_is_closed(
    receivers: list[Receiver],
) -> None:
    whole, waiting, *_ = receivers
    whole.ask(10_000_000)
    whole.arrived = None
    waiting.ask(1)
    for _ in range(30):
        whole.room.sweep()
    assert waiting.reason == ""
    whole.room.sweep()
    assert waiting.reason
