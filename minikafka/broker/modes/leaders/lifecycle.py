"""The lifecycle of one broker: its registration, which comes last in each start, and its session."""

from __future__ import annotations

import logging
from collections.abc import Callable

from minikafka.base.errors import Closed, CoordinationError
from minikafka.base.model import Broker, BrokerId
from minikafka.base.ports import Clock, Ledger, Tasks, ZooKeeper
from minikafka.broker.modes.leaders.metadata_source import LeadersMetadata
from minikafka.broker.modes.leaders.roles import LeadersRoles
from minikafka.broker.modes.leaders.runner import Runner
from minikafka.broker.modes.zookeeper.registration import Registration
from minikafka.broker.modes.zookeeper.session_file import SessionFile
from minikafka.zk.nodes.leaders.tree import REGISTRATIONS

logger = logging.getLogger(__name__)


class LeadersLifecycle:
    """BrokerLifecycle of the leader-coordinated mode."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        session_file: SessionFile,
        clock: Clock,
        tasks: Tasks,
        ledger: Ledger,
        roles: LeadersRoles,
        runner: Runner,
        metadata: LeadersMetadata,
    ) -> None:
        self._zookeeper = zookeeper
        self._session_file = session_file
        self._clock = clock
        self._tasks = tasks
        self._ledger = ledger
        self._roles = roles
        self._runner = runner
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
            self._zookeeper,
            self._session_file,
            self._clock,
            self._tasks,
            self._ledger,
            broker,
            on_registered,
            REGISTRATIONS,
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
        self._runner.registered()

    def report_log_dir_failure(self) -> None:
        """Give up the leaderships of the replicas in a failed log directory (R67)."""
        self._runner.replicas_failed()

    def report_lost_connection(self, broker_id: BrokerId) -> None:
        """Do nothing: in this mode, only the end of its session shows that a broker has died."""

    async def resign(self) -> None:
        """Give no order to the replicas any longer."""
        self._roles.close()

    async def stop(self) -> None:
        """Close the session, which deletes the broker's registration and its leaderships."""
        await self._zookeeper.close()
