"""A whole cluster on this machine: ZooKeeper and broker processes with one data directory.

`LocalCluster` is the asynchronous API for tests and scripts; commands such as `minikafka up` use it too. The
processes of an *attached* cluster (the default) end with the process that started them, even if that process
is killed with SIGKILL. The processes of a detached cluster keep running, and later commands find them through
the data directory. Invariant: a broker keeps its id, ports and data at every restart, and never has two
processes.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Collection, Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar

from minikafka.base.config.cluster import ClusterConfig, parse_listener_ports
from minikafka.base.errors import ConfigError, KafkaError
from minikafka.broker.rpc.messages import (
    HOLD_STEP,
    RECONFIGURE,
    RELEASE_STEP,
    SettingChange,
    decode_changes,
    encode_settings,
    encode_step,
)
from minikafka.tools.cluster.directory import ClusterDirectory, ClusterError, ClusterRecord
from minikafka.tools.cluster.launch.broker_keys import kept_settings
from minikafka.tools.cluster.launch.launcher import DYING_MS, POLL_MS, Launcher
from minikafka.tools.cluster.launch.plan import BROKERS_MAX, PORT_MAX, LaunchRequest, check_number
from minikafka.tools.cluster.observation.observed import WAIT_MS, ObservedCluster
from minikafka.tools.cluster.observation.state import STATE_TIMEOUT_MS, ClusterState
from minikafka.tools.cluster.observation.step_watch import find_blocked_broker
from minikafka.tools.cluster.ports import HeldPorts
from minikafka.tools.cluster.processes import (
    ProcessId,
    end,
    identify,
    is_paused,
    kill,
    wait_until_gone,
)
from minikafka.tools.cluster.secure.files import FIRST_USER
from minikafka.tools.cluster.temporary import TemporaryDirectory

LOCAL_KEYS: Final[Mapping[str, object]] = {
    "zookeeper.session.timeout.ms": 2_000,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 5,
}
"""The broker keys whose default in a LocalCluster differs from Kafka's, to save time in tests (`docs/testing.md`)."""
START_TIMEOUT_MS: Final = 60_000
NOTED_LINES: Final = 15
"""Number of lines of each broker's log that are added to an exception in a `with LocalCluster()` block."""
CONTROLLED_SHUTDOWN_MS: Final = 30_000
"""Time until a broker in controlled shutdown is killed. Kafka's default is 3 retries, 5 s apart."""

T = TypeVar("T")

_started: Final[weakref.WeakSet[LocalCluster]] = weakref.WeakSet()
_started_lock: Final = threading.Lock()


def started_clusters() -> list[LocalCluster]:
    """Return the clusters that this Python process has started and not stopped."""
    with _started_lock:
        return list(_started)


class LocalCluster(ObservedCluster):
    """ZooKeeper and brokers 1 … N on 127.0.0.1.

    `data`: the data directory (None: a temporary one, which `stop` removes). `config`: Kafka keys for all
    brokers, or a whole ClusterConfig. `brokers`: number of brokers. `port`: port of broker 1; the other
    brokers have the next ports (0: free ports). `metrics_port`: port for the metrics of broker 1, in the same way.
    `zookeeper`: "embedded" (the default of a new cluster), "managed" (Apache ZooKeeper), or host:port[/chroot] of an
    existing ZooKeeper. `coordination`: "controller" or "leaders"; a cluster keeps its mode. `listeners`: port of broker
    1 by the name of a listener, for example {"SASL_SSL": 0}; without `port`, there is then no listener PLAINTEXT.
    `secure`: the cluster gets certificates, users and ACLs, and only the listener SASL_SSL; it stays secure. These
    arguments default to the values stored in the directory, then to the configuration. If the start of the whole
    cluster fails, the directory is restored. Methods raise ClusterError; `start` also raises ConfigError for invalid
    keys (in a `with` statement: ClusterError). The constructor raises TypeError if `brokers` or a port is not a whole
    number, and ConfigError for an invalid name of a listener.

    Three keys have other defaults than Kafka's, so that tests take less time: zookeeper.session.timeout.ms=2000,
    group.initial.rebalance.delay.ms=0 and offsets.topic.num.partitions=5. A ClusterConfig is used unchanged.

    `async with LocalCluster() as cluster` starts and stops the cluster. `with LocalCluster() as cluster` does
    this without an event loop. The last lines of each broker's log are added to an exception that leaves the
    block, and the logs are kept. Any thread and any event loop may call any method.
    """

    def __init__(
        self,
        brokers: int | None = None,
        *,
        data: str | Path | None = None,
        config: Mapping[str, object] | ClusterConfig | None = None,
        port: int | None = None,
        metrics_port: int | None = None,
        zookeeper: str | None = None,
        coordination: str | None = None,
        listeners: Mapping[str, int] | None = None,
        secure: bool = False,
        attached: bool = True,
    ) -> None:
        check_number("brokers", brokers, 1, BROKERS_MAX)
        check_number("port", port, 0, PORT_MAX)
        check_number("metrics_port", metrics_port, 0, PORT_MAX)
        for name, number in (listeners or {}).items():
            check_number(f"listeners[{name!r}]", number, 0, PORT_MAX)
        if data == "":
            raise ValueError("data must not be '': name a directory, or None for a temporary one")
        self._temporary = TemporaryDirectory() if data is None else None
        path = self._temporary.path if self._temporary else Path(str(data))
        super().__init__(ClusterDirectory(path))
        if not isinstance(config, ClusterConfig):
            keys = {**LOCAL_KEYS, **(config or {})}
            config = ClusterConfig(port=0, broker=keys, is_default=not config)
        owner = identify(os.getpid()) if attached else None
        self._request = LaunchRequest(
            brokers,
            port,
            config,
            zookeeper or config.zookeeper,
            owner,
            metrics_port,
            coordination,
            None if listeners is None else parse_listener_ports(listeners),
            secure,
        )
        self._blocking: BlockingCluster | None = None
        self._held = HeldPorts()
        self.postponed: tuple[str, ...] = ()
        """Settings of the last `start` that cannot take effect while processes run."""
        self.changes: dict[int, list[SettingChange]] = {}
        """By broker id, the settings in a file that the last `start` or `configure` has changed."""

    async def __aenter__(self) -> LocalCluster:
        try:
            await self.start()
        except BaseException as error:
            self._add_logs(error)
            self._end()
            if isinstance(error, ConfigError | OSError):
                raise ClusterError(_text_of(error)) from error
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._add_logs(error)
        await self.stop()

    def __enter__(self) -> BlockingCluster:
        """Start the cluster and return it as a BlockingCluster, for code without an event loop."""
        self._blocking = BlockingCluster(self)
        return self._blocking.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        blocking, self._blocking = self._blocking, None
        assert blocking is not None, "entered before"
        blocking.close(error)

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

    def keep_logs(self) -> None:
        """Keep the logs, `directory.logs`, when `stop` removes a temporary data directory."""
        if self._temporary is not None:
            self._temporary.keep_logs()

    # Start and stop

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
            server = await launcher.spawn_zookeeper()
            if server is None:
                raise self._no_zookeeper()
            await server.wait_until_serving()
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
            await self._clock.sleep(POLL_MS)

    # Faults

    async def kill(self, broker_id: int) -> None:
        """Kill a broker with SIGKILL; return when the process is gone."""
        await kill(self._running_broker(broker_id), self._clock)

    async def pause(self, broker_id: int) -> None:
        """Pause a broker with SIGSTOP: it keeps its connections and does nothing."""
        await self._running.set_paused(self._running_broker(broker_id), True)

    async def resume(self, broker_id: int) -> None:
        """Resume a paused broker with SIGCONT."""
        await self._running.set_paused(self._running_broker(broker_id), False)

    async def kill_zookeeper(self) -> None:
        """Kill the cluster's ZooKeeper with SIGKILL; return when the process is gone."""
        await kill(self._running_zookeeper(), self._clock)

    async def pause_zookeeper(self) -> None:
        """Pause the cluster's ZooKeeper with SIGSTOP: it keeps its connections and does nothing."""
        await self._running.set_paused(self._running_zookeeper(), True)

    async def resume_zookeeper(self) -> None:
        """Resume the paused ZooKeeper with SIGCONT."""
        await self._running.set_paused(self._running_zookeeper(), False)

    def _running_zookeeper(self) -> ProcessId:
        """Return the process of the cluster's ZooKeeper. Raises ClusterError if there is none."""
        process = self.zookeeper_process()
        if process is None:
            raise self._no_zookeeper()
        return process

    def _no_zookeeper(self) -> ClusterError:
        if self.record.runs_zookeeper:
            return ClusterError("ZooKeeper is not running", "minikafka start zookeeper")
        text = f"this cluster runs no ZooKeeper of its own: it uses {self.zookeeper}"
        return ClusterError(text)

    async def hold(self, step: str, brokers: Collection[int] | None = None) -> None:
        """Make brokers block at a step, named `operation.step` (see `deciders/controller/steps.py`) or `broker.METHOD`.

        `brokers` defaults to all brokers that run and are not paused, including the active controller.
        Brokers that are started later do not block.
        """
        await self._call_gates(HOLD_STEP, step, brokers)

    async def release(self, step: str, brokers: Collection[int] | None = None) -> None:
        """Unblock a named step (see `hold`), so that a broker that is blocked at this step continues."""
        await self._call_gates(RELEASE_STEP, step, brokers)

    async def held(self, step: str, timeout_ms: int = WAIT_MS) -> int:
        """Wait until a broker blocks at this step, and return its id.

        Raises ClusterError after `timeout_ms`.
        """
        deadline = self._clock.now() + timeout_ms
        while self._clock.now() < deadline:
            ids = self._running.answering_ids(self.record)
            found = await find_blocked_broker(
                step, self.directory, self.record, ids, self._clock, self._rng
            )
            if found is not None:
                return found
            await self._clock.sleep(POLL_MS)
        raise ClusterError(f"no broker reached step {step} within {timeout_ms / 1000:g} s")

    async def _call_gates(self, method: str, step: str, brokers: Collection[int] | None) -> None:
        chosen = self._running.answering_ids(self.record) if brokers is None else brokers
        answers = await self.ask(method, encode_step(step), STATE_TIMEOUT_MS, chosen)
        for broker, answer in answers.items():
            if isinstance(answer, Exception) and self.process(broker) is not None:
                raise ClusterError(f"broker {broker} did not {method.replace('_', ' ')}: {answer}")


def _text_of(error: ConfigError | OSError) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


class BlockingCluster:
    """A LocalCluster for code without an event loop: each method returns when the action is done.

    Created by `with LocalCluster() as cluster`. Methods raise ClusterError. Any thread may call any method, also
    several threads at the same time.
    """

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._is_closed = False

    def open(self) -> BlockingCluster:
        """Start the cluster. Raises ClusterError if that fails, or if an event loop runs in this thread."""
        self._run(self._cluster.__aenter__())
        return self

    def close(self, error: BaseException | None) -> None:
        """Stop the cluster. `error`: the exception that left the `with` block, or None."""
        self._is_closed = True  # other threads start nothing more
        _run(self._cluster.__aexit__(type(error) if error else None, error, None))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._is_closed:
            work.close()
            raise ClusterError("the cluster was stopped at the end of its with block")
        if asyncio._get_running_loop() is not None:
            work.close()
            text = "an event loop is running in this thread: use async with LocalCluster()"
            raise ClusterError(f"{text}, or await asyncio.to_thread(cluster.METHOD, ...)")
        return _run(work)

    @property
    def bootstrap(self) -> str:
        """The bootstrap servers: host:port of every broker, up or down."""
        return self._cluster.bootstrap

    def bootstrap_of(self, listener: str) -> str:
        """Return the bootstrap servers for a listener, for example `SASL_SSL`."""
        return self._cluster.bootstrap_of(listener)

    def client_config(self, kind: str, user: str = FIRST_USER) -> Any:
        """Return the configuration with which a client library connects to a secure cluster."""
        return self._cluster.client_config(kind, user)

    @property
    def directory(self) -> ClusterDirectory:
        """The data directory."""
        return self._cluster.directory

    @property
    def record(self) -> ClusterRecord:
        """The content of `cluster.json`."""
        return self._cluster.record

    @property
    def metrics_urls(self) -> dict[int, str]:
        """URLs of the brokers' Prometheus metrics, by broker id."""
        return self._cluster.metrics_urls

    @property
    def zookeeper(self) -> str:
        """The ZooKeeper connection string, host:port[/chroot]."""
        return self._cluster.zookeeper

    def keep_logs(self) -> None:
        """Keep the logs, `directory.logs`, when the end of the `with` block removes a temporary data directory."""
        self._cluster.keep_logs()

    def start(self, broker_id: int | None = None, *, timeout_ms: int = START_TIMEOUT_MS) -> None:
        """Start one broker, or all brokers that are down; return when the brokers serve clients."""
        self._run(self._cluster.start(broker_id, timeout_ms=timeout_ms))

    def stop(self, broker_id: int) -> None:
        """Stop one broker by a controlled shutdown."""
        self._run(self._cluster.stop(broker_id))

    def restart(self, broker_id: int) -> None:
        """Stop the broker if it runs, then start it with the same id, ports and data."""
        self._run(self._cluster.restart(broker_id))

    def kill(self, broker_id: int) -> None:
        """Kill a broker with SIGKILL; return when the process is gone."""
        self._run(self._cluster.kill(broker_id))

    def pause(self, broker_id: int) -> None:
        """Pause a broker with SIGSTOP: it keeps its connections and does nothing."""
        self._run(self._cluster.pause(broker_id))

    def resume(self, broker_id: int) -> None:
        """Resume a paused broker with SIGCONT."""
        self._run(self._cluster.resume(broker_id))

    def kill_zookeeper(self) -> None:
        """Kill the cluster's ZooKeeper with SIGKILL; return when the process is gone."""
        self._run(self._cluster.kill_zookeeper())

    def start_zookeeper(self) -> None:
        """Start the cluster's ZooKeeper again, with its port and data. Raises ClusterError if it already runs."""
        self._run(self._cluster.start_zookeeper())

    def stop_zookeeper(self) -> None:
        """Stop the cluster's ZooKeeper with SIGTERM; return when the process is gone."""
        self._run(self._cluster.stop_zookeeper())

    def pause_zookeeper(self) -> None:
        """Pause the cluster's ZooKeeper with SIGSTOP: it keeps its connections and does nothing."""
        self._run(self._cluster.pause_zookeeper())

    def resume_zookeeper(self) -> None:
        """Resume the paused ZooKeeper with SIGCONT."""
        self._run(self._cluster.resume_zookeeper())

    def leader_of(self, topic: str, partition: int, timeout_ms: int = WAIT_MS) -> int:
        """Return the id of the partition's leader; wait while the partition has no leader."""
        return self._run(self._cluster.leader_of(topic, partition, timeout_ms))

    def wait_for_isr(
        self, topic: str, brokers: Collection[int] | None = None, timeout_ms: int = WAIT_MS
    ) -> None:
        """Wait until the ISR of every partition of `topic` equals `brokers` (None: all replicas)."""
        self._run(self._cluster.wait_for_isr(topic, brokers, timeout_ms))

    def wait_until_in_sync(self, timeout_ms: int = WAIT_MS) -> None:
        """Wait until every partition has a leader, and its replicas on running brokers are in the ISR."""
        self._run(self._cluster.wait_until_in_sync(timeout_ms))

    def state(self) -> ClusterState:
        """Return leader, epoch, ISR and offsets of every partition, as reported by the brokers that answer."""
        return self._run(self._cluster.state())


def _run(work: Coroutine[Any, Any, T]) -> T:
    # With a factory, Runner does not change the current event loop of this thread.
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        return runner.run(work)
