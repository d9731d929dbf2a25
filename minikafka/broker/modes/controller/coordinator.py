"""ZooKeeper implementation of the Coordinator port, with one ZooKeeper session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import Closed, NotConnected, OutcomeUnknown, StaleSession
from minikafka.base.model import Broker
from minikafka.base.ports import Clock, Coordination, Gate, Ledger, Tasks
from minikafka.broker.modes.controller.config_store import ZooKeeperConfigs
from minikafka.broker.modes.controller.fenced import FencedWrites
from minikafka.broker.modes.controller.isr_store import ZooKeeperIsrs
from minikafka.broker.modes.controller.registration import Registration
from minikafka.broker.modes.controller.session_file import SessionFile
from minikafka.broker.modes.controller.terms import ZooKeeperController
from minikafka.broker.modes.controller.terms.term import Channels
from minikafka.broker.modes.controller.topic_store import ZooKeeperTopics
from minikafka.zk.nodes import ids, notifications

PRODUCER_ID_BLOCK: Final = 1000
"""Number of producer ids that a broker claims at a time, as in Kafka."""


class ZooKeeperCoordinator:
    """One broker's access to the cluster state in ZooKeeper."""

    def __init__(
        self,
        config: BrokerConfig,
        coordination: Coordination,
        session_file: SessionFile,
        channels: Channels,
        clock: Clock,
        tasks: Tasks,
        ledger: Ledger,
        gate: Gate,
    ) -> None:
        self._broker_id = config.broker_id
        self._coordination = coordination
        self._session_file = session_file
        self._clock = clock
        self._tasks = tasks
        self._ledger = ledger
        self.controller = ZooKeeperController(
            coordination, channels, clock, tasks, config, ledger, gate
        )
        self.isrs = ZooKeeperIsrs(coordination, clock, tasks)
        self.topics = ZooKeeperTopics(
            coordination, FencedWrites(coordination, self.controller, ledger)
        )
        self.configs = ZooKeeperConfigs(
            coordination, clock, tasks, config.broker_id, self.controller, ledger
        )

    @property
    def session_state(self) -> str:
        """State of the ZooKeeper session, in one word."""
        return self._coordination.state.value

    @property
    def session_timeout_ms(self) -> int:
        """Session timeout in milliseconds, as the server granted it."""
        return self._coordination.session_timeout_ms

    async def start(self, broker: Broker, on_registered: Callable[[int], None]) -> None:
        """Register the broker, now and in each later session, and take part in controller elections."""
        registration = Registration(
            self._coordination,
            self._session_file,
            self._clock,
            self._tasks,
            self._ledger,
            broker,
            on_registered,
        )
        await registration.start()
        await self.controller.start()

    async def stop(self) -> None:
        """Close the session, which deletes the broker's registration."""
        await self._coordination.close()

    def report_log_dir_failure(self) -> None:
        """Notify the controller in the background that this broker lost a log directory (R67)."""
        self._tasks.spawn(self._report_log_dir_failure(), "log-dir-failure")

    async def _report_log_dir_failure(self) -> None:
        """Write the notification; retry after a lost connection, a lost answer or a lost session."""
        while True:
            try:
                await self._coordination.connected()
                await notifications.announce_log_dir_failure(self._coordination, self._broker_id)
                return
            except Closed:
                return
            except (NotConnected, OutcomeUnknown, StaleSession):
                continue

    async def claim_producer_ids(self) -> tuple[int, int]:
        """Claim a block of producer ids; return its first and last id (R72)."""
        return await ids.claim_producer_ids(self._coordination, self._broker_id, PRODUCER_ID_BLOCK)
