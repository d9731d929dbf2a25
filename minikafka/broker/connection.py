"""One client connection: its buffer, its tick, its FIFO of answers.

A tick is one `buffer_updated`: every whole request is parsed, then the logs are written, then answers
leave, in the order of the requests. Produce and Fetch are handled in place; every other API is decoded
into an object and given to its handler. Invariant: nothing is answered before what it needs is written.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from inspect import isawaitable
from typing import Any, Final

from minikafka.base.errors import KafkaError, ProtocolViolation
from minikafka.base.ports import Buffer, Link, Tasks
from minikafka.broker.apis.fetch import FetchApi
from minikafka.broker.apis.produce import TO_BE_READ, ProduceApi
from minikafka.broker.framing import FramedStream
from minikafka.broker.replicas import ReplicaManager
from minikafka.broker.services import Handler, Services
from minikafka.replication.purgatory import AnswerQueue, Slot
from minikafka.wire.codec import decode_request, encode_response
from minikafka.wire.frames import frames
from minikafka.wire.versions import API_VERSIONS, FETCH, PRODUCE, is_served

logger = logging.getLogger(__name__)

ENTRIES_MAX: Final = 4096
"""Requests of one connection that may wait for their answers before its socket is read no more."""
QUEUED_MAX: Final = 32 << 20
"""Bytes of answers that a slow peer may leave unread before its requests are read no more."""


class Connection(FramedStream):
    """A StreamHandler behind the Kafka listener. `closed(connection)` is told once, at the end."""

    __slots__ = (
        "answers", "closed", "fetch", "handlers", "last_active", "paused", "produce", "purgatory", "routes",
        "services", "tasks", "unsupported",
    )  # fmt: skip

    def __init__(
        self,
        services: Services,
        replicas: ReplicaManager,
        handlers: dict[int, Handler],
        unsupported: Callable[[int], bytes],
        tasks: Tasks,
        closed: Callable[[Connection], None],
    ) -> None:
        super().__init__(services.config.socket_request_max_bytes)
        self.services = services
        self.handlers = handlers
        self.unsupported = unsupported
        self.tasks = tasks
        self.closed = closed
        self.purgatory = replicas.purgatory
        self.answers = AnswerQueue(replicas.purgatory, self.send)
        self.produce = ProduceApi(replicas, self.answers, services.clock, self._close)
        self.fetch = FetchApi(replicas, self.answers, services.clock, self._queued_bytes)
        self.routes = {PRODUCE: self.produce.on_request, FETCH: self.fetch.on_request}
        self.paused = False
        self.last_active = services.clock.now()

    def connected(self, link: Link) -> None:
        """The transport is ready."""
        self.link = link

    def disconnected(self, error: Exception | None) -> None:
        """Whoever waited on this connection waits no more."""
        self.fetch.close()
        self.answers.close()
        self.release()
        self.closed(self)

    def drained(self) -> None:
        """The peer took its answers."""
        self._resume()

    def send(self, slices: Sequence[Buffer]) -> None:
        """Write answers; go on reading once the backlog is gone."""
        self.link.send(slices)
        if self.paused:
            self._resume()

    def _resume(self) -> None:
        if (
            self.paused
            and len(self.answers.entries) < ENTRIES_MAX // 2
            and self.link.queued_bytes() < QUEUED_MAX
        ):
            self.paused = False
            self.link.resume_reading()

    def parse(self, buf: bytearray, view: memoryview, start: int, end: int) -> int:
        """Every whole request of this tick."""
        produce = self.produce
        self.last_active = produce.now = self.fetch.now = self.services.clock.now()
        produce.wall_ms = TO_BE_READ
        return frames(buf, view, start, end, self.routes, self._on_other, self.frame_max)

    def finish(self) -> None:
        """Write, then answer; then stop reading if too much is under way."""
        self.purgatory.finish_tick(self.last_active)
        if len(self.answers.entries) >= ENTRIES_MAX or self.link.queued_bytes() >= QUEUED_MAX:
            self.paused = True
            self.link.pause_reading()

    def _queued_bytes(self) -> int:
        return self.link.queued_bytes()

    def _close(self) -> None:
        self.link.close()

    def _on_other(
        self, view: memoryview, api: int, version: int, correlation: int, body: int, end: int
    ) -> None:
        """One request that is neither Produce nor Fetch."""
        self.fetch.release_parked()
        if not is_served(api, version):
            if api != API_VERSIONS:
                raise ProtocolViolation(f"API {api} version {version} is not served")
            self._answer(self.answers.reserve(), self.unsupported(correlation))
            return
        request = decode_request(api, version, view[body:end])
        slot = self.answers.reserve()
        response = self.handlers[api](self.services, request, version)
        if isawaitable(response):
            self.tasks.spawn(
                self._answer_later(slot, correlation, api, version, response), f"api-{api}"
            )
        else:
            self._answer(slot, encode_response(correlation, api, version, response))

    async def _answer_later(
        self, slot: Slot, correlation: int, api: int, version: int, response: Awaitable[Any]
    ) -> None:
        try:
            answer = encode_response(correlation, api, version, await response)
        except KafkaError as error:
            logger.warning("API %d version %d from %s: %s", api, version, self.link.peer(), error)
            self.link.close()
            return
        except Exception:
            # A defect of ours, met by one client's request: it costs that client its connection.
            logger.exception("API %d version %d from %s failed", api, version, self.link.peer())
            self.link.close()
            return
        self._answer(slot, answer)
        self.purgatory.finish_tick(self.services.clock.now())

    def _answer(self, slot: Slot, answer: bytes) -> None:
        slot.answer = (answer,)
        self.purgatory.ready[self.answers] = None
