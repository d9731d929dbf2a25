"""The server as a whole: it recovers its state, listens, expires sessions, writes snapshots, and closes.

Invariant: every transaction that the state has applied is in its journal or in the log. After a failure, nothing is
applied, written or sent any more: `on_failure` must end the process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple

from minikafka.base.encryption import Tls
from minikafka.base.errors import MinikafkaError
from minikafka.base.ports import Clock, Executor, Listener, Rng, Tasks, Timer, Transport
from minikafka.zookeeper.server.authentication import NO_AUTHENTICATION, ClientAuthentication
from minikafka.zookeeper.server.commit import CommitStore, GroupCommit
from minikafka.zookeeper.server.connection import RECEIVE_BYTES, ServerConnection, ServerParts
from minikafka.zookeeper.server.core.sessions import Session
from minikafka.zookeeper.server.core.state import ServerState
from minikafka.zookeeper.server.counters import Counters
from minikafka.zookeeper.server.settings import CONTAINERS_MS, DEFAULTS, ServerSettings
from minikafka.zookeeper.server.words import Words

logger = logging.getLogger(__name__)

_SERVER_ID: Final = 1
_SECRET_BYTES: Final = 16


class SecurePort(NamedTuple):
    """Where a server serves clients under TLS."""

    host: str
    port: int
    tls: Tls


class ZooKeeperServer:
    """One ZooKeeper server. `store` None: it keeps nothing when it ends.

    `in_child` forks a child at once, which runs a function (`runtime/forking.py`); None if there is no store.
    """

    def __init__(
        self,
        store: CommitStore | None,
        clock: Clock,
        rng: Rng,
        transport: Transport,
        tasks: Tasks,
        executor: Executor,
        *,
        settings: ServerSettings = DEFAULTS,
        authentication: ClientAuthentication = NO_AUTHENTICATION,
        in_child: Callable[[Callable[[], None]], Awaitable[bool]] | None = None,
        on_failure: Callable[[str], None],
    ) -> None:
        self.state = ServerState(
            tick_ms=settings.tick_ms,
            first_session_id=_first_session_id(clock.wall_ms()),
            session_timeout_max_ms=settings.session_timeout_max_ms,
            keeps_journal=store is not None,
            schemes=authentication.schemes,
        )
        self.port = self.secure_port = 0
        self.connections: dict[ServerConnection, None] = {}
        self._newcomers: dict[ServerConnection, None] = {}
        self._store = store
        self._clock = clock
        self._rng = rng
        self._transport = transport
        self._tasks = tasks
        self._executor = executor
        self._settings = settings
        self._authentication = authentication
        self._in_child = in_child
        self._on_failure = on_failure
        self._counters = Counters()
        self._commit = GroupCommit(
            store,
            self.state,
            clock,
            tasks,
            executor,
            self._counters,
            self._on_durable,
            self._fail,
        )
        self._shared: ServerParts
        self._listeners: list[Listener] = []
        self._timer: Timer | None = None
        self._tick_due = self._containers_due = 0
        self._is_snapshotting = False
        self._has_ended = False

    async def start(self, host: str, port: int | None, secure: SecurePort | None = None) -> None:
        """Recover the state, and serve clients on these ports. `port`: in the clear; 0: any free port; None: no port.

        Raises OSError, and CorruptData and StorageFailed of the store.
        """
        secret = self._recover()
        words = Words(self.state, self.connections, self._counters, self._clock)
        self._shared = ServerParts(
            self.state,
            self._clock,
            self._commit,
            self._counters,
            self.connections,
            self._newcomers,
            secret,
            words.table,
            memoryview(bytearray(RECEIVE_BYTES)),
            asyncio.get_running_loop().call_soon,
            self._rng,
            self._authentication,
            self._fail,
        )
        if port is not None:
            self.port = await self._listen(host, port, None)
        if secure is not None:
            self.secure_port = await self._listen(secure.host, secure.port, secure.tls)
        self._containers_due = self._clock.now() + CONTAINERS_MS
        self._set_timer()

    async def _listen(self, host: str, port: int, tls: Tls | None) -> int:
        listener = await self._transport.listen(self._accept, host, port, tls)
        self._listeners.append(listener)
        return listener.port

    def _recover(self) -> bytes:
        """Recover the state; return the secret of the session passwords."""
        if self._store is None:
            return self._rng.bytes(_SECRET_BYTES)
        self._store.recover(self.state)
        for note in self._store.notes:
            logger.warning("%s", note)
        now = self._clock.now()
        for session in self.state.sessions.open.values():
            self.state.sessions.touch(session, now)
        return self._store.secret(self._rng)

    async def close(self) -> None:
        """Make all writes durable, send their replies, and close all connections. Sessions stay open."""
        self._has_ended = True
        if self._timer is not None:
            self._timer.cancel()
        for listener in self._listeners:
            await listener.close()
        await self._commit.close()
        for connection in tuple(self.connections):
            connection.link.close()
        if self._store is not None:
            self._store.close()

    def end_session(self, session_id: int) -> None:
        """End a session as if its time was over, for tests. Raises KeyError if it is not open."""
        session = self.state.sessions.open[session_id]
        self._commit.begin_turn()
        self.state.close_session(session_id, 0, self._clock.wall_ms())
        _close_connection(session)
        self._commit.end_turn()

    def _accept(self) -> ServerConnection | None:
        is_full = len(self.connections) >= self._settings.connections_max
        if self._has_ended or (is_full and not self._cut_newcomer()):
            self._counters.connections_refused += 1
            return None
        return ServerConnection(self._shared)

    def _cut_newcomer(self) -> bool:
        """Make room for a connection: cut off the one that has been without a session the longest.

        Otherwise connections that say nothing would keep all others out. Return False if all have sessions.
        """
        oldest = next(iter(self._newcomers), None)
        if oldest is None:
            return False
        del self._newcomers[oldest], self.connections[oldest]
        self._counters.connections_refused += 1
        oldest.cut()
        return True

    # ---- time

    def _set_timer(self) -> None:
        self._tick_due = self._clock.now() + self._settings.tick_ms // 2
        self._timer = self._clock.call_later(self._settings.tick_ms / 2, self._on_tick)

    def _give_back_lost_time(self, now: int) -> None:
        """Postpone all expiries if this tick is late, because the process was stopped or got no processor."""
        late = now - self._tick_due
        if late >= self._settings.tick_ms:
            logger.warning("this server did not run for %d ms: all sessions last longer", late)
            self.state.sessions.postpone(late, now)

    def _on_tick(self) -> None:
        """End expired sessions, remove empty containers when it is time, and cut off idle connections."""
        if self._has_ended:
            return
        now, time_ms = self._clock.now(), self._clock.wall_ms()
        self._commit.begin_turn()
        try:
            self._give_back_lost_time(now)
            for session in self.state.expire(now, time_ms):
                logger.info("session 0x%x has expired after %d ms", session.id, session.timeout_ms)
                self._counters.sessions_expired += 1
                _close_connection(session)
            if now >= self._containers_due:
                self._containers_due = now + CONTAINERS_MS
                self.state.remove_empty_containers(time_ms)
            self._cut_idle(now)
            self._commit.end_turn()
        except Exception as error:  # noqa: BLE001 - the state may be half changed
            self._fail(f"the expiry of sessions fails unexpectedly: {error!r}")
            return
        self._set_timer()

    def _cut_idle(self, now: int) -> None:
        """Cut off connections that got no session in time, or do not receive what was sent before their end."""
        for connection in tuple(self.connections):
            if connection.deadline and now >= connection.deadline:
                connection.cut()

    # ---- snapshots

    def _on_durable(self) -> None:
        """Start a snapshot if one is due. Nothing is being flushed now, so that the log can be rolled."""
        store = self._store
        if (
            store is None
            or self._in_child is None
            or self._is_snapshotting
            or store.transactions_since_roll < self._settings.snapshot_after
        ):
            return
        if not self._commit.append():  # a snapshot has no transaction that is not in the log
            return
        try:
            store.roll()
        except MinikafkaError as error:
            self._fail(f"the data directory cannot be written: {error}")
            return
        try:
            ended = self._in_child(partial(store.write_snapshot, self.state))
        except OSError as error:
            logger.error("no snapshot could be started, and the log keeps growing: %s", error)
            return
        self._is_snapshotting = True
        self._commit.expects_slow_disk = True  # the child flushes many bytes to the same disk
        self._tasks.spawn(self._finish_snapshot(store, ended), "zookeeper snapshot")

    async def _finish_snapshot(self, store: CommitStore, ended: Awaitable[bool]) -> None:
        """Wait until the snapshot is written, then delete the files that it replaces."""
        try:
            if await ended:
                await self._executor.run(store.purge)
            else:
                logger.error("a snapshot could not be written, and the log keeps growing")
        except OSError as error:
            logger.error("a snapshot was lost, and the log keeps growing: %s", error)
        except MinikafkaError as error:
            self._fail(f"the data directory cannot be written: {error}")
        finally:
            self._is_snapshotting = self._commit.expects_slow_disk = False

    def _fail(self, reason: str) -> None:
        """Stop serving, and let the owner end the process."""
        if not self._has_ended:
            self._has_ended = True
            self._commit.stop()
            self._on_failure(reason)


def _close_connection(session: Session) -> None:
    if isinstance(session.connection, ServerConnection):
        session.connection.close()


def _first_session_id(time_ms: int) -> int:
    """Return the id of the first session, as ZooKeeper forms it: server id, 40 bits of the start time, 16 bits.

    Ids of sessions that were opened before an earlier end of the server are smaller.
    """
    return _SERVER_ID << 56 | (time_ms << 24 & 2**64 - 1) >> 8
