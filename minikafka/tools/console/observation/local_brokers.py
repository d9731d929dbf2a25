"""A cluster in a data directory of this machine, as the console observes it: processes, files and control ports."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.ports import Clock, Rng
from minikafka.broker.ledger.pages import Wanted
from minikafka.broker.ledger.reader import Line, about_group, about_topic, merged
from minikafka.tools.cluster import LocalCluster
from minikafka.tools.cluster.directory import HOST
from minikafka.tools.cluster.observation.access import BrokerAccess
from minikafka.tools.cluster.observation.sights import Known, Sights, look
from minikafka.tools.cluster.observation.state import control_plane_of
from minikafka.tools.cluster.processes import is_paused
from minikafka.tools.cluster.running import RunningProcesses
from minikafka.tools.console.observation.ledger_files import LedgerFiles, newest_lines
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


SCANNED_BYTES: Final = 32 * 1024 * 1024
"""Bytes of each ledger that are searched for the history of one partition or group; the newest ones."""
WANTED_BYTES: Final = 256 * 1024
"""Bytes of the lines of each ledger that are kept for it."""
CUT: Final = "older lines of the ledgers were left out: `minikafka trace` and `why` read all"


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
        # One thread: each further one would get a heap of its own, which keeps what it has used once.
        self._thread = ThreadPoolExecutor(1, "ledgers")
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
                await self._close_plane()
            raise

    async def sights(self, answers: Known) -> Sights:
        """Return the condition of every process of the cluster."""
        return await look(self._found.directory, self._clock, self._rng, answers)

    def has_faults(self) -> bool:
        return self._found.record.has_faults

    def access(self) -> BrokerAccess:
        return self._access

    @asynccontextmanager
    async def sources(self) -> AsyncIterator[Sources]:
        """Yield the sources of `minikafka why --data`, of which the ledgers are limited."""
        clock, where = self._clock, self.options.where
        yield _BoundedSources(self._found, clock, self._rng, where, self._thread)

    async def ledger_lines(self) -> list[dict[str, Any]]:
        """Read what was added to the ledger files of all brokers."""
        record, directory = self._found.record, self._found.directory
        folders = {broker.id: directory.broker_ledger(broker.id) for broker in record.brokers}
        return self._ledgers.read(folders)

    async def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
        await self._close_plane()

    async def _close_plane(self) -> None:
        plane, self._plane = self._plane, None
        if plane is not None:
            await plane.close()


class _BoundedSources(LocalSources):
    """Sources that read only the newest lines of ledgers, in a thread of the console.

    So an explanation takes little memory, and the stream goes on meanwhile. `is_cut`: older lines were left out.
    """

    def __init__(
        self, found: LocalCluster, clock: Clock, rng: Rng, where: str, thread: Executor
    ) -> None:
        super().__init__(found, clock, rng, where)
        self.is_cut = False
        self._thread = thread

    async def partition_lines(self, topic: str) -> list[Line]:
        return await self._newest(about_topic(topic))

    async def group_lines(self, group: str) -> list[Line]:
        return await self._newest(about_group(group))

    async def _newest(self, is_wanted: Wanted) -> list[Line]:
        loop = asyncio.get_running_loop()
        lines, is_cut = await loop.run_in_executor(
            self._thread, _read_newest, self._ledgers(), is_wanted
        )
        self.is_cut = self.is_cut or is_cut
        return lines

    async def unseen(self) -> list[str]:
        """Return that older lines were left out, if they were."""
        return [*await super().unseen(), *([CUT] if self.is_cut else [])]


def _read_newest(folders: Iterable[Path], is_wanted: Wanted) -> tuple[list[Line], bool]:
    found = [newest_lines(one, is_wanted, SCANNED_BYTES, WANTED_BYTES) for one in folders]
    return merged([one.lines for one in found]), any(one.is_cut for one in found)
