"""One client connection: its receive buffer, its tick and its queue of responses.

A tick is one `buffer_updated`: every whole request is parsed, then the logs are written, then responses are
sent, in the order of the requests. Produce and Fetch are handled in place, every other API by `ColdRequests`.
Invariant: no response is sent before the records it acknowledges are written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from minikafka.base.ports import Buffer, Link, Tasks
from minikafka.broker.apis.fetch import FetchApi
from minikafka.broker.apis.produce import WALL_UNKNOWN, ProduceApi
from minikafka.broker.cold_requests import ColdRequests
from minikafka.broker.framing import FramedStream
from minikafka.broker.replicas import ReplicaManager
from minikafka.broker.services import ClientConnection, Handler, Services
from minikafka.replication.purgatory import AnswerQueue
from minikafka.wire.frames import CLIENT_ID, frames
from minikafka.wire.versions import FETCH, PRODUCE

ENTRIES_MAX: Final = 4096
"""Unanswered requests of one connection at which its socket is no longer read."""
QUEUED_MAX: Final = 32 << 20
"""Bytes of responses that the client has not received at which its requests are no longer read."""


class Connection(FramedStream):
    """The stream handler of one accepted connection. `closed(connection)` is called once, when it has ended."""

    __slots__ = (
        "answers",
        "client",
        "clock",
        "closed",
        "cold",
        "fetch",
        "last_active",
        "paused",
        "produce",
        "purgatory",
        "routes",
    )

    def __init__(
        self,
        client: ClientConnection,
        services: Services,
        replicas: ReplicaManager,
        handlers: Mapping[int, Handler],
        unsupported: Callable[[int], bytes],
        tasks: Tasks,
        closed: Callable[[Connection], None],
    ) -> None:
        super().__init__(services.config.socket_request_max_bytes)
        self.client = client
        self.clock = services.clock
        self.closed = closed
        self.purgatory = replicas.purgatory
        self.answers = AnswerQueue(replicas.purgatory, self.send)
        self.produce = ProduceApi(client, replicas, self.answers, services.clock, self._close)
        self.fetch = FetchApi(
            client,
            replicas,
            self.answers,
            services.clock,
            services.requests,
            self._queued_bytes,
        )
        self.cold = ColdRequests(
            client, services, handlers, unsupported, self.answers, tasks, self._close
        )
        self.routes = {PRODUCE: self.produce.on_request, FETCH: self.fetch.on_request}
        self.paused = False
        self.last_active = services.clock.now()

    def connected(self, link: Link) -> None:
        """Begin to serve the client."""
        self.link = link
        self.client.peer = link.peer()

    def disconnected(self, error: Exception | None) -> None:
        """Drop everything that waits on this connection."""
        self.cold.close()
        self.fetch.close()
        self.answers.close()
        self.release()
        self.closed(self)

    def drained(self) -> None:
        """Resume reading: the client has received its responses."""
        self._resume()

    def send(self, slices: Sequence[Buffer]) -> None:
        """Send responses, and resume reading if little is left to send."""
        self.link.send(slices)
        if self.paused:
            self._resume()

    def _resume(self) -> None:
        if (
            self.paused
            and len(self.answers.entries) < ENTRIES_MAX // 2
            and not self.cold.is_full
            and self.link.queued_bytes() < QUEUED_MAX
        ):
            self.paused = False
            self.link.resume_reading()

    def parse(self, buf: bytearray, view: memoryview, start: int, end: int) -> int:
        """Handle every whole request of this tick; return the position of the first partial one."""
        produce = self.produce
        self.last_active = produce.now = self.fetch.now = self.clock.now()
        produce.wall_ms = WALL_UNKNOWN
        return frames(buf, view, start, end, self.routes, self._on_cold, self.frame_max)

    def finish(self) -> None:
        """Write the logs, send the responses, then stop reading if too many requests are in progress."""
        if self.answers.considered != self.last_active:
            self.answers.measure(self.last_active)
        self.purgatory.finish_tick(self.last_active)
        if (
            len(self.answers.entries) >= ENTRIES_MAX
            or self.link.queued_bytes() >= QUEUED_MAX
            or self.cold.is_full
        ):
            self.paused = True
            self.link.pause_reading()

    def _queued_bytes(self) -> int:
        return self.link.queued_bytes()

    def _close(self) -> None:
        self.link.close()

    def _on_cold(
        self,
        view: memoryview,
        api: int,
        version: int,
        correlation: int,
        start: int,
        body: int,
        end: int,
    ) -> None:
        """Handle one request that is neither Produce nor Fetch."""
        self.fetch.release_parked()
        is_null = view[start + CLIENT_ID] >= 0x80  # its int16 length is negative
        client_id = None if is_null else bytes(view[start + CLIENT_ID + 2 : body])
        self.cold.add(api, version, correlation, client_id, view[body:end])
