"""A whole cluster on this machine: ZooKeeper and broker processes with one data directory.

`LocalCluster` is the asynchronous API for tests and scripts; `minikafka up`, `down` and others use it too.
The processes of an *attached* cluster (the default) end with the process that started them, even after
SIGKILL; those of a detached one keep running and are found again through the directory. Invariant: a broker
keeps its id, ports and data through every start, and never has two processes.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from minikafka.base.config import ClusterConfig
from minikafka.base.errors import KafkaError
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Clock, Rng
from minikafka.cluster.directory import HOST, ClusterDirectory, ClusterError, ClusterRecord
from minikafka.cluster.launcher import POLL_MS, Launcher
from minikafka.cluster.plan import BROKERS_MAX, PORT_MAX, Request, check_number
from minikafka.cluster.processes import ProcessId, end, identify, kill
from minikafka.cluster.running import RunningProcesses
from minikafka.cluster.state import (
    CALL_TIMEOUT_MS,
    ClusterState,
    brokers_know,
    call_all,
    read_state,
)
from minikafka.cluster.step_watch import find_blocked_broker
from minikafka.rpc.messages import HOLD_STEP, RELEASE_STEP, encode_step
from minikafka.runtime.clock import SystemClock, SystemRng

LOCAL_KEYS: Final[Mapping[str, object]] = {"zookeeper.session.timeout.ms": 6_000}
"""Broker keys of a LocalCluster that differ from Kafka's defaults, unless its configuration sets them."""
START_TIMEOUT_MS: Final = 60_000
WAIT_MS: Final = 60_000
CONTROLLED_SHUTDOWN_MS: Final = 30_000
"""A controlled shutdown may retry for Kafka's three times five seconds; then the broker is killed."""


class LocalCluster:
    """ZooKeeper and brokers 1 … N on 127.0.0.1.

    `data`: the data directory (None: a temporary one, which `stop` removes). `config`: Kafka keys for all
    brokers, or a whole ClusterConfig. `brokers`: number of brokers. `port`: port of broker 1, the others
    follow (0: free ports). `zookeeper`: host:port[/chroot] of servers to use instead of a managed one. The
    last three default to what the directory remembers, then to the configuration. Methods raise
    ClusterError; `start` also raises ConfigError for invalid keys. Raises TypeError for values that are
    not numbers.
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

    async def __aenter__(self) -> LocalCluster:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    @property
    def record(self) -> ClusterRecord:
        """The content of `cluster.json`. Raises ClusterError if no cluster was started in the directory."""
        return self.directory.read_existing()

    @property
    def bootstrap(self) -> str:
        """Bootstrap servers: all brokers, up or down."""
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

    async def start(self, broker_id: int | None = None) -> None:
        """Start one broker, or all that are down (and ZooKeeper); return when they serve clients.

        After a failure or a cancellation the processes that this call has started are killed.
        """
        launcher = self._launcher()
        if broker_id is None:
            launcher.check()
        else:
            self.record.broker(broker_id)
        try:
            async with self.directory.locked(self._clock):
                if broker_id is None:
                    ids = await launcher.start_all()
                else:
                    ids = await launcher.start_broker(broker_id)
            await self._wait_until_serving(launcher, ids)
        except BaseException:
            await self._running.kill_all(launcher.spawned)
            raise

    async def stop(self, broker_id: int | None = None) -> None:
        """Stop one broker by a controlled shutdown, or all brokers and then the managed ZooKeeper.

        Stopping everything also removes a temporary data directory.
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

    async def start_zookeeper(self) -> None:
        """Start the managed ZooKeeper again, with its port and data."""
        async with self.directory.locked(self._clock):
            server = await self._launcher().spawn_zookeeper()
            if server is not None:
                await server.wait_until_serving()

    def _launcher(self) -> Launcher:
        return Launcher(self.directory, self._running, self._request, self._clock, self._rng)

    async def _wait_until_serving(self, launcher: Launcher, ids: Collection[int]) -> None:
        """Wait until these brokers know each other and the controller. Raises ClusterError."""
        deadline = self._clock.now() + START_TIMEOUT_MS
        while True:
            for broker_id in ids:
                if self.process(broker_id) is None:
                    raise ClusterError(
                        f"broker {broker_id} ended: {launcher.last_output(broker_id)}"
                    )
            waiting = (await self.state()).not_serving(ids)
            if not waiting:
                return
            if self._clock.now() >= deadline:
                names = ", ".join(map(str, waiting))
                text = f"broker {names} did not serve clients within {START_TIMEOUT_MS // 1000} s"
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
            raise ClusterError(f"no ZooKeeper of this cluster runs on {self.zookeeper}")
        await kill(process, self._clock)

    async def hold(self, step: str, brokers: Collection[int] | None = None) -> None:
        """Block a named step: `operation.step` of `controller/steps.py`, or `broker.METHOD`.

        On all brokers that run and are not paused (or only on these), so that whichever is controller
        stops there. Brokers that are started later block nothing.
        """
        await self._call_gates(HOLD_STEP, step, brokers)

    async def release(self, step: str, brokers: Collection[int] | None = None) -> None:
        """Unblock a named step, and let the broker that waits there continue; see `hold`."""
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
        for broker, answer in (await self.ask(method, encode_step(step), brokers=chosen)).items():
            if isinstance(answer, Exception) and self.process(broker) is not None:
                raise ClusterError(f"broker {broker} did not {method.replace('_', ' ')}: {answer}")

    # State

    async def leader_of(self, topic: str, partition: int, timeout_ms: int = WAIT_MS) -> int:
        """Return the id of the partition's leader; wait while there is none.

        Raises ClusterError after `timeout_ms`, and soon if no broker knows the partition.
        """
        tp = TopicPartition(topic, partition)
        state = await self.state()
        if (leader := state.leader_of(topic, partition)) is not None:
            return leader
        if tp not in state.partitions and not await self._brokers_know(tp):
            raise ClusterError(f"there is no partition {tp}: minikafka topics create {topic}")
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
        """Wait until the ISR of every partition is these brokers (None: all its replicas).

        Raises ClusterError after `timeout_ms`, and soon if no broker knows the topic.
        """
        known = {tp.topic for tp in (await self.state()).partitions}
        if topic not in known and not await self._brokers_know(TopicPartition(topic, 0)):
            raise ClusterError(f"there is no topic {topic}: minikafka topics create {topic}")
        wanted = "full" if brokers is None else f"{sorted(brokers)}"
        await self._wait_for(
            lambda state: state.has_isr(topic, brokers),
            f"not every ISR of {topic} became {wanted}",
            timeout_ms,
        )

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
        """Return the current state of the cluster, as the brokers that answer report it."""
        record = self.record
        ids = self._running.answering_ids(record)
        return await read_state(self.directory, record, ids, self._clock, self._rng)

    async def ask(
        self,
        method: str,
        body: dict[str, Any],
        timeout_ms: int = CALL_TIMEOUT_MS,
        brokers: Collection[int] | None = None,
    ) -> dict[int, Mapping[str, Any] | OSError | KafkaError]:
        """Make one control-plane call to these brokers (None: all that run).

        Return by broker id the response, or the error if the call failed.
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
        """Return the process of a broker, also one that was started by hand; None if it is down."""
        return self._running.broker(self.record, broker_id)

    def zookeeper_process(self) -> ProcessId | None:
        """Return the process of the managed ZooKeeper; None if it is down or not managed."""
        return self._running.zookeeper(self.record)

    def is_running(self) -> bool:
        """True if every process of the cluster runs, whether or not it serves clients yet."""
        record = self.record
        brokers = len(self._running.running_ids(record)) == len(record.brokers)
        return brokers and (not record.managed or self.zookeeper_process() is not None)

    def _running_broker(self, broker_id: int) -> ProcessId:
        return self._running.broker_or_error(self.record, broker_id)
