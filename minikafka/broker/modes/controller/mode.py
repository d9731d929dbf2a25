"""Joining a cluster that keeps its state in ZooKeeper."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from minikafka.base.config import BrokerConfig
from minikafka.base.ports import (
    Clock,
    ControlPlane,
    Coordination,
    Gate,
    Ledger,
    Rng,
    Storage,
    Tasks,
)
from minikafka.broker.modes.controller.coordinator import ZooKeeperCoordinator
from minikafka.broker.modes.controller.session_file import SessionFile
from minikafka.rpc.channels import Channels
from minikafka.zk.nodes import ids, tree


class ZooKeeperMode:
    """ZooKeeper implementation of the CoordinationMode port; `join` starts the session.

    `close_session(id, password)` ends the session of an earlier process of this broker.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        rng: Rng,
        storage: Storage,
        tasks: Tasks,
        coordination: Coordination,
        close_session: Callable[[int, bytes], Awaitable[None]],
    ) -> None:
        self.coordination = coordination
        self._config = config
        self._clock = clock
        self._rng = rng
        self._tasks = tasks
        self._close_session = close_session
        self._session_file = SessionFile(storage, config.log_dirs[0])

    async def join(self) -> str:
        """End the session of this broker's earlier process, open a new session, and return the cluster id."""
        await self._session_file.end_former(self._close_session)
        await self.coordination.start()
        self._session_file.write(self.coordination)
        await tree.ensure(self.coordination)
        return await ids.cluster_id(self.coordination, lambda: self._rng.bytes(16))

    def coordinator(
        self, control_plane: ControlPlane, ledger: Ledger, gate: Gate
    ) -> ZooKeeperCoordinator:
        """Return the broker's Coordinator, which uses the session that `join` started."""
        listener = self._config.endpoints.control.name
        channels = Channels(control_plane, self._clock, self._tasks, self._rng, ledger, listener)
        return ZooKeeperCoordinator(
            self._config,
            self.coordination,
            self._session_file,
            channels,
            self._clock,
            self._tasks,
            ledger,
            gate,
        )
