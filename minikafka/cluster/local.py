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
import tempfile
from collections.abc import Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar

from minikafka.base.cluster_config import ClusterConfig
from minikafka.base.errors import ConfigError, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Clock, Rng
from minikafka.cluster.directory import HOST, ClusterDirectory, ClusterError, ClusterRecord
from minikafka.cluster.launcher import POLL_MS, Launcher
from minikafka.cluster.plan import BROKERS_MAX, PORT_MAX, Request, check_number
from minikafka.cluster.processes import ProcessId, end, identify, kill
from minikafka.cluster.running import RunningProcesses
from minikafka.cluster.state import (
    CALL_TIMEOUT_MS,
    STATE_TIMEOUT_MS,
    ClusterState,
    brokers_know,
    call_all,
    read_state,
)
from minikafka.cluster.step_watch import find_blocked_broker
from minikafka.rpc.messages import (
    HOLD_STEP,
    RECONFIGURE,
    RELEASE_STEP,
    SettingChange,
    decode_changes,
    encode_settings,
    encode_step,
)
from minikafka.runtime.clock import SystemClock, SystemRng

LOCAL_KEYS: Final[Mapping[str, object]] = {"zookeeper.session.timeout.ms": 6_000}
"""Defaults of a LocalCluster for broker keys, where they differ from Kafka's defaults."""
START_TIMEOUT_MS: Final = 60_000
WAIT_MS: Final = 60_000
SHOWN_MAX: Final = 5
"""Maximum number of partitions in an error message."""
NOTED_LINES: Final = 15
"""Number of lines of each broker's log that are added to an exception in a `with LocalCluster()` block."""
CONTROLLED_SHUTDOWN_MS: Final = 30_000
"""Time until a broker in controlled shutdown is killed. Kafka's default is 3 retries, 5 s apart."""

T = TypeVar("T")


class LocalCluster:
    """ZooKeeper and brokers 1 … N on 127.0.0.1.

    `data`: the data directory (None: a temporary one, which `stop` removes). `config`: Kafka keys for all
    brokers, or a whole ClusterConfig. `brokers`: number of brokers. `port`: port of broker 1; the other
    brokers have the next ports (0: free ports). `zookeeper`: host:port[/chroot] of an existing ZooKeeper, used
    instead of a managed one. `brokers`, `port` and `zookeeper` default to the values stored in the directory,
    then to the configuration. If the start of the whole cluster fails, the directory is restored. Methods raise
    ClusterError; `start` also raises ConfigError for invalid keys (in a `with` statement: ClusterError). The
    constructor raises TypeError if `brokers` or `port` is not a whole number.

    `async with LocalCluster() as cluster` starts and stops the cluster. `with LocalCluster() as cluster` does
    this without an event loop. The last lines of each broker's log are added to an exception that leaves the
    block.
    """

    def __init__(
        self,
        brokers: int | None = None,
        *,
        data: str | Path | None = None,
        config: Mapping[str, object] | ClusterConfig | None = None,
        port: int | None = None,
        zookeeper: str | None = None,
        attached: bool = True,
    ) -> None:
        check_number("brokers", brokers, 1, BROKERS_MAX)
        check_number("port", port, 0, PORT_MAX)
        if data == "":
            raise ValueError("data must not be '': name a directory, or None for a temporary one")
        self._temporary = tempfile.TemporaryDirectory(prefix="minikafka-") if data is None else None
        self.directory = ClusterDirectory(
            Path(self._temporary.name if self._temporary else str(data))
        )
        if not isinstance(config, ClusterConfig):
            config = ClusterConfig(port=0, broker={**LOCAL_KEYS, **(config or {})})
        owner = identify(os.getpid()) if attached else None
        self._request = Request(brokers, port, config, zookeeper or config.zookeeper, owner)
        self._clock: Clock = SystemClock()
        self._rng: Rng = SystemRng()
        self._running = RunningProcesses(self.directory, self._clock)
        self._blocking: BlockingCluster | None = None
        self.postponed: tuple[str, ...] = ()
        """Settings of the last `start` that cannot take effect while processes run."""

    async def __aenter__(self) -> LocalCluster:
        try:
            await self.start()
        except BaseException as error:
            self._add_logs(error)
            if self._temporary is not None:
                self._temporary.cleanup()
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
        """Add the last lines of each broker's log to an exception, as notes below its traceback."""
        if error is None or isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
            return
        launcher = self._launcher()
        with suppress(ClusterError, OSError):  # a failure to read the logs must not hide `error`
            for broker_id in self.directory.logged_brokers():
                lines = launcher.last_lines(broker_id, NOTED_LINES)
                head = f"last lines of broker {broker_id} ({launcher.output(broker_id)}):"
                error.add_note("\n  ".join([head, *(lines or ["no output"])]))

    @property
    def record(self) -> ClusterRecord:
        """The content of `cluster.json`. Raises ClusterError if no cluster was started in the directory."""
        return self.directory.read_existing()

    @property
    def bootstrap(self) -> str:
        """The bootstrap servers: host:port of every broker, up or down."""
        return self.record.bootstrap

    @property
    def metrics_urls(self) -> dict[int, str]:
        """URLs of the brokers' Prometheus metrics, by broker id; brokers without metrics are left out."""
        return {
            broker.id: f"http://{HOST}:{broker.control_port}/metrics"
            for broker in self.record.brokers
            if self.directory.serves_metrics(broker.id)
        }

    @property
    def zookeeper(self) -> str:
        """The ZooKeeper connection string, host:port[/chroot]."""
        return self.record.zookeeper

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
        # Later starts keep the ports of this start.
        self._request = self._request._replace(port=None)
        self.postponed = tuple(launcher.postponed)

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
            raise

    async def stop(self, broker_id: int | None = None) -> None:
        """Stop one broker by a controlled shutdown, or all brokers and then the managed ZooKeeper.

        If the data directory is temporary, stopping everything kills the processes and removes the directory.
        """
        if broker_id is not None:
            process = self._running_broker(broker_id)
            await end(process, self._clock, CONTROLLED_SHUTDOWN_MS)
            return
        record = self.directory.read()
        if self._temporary is not None:
            await self._running.kill_all(self._running.every_process(record) if record else [])
            self._temporary.cleanup()
        elif record is not None:
            async with self.directory.locked(self._clock):
                await self._running.end_all(record)

    async def restart(self, broker_id: int) -> None:
        """Stop the broker if it runs, then start it with the same id, ports and data."""
        if self.process(broker_id) is not None:
            await self.stop(broker_id)
        await self.start(broker_id)

    async def restart_together(self, brokers: Collection[int]) -> None:
        """Stop these brokers at the same time, without handing over their leaderships, then start them."""
        record = self.record
        processes = [self._running.broker(record, broker_id) for broker_id in brokers]
        await self._running.end_brokers([process for process in processes if process is not None])
        for broker_id in brokers:
            await self.start(broker_id)

    # Configuration

    def configure(self, brokers: Collection[int]) -> None:
        """Write the configuration files of these brokers, for their next start. Raises ConfigError."""
        self._launcher().write_files(brokers)

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
        """Start the managed ZooKeeper again, with its port and data."""
        async with self.directory.locked(self._clock):
            server = await self._launcher().spawn_zookeeper()
            if server is not None:
                await server.wait_until_serving()

    def _launcher(self) -> Launcher:
        return Launcher(self.directory, self._running, self._request, self._clock, self._rng)

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
        """Kill the managed ZooKeeper with SIGKILL; return when the process is gone."""
        process = self.zookeeper_process()
        if process is None:
            raise ClusterError(f"this cluster runs no ZooKeeper of its own at {self.zookeeper}")
        await kill(process, self._clock)

    async def hold(self, step: str, brokers: Collection[int] | None = None) -> None:
        """Make brokers block at a step, named `operation.step` (see `controller/steps.py`) or `broker.METHOD`.

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

    # State

    async def leader_of(self, topic: str, partition: int, timeout_ms: int = WAIT_MS) -> int:
        """Return the id of the partition's leader; wait while the partition has no leader.

        Raises ClusterError after `timeout_ms`, or after about a second if no broker knows the partition.
        """
        tp = TopicPartition(topic, partition)
        state = await self.state()
        if (leader := state.leader_of(topic, partition)) is not None:
            return leader
        if tp not in state.partitions and not await self._brokers_know(tp):
            raise ClusterError(f"there is no partition {tp}", f"minikafka topics create {topic}")
        state = await self._wait_for(
            lambda state: state.leader_of(topic, partition) is not None,
            f"{tp} has no leader",
            timeout_ms,
        )
        leader = state.leader_of(topic, partition)
        assert leader is not None
        return leader

    async def wait_for_isr(
        self, topic: str, brokers: Collection[int] | None = None, timeout_ms: int = WAIT_MS
    ) -> None:
        """Wait until the ISR of every partition of `topic` equals `brokers` (None: all replicas).

        Raises ClusterError after `timeout_ms`, or after about a second if no broker knows the topic.
        """
        known = {tp.topic for tp in (await self.state()).partitions}
        if topic not in known and not await self._brokers_know(TopicPartition(topic, 0)):
            raise ClusterError(f"there is no topic {topic}", f"minikafka topics create {topic}")
        wanted = "full" if brokers is None else f"{sorted(brokers)}"
        await self._wait_for(
            lambda state: state.has_isr(topic, brokers),
            f"not every ISR of {topic} became {wanted}",
            timeout_ms,
        )

    async def wait_until_in_sync(self, timeout_ms: int = WAIT_MS) -> None:
        """Wait until every partition has a leader, and its replicas on running brokers are in the ISR.

        Partitions without a replica on a running broker are ignored. Raises ClusterError after `timeout_ms`.
        """
        deadline = self._clock.now() + timeout_ms
        while behind := (await self.state()).not_in_sync(self._running.running_ids(self.record)):
            if self._clock.now() >= deadline:
                names = ", ".join(map(str, behind[:SHOWN_MAX]))
                more = ", …" if len(behind) > SHOWN_MAX else ""
                text = f"{names}{more} did not get all replicas in sync"
                raise ClusterError(f"{text} within {timeout_ms / 1000:g} s")
            await self._clock.sleep(POLL_MS)

    async def _wait_for(
        self, condition: Callable[[ClusterState], bool], failure: str, timeout_ms: int
    ) -> ClusterState:
        deadline = self._clock.now() + timeout_ms
        while True:
            state = await self.state()
            if condition(state):
                return state
            if self._clock.now() >= deadline:
                raise ClusterError(f"{failure} within {timeout_ms / 1000:g} s")
            await self._clock.sleep(POLL_MS)

    async def state(self) -> ClusterState:
        """Return the current state of the cluster, as reported by the brokers that answer."""
        return await self._state_of(self._running.running_ids(self.record))

    async def _state_of(self, brokers: Collection[int]) -> ClusterState:
        """Return the state that these brokers report. Paused brokers are not asked."""
        ids = [id_ for id_ in self._running.answering_ids(self.record) if id_ in brokers]
        return await read_state(self.directory, self.record, ids, self._clock, self._rng)

    async def ask(
        self,
        method: str,
        body: dict[str, Any],
        timeout_ms: int = CALL_TIMEOUT_MS,
        brokers: Collection[int] | None = None,
    ) -> dict[int, Mapping[str, Any] | OSError | KafkaError]:
        """Make one control-plane call to each of these brokers (None: all running brokers).

        Return, by broker id, the response or the error of the call.
        """
        record = self.record
        ids = self._running.running_ids(record) if brokers is None else brokers
        return await call_all(
            self.directory,
            record,
            ids,
            method,
            body,
            self._clock,
            self._rng,
            timeout_ms=timeout_ms,
        )

    async def _brokers_know(self, tp: TopicPartition) -> bool:
        record = self.record
        return await brokers_know(record, self._running.running_ids(record), tp, self._clock)

    # Processes

    def process(self, broker_id: int) -> ProcessId | None:
        """Return the process of a broker, even if a user started it directly; None if the broker is down."""
        return self._running.broker(self.record, broker_id)

    def zookeeper_process(self) -> ProcessId | None:
        """Return the process of the managed ZooKeeper; None if ZooKeeper is down or not managed."""
        record = self.directory.read()
        return self._running.zookeeper(record) if record is not None else None

    def is_running(self) -> bool:
        """True if every process of the cluster runs, whether or not it serves clients yet."""
        record = self.directory.read()
        if record is None:
            return False
        brokers = len(self._running.running_ids(record)) == len(record.brokers)
        return brokers and (not record.managed or self.zookeeper_process() is not None)

    def _running_broker(self, broker_id: int) -> ProcessId:
        return self._running.broker_or_error(self.record, broker_id)


def _text_of(error: ConfigError | OSError) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


class BlockingCluster:
    """A LocalCluster for code without an event loop: each method returns when the action is done.

    Created by `with LocalCluster() as cluster`. Methods raise ClusterError. All calls must come from the
    thread that entered the block, because the processes end with that thread.
    """

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._runner = asyncio.Runner()
        self._is_closed = False

    def open(self) -> BlockingCluster:
        """Start the cluster. Raises ClusterError if that fails, or if an event loop runs in this thread."""
        try:
            self._run(self._cluster.__aenter__())
        except BaseException:
            self._runner.close()
            raise
        return self

    def close(self, error: BaseException | None) -> None:
        """Stop the cluster. `error`: the exception that left the `with` block, or None."""
        try:
            self._run(self._cluster.__aexit__(type(error) if error else None, error, None))
        finally:
            self._is_closed = True
            self._runner.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._is_closed:
            work.close()
            raise ClusterError("the cluster was stopped at the end of its with block")
        if asyncio._get_running_loop() is not None:
            work.close()
            text = "an event loop is running in this thread"
            raise ClusterError(f"{text}: use async with LocalCluster()")
        return self._runner.run(work)

    @property
    def bootstrap(self) -> str:
        """The bootstrap servers: host:port of every broker, up or down."""
        return self._cluster.bootstrap

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
        """Kill the managed ZooKeeper with SIGKILL; return when the process is gone."""
        self._run(self._cluster.kill_zookeeper())

    def start_zookeeper(self) -> None:
        """Start the managed ZooKeeper again, with its port and data."""
        self._run(self._cluster.start_zookeeper())

    def leader_of(self, topic: str, partition: int, timeout_ms: int = WAIT_MS) -> int:
        """Return the id of the partition's leader; wait while the partition has no leader."""
        return self._run(self._cluster.leader_of(topic, partition, timeout_ms))

    def wait_for_isr(
        self, topic: str, brokers: Collection[int] | None = None, timeout_ms: int = WAIT_MS
    ) -> None:
        """Wait until the ISR of every partition of `topic` equals `brokers` (None: all replicas)."""
        self._run(self._cluster.wait_for_isr(topic, brokers, timeout_ms))

    def state(self) -> ClusterState:
        """Return the current state of the cluster, as reported by the brokers that answer."""
        return self._run(self._cluster.state())
