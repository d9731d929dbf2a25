"""One direction of a connection keeps the order of its bytes and of its end, whatever holds them up."""

from __future__ import annotations

import asyncio
import struct

from minikafka.tools.cluster.proxy.pipe import WAITING_MAX_BYTES, End, Pipe
from minikafka.tools.cluster.proxy.requests import RequestCount, RequestScanner
from minikafka.tools.cluster.proxy.rules import CLIENTS, FETCH, NO_EFFECT, Effect, Way

HELD = Effect(is_held=True, rules=(1,))
DROPPED = Effect(is_dropped=True, rules=(1,))


def request(api: int) -> bytes:
    return struct.pack(">ih", 6, api) + b"body"


class Ends:
    """What a pipe does to its sender and its receiver."""

    def __init__(self) -> None:
        self.sent: list[bytes | End] = []
        self.grew = asyncio.Event()
        self.is_reading_held = False
        self.hits = [0, 0]
        self.watches: list[RequestCount] = []
        self.pipe = Pipe(
            Way(CLIENTS, 1, FETCH),
            send=self._send,
            hold_reading=self._hold,
            note=self._note,
            watches=self,
            scanner=RequestScanner(),
        )
        self.pipe.is_ready = True

    def _send(self, item: bytes | End) -> None:
        self.sent.append(item)
        self.grew.set()

    def _hold(self, is_held: bool) -> None:
        self.is_reading_held = is_held

    def _note(self, effect: Effect, size: int, requests: int) -> None:
        self.hits = [self.hits[0] + size, self.hits[1] + requests]

    def current(self) -> list[RequestCount]:
        return self.watches

    def passed(self, watch: RequestCount) -> None:
        watch.passed += 1

    def set(self, effect: Effect) -> None:
        self.pipe.effect = effect
        self.pipe.flush()

    @property
    def data(self) -> bytes:
        return b"".join(item for item in self.sent if isinstance(item, bytes))


async def test_cut_holds_bytes_and_the_end_until_it_is_healed():
    ends = Ends()
    ends.set(HELD)

    ends.pipe.receive(request(0))
    ends.pipe.receive(End(is_reset=False))
    assert ends.sent == []
    assert ends.hits == [10, 1]
    ends.set(NO_EFFECT)
    ends.pipe.receive(b"x")

    assert ends.sent == [request(0), End(is_reset=False), b"x"]


async def test_cut_stops_the_reading_when_much_waits():
    ends = Ends()
    ends.set(HELD)

    ends.pipe.receive(bytes(WAITING_MAX_BYTES + 1))
    assert ends.is_reading_held
    ends.set(NO_EFFECT)

    assert not ends.is_reading_held
    assert len(ends.data) == WAITING_MAX_BYTES + 1


async def test_drop_loses_bytes_and_remembers_it():
    ends = Ends()
    ends.set(DROPPED)

    ends.pipe.receive(b"lost")
    ends.set(NO_EFFECT)

    assert ends.sent == []
    assert ends.pipe.is_lossy


async def test_delay_keeps_the_order_also_with_bytes_after_it_is_healed():
    ends = Ends()
    ends.set(Effect(delay_ms=20, rules=(1,)))
    loop = asyncio.get_running_loop()
    begun = loop.time()

    ends.pipe.receive(b"a")
    ends.pipe.receive(b"b")
    assert ends.sent == []
    await ends.grew.wait()
    assert loop.time() - begun >= 0.019
    ends.pipe.receive(b"c")
    ends.set(NO_EFFECT)
    ends.pipe.receive(b"d")

    assert ends.data == b"abcd"


async def test_watch_stops_the_request_after_its_number_at_its_first_byte():
    ends = Ends()
    watch = RequestCount(0, 2)
    ends.watches = [watch]

    ends.pipe.receive(request(1) + request(0) + request(3) + request(0) + request(1) + request(0))
    assert ends.data == request(1) + request(0) + request(3) + request(0) + request(1)
    assert watch.is_reached
    ends.pipe.receive(request(1))
    assert len(ends.data) == 50
    ends.watches = []
    ends.pipe.flush()

    assert ends.data[50:] == request(0) + request(1)


async def test_watch_has_passed_when_the_last_byte_of_its_request_has():
    ends = Ends()
    watch = RequestCount(0, 1)
    ends.pipe.receive(request(0)[:8])  # begins before the watch: it does not count
    ends.watches = [watch]
    ends.pipe.receive(request(0)[8:])

    ends.pipe.receive(request(0)[:7])
    assert watch.begun == 1
    assert not watch.is_reached
    ends.pipe.receive(request(0)[7:])

    assert watch.is_reached
