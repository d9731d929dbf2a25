"""The start of a broker's coordination (C1), its repetition after a lost lease (C35), and the broker's registration.

In the order of the design, a start does this:

    create the queue of this broker, and watch it
    listen for the end of the session
    carry out the requests in the queue
    read all replica lists; start each replica of this broker, and watch its leader
    register, last of all
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final

from minikafka.base.errors import Closed, CoordinationError
from minikafka.base.model import NO_EPOCH, Broker, BrokerId
from minikafka.base.ports import (
    Call,
    SessionEvent,
    SessionState,
)
from minikafka.broker.capabilities import Orders
from minikafka.broker.ledger.record import BROKER
from minikafka.broker.modes.leaders.host import LeadersHost
from minikafka.broker.modes.leaders.metadata_source import LeadersMetadata
from minikafka.broker.modes.leaders.queue import RequestQueue, StateChangeQueue
from minikafka.broker.modes.zookeeper.ports import Ports
from minikafka.broker.modes.zookeeper.registration import Registration
from minikafka.broker.modes.zookeeper.session_file import SessionFile
from minikafka.zookeeper.nodes.leaders.tree import REGISTRATIONS

logger = logging.getLogger(__name__)

_RETRY_MS: Final = 200
_ENDS_LEASE: Final = (SessionState.LEASE_EXPIRED, SessionState.EXPIRED)


async def _nothing() -> None:
    """Do nothing: the broker has not registered yet."""


class LeadersRoles:
    """The RoleSource of the mode: its orders are the commands of the machine.

    `on_restarted` is awaited when the coordination has started again after a lost lease.
    """

    calls: Mapping[str, Callable[[Call], Awaitable[dict[str, Any]]]] = {}
    epoch = NO_EPOCH

    def __init__(
        self,
        ports: Ports,
        queue: StateChangeQueue,
        host: LeadersHost,
        metadata: LeadersMetadata,
    ) -> None:
        self._config = ports.config
        self._zookeeper = ports.zookeeper
        self._clock = ports.clock
        self._tasks = ports.tasks
        self._ledger = ports.ledger
        self._queue = queue
        self._host = host
        self._metadata = metadata
        self._requests = RequestQueue(queue, ports.clock, ports.tasks, host.handle_request)
        self.on_restarted: Callable[[], Awaitable[None]] = _nothing
        self._has_started = False
        self._is_closed = False

    async def start(self, orders: Orders) -> None:
        """Start every replica of this broker, and begin to follow changes. Raises CoordinationError."""
        self._host.start(orders)
        self._metadata.start(orders)
        self._tasks.spawn(self._follow_session(self._zookeeper.events()), "session-events")
        while not await self._begin():
            pass
        self._has_started = True
        self._tasks.spawn(self._balance(), "balance")

    def close(self) -> None:
        """Give no order any longer: the broker stops."""
        self._is_closed = True
        self._host.close()

    async def _begin(self) -> bool:
        """Begin a lease, and repeat this if ZooKeeper fails; return False if the session's lease has ended meanwhile.

        The session's next connection begins another lease then. Raises Closed.
        """
        while True:
            lease = self._host.begin(await self._zookeeper.connected())
            try:
                await self._queue.open()
                await self._requests.drain(lease)
                if not lease.is_over:
                    await self._host.scan(lease)
                await lease.lanes.wait_until_idle()
            except Closed:
                raise
            except CoordinationError as error:
                logger.info("the start is repeated: %s %s", type(error).__name__, error)
            else:
                return not lease.is_over
            lease.end()
            await self._clock.sleep(_RETRY_MS)
            if not self._host.is_latest(lease):
                return False

    async def _follow_session(self, events: AsyncIterator[SessionEvent]) -> None:
        """End the `Lease` when that of the session is over, and start again with the next connection."""
        is_lost = False
        async for event in events:
            if self._is_closed:
                return
            if event.state in _ENDS_LEASE:
                if not is_lost:
                    is_lost = True
                    logger.warning("the lease of the ZooKeeper session is over, stop leading")
                    self._ledger.record(BROKER, "", {"fact": "session lost"})
                self._host.end()
            elif event.state is SessionState.CONNECTED and is_lost:
                is_lost = False
                if self._has_started:
                    self._tasks.spawn(self._restart(), "restart")

    async def _restart(self) -> None:
        try:
            if await self._begin():
                await self.on_restarted()
        except Closed:
            return

    async def _balance(self) -> None:
        while True:
            await self._clock.sleep(self._config.leader_imbalance_check_interval_seconds * 1_000)
            try:
                await self._host.balance(may_move=self._config.auto_leader_rebalance_enable)
            except Closed:
                return
            except CoordinationError as error:
                logger.info("no balance: %s %s", type(error).__name__, error)


class LeadersLifecycle:
    """BrokerLifecycle of the mode: the registration, which comes last in each start, and the session."""

    def __init__(
        self,
        ports: Ports,
        session_file: SessionFile,
        roles: LeadersRoles,
        host: LeadersHost,
        metadata: LeadersMetadata,
    ) -> None:
        self._ports = ports
        self._zookeeper = ports.zookeeper
        self._session_file = session_file
        self._roles = roles
        self._host = host
        self._metadata = metadata
        self._registration: Registration

    @property
    def session_state(self) -> str:
        return self._zookeeper.state.value

    @property
    def session_timeout_ms(self) -> int:
        """Session timeout in milliseconds, as the server granted it."""
        return self._zookeeper.session_timeout_ms

    async def start(self, broker: Broker, on_registered: Callable[[int], None]) -> None:
        """Register the broker, whose replicas have started, now and after each later start (C1, C35)."""
        self._registration = Registration(
            self._ports, self._session_file, broker, on_registered, REGISTRATIONS
        )
        self._roles.on_restarted = self._register
        await self._register()

    async def _register(self) -> None:
        self._session_file.write(self._zookeeper)
        await self._registration.register()
        try:
            await self._metadata.refresh()
        except Closed:
            raise
        except CoordinationError as error:
            logger.info("the metadata are read later: %s %s", type(error).__name__, error)
        self._host.registered()

    def report_log_dir_failure(self) -> None:
        """Give up the leaderships of the replicas in a failed log directory (R67)."""
        self._host.replicas_failed()

    def report_lost_connection(self, broker_id: BrokerId) -> None:
        """Do nothing: in this mode, only the end of its session shows that a broker has died."""

    async def resign(self) -> None:
        """Give no order to the replicas any longer."""
        self._roles.close()

    async def stop(self) -> None:
        """Close the session, which deletes the broker's registration and its leaderships."""
        await self._zookeeper.close()
