"""A whole cluster on this machine: ZooKeeper and broker processes over one data directory.

`LocalCluster` is the asynchronous API of tests and scripts, and what `minikafka up` and its relatives
run. *Attached* (the default) the processes end with the process that started them, even by SIGKILL;
detached they outlive it and are found again through the directory. Invariant: a broker keeps its id,
ports and data through every start, and two processes are never started for one broker.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from minikafka.base.config import BrokerConfig, ClusterConfig
from minikafka.base.errors import ConfigError, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Clock, Rng
from minikafka.cluster.directory import (
    HOST,
    BrokerRecord,
    ClusterDirectory,
    ClusterError,
    ClusterRecord,
    is_free,
)
from minikafka.cluster.plan import BROKERS_MAX, PORT_MAX, Request, check_number, plan
from minikafka.cluster.processes import (
    END_GRACE_MS,
    ProcessId,
    end,
    find_broker,
    identify,
    is_alive,
    is_paused,
    kill,
    send_signal,
    spawn,
    wait_until_gone,
)
from minikafka.cluster.state import CALL_TIMEOUT_MS, ClusterState, ask, brokers_know, read_state
from minikafka.cluster.step_watch import who_stands_at
from minikafka.rpc.messages import HOLD_STEP, RELEASE_STEP, encode_step
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.zk.managed import ManagedZooKeeper

LOCAL_KEYS: Final[Mapping[str, object]] = {"zookeeper.session.timeout.ms": 6_000}
"""What a LocalCluster without a cluster.toml has other than Kafka's defaults, unless told otherwise."""
SECRET_KEY: Final = "minikafka.cluster.secret"  # noqa: S105 - the name of the key
START_TIMEOUT_MS: Final = 60_000
WAIT_MS: Final = 60_000
PORT_WAIT_MS: Final = 2_000
DYING_MS: Final = 500
CONTROLLED_SHUTDOWN_MS: Final = 30_000
"""A controlled shutdown may retry for Kafka's three times five seconds; then the broker is killed."""
POLL_MS: Final = 50
SIGNAL_POLL_MS: Final = 1


class LocalCluster:
    """ZooKeeper and brokers 1 … N on 127.0.0.1.

    `data`: the directory (None: a temporary one, removed by `stop`). `config`: Kafka keys for every
    broker, or all that a cluster.toml says. `brokers`, `port` (the first broker's port, the others
    follow; 0: free ones) and `zookeeper` (host:port[/chroot] of an ensemble to use instead of a managed
    server): when None, what the directory remembers, else what the config says. Methods raise
    ClusterError, and `start` ConfigError for a key that cannot be; TypeError for what is no number here.
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
            raise ValueError("data cannot be '': name a directory, or None for a temporary one")
        self._temporary = tempfile.TemporaryDirectory(prefix="minikafka-") if data is None else None
        self.directory = ClusterDirectory(
            Path(self._temporary.name if self._temporary else str(data))
        )
        if not isinstance(config, ClusterConfig):
            config = ClusterConfig(port=0, broker={**LOCAL_KEYS, **(config or {})})
        self._config = config
        self._brokers = brokers
        self._port = port
        self._external = zookeeper or config.zookeeper
        self._owner = identify(os.getpid()) if attached else None
        self._clock: Clock = SystemClock()
        self._rng: Rng = SystemRng()

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
        """What `cluster.json` says; ClusterError when no cluster was started in this directory."""
        record = self.directory.read()
        if record is None:
            raise ClusterError(
                f"there is no cluster in {self.directory.path} (minikafka up makes one)"
            )
        return record

    @property
    def bootstrap(self) -> str:
        """All brokers, dead or alive, as clients want them."""
        return self.record.bootstrap

    @property
    def zookeeper(self) -> str:
        """host:port[/chroot]."""
        return self.record.zookeeper

    async def start(self, broker_id: int | None = None) -> None:
        """Start one broker (and ZooKeeper, if it is down), or all that does not run; returns when that serves.

        When it fails, or is cancelled, the processes that it had started are ended.
        """
        started: list[ProcessId] = []
        if broker_id is None:
            self._check(self.directory.read())
        try:
            async with self.directory.locked(self._clock):
                ids = await self._spawn_missing(started, broker_id)
            await self._wait_until_serving(ids)
        except BaseException:
            await self._kill_all(started)
            raise

    async def stop(self, broker_id: int | None = None) -> None:
        """Shut one broker down in a controlled way; or end all brokers, then the managed ZooKeeper.

        A temporary data directory is gone afterwards.
        """
        if broker_id is not None:
            process = self._running(broker_id)
            await end(process, self._clock, CONTROLLED_SHUTDOWN_MS)
            return
        record = self.directory.read()
        if self._temporary is not None:
            await self._kill_all(self._processes(record) if record else [])
            self._temporary.cleanup()
        elif record is not None:
            async with self.directory.locked(self._clock):
                await self._end_everything(record)

    async def kill(self, broker_id: int) -> None:
        """SIGKILL; returns when the process is gone."""
        await kill(self._running(broker_id), self._clock)

    async def pause(self, broker_id: int) -> None:
        """SIGSTOP: the broker keeps its connections and does nothing from now on."""
        await self._signal(broker_id, signal.SIGSTOP, paused=True)

    async def resume(self, broker_id: int) -> None:
        """SIGCONT."""
        await self._signal(broker_id, signal.SIGCONT, paused=False)

    async def _signal(self, broker_id: int, signal_number: int, *, paused: bool) -> None:
        """Send it, and wait for what it does: a signal takes effect when the process is next scheduled."""
        process = self._running(broker_id)
        send_signal(process, signal_number)
        while is_alive(process) and is_paused(process) != paused:
            await self._clock.sleep(SIGNAL_POLL_MS)

    async def restart(self, broker_id: int) -> None:
        """Stop the broker if it runs, then start it with the same id, ports and data."""
        if self.process(broker_id) is not None:
            await self.stop(broker_id)
        await self.start(broker_id)

    async def kill_zookeeper(self) -> None:
        """SIGKILL the managed ZooKeeper."""
        process = self.zookeeper_process()
        if process is None:
            raise ClusterError(f"no ZooKeeper of this cluster runs on {self.zookeeper}")
        await kill(process, self._clock)

    async def start_zookeeper(self) -> None:
        """Start the managed ZooKeeper again, on its port and data."""
        async with self.directory.locked(self._clock):
            server = await self._spawn_zookeeper([])
            if server is not None:
                await server.wait_until_serving()

    async def leader_of(self, topic: str, partition: int, timeout_ms: int = WAIT_MS) -> int:
        """The broker that leads the partition; waits while none does.

        Raises ClusterError soon when every broker says that it has not heard of the partition.
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

        Raises ClusterError soon when every broker says that it has not heard of the topic.
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

    async def state(self) -> ClusterState:
        """What the controller and the brokers that answer say of the cluster now."""
        return await read_state(
            self.directory, self.record, self._that_answer(), self._clock, self._rng
        )

    async def ask(
        self,
        method: str,
        body: dict[str, Any],
        timeout_ms: int = CALL_TIMEOUT_MS,
        brokers: Collection[int] | None = None,
    ) -> dict[int, Mapping[str, Any] | OSError | KafkaError]:
        """One control-plane call to these brokers (None: to all that run): its answer, or why there is none."""
        ids = self._that_run() if brokers is None else brokers
        return await ask(
            self.directory,
            self.record,
            ids,
            method,
            body,
            self._clock,
            self._rng,
            timeout_ms=timeout_ms,
        )

    async def hold(self, step: str, brokers: Collection[int] | None = None) -> None:
        """Nobody passes this named step (`operation.step` of `controller/steps.py`, or `broker.METHOD`).

        On every broker that runs and is not paused, so that whoever rules stops there, or only on these.
        A broker that is started later holds nothing.
        """
        await self._at_gates(HOLD_STEP, step, brokers)

    async def release(self, step: str, brokers: Collection[int] | None = None) -> None:
        """Who stands at this step goes on, and it is held no more; on all brokers as `hold`, or only on these."""
        await self._at_gates(RELEASE_STEP, step, brokers)

    async def held(self, step: str, timeout_ms: int = WAIT_MS) -> int:
        """The broker that stands at this step, which is its controller's but for `broker.METHOD`; waits for one."""
        deadline = self._clock.now() + timeout_ms
        while self._clock.now() < deadline:
            found = await who_stands_at(
                step, self.directory, self.record, self._that_answer(), self._clock, self._rng
            )
            if found is not None:
                return found
            await self._clock.sleep(POLL_MS)
        raise ClusterError(f"nobody reached step {step} within {timeout_ms / 1000:g} s")

    async def _at_gates(self, method: str, step: str, brokers: Collection[int] | None) -> None:
        chosen = self._that_answer() if brokers is None else brokers
        for broker, answer in (await self.ask(method, encode_step(step), brokers=chosen)).items():
            if isinstance(answer, Exception) and self.process(broker) is not None:
                raise ClusterError(f"broker {broker} did not {method.replace('_', ' ')}: {answer}")

    def _that_run(self) -> list[int]:
        return [broker.id for broker in self.record.brokers if self.process(broker.id) is not None]

    def _that_answer(self) -> list[int]:
        """Those that run and are not paused."""
        found = [(broker.id, self.process(broker.id)) for broker in self.record.brokers]
        return [id_ for id_, process in found if process is not None and not is_paused(process)]

    async def _brokers_know(self, tp: TopicPartition) -> bool:
        return await brokers_know(self.record, self._that_run(), tp, self._clock)

    def process(self, broker_id: int) -> ProcessId | None:
        """The process that runs the broker, whoever started it; None when there is none."""
        recorded = self.record.broker(broker_id).process
        if is_alive(recorded):
            return recorded
        return find_broker(self.directory.broker_file(broker_id))

    def zookeeper_process(self) -> ProcessId | None:
        """The process of the managed ZooKeeper; None when it does not run, or is not ours."""
        process = self.record.zookeeper_process
        return process if is_alive(process) else None

    def is_running(self) -> bool:
        """Whether every process of the cluster runs; not whether it serves."""
        record = self.record
        brokers = all(self.process(broker.id) for broker in record.brokers)
        return brokers and (not record.managed or self.zookeeper_process() is not None)

    def _running(self, broker_id: int) -> ProcessId:
        process = self.process(broker_id)
        if process is None:
            raise ClusterError(f"broker {broker_id} is not running")
        return process

    async def _wait_for(
        self, condition: Callable[[ClusterState], bool], complaint: str, timeout_ms: int
    ) -> ClusterState:
        deadline = self._clock.now() + timeout_ms
        while True:
            state = await self.state()
            if condition(state):
                return state
            if self._clock.now() >= deadline:
                raise ClusterError(f"{complaint} within {timeout_ms / 1000:g} s")
            await self._clock.sleep(POLL_MS)

    async def _spawn_missing(self, started: list[ProcessId], only: int | None) -> list[int]:
        """Start what does not run; the ids that have to serve then. `started` is filled as it happens."""
        if only is None:
            record = self._write_plan(await self._settle_former_run())
            wanted = list(record.brokers)
        else:
            wanted = [await self._not_running(only)]
        zookeeper = await self._spawn_zookeeper(started)
        for broker in wanted:
            process = self.process(broker.id)
            if process is None:
                await self._spawn_broker(broker, started)
            elif is_paused(process):
                send_signal(process, signal.SIGCONT)
        if zookeeper is not None:
            await zookeeper.wait_until_serving()
        return [broker.id for broker in wanted]

    async def _not_running(self, broker_id: int) -> BrokerRecord:
        """The broker's record. Raises ClusterError when it runs, and was not killed just now."""
        broker = self.record.broker(broker_id)
        process = self.process(broker_id)
        if process is not None and not await wait_until_gone(process, self._clock, DYING_MS):
            if is_paused(process):
                text = f"kill -CONT {process.pid} lets it go on"
                raise ClusterError(f"broker {broker_id} is paused (SIGSTOP), not down: {text}")
            raise ClusterError(f"broker {broker_id} is already running")
        return broker

    async def _settle_former_run(self) -> ClusterRecord | None:
        """The record of the former run, once no process is left of it that is not to be taken over."""
        record = self.directory.read()
        if record is None or record.owner == self._owner:
            return record
        alive = [process for process in self._processes(record) if is_alive(process)]
        if is_alive(record.owner):
            assert record.owner is not None
            raise ClusterError(f"{self.directory.path} is in use by process {record.owner.pid}")
        if record.owner is None and alive:
            text = f"a cluster is running in {self.directory.path} (minikafka down ends it)"
            raise ClusterError(text)
        # Its owner died without ending it, or never had the time to.
        for process in alive:
            await kill(process, self._clock)
        return record

    def _check(self, before: ClusterRecord | None) -> None:
        """Refuse what cannot be started, before anything is written. Raises ConfigError."""
        record = plan(before, self._request(), self._rng)
        self._check_overrides(record)
        for broker in record.brokers:
            self._broker_keys(broker, record, None)

    def _request(self) -> Request:
        count = self._brokers
        return Request(count, self._port, self._config, self._external, self._owner)

    def _check_overrides(self, record: ClusterRecord) -> None:
        """A broker that neither runs nor is in the file's own number is a slip of the pen."""
        count = max(len(record.brokers), self._config.brokers)
        for broker_id in sorted(self._config.overrides):
            if broker_id > count:
                text = f"[broker.{broker_id}] is for a broker that the cluster does not have"
                raise ConfigError(f"{text}: its brokers are 1 to {count} (cluster.brokers)")

    def _check_running(self, before: ClusterRecord, record: ClusterRecord) -> None:
        """What runs keeps its ports, and cannot be left out. Raises ClusterError."""
        kept = {broker.id: broker for broker in record.brokers}
        for broker in before.brokers:
            if self.process(broker.id) is None:
                continue
            if broker.id not in kept:
                text = f"broker {broker.id} is still running"
                raise ClusterError(f"{text}: minikafka stop {broker.id} first")
            if kept[broker.id].port != broker.port:
                text = f"broker {broker.id} is running on port {broker.port}"
                raise ClusterError(f"{text}: end the cluster first (minikafka down)")

    def _write_plan(self, before: ClusterRecord | None) -> ClusterRecord:
        """Decide on ids, ports and keys, and write all of it down."""
        record = plan(before, self._request(), self._rng)
        if before is not None:
            self._check_running(before, record)
        self.directory.write(record)
        secret = self.directory.secret(self._rng, self._config.broker.get(SECRET_KEY))
        for broker in record.brokers:
            keys = self._broker_keys(broker, record, secret)
            self.directory.write_broker_file(broker.id, keys)
        return record

    def _broker_keys(
        self, broker: BrokerRecord, record: ClusterRecord, secret: str | None
    ) -> dict[str, object]:
        """What the broker is started with, checked. Raises ConfigError."""
        own = {
            "broker.id": broker.id,
            "listeners": f"PLAINTEXT://{HOST}:{broker.port},CONTROLLER://{HOST}:{broker.control_port}",
            "log.dirs": str(self.directory.broker_data(broker.id)),
            "zookeeper.connect": record.zookeeper,
        }
        keys = self._config.keys_of(broker.id)
        for name in own.keys() & keys.keys():
            raise ConfigError(f"{name} is given to each broker by the cluster: leave it out")
        found = {**({SECRET_KEY: secret} if secret else {}), **keys, **own}
        BrokerConfig.from_mapping(found)
        return found

    async def _spawn_zookeeper(self, started: list[ProcessId]) -> ManagedZooKeeper | None:
        """Start the managed ZooKeeper and write that down; None when there is none to start."""
        record = self.record
        if not record.managed or is_alive(record.zookeeper_process):
            return None
        port = int(record.zookeeper.rpartition(":")[2])
        await self._wait_until_free(port)
        server = ManagedZooKeeper(
            self.directory.zookeeper,
            port,
            clock=self._clock,
            attached=self._owner is not None,
            log=self.directory.output("zookeeper"),
        )
        server.spawn()
        process = identify(server.pid)
        if process is not None:
            started.append(process)
        self.directory.write(replace(record, zookeeper_process=process))
        return server

    async def _spawn_broker(self, broker: BrokerRecord, started: list[ProcessId]) -> None:
        """Start its process and write that down."""
        for port in (broker.port, broker.control_port):
            if not await self._wait_until_free(port):
                text = f"port {port} of broker {broker.id} is taken: end what listens there"
                others = "minikafka down, then minikafka up --port FIRST_PORT"
                raise ClusterError(f"{text}, or choose others ({others})")
        arguments = ["broker", "--config", str(self.directory.broker_file(broker.id))]
        if self._owner is not None:
            arguments += ["--parent", str(self._owner.pid)]
        process = spawn(arguments, self._output(broker.id))
        started.append(process)
        self.directory.write(self.record.with_broker(replace(broker, process=process)))

    async def _wait_until_free(self, port: int) -> bool:
        """Whether it became free soon: a process that was killed keeps its ports until its last thread has gone."""
        deadline = self._clock.now() + PORT_WAIT_MS
        while not is_free(port):
            if self._clock.now() >= deadline:
                return False
            await self._clock.sleep(POLL_MS)
        return True

    async def _wait_until_serving(self, ids: Collection[int]) -> None:
        """Until each of them is registered and knows the others and the controller. Raises ClusterError."""
        deadline = self._clock.now() + START_TIMEOUT_MS
        while True:
            for broker_id in ids:
                if self.process(broker_id) is None:
                    raise ClusterError(f"broker {broker_id} ended: {self._last_words(broker_id)}")
            waiting = (await self.state()).not_serving(ids)
            if not waiting:
                return
            if self._clock.now() >= deadline:
                names = ", ".join(map(str, waiting))
                text = f"no service from broker {names} within {START_TIMEOUT_MS // 1000} s"
                raise ClusterError(f"{text}, see {self._output(waiting[0]).parent}")
            await self._clock.sleep(POLL_MS)

    def _output(self, broker_id: int) -> Path:
        return self.directory.output(f"broker-{broker_id}")

    def _last_words(self, broker_id: int) -> str:
        """The last line that the broker printed, and where the others are."""
        file = self._output(broker_id)
        lines = file.read_text(errors="replace").split("\n") if file.exists() else []
        return f"{next((line for line in reversed(lines) if line.strip()), 'no word')} ({file})"

    def _processes(self, record: ClusterRecord) -> list[ProcessId]:
        """What runs of the cluster, brokers first."""
        return [*self._broker_processes(record), *filter(None, [record.zookeeper_process])]

    def _broker_processes(self, record: ClusterRecord) -> list[ProcessId]:
        return list(filter(None, (self.process(broker.id) for broker in record.brokers)))

    async def _end_everything(self, record: ClusterRecord) -> None:
        """Brokers close their logs and sessions while ZooKeeper still answers; nobody takes over from them."""
        brokers = self._broker_processes(record)
        for process in brokers:
            send_signal(process, signal.SIGHUP)
            send_signal(process, signal.SIGCONT)
        for process in brokers:
            if not await wait_until_gone(process, self._clock, END_GRACE_MS):
                await kill(process, self._clock)
        if record.zookeeper_process is not None:
            await end(record.zookeeper_process, self._clock)

    async def _kill_all(self, processes: Collection[ProcessId]) -> None:
        for process in processes:
            send_signal(process, signal.SIGKILL)
        for process in processes:
            await wait_until_gone(process, self._clock, END_GRACE_MS)
