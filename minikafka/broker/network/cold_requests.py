"""The cold requests of one connection: every API but Produce and Fetch, handled one at a time.

Invariant: a cold request begins only after the responses to the earlier cold requests of its connection were
sent, and the client has received all but 64 KiB of them. (Kafka, too, reads the next request of a connection
only after the response.) A connection therefore holds at most one response to a cold request. Produce
and Fetch do not wait for cold requests. A waiting request is copied from the receive buffer, because this
buffer is reused for the next bytes from the client. A request that was received into a buffer of its own is not copied.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Mapping
from functools import partial
from inspect import isawaitable
from typing import Any, Final, NamedTuple, Protocol

from minikafka.base.config.keys import INT_MAX
from minikafka.base.errors import KafkaError, ProtocolViolation
from minikafka.base.ports import Buffer, Tasks
from minikafka.broker.network.frame_room import FrameRoom
from minikafka.broker.services import (
    LATER,
    ClientConnection,
    Entity,
    Handler,
    Later,
    RequestContext,
    Services,
    Steps,
)
from minikafka.broker.turns import Scheduler, take_steps
from minikafka.kafka.wire.codec import (
    decode_request,
    decode_request_in_steps,
    encode_response,
    with_throttle,
)
from minikafka.kafka.wire.versions import API_VERSIONS, NAMES, is_served
from minikafka.storage.replication.purgatory import AnswerQueue, Slot

logger = logging.getLogger(__name__)

WAITING_MAX: Final = 64
"""When more cold requests of a connection wait, reading and parsing stop until at most half this number wait."""
LARGE_BYTES: Final = 16 << 10
"""Requests of at least this many bytes are decoded in steps, and handled one at a time (`OneAtATime`)."""
LARGE_RESPONSE: Final = 1 << 20
"""When a response has this many bytes, it is encoded further only if no other such response of the broker is being
encoded or sent. A client can ask for a large response on many connections, and receive none."""
WAITING_BYTES_MAX: Final = 256 << 10
"""When the waiting cold requests of a connection have more bytes than this, reading and parsing stop until they
have at most half of it."""


class ColdRequest(NamedTuple):
    """One cold request (any API but Produce and Fetch), and the slot of its response in the response queue."""

    api: int
    version: int
    correlation: int
    client_id: str | None
    body: Buffer
    slot: Slot
    arrived: int
    """Time of arrival, in monotonic milliseconds."""


class ColdMeter(Protocol):
    """Counts the time of cold requests, while the broker has quotas (`broker/network/metering.py`)."""

    def work_began(self) -> None:
        """Begin to count the time of the current request."""

    def work_paused(self) -> None:
        """Stop to count the time, because other connections are served."""

    def cold_answered(self, api: int, client_id: str, mutation_ms: int) -> int:
        """Count the request; return the time that the client must wait.

        `mutation_ms`: the time that the client must wait because of its changes of topics.
        """


class ColdRequests:
    """The cold requests (any API but Produce and Fetch) of one connection, in order of arrival.

    `unsupported(correlation)` encodes the response to an ApiVersions request of an unknown version. A slot is the
    place of one response in the response queue. `is_received(slot)` returns True if this response was sent and
    received by the client. While `is_waiting`, the connection calls `proceed` whenever a response was sent or
    received. `unsent()` returns the number of bytes that the client has not received. `close()` closes the
    connection; `abort(reason)` closes it without sending the unsent bytes. `begun()` is called when a waiting
    request that has its own receive buffer is about to be handled.
    """

    __slots__ = (
        "_abort",
        "_answers",
        "_begun",
        "_bytes",
        "_close",
        "_closed",
        "_connection",
        "_context",
        "_current",
        "_handlers",
        "_is_awaited",
        "_is_queued",
        "_is_received",
        "_needs_room",
        "_room",
        "_sending",
        "_sent_bytes",
        "_services",
        "_steps",
        "_tasks",
        "_then",
        "_turns",
        "_unsent",
        "_unsupported",
        "_waiting",
        "is_full",
        "is_held",
        "is_waiting",
        "meter",
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
        turns: Scheduler,
        is_received: Callable[[Slot], bool],
        close: Callable[[], None],
        begun: Callable[[], None],
        room: FrameRoom,
        unsent: Callable[[], int],
        abort: Callable[[str], None],
    ) -> None:
        self._services = services
        self._begun = begun
        self._room = room
        self._unsent = unsent
        self._abort = abort
        self._needs_room = False
        """True while the response waits for memory, or has memory that is reserved for large responses."""
        self._sent_bytes = 0
        """Size of the last response, 0 while it is not encoded."""
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
        self._steps: Generator[Any, None, Any] | None = None
        """The remaining steps of the current request; None if there are none."""
        self._then: Callable[[ColdRequest, Any], None] = self._finish
        """Called after the last step with the result of `_steps`, which is a decoded request or a response."""
        self._sending = Slot()
        """The slot of the last response. Its `answer` is reset to None when the response has been sent."""
        self._is_awaited = False
        """True while a task awaits the response to the current request."""
        self._is_queued = False
        self._closed = False
        self.used = 0
        self._context: RequestContext | None = None
        """The context of the current request."""
        self.meter: ColdMeter | None = None
        """Counts the time of the requests; None while the broker has no quotas."""
        self.is_held = False
        """True while the client has exceeded a quota: no further request begins."""
        self.is_waiting = False
        """True while the next request, or memory for large responses, waits for the receipt of a response."""
        self.is_full = False
        """True while the connection must not parse further requests, because too many cold requests wait."""

    def add(
        self, api: int, version: int, correlation: int, client_id: bytes | None, body: Buffer
    ) -> bool:
        """Queue the request. Return True if the connection must not parse further requests.

        The caller must not change `body` after this call.
        """
        name = None if client_id is None else client_id.decode("utf-8", "replace")
        slot = self._answers.reserve()
        now = self._services.clock.now()
        self._waiting.append(ColdRequest(api, version, correlation, name, body, slot, now))
        self._count(len(body))
        self.proceed()
        return self.is_full

    def proceed(self) -> None:
        """Ask the scheduler for a slice, in which `work` is called.

        Do nothing if the connection has no request that can begin or continue now.
        """
        if self._is_queued or self._closed:
            return
        self.is_waiting = False
        if self._connection.is_ending:
            self._end()
            return
        if self._needs_room and not self._has_room():
            return
        if self._steps is None and (
            self.is_held or self._current is not None or not self._waiting or not self._has_sent()
        ):
            return
        self._is_queued = True
        if self._steps is None and len(self._waiting[0].body) >= LARGE_BYTES:
            self._turns.large.ask(self)
        else:
            self._turns.requests.ask(self)

    def _end(self) -> None:
        """Close the connection when the client has received the last response."""
        if self._current is None and self._has_sent():
            self.close()
            self._close()

    def _has_room(self) -> bool:
        """Return False while the response waits for memory. Release the memory of a response that was received."""
        if self._steps is not None:
            return self._room.reserve(self, LARGE_RESPONSE)
        if self._current is None and self._has_sent():
            self._release_room()
        return True

    def _has_sent(self) -> bool:
        """Return True if the client has received the last response. Otherwise wait for the receipt."""
        self.is_waiting = not self._is_received(self._sending)
        return not self.is_waiting

    def _release_room(self) -> None:
        self._needs_room = False
        self._room.release(self)

    def room_given(self) -> None:
        """Continue to encode the large response."""
        self.proceed()

    def received(self) -> int | None:
        """Return how many bytes of the large response the client has received; None while it is encoded."""
        return max(self._sent_bytes - self._unsent(), 0) if self._sent_bytes else None

    def work(self, until: int) -> None:
        """Begin to handle the next request, or continue the current request until the time `until`."""
        self._is_queued = False
        if self._closed:
            return
        if self.meter is not None:
            self.meter.work_began()
        try:
            if self._current is not None:
                self._work_on(self._current, until)
            else:
                request = self._waiting.popleft()
                self._count(-len(request.body))
                if isinstance(request.body, memoryview):
                    self._begun()
                self._begin(request, until)
        except ProtocolViolation as violation:
            self.give_up(violation)
        if self.meter is not None:
            self.meter.work_paused()
        if self._steps is None and not self._is_awaited:
            self._turns.large.end(self)
        self.proceed()

    def give_up(self, reason: object) -> None:
        """Log the reason and close the connection."""
        if self._sent_bytes and self._needs_room:
            self._abort("it receives a large response too slowly while others wait")
            return
        logger.info("closing connection from %s: %s", self._connection.peer, reason)
        self.close()
        self._close()

    def close(self) -> None:
        """Drop the waiting requests and ignore later responses, because the connection has ended."""
        self._closed = True
        self._turns.large.end(self)
        self._release_room()
        self._current = self._steps = None
        self._waiting.clear()
        self._bytes = 0

    def _begin(self, request: ColdRequest, until: int) -> None:
        """Decode the request and call its handler.

        Raises ProtocolViolation for a request that is not served or cannot be decoded.
        """
        api, version = request.api, request.version
        if not is_served(api, version):
            if api != API_VERSIONS:
                raise ProtocolViolation(
                    f"{NAMES.get(api, f'API {api}')} version {version} is not supported"
                )
            self._respond(request, self._unsupported(request.correlation))
            return
        self._current = request
        self._sent_bytes = 0
        if len(request.body) < LARGE_BYTES:
            self._handle(request, decode_request(api, version, request.body))
        else:
            self._begin_steps(decode_request_in_steps(api, version, request.body), self._handle)
        if self._steps is not None and not self._is_queued:  # `_answer` may have queued the steps
            self._work_on(request, until)

    def _begin_steps(
        self, steps: Generator[Any, None, Any], then: Callable[[ColdRequest, Any], None]
    ) -> None:
        self._steps, self._then = steps, then

    def _handle(self, request: ColdRequest, entity: Entity) -> None:
        """Call the handler of a decoded request."""
        api, version = request.api, request.version
        answer = partial(self._answer, request)
        context = RequestContext(self._connection, request.client_id, version, answer)
        self._context = context
        with _ClosingOnFailure(request, self._close_after):
            response = self._handlers[api](self._services, entity, context)
            if response is LATER:
                pass
            elif isinstance(response, Generator):
                self._begin_steps(response, self._finish)
            elif isawaitable(response):
                self._is_awaited = True
                self._tasks.spawn(self._answer_when_done(request, response), NAMES[api])
            else:
                self._finish(request, response)

    async def _answer_when_done(self, request: ColdRequest, response: Awaitable[Any]) -> None:
        with _ClosingOnFailure(request, self._close_after):
            answer = await response
            self._is_awaited = False
            self._answer(request, answer)

    def _answer(self, request: ColdRequest, response: bytes | Steps) -> None:
        """Send a response that was not ready when the handler returned.

        If `response` is a generator, run it in steps. The generator then returns the response.
        """
        if self._closed:
            return
        if isinstance(response, Generator):
            self._begin_steps(response, self._finish)
        else:
            with _ClosingOnFailure(request, self._close_after):
                self._finish(request, response)
            self._turns.large.end(self)
            self._answers.purgatory.finish_soon()
        self.proceed()

    def _work_on(self, request: ColdRequest, until: int) -> None:
        """Take steps of the current request until they are done, or until the time `until`."""
        steps, clock = self._steps, self._services.clock
        assert steps is not None
        with _ClosingOnFailure(request, self._close_after):
            try:
                size_max = INT_MAX if self._needs_room else LARGE_RESPONSE
                if take_steps(steps, clock, until, size_max):
                    self._needs_room = True
            except StopIteration as done:
                self._steps = None
                self._then(request, done.value)

    def _finish(self, request: ColdRequest, response: bytes | Later) -> None:
        if response is LATER:
            return
        assert self._current is request, "a request was answered twice"
        took = self._services.clock.now() - request.arrived
        self._services.requests.times[request.api].record(took)
        response = self._metered(request, response)
        self._respond(
            request,
            encode_response(request.correlation, request.api, request.version, response),
        )

    def _metered(self, request: ColdRequest, body: bytes) -> bytes:
        """Count the time that the request has taken; return the response with the time that the client must wait."""
        context, self._context = self._context, None
        if self.meter is None or context is None:
            return body
        owed = self.meter.cold_answered(request.api, request.client_id or "", context.throttle_ms)
        return with_throttle(request.api, request.version, body, owed) if owed else body

    def _respond(self, request: ColdRequest, frame: bytes) -> None:
        self._current = None
        self._sending = request.slot
        request.slot.answer = (frame,)
        if self._needs_room:
            self._sent_bytes = len(frame)
            self.is_waiting = True  # `proceed` releases the memory when the response was received
        if self._connection.is_ending:
            self.is_waiting = True  # `proceed` closes the connection when the response was received
        self._answers.purgatory.ready[self._answers] = None

    def _count(self, added_bytes: int) -> None:
        self._bytes += added_bytes
        count, share = len(self._waiting), 2 if self.is_full else 1
        self.is_full = count * share > WAITING_MAX or self._bytes * share > WAITING_BYTES_MAX

    def _close_after(self, request: ColdRequest, error: Exception) -> None:
        """Log why the request cannot be answered, and close the connection."""
        name, version, peer = NAMES[request.api], request.version, self._connection.peer
        if isinstance(error, ProtocolViolation):
            logger.info("closing connection from %s: %s", peer, error)
        elif isinstance(error, KafkaError):
            logger.warning("%s version %d from %s: %s", name, version, peer, error)
        else:  # a bug in the broker, which must not affect other clients
            logger.error("%s version %d from %s failed", name, version, peer, exc_info=error)
        self.close()
        self._close()


class _ClosingOnFailure:
    """A context manager that calls `failed(request, error)` for an Exception and suppresses the Exception.

    A `contextlib.contextmanager` would take three times as long. This matters because every request enters
    this context manager twice.
    """

    __slots__ = ("_failed", "_request")

    def __init__(
        self, request: ColdRequest, failed: Callable[[ColdRequest, Exception], None]
    ) -> None:
        self._request = request
        self._failed = failed

    def __enter__(self) -> None:
        """Do nothing: `__exit__` does the work."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        """Call `failed` for an Exception and suppress the Exception. Let any other BaseException propagate."""
        if not isinstance(error, Exception):
            return False
        self._failed(self._request, error)
        return True
