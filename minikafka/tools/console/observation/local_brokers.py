"""A cluster in a data directory of this machine, as the console observes it: processes, files and control ports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.ports import Clock, Rng
from minikafka.broker.ledger.reader import Line, read_all, read_group
from minikafka.tools.cluster import LocalCluster
from minikafka.tools.cluster.directory import HOST
from minikafka.tools.cluster.observation.access import BrokerAccess
from minikafka.tools.cluster.observation.sights import Known, Sights, look
from minikafka.tools.cluster.observation.state import control_plane_of
from minikafka.tools.cluster.processes import is_paused
from minikafka.tools.cluster.running import RunningProcesses
from minikafka.tools.console.observation.ledger_files import LedgerFiles
from minikafka.tools.console.observation.members import (
    ASK_MS,
    DOWN,
    PAUSED,
    RUNNING,
    BrokerMember,
    CommandOptions,
)
from minikafka.tools.explain.gather import LocalSources, Sources

if TYPE_CHECKING:
    from minikafka.broker.rpc.client import ControlPlaneClient


class LocalBrokers:
    """A cluster of this machine. `access`: how clients connect to it. `user`: as whom; None without security."""

    def __init__(
        self, found: LocalCluster, access: BrokerAccess, user: str | None, clock: Clock, rng: Rng
    ) -> None:
        data = ("--data", str(found.directory.path))
        self.options = CommandOptions((), data, data)
        self.user = user
        self._found = found
        self._access = access
        self._clock = clock
        self._rng = rng
        self._plane: ControlPlaneClient | None = None
        self._ledgers = LedgerFiles()
        self._racks: dict[int, str | None] = {}

    async def members(self) -> Sequence[BrokerMember]:
        """Return all brokers, with the states of their processes."""
        record = self._found.record
        running = RunningProcesses(self._found.directory, self._clock)
        found = []
        for broker in record.brokers:
            process = running.broker(record, broker.id)
            state = DOWN if process is None else PAUSED if is_paused(process) else RUNNING
            rack = self._rack(broker.id)
            found.append(BrokerMember(broker.id, HOST, broker.clients[0].port, rack, state))
        return found

    def _rack(self, broker: int) -> str | None:
        if broker not in self._racks:
            config = self._found.directory.broker_config(broker)
            self._racks[broker] = None if config is None else config.broker_rack or None
        return self._racks[broker]

    async def ask(self, broker: int, question: str, argument: dict[str, Any]) -> Mapping[str, Any]:
        """Call the control plane of one broker."""
        record = self._found.record
        if self._plane is None:
            ids = [one.id for one in record.brokers]
            directory = self._found.directory
            self._plane = control_plane_of(directory, record, ids, self._clock, self._rng)
        if self._plane is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "no broker was ever started")
        control = record.broker(broker).control
        try:
            return await self._plane.call(
                control, question, argument, target_id=broker, timeout_ms=ASK_MS
            )
        except KafkaError as error:
            if error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:  # perhaps another cluster now
                await self.close()
            raise

    async def sights(self, answers: Known) -> Sights:
        """Return the condition of every process of the cluster."""
        return await look(self._found.directory, self._clock, self._rng, answers)

    def access(self) -> BrokerAccess:
        return self._access

    @asynccontextmanager
    async def sources(self) -> AsyncIterator[Sources]:
        """Yield the sources of `minikafka why --data`, which read the ledgers in a thread."""
        yield _ThreadedSources(self._found, self._clock, self._rng, self.options.where)

    async def ledger_lines(self) -> list[dict[str, Any]]:
        """Read the ledger files of all brokers, in a thread."""
        record, directory = self._found.record, self._found.directory
        folders = {broker.id: directory.broker_ledger(broker.id) for broker in record.brokers}
        return await asyncio.to_thread(self._ledgers.read, folders)

    async def close(self) -> None:
        plane, self._plane = self._plane, None
        if plane is not None:
            await plane.close()


class _ThreadedSources(LocalSources):
    """Sources that read ledgers, which may have 100 MB, without stopping the event loop."""

    async def partition_lines(self, topic: str) -> list[Line]:
        return await asyncio.to_thread(read_all, self._ledgers(), topic)

    async def group_lines(self, group: str) -> list[Line]:
        return await asyncio.to_thread(read_group, self._ledgers(), group)
