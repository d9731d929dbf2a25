"""One client connection: its receive buffer, its tick and its queue of responses.

A tick is one call of `buffer_updated`: every complete request is parsed, then the logs are written, then
responses are sent, in the order of the requests. Produce and Fetch requests are handled during the tick. Every
other request is handled by `ColdRequests` in a later turn of the event loop. A Fetch of many partitions is
handled in a later turn too. Parsing and reading stop when too many requests wait. They also stop at a Produce
request of many partitions, and at a Produce request whose records take long to check. The requests left in the
buffer are parsed later, in a turn of the scheduler. The length of a turn is limited. Without these turns, all
connections could parse their buffers in one pass of the event loop, and all other clients would have to wait.
A tick is the largest gain of the hot path: with 64 requests in flight it handles about 13. The logs are written at
its end, not in a later iteration of the event loop: this gives 16 % more requests per second.
Invariant: records are written before the response that acknowledges them is sent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum, auto
from typing import Final, NamedTuple

from minikafka.base.errors import ProtocolViolation, RecordsGone
from minikafka.base.ports import QUEUE_MARK_BYTES, Link, Processor, Slice, Tasks, Timer
from minikafka.broker.clients.quotas import BrokerQuotas
from minikafka.broker.fetch.handler import FetchApi
from minikafka.broker.network.cold_requests import ColdRequests
from minikafka.broker.network.frame_room import SMALL_MAX, FrameRooms
from minikafka.broker.network.metering import Metering
from minikafka.broker.network.unsent import (
    FOLLOWER_TURN_BYTES,
    ReadAhead,
    SendTurns,
    UnsentResponses,
    has_deferred,
)
from minikafka.broker.produce.handler import WALL_UNKNOWN, ProduceApi
from minikafka.broker.replicas.manager import ReplicaManager
from minikafka.broker.services import ClientConnection, Handler, Services
from minikafka.broker.turns import Scheduler
from minikafka.kafka.wire.framing import CLIENT_ID, FramedStream, LargeBuffers, Route, frames
from minikafka.kafka.wire.versions import FETCH, PRODUCE, SASL_AUTHENTICATE, SASL_HANDSHAKE
from minikafka.storage.replication.purgatory import AnswerQueue, Slot

logger = logging.getLogger(__name__)

ENTRIES_MAX: Final = 4096
"""When a connection has this many unanswered requests, or unanswered partitions in Produce requests of several, it
stops reading until fewer than half are left."""


class SharedParts(NamedTuple):
    """What all connections of a broker use.

    `unsupported(correlation)` encodes the response to an ApiVersions request of an unknown version.
    """

    services: Services
    replicas: ReplicaManager
    handlers: Mapping[int, Handler]
    unsupported: Callable[[int], bytes]
    tasks: Tasks
    turns: Scheduler
    ahead: ReadAhead
    sends: SendTurns
    rooms: FrameRooms
    buffers: LargeBuffers


class AcceptedConnection(FramedStream):
    """The stream handler of one accepted connection.

    `closed(connection)` is called once, when the connection has ended.
    """

    __slots__ = (
        "_all_routes",
        "_plain_routes",
        "_session_end",
        "_throttled_until",
        "answers",
        "client",
        "clock",
        "closed",
        "cold",
        "fetch",
        "gate",
        "has_asked",
        "last_active",
        "metering",
        "opened_at",
        "produce",
        "purgatory",
        "replication",
        "rooms",
        "routes",
        "sends",
        "throttle_end",
        "unsent",
        "used",
    )

    metering: Metering | None
    """Counts what the client uses; None while the broker has no quotas."""
    throttle_end: Timer | None
    """Ends the time in which the connection reads nothing because of a quota; None outside such a time."""
    _session_end: Timer | None

    def __init__(
        self,
        client: ClientConnection,
        shared: SharedParts,
        closed: Callable[[AcceptedConnection], None],
    ) -> None:
        services, turns = shared.services, shared.turns
        super().__init__(services.config.socket_request_max_bytes, shared.buffers)
        self.client = client
        self.clock = services.clock
        self.closed = closed
        self.purgatory = shared.replicas.purgatory
        self.answers = AnswerQueue(self.purgatory, self.send)
        self.produce = self._new_produce(shared)
        self.fetch = self._new_fetch(shared)
        self.cold = self._new_cold(shared)
        self._plain_routes: dict[int, Route] = {
            PRODUCE: self.produce.on_request,
            FETCH: self.fetch.on_request,
        }
        self.routes = self._all_routes = self._plain_routes
        """The handlers of Produce and Fetch; none after the end of the session."""
        self.metering = self.throttle_end = self._session_end = None
        self._throttled_until = 0
        self.gate = ReadingGate(lambda: turns.requests.ask(self))
        self.used = 0
        """Cost so far of the requests that were left in the buffer (see `Job.used`)."""
        self.replication = turns.replication
        self.unsent = UnsentResponses(shared.ahead)
        self.sends = shared.sends
        self.rooms = shared.rooms
        self.opened_at = self.last_active = services.clock.now()
        self.has_asked = False
        """True once the connection has received a whole request."""

    def _new_produce(self, shared: SharedParts) -> ProduceApi:
        services = shared.services
        return ProduceApi(
            self.client,
            shared.replicas,
            self.answers,
            services.clock,
            shared.turns,
            services.verifier,
            self._close,
            self._go_on,
            services.access,
        )

    def _new_fetch(self, shared: SharedParts) -> FetchApi:
        services = shared.services
        return FetchApi(
            self.client,
            shared.replicas,
            self.answers,
            services.clock,
            services.requests,
            self._filled,
            shared.turns,
            self._refused,
            services.access,
        )

    def _new_cold(self, shared: SharedParts) -> ColdRequests:
        return ColdRequests(
            self.client,
            shared.services,
            shared.handlers,
            shared.unsupported,
            self.answers,
            shared.tasks,
            shared.turns,
            self._is_received,
            self._close,
            self._begun,
            shared.rooms.responses,
            self._unsent,
            self.give_up,
        )

    def connected(self, link: Link) -> None:
        """Begin to serve the client."""
        self.link = self.gate.link = link
        self.client.opened(link)
        if self.client.authentication is not None:
            self.client.authentication.on_renewed = self._begin_session
            self._begin_session()

    def meter(self, quotas: BrokerQuotas, processor: Processor) -> None:
        """Begin to count what the client uses, or end it, as the quotas demand."""
        if quotas.is_metered == (self.metering is not None):
            return
        if self.metering is None:
            self.metering = Metering(
                self.client, quotas, processor, self.produce, self.fetch, self.throttle
            )
            self._all_routes = self.metering.routes
        else:
            self.metering = None
            self._all_routes = self._plain_routes
        self.fetch.consumers.meter = self.cold.meter = self.metering
        if self.routes:
            self.routes = self._all_routes

    def throttle(self, ms: int) -> None:
        """Read nothing for at least this time (KIP-219). Responses are sent."""
        until = self.clock.now() + ms
        if self.throttle_end is not None:
            if until <= self._throttled_until:
                return
            self.throttle_end.cancel()
        self._throttled_until = until
        self.throttle_end = self.clock.call_later(ms, self._end_throttle)
        self.cold.is_held = True
        self.gate.hold(Reason.THROTTLED)
        self.gate.close()

    def _end_throttle(self) -> None:
        self.throttle_end = None
        self.last_active = self.clock.now()
        self.cold.is_held = False
        self.gate.hold(Reason.THROTTLED, False)
        self._go_on()

    def _begin_session(self) -> None:
        """Serve requests until the client must have authenticated again."""
        assert self.client.authentication is not None
        self.routes = self._all_routes
        if self._session_end is not None:
            self._session_end.cancel()
            self._session_end = None
        expires = self.client.authentication.expires
        if expires is not None:
            left = max(expires - self.clock.now(), 0)
            self._session_end = self.clock.call_later(left, self._end_session)

    def _end_session(self) -> None:
        """Serve only requests of authentication from now on; another request closes the connection (KIP-368)."""
        self._session_end = None
        self.routes = {}

    def disconnected(self, error: Exception | None) -> None:
        """Drop the requests, fetches and responses that wait on this connection."""
        if self._session_end is not None:
            self._session_end.cancel()
        if self.throttle_end is not None:
            self.throttle_end.cancel()
        self.cold.close()
        self.fetch.close()
        self.produce.end_connection()
        self.answers.close()
        self.unsent.clear()
        self.release()
        for room in self.rooms:
            room.release(self)
        self.closed(self)

    def drained(self) -> None:
        """Continue the work that has waited for the client to receive earlier responses."""
        self.last_active = self.clock.now()
        if self.unsent.slices:
            self._send_more()
        self._maybe_go_on()

    def send(self, slices: Sequence[Slice]) -> None:
        """Send responses, then continue the work that has waited for responses to be sent."""
        if self.unsent.slices or (len(slices) > 1 and has_deferred(slices)):
            self.unsent.add(slices)
            self._send_more()
        else:
            self.link.send(slices)  # type: ignore[arg-type]  # without deferred bytes
        self._maybe_go_on()

    def _send_more(self) -> None:
        """Send bytes of unsent responses: as many as the client accepts, and at most the bytes of one turn."""
        is_follower = self.fetch.session is not None
        most = FOLLOWER_TURN_BYTES if is_follower else self.sends.turn_bytes()
        try:
            is_able = self.unsent.send(self.link, most)
        except RecordsGone as gone:
            logger.info("closing connection from %s: %s", self.client.peer, gone)
            self.unsent.clear()
            self.link.abort()
            return
        self.last_active = self.clock.now()
        if is_able:
            if is_follower:
                self.replication.ask(self.drained)
            else:
                self.sends.ask(self.drained)
        if self.unsent.slices:
            self.gate.hold(Reason.UNSENT)

    def _maybe_go_on(self) -> None:
        """Continue unless nothing waits, or everything waits for unsent responses."""
        if (self.gate.reasons or self.cold.is_waiting) and not self.unsent.slices:
            self._go_on()

    def _go_on(self) -> None:
        """Continue after responses were sent, or were received by the client.

        If nothing else keeps the connection from reading, parse further requests in a later turn of the event loop.
        If the next cold request (any API but Produce and Fetch) has waited only for these responses, begin it.
        """
        self._update_gate()
        self.gate.open_soon()
        self.cold.proceed()

    def _update_gate(self) -> None:
        """Find the reasons for which the connection must not handle further requests."""
        hold = self.gate.hold
        most = ENTRIES_MAX // 2 if self.gate.is_closed else ENTRIES_MAX
        hold(Reason.UNANSWERED, self._has_entries(most))
        hold(Reason.UNSENT, bool(self.unsent.slices))
        hold(Reason.UNRECEIVED, self.link.queued_bytes() > QUEUE_MARK_BYTES)
        hold(Reason.COLD, self.cold.is_full)
        hold(Reason.FETCHES, self.fetch.is_full())
        hold(Reason.PRODUCE, self.produce.large.steps is not None)

    def _has_entries(self, count: int) -> bool:
        return len(self.answers.entries) >= count or self.answers.rows >= count

    def _filled(self) -> None:
        """Make the next `finish` check whether reading must stop, because `fetch.is_full` can now be true."""
        self.gate.hold(Reason.FETCHES)

    def work(self, until: int) -> None:
        """Parse the requests that were left in the buffer, whatever the time `until`: a tick has its own limits."""
        self.gate.open()
        if (
            self.throttle_end is not None
        ):  # the client has exceeded a quota since the turn was asked for
            self.gate.close()
            return
        self.buffer_updated(0)
        if not self.gate.is_closed:
            self.link.resume_reading()

    def _is_received(self, slot: Slot) -> bool:
        """True if the response in the slot was sent and the client has received nearly all of the response."""
        return (
            slot.answer is None
            and not self.unsent.slices
            and self.link.queued_bytes() <= QUEUE_MARK_BYTES
        )

    def _unsent(self) -> int:
        """Return the number of bytes in the socket's queue, at least 1 while a response is unsent."""
        return self.link.queued_bytes() + bool(self.unsent.slices)

    def parse(self, buf: bytearray, view: memoryview, start: int, end: int) -> int:
        """Handle complete requests; return the position of the first request that was not handled."""
        produce = self.produce
        self.last_active = produce.now = self.fetch.now = self.clock.now()
        produce.wall_ms = WALL_UNKNOWN
        produce.checks.walked = produce.parts = self.fetch.consumers.rows = 0
        handled = frames(buf, view, start, end, self.routes, self._on_cold, self.frame_max)
        if handled != start:
            self.has_asked = True
        return handled

    def finish(self) -> None:
        """Write the logs, send the responses, then stop reading if too many requests are in progress."""
        self.purgatory.finish_tick(self.last_active)
        if self.metering is not None:
            self.metering.tick_ended()
        if (
            self.gate.reasons
            or self._has_entries(ENTRIES_MAX)
            or self.link.queued_bytes() > QUEUE_MARK_BYTES
        ):
            self._update_gate()
            if self.gate.reasons:
                self.gate.close()

    def stopped(self) -> None:
        """Stop reading until the requests left in the buffer have been parsed in a later turn."""
        self.gate.close()
        self._go_on()

    def may_receive(self, size: int, start: int) -> bool:
        """Reserve memory for a large request and return True. If no memory is free, stop reading and return False."""
        api = int.from_bytes(self._view[start + 4 : start + 6])
        if api == PRODUCE:
            room = self.rooms.small_produce if size <= SMALL_MAX else self.rooms.large_produce
        else:
            room = self.rooms.fetch if api == FETCH else self.rooms.others
        if room.reserve(self, size):
            return True
        self.gate.hold(Reason.ROOM)
        self.gate.close()
        return False

    def own_buffer_handled(self) -> None:
        """Release the memory reserved for a large Produce or Fetch request, which has been handled."""
        for room in (self.rooms.small_produce, self.rooms.large_produce, self.rooms.fetch):
            room.release(self)

    def room_given(self) -> None:
        """Continue to receive the large request, for which memory is now reserved."""
        self.gate.hold(Reason.ROOM, False)
        self._go_on()

    def give_up(self, reason: str) -> None:
        """Close the connection, and drop the responses that the client has not received yet."""
        logger.info("closing connection from %s: %s", self.client.peer, reason)
        self.link.abort()

    def _begun(self) -> None:
        """Release the memory reserved for a large request (not Produce or Fetch) that is about to be handled."""
        self.rooms.others.release(self)

    def is_idle(self) -> bool:
        """True if no request is in progress and every response was received."""
        return not (self.answers.entries or self.unsent.slices or self.link.queued_bytes())

    def is_abandoned(self) -> bool:
        """True if the client has disconnected while reading is paused. No event reports such a disconnection.

        Always False while a Produce request is handled in steps or its records are checked.
        """
        return self.gate.is_closed and not self.produce.large.steps and self.link.has_ended()

    def _refused(self, violation: ProtocolViolation) -> None:
        logger.info("closing connection from %s: %s", self.client.peer, violation)
        self.link.close()

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
    ) -> bool:
        """Queue one request that is neither Produce nor Fetch; return True if parsing must stop.

        Raises ProtocolViolation if the client should have authenticated again before this request.
        """
        if not self.routes and api not in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
            raise ProtocolViolation("its client has not authenticated again in time")
        if self.answers.entries:  # without an unanswered request, no fetch waits
            self.fetch.release_parked()
        is_null = view[start + CLIENT_ID] >= 0x80  # a negative length means a null client id
        client_id = None if is_null else bytes(view[start + CLIENT_ID + 2 : body])
        rest = view[body:end]
        asked = rest if self.has_own_buffer else bytes(rest)
        is_full = self.cold.add(api, version, correlation, client_id, asked)
        if is_full:
            self.gate.hold(Reason.COLD)
        return is_full


class Reason(IntEnum):
    """A reason why a connection must not handle further requests."""

    UNANSWERED = auto()
    """Too many requests wait for their responses."""
    UNSENT = auto()
    """A response is sent in pieces, because its records are read when the client can receive them."""
    UNRECEIVED = auto()
    """More than `QUEUE_MARK_BYTES` of responses were sent, but not yet received by the client."""
    COLD = auto()
    """Too many cold requests wait."""
    FETCHES = auto()
    """A large fetch is in progress, too many fetches wait, or too many bytes of records are unsent."""
    PRODUCE = auto()
    """A Produce request is handled in steps, or its records are checked in steps."""
    ROOM = auto()
    """A large request waits for memory."""
    THROTTLED = auto()
    """The client has exceeded a quota, and must wait."""
    TURN = auto()
    """The requests that were left in the buffer wait for a turn of the scheduler. No other reason holds."""


class ReadingGate:
    """The gate that decides whether one connection reads.

    A connection reads until there is a reason not to; the set of reasons is the whole state. The gate is closed at the
    end of the tick in which there is a reason, so a reason that is over before more bytes arrive costs nothing. When
    the last reason is over, the connection waits for a turn (`Reason.TURN`), in which it handles the requests left in
    its buffer. Only then does it read again: each pass of the event loop thus serves few of the connections that had
    stopped.

    `ask()` asks the scheduler for a turn; in its turn, the connection calls `open`. Invariant: while the gate is
    closed, either a reason holds, or a turn was asked for.
    """

    __slots__ = ("_ask", "is_closed", "link", "reasons")

    def __init__(self, ask: Callable[[], None]) -> None:
        self._ask = ask
        self.is_closed = False
        self.reasons: set[Reason] = set()

    link: Link

    def hold(self, reason: Reason, holds: bool = True) -> None:
        """Add the reason to the reasons for not reading; remove it if `holds` is false."""
        if holds:
            self.reasons.add(reason)
        else:
            self.reasons.discard(reason)

    def close(self) -> None:
        """Stop reading until no reason holds."""
        self.is_closed = True
        self.link.pause_reading()

    def open_soon(self) -> None:
        """Ask for a turn if the gate is closed and no reason holds any longer."""
        if self.is_closed and not self.reasons:
            self.reasons.add(Reason.TURN)
            self._ask()

    def open(self) -> None:
        """Open the gate for the requests in the buffer. The caller resumes reading if it stays open."""
        self.reasons.discard(Reason.TURN)
        self.is_closed = False
