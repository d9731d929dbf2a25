"""Counts the bytes and the time that one connection uses, while the broker has quotas (`broker/clients/quotas.py`).

Without quotas, a connection has no `Metering`, and its requests go directly to the handlers. The response to a client
above a quota is sent at once and contains the time to wait. During this time, the connection is not read (KIP-219).
A fetch that exceeds the quota gets its records; further fetches get none until the time is over. Requests of followers
and requests for authentication are not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Final, Literal

from minikafka.base.ports import Processor, Slice
from minikafka.broker.clients.quotas import BrokerQuotas, ClientLimits
from minikafka.broker.fetch.handler import FetchApi
from minikafka.broker.produce.handler import ProduceApi
from minikafka.broker.services import ClientConnection
from minikafka.kafka.wire import fetch as fetch_wire
from minikafka.kafka.wire import produce as produce_wire
from minikafka.kafka.wire.codec import can_throttle
from minikafka.kafka.wire.framing import AGAIN, CLIENT_ID, SIZE, Again, Frame, Route
from minikafka.kafka.wire.versions import FETCH, PRODUCE
from minikafka.storage.replication.purgatory import MultiProduce, Slot

_IDS_MAX: Final = 64
_NO_LIMITS: Final = ClientLimits(None, None, None)
_INT16: Final = Struct(">h")


class Metering:
    """Counts the requests of one connection. `throttle(ms)` stops the connection from reading for this time."""

    __slots__ = (
        "_began",
        "_client",
        "_cold_began",
        "_cold_ns",
        "_fetch",
        "_is_counted",
        "_limits",
        "_missing_ms",
        "_owed_ms",
        "_principal",
        "_processor",
        "_produce",
        "_quotas",
        "_seen",
        "_throttle",
        "_version",
    )

    def __init__(
        self,
        client: ClientConnection,
        quotas: BrokerQuotas,
        processor: Processor,
        produce: ProduceApi,
        fetch: FetchApi,
        throttle: Callable[[int], None],
    ) -> None:
        self._client = client
        self._quotas = quotas
        self._processor = processor
        self._produce = produce
        self._fetch = fetch
        self._throttle = throttle
        self._principal = ""
        self._version = -1
        self._seen: dict[bytes, ClientLimits] = {}
        """The limits of each client id. The key is the client id as requests contain it."""
        self._limits = _NO_LIMITS
        """The limits of the latest request."""
        self._began = 0
        self._owed_ms = 0
        """Time (ms) that the client must wait after the current request."""
        self._is_counted = False
        """True if the bytes of the current Produce request were counted; a request may be passed several times."""
        self._missing_ms = 0
        """Time (ms) that the client had to wait when its current fetch was refused records; 0 if it was not."""
        self._cold_began = 0
        """Time (ns) at which the work on a cold request began or continued; 0 while no cold request is worked on."""
        self._cold_ns = 0
        """Time (ns) that the current cold request took before `_cold_began`."""

    @property
    def routes(self) -> dict[int, Route]:
        """The handlers of Produce and Fetch requests, by API key. They count each request."""
        return {PRODUCE: self._on_produce, FETCH: self._on_fetch}

    def _begin(self, view: memoryview, start: int, body: int) -> ClientLimits:
        """Start to measure the time of a request; return the limits of its client."""
        self._began = self._processor.time_ns()
        if self._version != self._quotas.version or self._principal != self._client.principal:
            self._version, self._principal = self._quotas.version, self._client.principal
            self._seen.clear()
        client_id = view[start + CLIENT_ID + _INT16.size : body].tobytes()
        limits = self._seen.get(client_id)
        if limits is None:
            if len(self._seen) >= _IDS_MAX:
                self._seen.clear()
            name = client_id.decode("utf-8", "replace")
            limits = self._seen[client_id] = self._quotas.limits_of(self._client.user, name)
        self._limits = limits
        return limits

    def _spent_ms(self) -> int:
        """Count the time since the last call or `_begin`; return the time that the client must wait."""
        now = self._processor.time_ns()
        spent, self._began = now - self._began, now
        return self._quotas.spent(self._limits.request, spent)

    def tick_ended(self) -> None:
        """Count the time since the last request of a tick: the logs were written and responses were sent."""
        if self._began:
            self._spent_ms()
            self._began = 0

    def _on_produce(self, *frame: *Frame) -> bool | Literal[Again.AGAIN] | None:
        """Count a Produce request and pass it to its handler; return True if parsing must stop."""
        _, view, version, _, start, body, end = frame
        limits = self._begin(view, start, body)
        if not self._is_counted:
            self._owed_ms = self._quotas.produced(limits.producer, end - start - SIZE.size)
            self._is_counted = True
        entries = self._produce.answers.entries
        last = entries[-1] if entries else None
        held = self._produce.on_request(*frame)
        self._owed_ms = max(self._owed_ms, self._spent_ms())
        if self._owed_ms and entries and entries[-1] is not last:
            self._tell_producer(version)
        if held is AGAIN:
            return AGAIN
        self._is_counted = False
        if not self._owed_ms:
            return None
        self._throttle(self._owed_ms)
        self._quotas.throttled(PRODUCE, self._owed_ms)
        return True

    def _tell_producer(self, version: int) -> None:
        """Put the time to wait into the response of the current request, the last one in the queue."""
        entries, owed = self._produce.answers.entries, self._owed_ms
        entry = entries[-1]
        with_throttle = produce_wire.with_throttle
        if isinstance(entry, tuple):
            *fields, pack = entry
            entries[-1] = (*fields, lambda *row: with_throttle(pack(*row), version, owed))  # type: ignore[assignment]
        elif type(entry) is MultiProduce:
            encode = entry.encode
            entry.encode = lambda: with_throttle(encode(), version, owed)
        elif isinstance(entry, Slot) and entry.answer is not None:
            frame = entry.answer[0]
            assert isinstance(frame, bytes)
            entry.answer = (with_throttle(frame, version, owed),)

    def _on_fetch(self, *frame: *Frame) -> bool:
        """Count the time of a Fetch request and pass it to its handler; return True if parsing must stop."""
        _, view, _, _, start, body, _ = frame
        self._begin(view, start, body)
        self._owed_ms = 0
        is_enough = self._fetch.on_request(*frame)
        if self._fetch.session is not None:
            self._began = 0  # a follower's time is not counted
        return is_enough or self._owed_ms > 0

    # ---- called by the fetches of consumers

    def fetch_bytes_max(self) -> int | None:
        """Return how many bytes of records a response may have now: 0 while the client must wait, None: any number."""
        limit = self._limits.consumer
        if limit is None:
            return None
        self._missing_ms = self._quotas.fetch_throttle_ms(limit)
        return 0 if self._missing_ms else self._quotas.fetch_bytes_max(limit)

    def fetch_answered(self, answer: Sequence[Slice], version: int) -> None:
        """Count a response to a consumer, and put the time that the consumer must wait into it."""
        head = answer[0]
        assert isinstance(head, bytearray)
        size: int = SIZE.unpack_from(head)[0]
        owed = max(self._missing_ms, self._quotas.fetched(self._limits.consumer, size))
        self._missing_ms = 0
        if self._began:
            owed = max(owed, self._spent_ms())
        if not owed:
            return
        fetch_wire.set_throttle(head, version, owed)
        self._owed_ms = owed
        self._throttle(owed)
        self._quotas.throttled(FETCH, owed)

    # ---- called by `ColdRequests`

    def work_began(self) -> None:
        self._cold_began = self._processor.time_ns()

    def work_paused(self) -> None:
        if self._cold_began:
            self._cold_ns += self._processor.time_ns() - self._cold_began
            self._cold_began = 0

    def cold_answered(self, api: int, client_id: str, mutation_ms: int) -> int:
        self.work_paused()
        spent, self._cold_ns = self._cold_ns, 0
        if not can_throttle(api):
            return 0
        limits = self._quotas.limits_of(self._client.user, client_id)
        owed = max(self._quotas.spent(limits.request, spent), mutation_ms)
        if owed:
            self._throttle(owed)
            self._quotas.throttled(api, owed)
        return owed
