"""The start, stop and configuration of a cluster on this machine.

Invariant: a broker keeps its id, ports and data at every restart, and never has two processes.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Collection
from contextlib import suppress
from typing import Final

from minikafka.base.errors import KafkaError
from minikafka.broker.rpc.messages import (
    RECONFIGURE,
    SettingChange,
    decode_changes,
    encode_settings,
)
from minikafka.tools.cluster.directory import ClusterDirectory, ClusterError, ClusterRecord
from minikafka.tools.cluster.faults.disks import DiskVerbs
from minikafka.tools.cluster.faults.fault import Fault
from minikafka.tools.cluster.faults.network import NetworkFaults
from minikafka.tools.cluster.faults.sessions import SessionFaults
from minikafka.tools.cluster.faults.steps import StepFaults
from minikafka.tools.cluster.launch.broker_keys import kept_settings
from minikafka.tools.cluster.launch.launcher import DYING_MS, Launcher
from minikafka.tools.cluster.launch.plan import LaunchRequest
from minikafka.tools.cluster.ports import HeldPorts
from minikafka.tools.cluster.processes import end, is_paused, wait_until_gone
from minikafka.tools.cluster.proxy.rules import Peer
from minikafka.tools.cluster.temporary import TemporaryDirectory

START_TIMEOUT_MS: Final = 60_000
START_POLL_MS: Final = 10
"""Time between two questions to brokers that start. A start takes less than a second."""
CONTROLLED_SHUTDOWN_MS: Final = 30_000
"""Time until a broker in controlled shutdown is killed. Kafka's default is 3 retries, 5 s apart."""
NOTED_LINES: Final = 15
"""Number of lines of each broker's log that are added to an exception in a `with LocalCluster()` block."""

_started: Final[weakref.WeakSet[OwnedCluster]] = weakref.WeakSet()
_started_lock: Final = threading.Lock()


def started_clusters() -> list[OwnedCluster]:
    """Return the clusters that this Python process has started and not stopped."""
    with _started_lock:
        return list(_started)


class OwnedCluster(StepFaults, SessionFaults, NetworkFaults, DiskVerbs):
    """A cluster that this Python process can start and stop.

    `request`: what a start launches. `temporary`: the data directory if `stop` removes it, else None.
    """

    def __init__(
        self,
        directory: ClusterDirectory,
        request: LaunchRequest,
        temporary: TemporaryDirectory | None,
    ) -> None:
        super().__init__(directory)
        self._request = request
        self._temporary = temporary
        self._held = HeldPorts()
        self.postponed: tuple[str, ...] = ()
        """Settings of the last `start` that cannot take effect while processes run."""
        self.changes: dict[int, list[SettingChange]] = {}
        """By broker id, the settings in a file that the last `start` or `configure` has changed."""

    async def heal(self, a: Peer | None = None, b: Peer | None = None) -> None:
        """End all faults of disks and of the network; with `a`, those of connections of this end, or between two ends.

        A log directory that went offline stays so until the broker restarts.
        """
        await super().heal(a, b)
        if a is None and b is None:
            for broker in self.record.brokers:
                await self.heal_disk(broker.id)

    async def active_faults(self) -> list[Fault]:
        """Return all faults of the network and of disks that are in effect, with what they have hit."""
        return [*await self.network_faults(), *self.active_disk_faults()]

    def keep_logs(self) -> None:
        """Keep the logs, `directory.logs`, when `stop` removes a temporary data directory."""
        if self._temporary is not None:
            self._temporary.keep_logs()

    async def start(
        self, broker_id: int | None = None, *, timeout_ms: int = START_TIMEOUT_MS
    ) -> None:
        """Start one broker, or ZooKeeper and all brokers that are down; return when the brokers serve clients.

        Raises ClusterError if a broker does not serve clients within `timeout_ms`. After a failure or a
        cancellation, the processes that this call has started are killed. After a failed start of all
        brokers, the files of the data directory are restored too.
        """
        launcher = self._launcher()
        with _started_lock:
            _started.add(self)
        if broker_id is not None:
            self.record.broker(broker_id)
            await self._start(launcher, broker_id, timeout_ms)
            return
        launcher.check()
        memory = self.directory.remember()
        try:
            await self._start(launcher, None, timeout_ms)
        except BaseException:
            if launcher.saved is not None and self.directory.read() == launcher.saved:
                memory.restore()
            raise
        # Later starts keep the listeners and the ports of this start.
        self._request = self._request._replace(port=None, metrics_port=None, listeners=None)
        self.postponed = tuple(launcher.postponed)
        self.changes = launcher.changes

    async def _start(self, launcher: Launcher, broker_id: int | None, timeout_ms: int) -> None:
        try:
            async with self.directory.locked(self._clock):
                if broker_id is None:
                    ids = await launcher.start_all()
                else:
                    ids = await launcher.start_broker(broker_id)
            await self._wait_until_serving(launcher, ids, timeout_ms)
            if self.record.proxy is not None:
                await self.open_ports()
        except BaseException:
            await self._running.kill_all(launcher.spawned)
            self._held.release()
            raise
        if self._request.owner is None:
            self._held.release()  # the processes have their ports; this one may end

    async def stop(self, broker_id: int | None = None) -> None:
        """Stop one broker by a controlled shutdown, or all brokers and then the cluster's ZooKeeper.

        If the data directory is temporary, stopping everything kills the processes and removes the directory.
        """
        if broker_id is not None:
            process = self._running_broker(broker_id)
            await end(process, self._clock, CONTROLLED_SHUTDOWN_MS)
            return
        record = self.directory.read()
        if record is not None:
            # With the lock, this call waits for a start in another thread, and a later start finds no cluster.
            async with self.directory.locked(self._clock):
                await self._end_all(self.directory.read() or record)
                self._end()
        else:
            self._end()

    def _end(self) -> None:
        """Remove a temporary data directory and release the ports, when no process runs any more."""
        self._held.release()
        if self._temporary is not None:
            self._temporary.remove()
        with _started_lock:
            _started.discard(self)

    async def _end_all(self, record: ClusterRecord) -> None:
        if self._temporary is not None:
            await self._running.kill_all(self._running.every_process(record))
        else:
            if record.proxy is not None:
                with suppress(ClusterError):  # the proxy may have ended
                    await NetworkFaults.heal(self)
            await self._running.end_all(record)

    async def restart(self, broker_id: int) -> None:
        """Stop the broker if it runs, then start it with the same id, ports and data."""
        await self._launcher().check_cluster()  # a broker that was stopped could not start again
        if self.process(broker_id) is not None:
            await self.stop(broker_id)
        await self.start(broker_id)

    async def restart_together(self, brokers: Collection[int]) -> None:
        """Stop these brokers at the same time, without handing over their leaderships, then start them."""
        await self._launcher().check_cluster()
        record = self.record
        processes = [self._running.broker(record, broker_id) for broker_id in brokers]
        await self._running.end_brokers([process for process in processes if process is not None])
        for broker_id in brokers:
            await self.start(broker_id)

    # Configuration

    def configure(self, brokers: Collection[int]) -> None:
        """Write the configuration files of these brokers, for their next start. Raises ConfigError."""
        launcher = self._launcher()
        launcher.write_files(brokers)
        self.changes = launcher.changes

    def unapplied(self, broker_id: int) -> list[SettingChange]:
        """Return the settings in which the configuration differs from the broker's file; write nothing.

        Raises ConfigError.
        """
        return self._launcher().unapplied(broker_id)

    def kept_settings(self, file: object) -> list[str]:
        """Return a line for each topic default where the configuration `file` and the cluster's first start differ."""
        settings, brokers = self._launcher().settings_now(), len(self.record.brokers)
        return kept_settings(settings, self._request.config, brokers, file)

    async def reconfigure(
        self, brokers: Collection[int]
    ) -> dict[int, list[SettingChange] | OSError | KafkaError]:
        """Send running brokers the settings in their files. A broker applies settings that need no restart.

        Return by broker id all settings that differ from the broker's former settings, or the error of the
        call.
        """

        async def call(broker_id: int) -> list[SettingChange] | OSError | KafkaError:
            body = encode_settings(self.directory.broker_settings(broker_id))
            answer = (await self.ask(RECONFIGURE, body, brokers=[broker_id]))[broker_id]
            return answer if isinstance(answer, Exception) else decode_changes(answer)

        return {broker_id: await call(broker_id) for broker_id in brokers}

    async def start_zookeeper(self) -> None:
        """Start the cluster's ZooKeeper again, with its port and data. Raises ClusterError if it already runs."""
        async with self.directory.locked(self._clock):
            process = self.zookeeper_process()
            if process is not None and not await wait_until_gone(process, self._clock, DYING_MS):
                if is_paused(process):
                    hint = "minikafka resume zookeeper lets it continue"
                    raise ClusterError("ZooKeeper is paused (SIGSTOP), not down", hint)
                raise ClusterError("ZooKeeper is already running")
            launcher = self._launcher()
            launcher.check_zookeeper_files()
            await launcher.start_proxy()
            server = await launcher.spawn_zookeeper()
            if server is None:
                raise self._no_zookeeper()
            await launcher.open_ports()
            await server.wait_until_serving()
            if launcher.record.proxy is not None:
                await self.open_ports()
            await launcher.check_cluster(server)

    async def stop_zookeeper(self) -> None:
        """Stop the cluster's ZooKeeper with SIGTERM; return when the process is gone."""
        await end(self._running_zookeeper(), self._clock)

    def _launcher(self) -> Launcher:
        return Launcher(
            self.directory, self._running, self._request, self._clock, self._rng, self._held
        )

    async def _wait_until_serving(
        self, launcher: Launcher, ids: Collection[int], timeout_ms: int
    ) -> None:
        """Wait until these brokers know each other and the controller. Raises ClusterError."""
        deadline = self._clock.now() + timeout_ms
        silent = set(ids) if launcher.spawned else set()
        while True:
            for broker_id in ids:
                if self.process(broker_id) is None:
                    last = launcher.last_output(broker_id)
                    raise ClusterError(f"broker {broker_id} ended: {last}")
            if silent:  # Others are not asked meanwhile: each answer takes processor time.
                silent -= (await self._state_of(silent)).answers.keys()
            waiting = sorted(silent) or (await self.state()).not_serving(ids)
            if not waiting:
                return
            if self._clock.now() >= deadline:
                names = ", ".join(map(str, waiting))
                text = f"broker {names} did not serve clients within {timeout_ms / 1000:g} s"
                raise ClusterError(f"{text}, see {launcher.output(waiting[0]).parent}")
            await self._clock.sleep(START_POLL_MS)

    # Logs

    def _add_logs(self, error: BaseException | None) -> None:
        """Add the last lines of each broker's log to an exception, as notes below its traceback; keep the logs."""
        if error is None or isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
            return
        self.keep_logs()
        launcher = self._launcher()
        with suppress(ClusterError, OSError):  # a failure to read the logs must not hide `error`
            for broker_id in self.directory.logged_brokers():
                lines = launcher.last_lines(broker_id, NOTED_LINES)
                head = f"last lines of broker {broker_id} ({launcher.output(broker_id)}):"
                error.add_note("\n  ".join([head, *(lines or ["no output"])]))
