"""The memory for large requests that arrive, shared by all clients of a broker.

An incomplete request stays in the broker's memory until its client sends the rest: 50 clients with requests
of `socket.request.max.bytes` would occupy 5 GB. Kafka limits this memory with `queued.max.request.bytes`, and
reads nothing while it is used up.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

SWEEP_MS: Final = 1_000
"""Time between two calls of `FrameRoom.sweep`."""
_PROGRESS_MIN: Final = 64 << 10
"""Bytes of a request that must arrive between two sweeps while other requests wait for room."""
_WAITS_MAX: Final = 30
"""Maximum number of sweeps for which a connection waits: 30 s, the default timeout of Kafka's clients."""


class Receiver(Protocol):
    """A connection that receives large requests, one at a time."""

    def room_given(self) -> None:
        """Receive the rest of the request."""

    def give_up(self, reason: str) -> None:
        """Close the connection."""

    def received(self) -> int | None:
        """Return how many bytes of an incomplete large request have arrived; None without such a request."""


class FrameRoom:
    """Memory for large requests: `bytes_max` bytes in all, or one larger request. Others wait in a queue.

    Room, the memory of one request, is reserved before the request is received, and kept until `release`.
    Invariant: a request with room can be received and handled, whatever other clients do. While others wait,
    a client that stops sending is disconnected.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._used = 0
        self._held: dict[Receiver, int] = {}
        self._waiting: dict[Receiver, int] = {}
        self._waits: dict[Receiver, int] = {}
        """Number of sweeps during which each connection has waited."""
        self._seen: dict[Receiver, int] = {}
        """Bytes of each connection's request that had arrived at the last sweep."""

    def reserve(self, receiver: Receiver, size: int) -> bool:
        """Reserve room for a request of this size and return True, or return False and call `room_given` later."""
        if receiver in self._held:
            return True
        if receiver not in self._waiting and not self._waiting and self._fits(size):
            self._hold(receiver, size)
            return True
        self._waiting.setdefault(receiver, size)
        return False

    def release(self, receiver: Receiver) -> None:
        """Release the connection's room, or its place in the queue; give room to the next in the queue."""
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
        """Close connections that have waited too long, and those that send too slowly while others wait."""
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
    """The room for Produce and Fetch requests (`records`), and the room for all other requests."""

    records: FrameRoom
    others: FrameRoom


RECORDS_FREE_MAX: Final = 1 << 20
"""Produce and Fetch requests up to this size need no room: the default `max.request.size` of producers."""


def frame_rooms() -> FrameRooms:
    """Return new, empty rooms for one broker."""
    return FrameRooms(FrameRoom(32 << 20), FrameRoom(32 << 20))
