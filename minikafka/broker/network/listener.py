"""The Kafka listeners of a broker: the handler of every API, and the open connections.

Invariant: every advertised API (`wire/versions.SERVED`) has a handler here, except Produce and Fetch, which the
connection handles itself.
"""

from __future__ import annotations

import logging
from collections import ChainMap
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from minikafka.base.config import BrokerConfig
from minikafka.base.endpoints import Endpoint, not_opened
from minikafka.base.ports import Listener
from minikafka.broker.apis import (
    acls,
    configs,
    elections,
    group_offsets,
    groups,
    inspection,
    logdirs,
    metadata,
    offsets,
    producers,
    quotas,
    reassignments,
    records,
    sasl,
    tokens,
    topics,
    transactions,
    users,
    versions,
)
from minikafka.broker.network.admission import AuthenticationLog
from minikafka.broker.network.connection import AcceptedConnection, SharedParts
from minikafka.broker.network.connection_quotas import ConnectionQuotas
from minikafka.broker.network.connection_room import ConnectionRoom
from minikafka.broker.network.frame_room import SWEEP_MS, FrameRoom, frame_rooms
from minikafka.broker.network.newcomer import LARGE_BYTES, Admission, Newcomer
from minikafka.broker.network.unsent import ReadAhead, SendTurns
from minikafka.broker.ports import BrokerPorts
from minikafka.broker.replicas.manager import ReplicaManager
from minikafka.broker.services import ClientConnection, Handler, Services
from minikafka.kafka.wire.framing import LargeBuffers
from minikafka.kafka.wire.versions import FETCH, PRODUCE, SERVED

logger = logging.getLogger(__name__)

HANDLERS: Final[dict[int, Handler]] = {
    **acls.HANDLERS,
    **configs.HANDLERS,
    **elections.HANDLERS,
    **group_offsets.HANDLERS,
    **groups.HANDLERS,
    **inspection.HANDLERS,
    **logdirs.HANDLERS,
    **metadata.HANDLERS,
    **offsets.HANDLERS,
    **producers.HANDLERS,
    **quotas.HANDLERS,
    **reassignments.HANDLERS,
    **records.HANDLERS,
    **sasl.HANDLERS,
    **tokens.HANDLERS,
    **topics.HANDLERS,
    **transactions.HANDLERS,
    **users.HANDLERS,
    **versions.HANDLERS,
}
assert HANDLERS.keys() == SERVED.keys() - {PRODUCE, FETCH}

_SWEEP_MS: Final = 100
_ROOM_SWEEPS: Final = SWEEP_MS // _SWEEP_MS
_IDLE_SWEEPS: Final = 50
_SETTLED_MS: Final = 250
"""A connection is not closed for another one if it was opened or used within this time."""
_UNUSED_MS: Final = 30_000
"""Idle time after which a connection that has sent requests may be closed for a new one."""
_UNUSED_MAX: Final = 64


class KafkaListener:
    """The listeners of one broker and their connections.

    This class accepts clients and followers, answers overdue Produce requests and closes idle connections. A handler
    that is set in `handlers` replaces the handler of the same API in `HANDLERS`, for this broker only. `room` limits
    the number of connections.
    """

    def __init__(
        self,
        services: Services,
        replicas: ReplicaManager,
        ports: BrokerPorts,
        room: ConnectionRoom,
        places: ConnectionQuotas,
        logins: AuthenticationLog,
    ) -> None:
        self._places = places
        self._services = services
        self._transport = ports.transport
        self._processor = ports.processor
        services.quotas.on_change = self._quotas_changed
        turns = replicas.turns
        self.handlers: ChainMap[int, Handler] = ChainMap({}, HANDLERS)
        self._shared = SharedParts(
            services=services,
            replicas=replicas,
            handlers=self.handlers,
            unsupported=versions.unsupported,
            tasks=ports.tasks,
            turns=turns,
            ahead=ReadAhead(),
            sends=SendTurns(turns.sending, services.clock, replicas.purgatory, ports.processor),
            rooms=frame_rooms(),
            buffers=LargeBuffers(),
        )
        self._listening: list[Listener] = []
        self._connections: dict[AcceptedConnection, None] = {}
        self._room = room
        self._logins = logins
        self._newcomers: dict[Newcomer, None] = {}
        """Connections whose clients are not authenticated yet, the oldest first."""
        self._newcomer_room = FrameRoom(LARGE_BYTES)
        self._silent: dict[AcceptedConnection, None] = {}
        """Connections that had not sent a request when they were last looked at, the oldest first."""
        self._last_id = 0
        self._freed_at = self._looked_at = -_SWEEP_MS
        self._unused: list[AcceptedConnection] = []
        """Connections that had been idle for `_UNUSED_MS` at the time `_looked_at`, the longest idle one last."""

    async def start(
        self, endpoints: Sequence[Endpoint], admissions: Mapping[str, Admission]
    ) -> dict[str, int]:
        """Listen on every endpoint; return the ports in use by listener name. Raises OSError.

        `admissions`: what the listeners demand of their clients, by name. A listener without one serves everybody.
        """
        ports = {}
        for endpoint in endpoints:
            try:
                listening = await self._listen(endpoint, admissions.get(endpoint.name))
            except OSError as error:
                raise not_opened(endpoint, error) from error
            self._listening.append(listening)
            ports[endpoint.name] = listening.port
        self._shared.tasks.spawn(self._sweep(), "connections")
        return ports

    async def _listen(self, endpoint: Endpoint, admission: Admission | None) -> Listener:
        name, host, port, _ = endpoint
        if admission is None:
            return await self._transport.listen(partial(self._accept, name), host, port)
        receive = partial(self._receive, name, admission)
        return await self._transport.listen(receive, host, port, admission.tls)

    def _receive(self, listener: str, admission: Admission) -> Newcomer | None:
        """Return the handler of a new connection whose client must authenticate; None to refuse it."""
        if not self._has_place(listener):
            return None
        newcomer = Newcomer(
            self._new_client(listener),
            admission,
            self._services.clock,
            self._newcomer_room,
            self._logins,
            self._admit,
            self._left,
        )
        self._newcomers[newcomer] = None
        return newcomer

    def _admit(self, newcomer: Newcomer) -> AcceptedConnection:
        self._newcomers.pop(newcomer, None)  # the connection lives on: it stays counted
        return self._new_connection(newcomer.client)

    def _left(self, newcomer: Newcomer) -> None:
        if newcomer in self._newcomers:
            del self._newcomers[newcomer]
            self._places.closed(newcomer.client)

    def _accept(self, listener: str) -> AcceptedConnection | None:
        """Return the handler of a new connection; None to refuse it, if there is no room."""
        if not self._has_place(listener):
            return None
        return self._new_connection(self._new_client(listener))

    def limit_connections(self, config: BrokerConfig) -> None:
        """Replace the limits of connections. Those above a lower `max.connections` are closed when they are idle."""
        self._room.most = config.max_connections
        self._places.configure(config)

    def _has_place(self, listener: str) -> bool:
        """Return True if a new connection can be served.

        Without room, it replaces the oldest connection that is not authenticated, or else the oldest one that has
        never sent a request, or else a connection that has been idle for `_UNUSED_MS`. So connections that nobody uses
        cannot lock out followers.
        """
        is_protected = listener == self._places.protected
        if self._room.has_place(self._count(), is_protected=is_protected):
            return True
        replaced = self._oldest_newcomer() or self._oldest_silent() or self._longest_idle()
        if replaced is None:
            self._room.refused += 1
            return False
        self._replace(replaced)
        return True

    def _count(self) -> int:
        return len(self._connections) + len(self._newcomers)

    def _new_client(self, listener: str) -> ClientConnection:
        self._last_id += 1
        return ClientConnection(self._last_id, listener, on_open=self._places.opened)

    def _new_connection(self, client: ClientConnection) -> AcceptedConnection:
        connection = AcceptedConnection(client, self._shared, self._closed)
        self._connections[connection] = self._silent[connection] = None
        connection.meter(self._services.quotas, self._processor)
        return connection

    def _quotas_changed(self) -> None:
        for connection in self._connections:
            connection.meter(self._services.quotas, self._processor)

    def _oldest_newcomer(self) -> Newcomer | None:
        """Return the oldest connection that is not authenticated; None if it was opened less than `_SETTLED_MS` ago."""
        oldest = next(iter(self._newcomers), None)
        now = self._services.clock.now()
        return oldest if oldest and now - oldest.opened_at >= _SETTLED_MS else None

    def _oldest_silent(self) -> AcceptedConnection | None:
        """Return the oldest connection without a request; None if it was opened less than `_SETTLED_MS` ago."""
        while self._silent:
            oldest = next(iter(self._silent))
            if not oldest.has_asked:
                is_settled = self._services.clock.now() - oldest.opened_at >= _SETTLED_MS
                return oldest if is_settled else None
            del self._silent[oldest]
        return None

    def _longest_idle(self) -> AcceptedConnection | None:
        """Return a connection that has been idle for `_UNUSED_MS`, the longest idle one first; None without one."""
        now = self._services.clock.now()
        if not self._unused and now - self._looked_at >= _SWEEP_MS:
            self._looked_at = now
            idle = sorted(self._idle(now - _UNUSED_MS), key=lambda one: -one.last_active)
            self._unused = idle[-_UNUSED_MAX:]
        while self._unused:
            longest = self._unused.pop()
            if longest in self._connections and longest.last_active <= now - _UNUSED_MS:
                return longest
        return None

    def _idle(self, since: int) -> list[AcceptedConnection]:
        """Return the connections without a request in progress that have been idle since this time."""
        return [one for one in self._connections if one.last_active <= since and one.is_idle()]

    def _replace(self, connection: AcceptedConnection | Newcomer) -> None:
        """Close a connection to free its file descriptor for another use."""
        self._room.replaced += 1
        connection.link.abort()
        if isinstance(connection, Newcomer):
            self._left(connection)
        else:
            self._closed(connection)

    def _closed(self, connection: AcceptedConnection) -> None:
        self._connections.pop(connection, None)
        self._silent.pop(connection, None)
        self._places.closed(connection.client)

    def free_descriptors(self) -> None:
        """Close idle connections if the room demands it, at most every 100 ms.

        Connections without any request are closed first, then those that have been idle the longest.
        """
        now = self._services.clock.now()
        if now - self._freed_at < _SWEEP_MS or not (surplus := self._room.surplus(self._count())):
            return
        self._freed_at = now
        idle = self._idle(now - _SETTLED_MS)
        idle.sort(key=lambda one: (one.has_asked, one.last_active))
        for connection in idle[:surplus]:
            self._replace(connection)

    async def _sweep(self) -> None:
        """Answer overdue Produce requests every 100 ms.

        Close abandoned connections every second, and idle connections every 5 s. Then also take the large receive
        buffers of connections that have received nothing for 5 s.
        """
        clock = self._services.clock
        count = 0
        while True:
            await clock.sleep(_SWEEP_MS)
            now = clock.now()
            for connection in tuple(self._connections):
                connection.answers.expire(now)
            count += 1
            if count % _ROOM_SWEEPS == 0:
                self._close_abandoned()
                self.free_descriptors()
            if count % _IDLE_SWEEPS == 0:
                self._close_idle(now)
                self._shrink_buffers(now)

    def _close_abandoned(self) -> None:
        """Close connections whose client has disconnected, has waited too long or is sending too slowly."""
        latest = self._services.clock.now() - self._services.config.minikafka_handshake_timeout_ms
        for newcomer in tuple(self._newcomers):
            if newcomer.opened_at > latest:
                break
            newcomer.give_up("it has not authenticated in time")
        for connection in tuple(self._connections):
            if connection.is_abandoned():
                connection.link.abort()
        for part in (
            *self._shared.rooms,
            self._newcomer_room,
            self._shared.turns.large,
            self._shared.turns.large_produce,
        ):
            part.sweep()

    def _shrink_buffers(self, now: int) -> None:
        for connection in self._connections:
            if connection.last_active <= now - _SWEEP_MS * _IDLE_SWEEPS:
                connection.shrink()

    def _close_idle(self, now: int) -> None:
        """Close connections that have been idle for `connections.max.idle.ms`. A negative value means never.

        A connection with unsent bytes also counts as idle if its client has received nothing for this long.
        """
        longest_ms = self._services.config.connections_max_idle_ms
        if longest_ms < 0:
            return
        idle_since = now - longest_ms
        idle: list[AcceptedConnection] = []
        for connection in tuple(self._connections):
            if connection.last_active >= idle_since:
                continue
            link = connection.link
            if link.queued_bytes():
                logger.info(
                    "closing connection from %s: the client does not read its responses",
                    link.peer(),
                )
                link.abort()
            elif not connection.answers.entries:
                idle.append(connection)
        if idle:
            count, peer = len(idle), idle[0].link.peer()
            logger.info("closing %d idle connections, the first from %s", count, peer)
        for connection in idle:
            connection.link.close()

    async def close(self) -> None:
        """Stop accepting, and close every connection after its ready responses are sent."""
        for listening in self._listening:
            await listening.close()
        for newcomer in tuple(self._newcomers):
            newcomer.link.close()
        for connection in tuple(self._connections):
            connection.link.close()
