"""The limit on memory for large incoming requests, shared by all clients of a broker.

An incomplete request stays in the broker's memory until its client has sent it completely. Without a limit, 50
clients with requests of `socket.request.max.bytes` would occupy 5 GB. Kafka limits this memory with
`queued.max.request.bytes`, and reads no request while no memory is free.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

SWEEP_MS: Final = 1_000
"""Time (ms) between two calls of `FrameRoom.sweep`."""
_PROGRESS_MIN: Final = 64 << 10
"""Minimum bytes of a request that must arrive between two sweeps while other requests wait for memory."""
_WAITS_MAX: Final = 30
"""Maximum number of sweeps during which a connection waits for memory: 30 s, as long as Kafka's clients wait."""


class Receiver(Protocol):
    """A connection that receives large requests, one at a time."""

    def room_given(self) -> None:
        """Continue to receive the large request, for which memory is now reserved."""

    def give_up(self, reason: str) -> None:
        """Close the connection."""

    def received(self) -> int | None:
        """Return the number of bytes received so far of an incomplete large request, None if there is none."""


class FrameRoom:
    """A budget of `bytes_max` bytes of memory for large requests.

    A request that is larger than the budget gets memory when nothing else is reserved.
    The memory of a request (its "room") is reserved before the request is received, and kept until `release`.
    If too little memory is free, or other connections wait, the connection waits in a queue. Invariant: a
    request with room can be received and handled, whatever other clients do. While connections wait, a client
    that stops sending is disconnected.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._used = 0
        self._held: dict[Receiver, int] = {}
        self._waiting: dict[Receiver, int] = {}
        self._waits: dict[Receiver, int] = {}
        """Number of sweeps during which each connection has waited."""
        self._seen: dict[Receiver, int] = {}
        """Number of bytes of each connection's request that had arrived by the last sweep."""

    def reserve(self, receiver: Receiver, size: int) -> bool:
        """Reserve memory for a request of `size` bytes and return True.

        If too little memory is free, or other connections are waiting, queue the connection and return False.
        When the memory has been reserved, the connection's `room_given` is called.
        """
        if receiver in self._held:
            return True
        if receiver not in self._waiting and not self._waiting and self._fits(size):
            self._hold(receiver, size)
            return True
        self._waiting.setdefault(receiver, size)
        return False

    def release(self, receiver: Receiver) -> None:
        """Release the memory reserved for the connection. Remove the connection from the queue if it still waits.

        Then reserve memory for the next connections in the queue.
        """
        self._used -= self._held.pop(receiver, 0)
        self._seen.pop(receiver, None)
        self._waiting.pop(receiver, None)
        self._waits.pop(receiver, None)
        for waiting, size in tuple(self._waiting.items()):
            if not self._fits(size):
                return
            del self._waiting[waiting]
            self._waits.pop(waiting, None)
            self._hold(waiting, size)
            waiting.room_given()

    def sweep(self) -> None:
        """Close connections that have waited too long, and connections that send too slowly while others wait."""
        if not self._waiting:
            self._seen.clear()
            return
        for receiver in tuple(self._waiting):
            self._waits[receiver] = waits = self._waits.get(receiver, 0) + 1
            if waits > _WAITS_MAX:
                receiver.give_up("there was no room for its request")
        for receiver in tuple(self._held):
            received = receiver.received()
            if received is None:
                self._seen.pop(receiver, None)
                continue
            if receiver in self._seen and received - self._seen[receiver] < _PROGRESS_MIN:
                receiver.give_up("its request arrives too slowly while others wait for room")
            self._seen[receiver] = received

    def _fits(self, size: int) -> bool:
        return not self._used or self._used + size <= self._bytes_max

    def _hold(self, receiver: Receiver, size: int) -> None:
        self._held[receiver] = size
        self._used += size


class FrameRooms(NamedTuple):
    """The memory budgets of one broker for requests that need a buffer of their own.

    Small Produce requests have a budget of their own, so that they do not wait for large ones. Followers' fetches do
    not wait for producers.
    """

    small_produce: FrameRoom
    large_produce: FrameRoom
    fetch: FrameRoom
    others: FrameRoom
    responses: FrameRoom
    """The budget for large responses to cold requests: there is one at a time."""


SMALL_MAX: Final = 1 << 20
"""Maximum size of a small Produce request: producers' default `max.request.size`."""


def frame_rooms() -> FrameRooms:
    """Return the memory budgets for one broker, with nothing reserved."""
    return FrameRooms(
        FrameRoom(64 << 20),
        FrameRoom(32 << 20),
        FrameRoom(32 << 20),
        FrameRoom(32 << 20),
        FrameRoom(1),
    )
