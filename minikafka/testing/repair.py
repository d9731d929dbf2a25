"""The repair of a shared cluster after a test that has harmed it."""

from __future__ import annotations

import signal
from dataclasses import replace

from minikafka.broker.rpc.messages import STEPS, decode_gate_state, encode_steps
from minikafka.runtime.clock import SystemClock
from minikafka.tools.cluster import ClusterError, LocalCluster
from minikafka.tools.cluster.processes import ProcessId, is_paused, send_signal
from minikafka.tools.cluster.running import RunningProcesses

READS = (
    *(
        "bootstrap_of",
        "client_config",
        "directory",
        "held",
        "keep_logs",
        "leader_of",
        "metrics_urls",
    ),
    *("record", "state", "wait_for_isr", "wait_until_in_sync", "zookeeper"),
)
"""The methods and properties of a cluster that change nothing."""


class Repairs:
    """The condition of a cluster when it was last whole, and the way back to it."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._running = RunningProcesses(cluster.directory, SystemClock())
        self._settled: list[ProcessId | None] = []
        self._advanced_ms = 0
        self._was_touched = False

    def note_use(self, name: str) -> None:
        """Remember that a test uses the method `name` of the cluster."""
        self._was_touched = self._was_touched or name not in READS

    def settle(self) -> None:
        """Remember the processes as those of a whole cluster."""
        self._settled = self._processes()
        self._advanced_ms = self._cluster.record.advanced_ms
        self._was_touched = False

    @property
    def is_whole(self) -> bool:
        """True if the processes are those of the last `settle` and run, and no test has changed the cluster."""
        return not self._was_touched and self._all_run()

    def _all_run(self) -> bool:
        processes = self._processes()
        paused = any(process is not None and is_paused(process) for process in processes)
        return processes == self._settled and not paused

    def _processes(self) -> list[ProcessId | None]:
        record = self._cluster.record
        own = [self._cluster.zookeeper_process()] if record.runs_zookeeper else []
        own += [self._proxy()] if record.has_faults else []
        return [*own, *(self._cluster.process(broker.id) for broker in record.brokers)]

    def _proxy(self) -> ProcessId | None:
        return self._running.proxy(self._cluster.record)

    async def repair(self) -> None:
        """End all faults, start and resume all processes, set the clock back, and wait until all replicas are in sync.

        Raises ClusterError, which says that the cluster stays harmed.
        """
        try:
            await self._heal()
            if not self._all_run():
                await self._cluster.start()
            await self._release_steps()
            await self._set_clock_back()
            await self._restart_brokers_without_disk()
            await self._cluster.wait_until_in_sync()
        except ClusterError as error:
            text = (
                f"the shared cluster stays harmed after this test, and cannot be repaired: {error}"
            )
            raise ClusterError(text, error.hint) from error
        self.settle()

    async def _heal(self) -> None:
        if self._cluster.record.has_faults:
            for broker in self._cluster.record.brokers:
                process = self._cluster.process(broker.id)
                if process is not None and is_paused(process):
                    await self._cluster.resume(broker.id)
                await self._cluster.heal_disk(broker.id)
            if (proxy := self._proxy()) is not None:  # otherwise its faults have ended with it
                send_signal(proxy, signal.SIGCONT)
                await self._cluster.heal()

    async def _release_steps(self) -> None:
        answers = await self._cluster.ask(STEPS, encode_steps("", 0))
        for broker, answer in answers.items():
            for step in () if isinstance(answer, Exception) else decode_gate_state(answer)[0]:
                await self._cluster.release(step, [broker])

    async def _set_clock_back(self) -> None:
        """Restart all brokers with the clock of the last `settle`. What has expired meanwhile stays away."""
        record = self._cluster.record
        if record.advanced_ms != self._advanced_ms:
            self._cluster.directory.write(replace(record, advanced_ms=self._advanced_ms))
            await self._cluster.restart_together([broker.id for broker in record.brokers])

    async def _restart_brokers_without_disk(self) -> None:
        for broker, answer in (await self._cluster.state()).answers.items():
            if answer.get("offline_directories"):
                await self._cluster.restart(broker)
