"""The cold requests of one connection: every API but Produce and Fetch, handled one at a time.

Invariant: a cold request begins only after the responses to the earlier cold requests of its connection were sent,
and the client has received all but 64 KiB of them, as in Kafka, which reads the next request of a connection only
then. A connection therefore holds at most one cold response. Produce and Fetch do not wait for cold requests.
A waiting request is a copy, because the receive buffer is reused at the end of the tick.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from inspect import isawaitable
from typing import Any, Final, NamedTuple

from minikafka.base.errors import KafkaError, ProtocolViolation
from minikafka.base.ports import Buffer, Tasks
from minikafka.broker.cold_turns import TURN_MS, ColdTurns
from minikafka.broker.services import (
    LATER,
    ClientConnection,
    Entity,
    Handler,
    RequestContext,
    Services,
    Steps,
)
from minikafka.replication.purgatory import AnswerQueue, Slot
from minikafka.wire.codec import decode_request, encode_response
from minikafka.wire.versions import API_VERSIONS, NAMES, is_served

logger = logging.getLogger(__name__)

WAITING_MAX: Final = 64
"""Waiting cold requests of one connection at which nothing more is read or parsed, until half of them are left."""
WAITING_BYTES_MAX: Final = 256 << 10
"""Bytes of waiting cold requests with the same effect as `WAITING_MAX` requests."""


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
    `is_received(slot)` is True if the response of the slot was sent and received; if it returns False, its owner
    calls `proceed` when something was sent or received. `close()` closes the connection.
    """

    __slots__ = (
        "_answers",
        "_bytes",
        "_close",
        "_closed",
        "_connection",
        "_current",
        "_handlers",
        "_is_queued",
        "_is_received",
        "_sending",
        "_services",
        "_steps",
        "_tasks",
        "_turns",
        "_unsupported",
        "_waiting",
        "is_full",
        "used",
    )

    def __init__(
        self,
        connection: ClientConnection,
        services: Services,
        handlers: Mapping[int, Handler],
        unsupported: Callable[[int], bytes],
        answers: AnswerQueue,
        tasks: Tasks,
        turns: ColdTurns,
        is_received: Callable[[Slot], bool],
        close: Callable[[], None],
    ) -> None:
        self._services = services
        self._handlers = handlers
        self._unsupported = unsupported
        self._connection = connection
        self._answers = answers
        self._tasks = tasks
        self._turns = turns
        self._is_received = is_received
        self._close = close
        self._waiting: deque[ColdRequest] = deque()
        self._bytes = 0
        self._current: ColdRequest | None = None
        self._steps: Steps | None = None
        """The rest of the work for the current request, if it is done in steps."""
        self._sending = Slot()
        """The place of the last response; empty again when it has been sent."""
        self._is_queued = False
        self._closed = False
        self.used = 0
        self.is_full = False
        """True while nothing more may be parsed, because too many requests wait here."""

    def add(
        self, api: int, version: int, correlation: int, client_id: bytes | None, body: Buffer
    ) -> bool:
        """Queue a copy of the request; return True if no more may be parsed."""
        name = None if client_id is None else client_id.decode("utf-8", "replace")
        slot = self._answers.reserve()
        now = self._services.clock.now()
        self._waiting.append(ColdRequest(api, version, correlation, name, bytes(body), slot, now))
        self._count(len(body))
        self.proceed()
        return self.is_full

    def proceed(self) -> None:
        """Ask for a turn to begin the next request or to go on with the current one, if that is possible now."""
        if self._is_queued or self._closed:
            return
        if self._steps is None and (
            self._current is not None or not self._waiting or not self._is_received(self._sending)
        ):
            return
        self._is_queued = True
        self._turns.ask(self)

    def work(self) -> None:
        """Handle the next request, or a slice of the current one."""
        self._is_queued = False
        if self._closed:
            return
        if self._current is not None:
            self._work_on(self._current)
            return
        request = self._waiting.popleft()
        self._count(-len(request.body))
        try:
            self._begin(request)
        except ProtocolViolation as violation:
            logger.info("closing connection from %s: %s", self._connection.peer, violation)
            self.close()
            self._close()

    def close(self) -> None:
        """Drop the waiting requests and ignore later answers: the connection has ended."""
        self._closed = True
        self._current = self._steps = None
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
        with self._closing_on_failure(request):
            response = self._handlers[api](self._services, entity, context)
            if isinstance(response, Generator):
                self._steps = response
            elif isawaitable(response):
                self._tasks.spawn(self._answer_when_done(request, response), NAMES[api])
            elif response is not LATER:
                self._finish(request, response)
        if self._steps is not None:
            self._work_on(request)

    async def _answer_when_done(self, request: ColdRequest, response: Awaitable[Any]) -> None:
        with self._closing_on_failure(request):
            self._answer(request, await response)

    def _answer(self, request: ColdRequest, response: Entity | bytes | Steps) -> None:
        """Answer a request whose handler did not return the response, or begin the steps to its response."""
        if self._closed:
            return
        if isinstance(response, Generator):
            self._steps = response
        else:
            with self._closing_on_failure(request):
                self._finish(request, response)
            self._answers.purgatory.finish_soon()
        self.proceed()

    def _work_on(self, request: ColdRequest) -> None:
        """Take steps of the current request until it is answered or other connections have their turn."""
        steps, clock = self._steps, self._services.clock
        assert steps is not None
        end = clock.now() + TURN_MS
        with self._closing_on_failure(request):
            try:
                next(steps)
                while clock.now() < end:
                    next(steps)
            except StopIteration as done:
                self._steps = None
                self._finish(request, done.value)

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
        self._sending = request.slot
        request.slot.answer = (frame,)
        self._answers.purgatory.ready[self._answers] = None

    def _count(self, added_bytes: int) -> None:
        self._bytes += added_bytes
        count, share = len(self._waiting), 2 if self.is_full else 1
        self.is_full = count * share > WAITING_MAX or self._bytes * share > WAITING_BYTES_MAX

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
