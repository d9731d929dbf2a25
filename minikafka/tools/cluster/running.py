"""The running processes of a cluster: find them, pause them, end them."""

from __future__ import annotations

import signal
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from minikafka.base.ports import Clock
from minikafka.tools.cluster.directory import ClusterDirectory, ClusterError, ClusterRecord
from minikafka.tools.cluster.processes import (
    END_GRACE_MS,
    ProcessId,
    end,
    find_broker,
    is_alive,
    is_paused,
    kill,
    send_signal,
    wait_until_gone,
)

SIGNAL_POLL_MS: Final = 1
SIGNAL_TIMEOUT_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class RunningProcesses:
    """The processes of the cluster in one data directory, with methods to find, pause and end them."""

    directory: ClusterDirectory
    clock: Clock

    def broker(self, record: ClusterRecord, broker_id: int) -> ProcessId | None:
        """Return the process of a broker, even if a user started it directly; None if the broker is down."""
        recorded = record.broker(broker_id).process
        if is_alive(recorded):
            return recorded
        return find_broker(self.directory.broker_file(broker_id))

    def broker_or_error(self, record: ClusterRecord, broker_id: int) -> ProcessId:
        """Return the process of a broker. Raises ClusterError if the broker is down."""
        process = self.broker(record, broker_id)
        if process is None:
            raise ClusterError(f"broker {broker_id} is not running")
        return process

    def zookeeper(self, record: ClusterRecord) -> ProcessId | None:
        """Return the process of the cluster's ZooKeeper; None if it is down, or if the cluster runs none."""
        process = record.zookeeper_process
        return process if is_alive(process) else None

    def proxy(self, record: ClusterRecord) -> ProcessId | None:
        """Return the process of the proxy of faults; None if it is down, or if the cluster has none."""
        process = record.proxy.process if record.proxy is not None else None
        return process if is_alive(process) else None

    def brokers(self, record: ClusterRecord) -> list[ProcessId]:
        """Return the processes of all brokers that run."""
        return list(filter(None, (self.broker(record, broker.id) for broker in record.brokers)))

    def every_process(self, record: ClusterRecord) -> list[ProcessId]:
        """Return the processes of all brokers that run, and the recorded ones of ZooKeeper and of the proxy."""
        others = [record.zookeeper_process, self.proxy(record)]
        return [*self.brokers(record), *filter(None, others)]

    def running_ids(self, record: ClusterRecord) -> list[int]:
        """Return the ids of the brokers that run, including paused brokers."""
        return [
            broker.id for broker in record.brokers if self.broker(record, broker.id) is not None
        ]

    def is_attached(self, record: ClusterRecord) -> bool:
        """True if the cluster belongs to another process that still runs, such as a test."""
        return is_alive(record.owner)

    def answering_ids(self, record: ClusterRecord) -> list[int]:
        """Return the ids of the brokers that run and are not paused."""
        found = [(broker.id, self.broker(record, broker.id)) for broker in record.brokers]
        return [id_ for id_, process in found if process is not None and not is_paused(process)]

    async def set_paused(self, process: ProcessId, paused: bool) -> None:
        """Send SIGSTOP or SIGCONT to a process, and wait until the signal has taken effect.

        The wait is limited, because another thread may undo the effect at once.
        """
        send_signal(process, signal.SIGSTOP if paused else signal.SIGCONT)
        deadline = self.clock.now() + SIGNAL_TIMEOUT_MS
        while is_alive(process) and is_paused(process) != paused and self.clock.now() < deadline:
            await self.clock.sleep(SIGNAL_POLL_MS)

    async def end_all(self, record: ClusterRecord) -> None:
        """End all brokers cleanly while ZooKeeper still runs, then end the cluster's ZooKeeper.

        Brokers get SIGHUP: they close their logs and sessions but hand over no leaderships.
        """
        await self.end_brokers(self.brokers(record))
        if record.zookeeper_process is not None:
            await end(record.zookeeper_process, self.clock)
        if (proxy := self.proxy(record)) is not None:
            await end(proxy, self.clock)

    async def end_brokers(self, brokers: Collection[ProcessId]) -> None:
        """End brokers cleanly, all at the same time, without handing over their leaderships."""
        for process in brokers:
            send_signal(process, signal.SIGHUP)
            send_signal(process, signal.SIGCONT)
        for process in brokers:
            if not await wait_until_gone(process, self.clock, END_GRACE_MS):
                await kill(process, self.clock)

    async def kill_all(self, processes: Collection[ProcessId]) -> None:
        """Send SIGKILL to all these processes, then wait until they are gone."""
        for process in processes:
            send_signal(process, signal.SIGKILL)
        for process in processes:
            await wait_until_gone(process, self.clock, END_GRACE_MS)
