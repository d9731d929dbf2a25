"""A ZooKeeper session over consecutive connections: its state, its lease and its requests.

The states are defined in `base.ports.SessionState`. Invariants: the session ends only when a server reports
its expiry or when `close` is called, never because of a timeout, a refusal or a lost connection. When a
connection is lost, the session enters SUSPENDED before any request fails. A request that was submitted in one
session is never sent in a later session. A request is written at most once.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from minikafka.base.errors import (
    Closed,
    ClusterLost,
    CoordinationError,
    NoNode,
    NotConnected,
    OutcomeUnknown,
    StaleSession,
    TooLarge,
    ZooKeeperLoginRefused,
)
from minikafka.base.ports import Clock, Rng, SessionEvent, SessionState, Tasks, Timer, Transport
from minikafka.zookeeper.client import calls
from minikafka.zookeeper.client.access import OPEN_ACCESS, ZooKeeperAccess
from minikafka.zookeeper.client.calls import Answer, Attached, ZooKeeperCall
from minikafka.zookeeper.client.connection import ZooKeeperConnection
from minikafka.zookeeper.client.ending import CLOSE_TIMEOUT_MS, NoOwner, end
from minikafka.zookeeper.client.login import log_in

logger = logging.getLogger(__name__)

REQUEST_MAX: Final = 1024 * 1024 - 1
"""Longest frame that a server accepts (the default of its `jute.maxbuffer`)."""
IN_FLIGHT_BYTES_MAX: Final = 4 * 1024 * 1024
_ATTACH_TIMEOUT_MIN_MS: Final = 200
_STABLE_MS: Final = 1_000
"""A shorter connection counts as a failed attempt, so that reconnecting is never a busy loop."""
_PAUSE_MIN_MS: Final = 50
_PAUSE_MAX_MS: Final = 1_000
_MS_PER_S: Final = 1_000

_ENTERED_FROM: Final = {
    SessionState.CONNECTED: frozenset(SessionState) - {SessionState.CONNECTED, SessionState.CLOSED},
    SessionState.SUSPENDED: frozenset({SessionState.CONNECTED}),
    SessionState.LEASE_EXPIRED: frozenset({SessionState.SUSPENDED}),
    SessionState.EXPIRED: frozenset(SessionState) - {SessionState.CONNECTED, SessionState.CLOSED},
    SessionState.CLOSED: frozenset(SessionState) - {SessionState.CLOSED},
}
"""State → the states from which it may be entered. A connection is lost before a session can expire or resume."""
_OVER: Final = frozenset({SessionState.CONNECTING, SessionState.EXPIRED, SessionState.CLOSED})


class _Queued(NamedTuple):
    call: ZooKeeperCall[Any]
    answer: asyncio.Future[Any]
    at: int


class Verification(NamedTuple):
    """The check of a new session: `verify` gets the data that `read` returns, None if the node is missing.

    `sync` is sent before `read`: a write without effect, after which the server has all committed writes.
    """

    sync: ZooKeeperCall[Any]
    read: ZooKeeperCall[Any]
    verify: Callable[[bytes | None], None]


class ZooKeeperSession:
    """One ZooKeeper client, with one session at a time.

    `servers`: (host, port) pairs. `timeout_ms`: the requested session timeout (the attribute later contains the
    granted timeout). `connect_timeout_ms`: maximum time for which `start` waits for a server.
    `access`: encryption and authentication. At most `in_flight_max` requests and 4 MiB can be unanswered; further
    requests are queued. `on_event(change, path)` is called when a watch fires. `on_attached()` is called after each new
    connection.
    """

    def __init__(
        self,
        servers: Sequence[tuple[str, int]],
        timeout_ms: int,
        clock: Clock,
        rng: Rng,
        tasks: Tasks,
        transport: Transport,
        access: ZooKeeperAccess = OPEN_ACCESS,
        *,
        connect_timeout_ms: int,
        in_flight_max: int,
        on_event: Callable[[int, str], None],
        on_attached: Callable[[], None],
    ) -> None:
        self.state = SessionState.CONNECTING
        self.generation = 0
        self.connection = 0
        self.session_id = 0
        self.password = b""
        self.timeout_ms = timeout_ms
        self._connect_timeout_ms = connect_timeout_ms
        self.on_event = on_event
        self.verification: Verification | None = None
        """The check of later sessions. If it raises ClusterLost for all servers, this ends the task of the session."""
        self._lost: set[tuple[str, int]] = set()
        """The servers without the cluster, since the last connection."""
        self._refused: dict[tuple[str, int], ZooKeeperLoginRefused] = {}
        """The servers that have refused the login since the last connection."""
        self._last_error: Exception | None = None
        """Why the last attempt to connect has failed."""
        self._on_attached = on_attached
        self._servers = deque(rng.shuffled(servers))
        self._clock = clock
        self._rng = rng
        self._tasks = tasks
        self._transport = transport
        self._access = access
        self._in_flight_max = in_flight_max
        self._in_flight = 0
        self._in_flight_bytes = 0
        self._queue: deque[_Queued] = deque()
        self._current: ZooKeeperConnection | None = None
        self._last_zxid = 0
        self._lease = 0
        self._lease_timer: Timer | None = None
        self._attached_at = 0
        self._failures = 0
        self._is_closing = False
        self._runner: asyncio.Task[Any] | None = None
        self._changed = asyncio.Event()
        self._streams: weakref.WeakSet[_Events] = weakref.WeakSet()

    # ---- state and requests

    def lease_valid(self, margin_ms: int = 0) -> bool:
        """True if no server can expire the session before `margin_ms` have passed (see `ZooKeeper`)."""
        return self.state not in _OVER and self._clock.now() + margin_ms < self._lease

    @property
    def last_zxid(self) -> int:
        """The highest zxid in an answer of a server (see `ZooKeeper`)."""
        current = self._current
        return self._last_zxid if current is None else max(self._last_zxid, current.last_zxid)

    def events(self) -> AsyncIterator[SessionEvent]:
        """Return a stream of the session's state changes. The last state is CLOSED (see `ZooKeeper`)."""
        stream = _Events()
        if self.state is SessionState.CLOSED:
            stream.put(None)
        self._streams.add(stream)
        return stream

    async def connected(self) -> int:
        """Wait until the state is CONNECTED; return the session's number (its generation).

        Raises Closed, and before the first connection ZooKeeperLoginRefused, if all servers refuse the login.
        """
        while self.state is not SessionState.CONNECTED:
            self._check_open()
            if not self.generation and self._refused.keys() >= set(self._servers):
                raise next(iter(self._refused.values()))
            await self._changed.wait()
        return self.generation

    def submit(
        self, call: ZooKeeperCall[Answer], generation: int | None = None
    ) -> asyncio.Future[Answer]:
        """Send a request, or queue the request while too many requests are unanswered. The order of the calls is kept.

        `generation`: the session in which the request must be sent; None for any session. Raises NotConnected,
        StaleSession, TooLarge, Closed. The future completes with the response, or fails with a ServerVerdict,
        NotConnected (the request was never sent) or OutcomeUnknown. Without a response, the future fails
        soon after the session timeout, or earlier. Cancelling the future does not undo a request that was sent.
        """
        self._check_open()
        is_stale = generation != self.generation or self.state is SessionState.EXPIRED
        if generation is not None and is_stale:
            raise StaleSession(f"the session of generation {generation} is over")
        if self.state is not SessionState.CONNECTED:
            raise NotConnected(f"the ZooKeeper session is {self.state.value}")
        check_size(call)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._queue.append(_Queued(call, answer, self._clock.now()))
        self._pump()
        return answer

    # ---- start and close

    async def start(self) -> None:
        """Connect to a server. Raises ZooKeeperLoginRefused, and NotConnected if none answers in time."""
        self._tasks.spawn(self._run(), "zookeeper-session")
        try:
            async with asyncio.timeout(self._connect_timeout_ms / _MS_PER_S):
                await self.connected()
        except BaseException as error:
            await self.close()
            if isinstance(error, TimeoutError):
                names = ",".join(f"{host}:{port}" for host, port in self._servers)
                reason = f": {self._last_error}" if self._last_error else ""
                raise NotConnected(f"no ZooKeeper server answers at {names}{reason}") from None
            raise

    async def close(self) -> None:
        """End the session. If there is a connection, wait at most CLOSE_TIMEOUT_MS for the server to end it."""
        if self._is_closing:
            return
        self._is_closing = True
        self._fail_queue(Closed("the ZooKeeper session was closed"))
        try:
            if self._current is not None:
                answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._current.submit(calls.close(), answer)
                with suppress(CoordinationError, TimeoutError):
                    async with asyncio.timeout(CLOSE_TIMEOUT_MS / _MS_PER_S):
                        await answer
        finally:
            self._end()
        if self._runner is not None:
            await asyncio.wait([self._runner])

    def _end(self) -> None:
        if self._runner is not None:
            self._runner.cancel()
        if self._current is not None:
            self._current.abort()
        self._cancel_lease_timer()
        self._enter(SessionState.CLOSED)
        for stream in list(self._streams):
            stream.put(None)

    def _check_open(self) -> None:
        if self._is_closing:
            raise Closed("the ZooKeeper session was closed")

    def _enter(self, state: SessionState) -> None:
        logger.info(
            "ZooKeeper session 0x%x %s -> %s", self.session_id, self.state.value, state.value
        )
        assert self.state in _ENTERED_FROM[state], (self.state, state)
        self.state = state
        event = SessionEvent(state, self.generation, self.connection, self._clock.now())
        for stream in list(self._streams):
            stream.put(event)
        self._changed.set()
        self._changed = asyncio.Event()

    # ---- connections

    async def _run(self) -> None:
        self._runner = asyncio.current_task()
        while not self._is_closing:
            connection = await self._attach()
            if connection is not None:
                await self._keep_alive(connection)
            self._servers.rotate(-1)
            await self._pause()

    async def _pause(self) -> None:
        """Wait if all servers have failed since the last pause. The pause grows up to `_PAUSE_MAX_MS`."""
        rounds, place = divmod(self._failures, len(self._servers))
        if rounds and not place:
            longest = min(_PAUSE_MAX_MS, _PAUSE_MIN_MS << min(rounds - 1, 10))
            await self._clock.sleep(self._rng.uniform(longest / 2, longest))

    async def _attach(self) -> ZooKeeperConnection | None:
        """Connect to the next server and resume the session, or start a new session if the old session has expired.

        Return the connection, None on failure.
        """
        host, port = self._servers[0]
        try:
            attached, connection, sent = await self._handshake(host, port)
            if self.session_id and attached.session_id != self.session_id:
                self._expire()
                if not attached.session_id:
                    connection.abort()
                    attached, connection, sent = await self._handshake(host, port)
            if not attached.session_id:
                connection.abort()
                raise ConnectionError("the server granted no session")
            if attached.session_id != self.session_id:
                await self._verify(connection)
        except ClusterLost as lost:
            self._note_lost(host, port, lost)
            return None
        except ZooKeeperLoginRefused as refused:
            self._note_refused(host, port, refused)
            return None
        except (OSError, ValueError) as error:
            self._failures += 1
            self._last_error = error
            logger.info("ZooKeeper at %s:%d does not answer: %r", host, port, error)
            if self._last_zxid and not isinstance(
                error, TimeoutError
            ):  # it has refused the session
                await self._examine(host, port)
            return None
        self._lost.clear()
        self._refused.clear()
        self._attached(attached, connection, sent)
        return connection

    def _note_lost(self, host: str, port: int, lost: ClusterLost) -> None:
        """Note that a server does not have the cluster. Raises `lost` if no server has it.

        One server of an ensemble may have been started alone, without data.
        """
        self._failures += 1
        self._lost.add((host, port))
        if self._lost.issuperset(self._servers):
            raise lost
        logger.error("ZooKeeper at %s:%d: %s", host, port, lost)

    def _note_refused(self, host: str, port: int, refused: ZooKeeperLoginRefused) -> None:
        """Note that a server has refused the login. `start` ends if all have; a later connection is tried again."""
        self._failures += 1
        self._last_error = refused
        if (host, port) not in self._refused:
            logger.error("ZooKeeper at %s:%d: %s", host, port, refused)
        self._refused[host, port] = refused
        self._changed.set()
        self._changed = asyncio.Event()

    async def _verify(self, connection: ZooKeeperConnection) -> None:
        """Check a new session with `verification`. Raises its exception, and OSError if the server does not answer."""
        if self.verification is None:
            return
        loop = asyncio.get_running_loop()
        sync, read, verify = self.verification
        answers: list[asyncio.Future[Any]] = [loop.create_future(), loop.create_future()]
        try:
            connection.submit(sync, answers[0])
            connection.submit(read, answers[1])
            await asyncio.wait(answers, timeout=self.timeout_ms / _MS_PER_S)
            missing = [answer for answer in answers if not answer.done()]
            if missing or isinstance(answers[1].exception(), NotConnected | OutcomeUnknown):
                raise ConnectionError("the server did not answer a read of the new session")
            lost = isinstance(answers[1].exception(), NoNode)
            verify(None if lost else answers[1].result()[0])
        except CoordinationError as error:
            raise ConnectionError(f"the server refused a read: {error}") from error
        except BaseException:
            connection.abort()
            raise
        finally:
            for answer in answers:
                if not answer.cancel():
                    answer.exception()  # otherwise asyncio logs an error that is not raised

    async def _examine(self, host: str, port: int) -> None:
        """Verify the data of a server that did not accept this session, in a session that ends at once.

        A server refuses a client that has seen later data than it has.
        """
        if self.verification is None:
            return
        try:
            attached, connection, _ = await self._handshake(host, port, is_new=True)
            if not attached.session_id:
                connection.abort()
                return
            await self._verify(connection)
            logger.warning(
                "ZooKeeper at %s:%d refuses this session: its data are older than those that this broker has seen. "
                "If they were restored from a backup, restart the broker",
                host,
                port,
            )
            await end(connection)
        except ClusterLost as lost:
            self._note_lost(host, port, lost)
        except (OSError, ValueError, CoordinationError):
            return

    # ---- the start of a connection

    async def _handshake(
        self, host: str, port: int, *, is_new: bool = False
    ) -> tuple[Attached, ZooKeeperConnection, int]:
        """Open a connection, send a connect request, for this session, or for a new one if `is_new`, and log in.

        Return the server's response, the connection, and the time of sending (monotonic ms). Raises OSError
        (TimeoutError included), ValueError for an invalid host name, and ZooKeeperLoginRefused.
        """
        owner = NoOwner() if is_new else self
        connection = ZooKeeperConnection(owner, self._clock.now)
        known = (0, b"", self.timeout_ms, 0)
        if not is_new:
            known = (self.session_id, self.password, self.timeout_ms, self._last_zxid)
        budget = max(_ATTACH_TIMEOUT_MIN_MS, self.timeout_ms / 3 / len(self._servers))
        try:
            async with asyncio.timeout(budget / _MS_PER_S):
                await self._transport.connect(lambda: connection, host, port, self._access.tls)
                sent = self._clock.now()
                attached = await connection.handshake(*known)
                if attached.session_id:
                    await log_in(connection, self._access.login)
        except BaseException:
            connection.abort()
            raise
        return attached, connection, sent

    def _attached(self, attached: Attached, connection: ZooKeeperConnection, sent: int) -> None:
        if attached.session_id != self.session_id:
            self.session_id = attached.session_id
            self.generation += 1
            self._lease = 0
        self.password = attached.password
        self.timeout_ms = attached.timeout_ms
        if connection.is_lost:
            self._failures += 1
            return
        self._cancel_lease_timer()
        self._attached_at = self._clock.now()
        self._current = connection
        # The requests of `_verify` were not counted, but released when they were answered.
        self._in_flight = self._in_flight_bytes = 0
        self.connection += 1
        # The server counts the timeout from when it got the request, which was after `sent`.
        self.on_answer(sent)
        self._enter(SessionState.CONNECTED)
        self._on_attached()

    def _expire(self) -> None:
        """Enter EXPIRED. Called after a server has reported that the session has expired."""
        self._cancel_lease_timer()
        self._enter(SessionState.EXPIRED)
        self.session_id = 0
        self.password = b""

    async def _keep_alive(self, connection: ZooKeeperConnection) -> None:
        """Send pings, abort a silent connection and fail overdue requests, until the connection is lost."""
        tick = self.timeout_ms / 12
        before = self._clock.now()
        while not connection.is_lost:
            await asyncio.wait([connection.lost], timeout=tick / _MS_PER_S)
            now = self._clock.now()
            late = now - before - tick
            before = now
            if connection.is_lost:
                return
            if now - connection.last_sent >= self.timeout_ms / 3:
                connection.ping()
            if late > self.timeout_ms / 6:
                # The event loop was blocked, so responses of the server may wait in the socket. The loop reads them
                # before the next check.
                connection.last_received += int(late)
            elif self._is_silent(connection, now):
                logger.warning("ZooKeeper does not answer; connecting to another server")
                connection.abort()
            else:
                self._fail_old_requests(connection, now)

    def _is_silent(self, connection: ZooKeeperConnection, now: int) -> bool:
        is_waiting = connection.oldest_request() is not None
        return is_waiting and now - connection.last_received > self.timeout_ms * 2 / 3

    def _fail_old_requests(self, connection: ZooKeeperConnection, now: int) -> None:
        too_old = now - self.timeout_ms
        connection.fail_requests_until(too_old)
        for queued in self._queue:
            if queued.at > too_old:
                break
            if not queued.answer.done():
                queued.answer.set_exception(
                    NotConnected("the request was not sent within the session timeout")
                )

    # ---- events of the connection (connection.Owner)

    def on_answer(self, sent: int) -> None:
        """Extend the lease to one session timeout after `sent`, the time at which the answered request was sent."""
        self._lease = max(self._lease, sent + self.timeout_ms)

    def on_released(self, size: int) -> None:
        """Send queued requests, after a request of `size` bytes was answered."""
        self._in_flight -= 1
        self._in_flight_bytes -= size
        self._pump()

    def on_lost(self, connection: ZooKeeperConnection) -> None:
        """Enter SUSPENDED. If the lease ends before a new connection exists, the state becomes LEASE_EXPIRED."""
        if connection is not self._current:
            return
        self._current = None
        self._last_zxid = max(self._last_zxid, connection.last_zxid)
        self._in_flight = self._in_flight_bytes = 0
        now = self._clock.now()
        self._failures = self._failures + 1 if now - self._attached_at < _STABLE_MS else 0
        if not self._is_closing:
            self._enter(SessionState.SUSPENDED)
            self._lease_timer = self._clock.call_later(max(0, self._lease - now), self._lease_over)
            self._fail_queue(
                NotConnected("the ZooKeeper connection was lost before the request was sent")
            )

    def _lease_over(self) -> None:
        if self._clock.now() < self._lease:  # timers may fire slightly early
            self._lease_timer = self._clock.call_later(
                max(1, self._lease - self._clock.now()), self._lease_over
            )
        elif self.state is SessionState.SUSPENDED:
            self._enter(SessionState.LEASE_EXPIRED)

    def _cancel_lease_timer(self) -> None:
        if self._lease_timer is not None:
            self._lease_timer.cancel()
            self._lease_timer = None

    # ---- requests

    def _pump(self) -> None:
        """Send queued requests, up to the limits on unanswered requests."""
        while self._queue and self._current is not None:
            assert self._in_flight >= 0, self._in_flight
            assert self._in_flight_bytes >= 0, self._in_flight_bytes
            call, answer, _ = self._queue[0]
            size = len(call.body)
            is_full = self._in_flight >= self._in_flight_max
            if is_full or self._in_flight_bytes + size > IN_FLIGHT_BYTES_MAX:
                return
            self._queue.popleft()
            if not answer.done():  # a cancelled request is not sent
                self._in_flight += 1
                self._in_flight_bytes += size
                self._current.submit(call, answer)

    def _fail_queue(self, error: CoordinationError) -> None:
        queue, self._queue = self._queue, deque()
        for queued in queue:
            if not queued.answer.done():
                queued.answer.set_exception(error)


def check_size(call: ZooKeeperCall[Any]) -> None:
    """Raise TooLarge if ZooKeeper does not accept a request of this size."""
    if len(call.body) + calls.LENGTH.size > REQUEST_MAX:
        raise TooLarge(
            f"{len(call.body)} bytes for {call.path}: ZooKeeper accepts at most {REQUEST_MAX}"
        )


class _Events:
    """One consumer's stream of state changes. None in the queue ends the stream."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[SessionEvent | None] = asyncio.Queue()

    def put(self, event: SessionEvent | None) -> None:
        self._queue.put_nowait(event)

    def __aiter__(self) -> _Events:
        return self

    async def __anext__(self) -> SessionEvent:
        event = await self._queue.get()
        if event is None:
            self._queue.put_nowait(None)
            raise StopAsyncIteration
        return event
