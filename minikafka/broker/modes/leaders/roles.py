"""The start of a broker's coordination, in the order of the design (C1), and its repetition after a lost lease (C35).

create the queue of this broker, and watch it
listen for the end of the session
carry out the requests in the queue
read all replica lists; start each replica of this broker, and watch its leader
register (`lifecycle.py`), last of all
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import Closed, CoordinationError
from minikafka.base.model import NO_EPOCH
from minikafka.base.ports import (
    Call,
    Clock,
    Ledger,
    SessionEvent,
    SessionState,
    Tasks,
    ZooKeeper,
)
from minikafka.broker.capabilities import Orders
from minikafka.broker.modes.leaders.metadata_source import LeadersMetadata
from minikafka.broker.modes.leaders.queue import StateChangeQueue
from minikafka.broker.modes.leaders.received_requests import ReceivedRequests
from minikafka.broker.modes.leaders.runner import Runner
from minikafka.ledger.record import BROKER

logger = logging.getLogger(__name__)

_RETRY_MS: Final = 200
_ENDS_LEASE: Final = (SessionState.LEASE_EXPIRED, SessionState.EXPIRED)


async def _nothing() -> None:
    """Do nothing: the broker has not registered yet."""


class LeadersRoles:
    """The RoleSource of the mode: it gives the orders that the machine decides. `start` may give all of them.

    `on_restarted` is awaited when the coordination has started again after a lost lease.
    """

    calls: Mapping[str, Callable[[Call], Awaitable[dict[str, Any]]]] = {}
    epoch = NO_EPOCH

    def __init__(
        self,
        config: BrokerConfig,
        zookeeper: ZooKeeper,
        clock: Clock,
        tasks: Tasks,
        ledger: Ledger,
        queue: StateChangeQueue,
        runner: Runner,
        metadata: LeadersMetadata,
    ) -> None:
        self._config = config
        self._zookeeper = zookeeper
        self._clock = clock
        self._tasks = tasks
        self._ledger = ledger
        self._queue = queue
        self._runner = runner
        self._metadata = metadata
        self._requests = ReceivedRequests(queue, clock, tasks, runner.handle_request)
        self.on_restarted: Callable[[], Awaitable[None]] = _nothing
        self._has_started = False
        self._is_closed = False

    async def start(self, orders: Orders) -> None:
        """Start every replica of this broker, and begin to follow changes. Raises CoordinationError."""
        self._runner.start(orders)
        self._metadata.start(orders)
        self._tasks.spawn(self._follow_session(self._zookeeper.events()), "session-events")
        while not await self._begin():
            pass
        self._has_started = True
        self._tasks.spawn(self._balance(), "balance")

    def close(self) -> None:
        """Give no order any longer: the broker stops."""
        self._is_closed = True
        self._runner.close()

    async def _begin(self) -> bool:
        """Begin an era, and repeat this if ZooKeeper fails; return False if the session's lease has ended meanwhile.

        The session's next connection begins another era then. Raises Closed.
        """
        while True:
            era = self._runner.begin(await self._zookeeper.connected())
            try:
                await self._queue.open()
                await self._requests.drain(era)
                if not era.is_over:
                    await self._runner.scan_now(era)
                await era.lanes.idle()
            except Closed:
                raise
            except CoordinationError as error:
                logger.info("the start is repeated: %s %s", type(error).__name__, error)
            else:
                return not era.is_over
            era.end()
            await self._clock.sleep(_RETRY_MS)
            if not self._runner.is_latest(era):
                return False

    async def _follow_session(self, events: AsyncIterator[SessionEvent]) -> None:
        """End the era with the lease, and start again with the next connection."""
        is_lost = False
        async for event in events:
            if self._is_closed:
                return
            if event.state in _ENDS_LEASE:
                if not is_lost:
                    is_lost = True
                    logger.warning("the lease of the ZooKeeper session is over, stop leading")
                    self._ledger.record(BROKER, "", {"fact": "session lost"})
                self._runner.end()
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
                await self._runner.balance(may_move=self._config.auto_leader_rebalance_enable)
            except Closed:
                return
            except CoordinationError as error:
                logger.info("no balance: %s %s", type(error).__name__, error)
