"""The cold requests of one connection: every API but Produce and Fetch, handled one at a time.

Invariant: a cold request begins only after the earlier cold requests of its connection are answered, as in
Kafka, which reads the next request of a connection only then. Produce and Fetch do not wait for cold requests.
A waiting request is a copy, because the receive buffer is reused at the end of the tick.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from inspect import isawaitable
from typing import Any, Final, NamedTuple

from minikafka.base.errors import KafkaError, ProtocolViolation
from minikafka.base.ports import Buffer, Tasks
from minikafka.broker.services import (
    LATER,
    ClientConnection,
    Entity,
    Handler,
    RequestContext,
    Services,
)
from minikafka.replication.purgatory import AnswerQueue, Slot
from minikafka.wire.codec import decode_request, encode_response
from minikafka.wire.versions import API_VERSIONS, NAMES, is_served

logger = logging.getLogger(__name__)

WAITING_MAX: Final = 256
"""Waiting cold requests of one connection at which its socket is no longer read."""
WAITING_BYTES_MAX: Final = 1 << 20
"""Bytes of waiting cold requests of one connection at which its socket is no longer read."""


class ColdRequest(NamedTuple):
    """One request, and the place of its response among the responses of the connection."""

    api: int
    version: int
    correlation: int
    client_id: str | None
    body: Buffer
    slot: Slot
    arrived: int
    """Monotonic milliseconds."""


class ColdRequests:
    """The cold requests of one connection, in order of arrival.

    `unsupported(correlation)` encodes the response to an ApiVersions request of an unknown version.
    `close()` closes the connection.
    """

    __slots__ = (
        "_answers",
        "_bytes",
        "_close",
        "_closed",
        "_connection",
        "_current",
        "_handlers",
        "_is_beginning",
        "_services",
        "_tasks",
        "_unsupported",
        "_waiting",
        "is_full",
    )

    def __init__(
        self,
        connection: ClientConnection,
        services: Services,
        handlers: Mapping[int, Handler],
        unsupported: Callable[[int], bytes],
        answers: AnswerQueue,
        tasks: Tasks,
        close: Callable[[], None],
    ) -> None:
        self._services = services
        self._handlers = handlers
        self._unsupported = unsupported
        self._connection = connection
        self._answers = answers
        self._tasks = tasks
        self._close = close
        self._waiting: deque[ColdRequest] = deque()
        self._bytes = 0
        self._current: ColdRequest | None = None
        self._is_beginning = False
        self._closed = False
        self.is_full = False
        """True while the connection must not be read, because too many requests wait here."""

    def add(
        self, api: int, version: int, correlation: int, client_id: bytes | None, body: Buffer
    ) -> None:
        """Begin the request, or queue a copy of it while an earlier one is not answered.

        Raises ProtocolViolation for a request that begins now and is not served or cannot be decoded.
        """
        if self._closed:
            return
        name = None if client_id is None else client_id.decode("utf-8", "replace")
        slot = self._answers.reserve()
        now = self._services.clock.now()
        if self._current is None:
            self._begin(ColdRequest(api, version, correlation, name, body, slot, now))
            return
        self._waiting.append(ColdRequest(api, version, correlation, name, bytes(body), slot, now))
        self._count(len(body))

    def close(self) -> None:
        """Drop the waiting requests and ignore later answers: the connection has ended."""
        self._closed = True
        self._current = None
        self._waiting.clear()
        self._bytes = 0

    def _begin(self, request: ColdRequest) -> None:
        """Call the handler. Raises ProtocolViolation for a request that is not served or cannot be decoded."""
        api, version = request.api, request.version
        if not is_served(api, version):
            if api != API_VERSIONS:
                raise ProtocolViolation(
                    f"{NAMES.get(api, f'API {api}')} version {version} is not served"
                )
            self._respond(request, self._unsupported(request.correlation))
            return
        entity = decode_request(api, version, request.body)
        answer = partial(self._answer, request)
        context = RequestContext(self._connection, request.client_id, version, answer)
        self._current = request
        self._is_beginning = True
        with self._closing_on_failure(request):
            response = self._handlers[api](self._services, entity, context)
            if isawaitable(response):
                self._tasks.spawn(self._answer_when_done(request, response), NAMES[api])
            elif response is not LATER:
                self._finish(request, response)
        self._is_beginning = False

    async def _answer_when_done(self, request: ColdRequest, response: Awaitable[Any]) -> None:
        with self._closing_on_failure(request):
            self._answer(request, await response)

    def _answer(self, request: ColdRequest, response: Entity | bytes) -> None:
        """Answer a request whose handler did not return the response, then begin the waiting requests."""
        if self._closed:
            return
        with self._closing_on_failure(request):
            self._finish(request, response)
        self._answers.purgatory.finish_soon()
        if not self._is_beginning:
            self._begin_waiting()

    def _finish(self, request: ColdRequest, response: Entity | bytes) -> None:
        assert self._current is request, "a request is answered twice"
        took = self._services.clock.now() - request.arrived
        self._services.requests.times[request.api].record(took)
        self._respond(
            request,
            encode_response(request.correlation, request.api, request.version, response),
        )

    def _respond(self, request: ColdRequest, frame: bytes) -> None:
        self._current = None
        request.slot.answer = (frame,)
        self._answers.purgatory.ready[self._answers] = None

    def _count(self, added_bytes: int) -> None:
        self._bytes += added_bytes
        self.is_full = len(self._waiting) >= WAITING_MAX or self._bytes >= WAITING_BYTES_MAX

    def _begin_waiting(self) -> None:
        """Begin waiting requests until one of them is not answered at once."""
        try:
            while self._waiting and self._current is None and not self._closed:
                request = self._waiting.popleft()
                self._count(-len(request.body))
                self._begin(request)
        except ProtocolViolation as violation:
            logger.info("closing connection from %s: %s", self._connection.peer, violation)
            self._close()

    @contextmanager
    def _closing_on_failure(self, request: ColdRequest) -> Iterator[None]:
        """Close the connection of a client whose request cannot be answered, and log why."""
        name, version, peer = NAMES[request.api], request.version, self._connection.peer
        try:
            yield
        except KafkaError as error:
            logger.warning("%s version %d from %s: %s", name, version, peer, error)
        except Exception:  # a defect of the broker, which must cost no other client anything
            logger.exception("%s version %d from %s failed", name, version, peer)
        else:
            return
        self.close()
        self._close()
