"""A whole cluster on this machine: ZooKeeper and broker processes with one data directory.

`LocalCluster` is the API for tests and scripts; commands such as `minikafka up` use it too. The processes of an
*attached* cluster (the default) end with the process that started them, even if that process is killed with SIGKILL.
The processes of a detached cluster keep running, and later commands find them through the data directory.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Coroutine, Mapping
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from minikafka.base.config.cluster import ClusterConfig, parse_listener_ports
from minikafka.base.errors import ConfigError
from minikafka.tools.cluster.blocking import finish, run_blocking
from minikafka.tools.cluster.directory import ClusterDirectory, ClusterError, ClusterRecord
from minikafka.tools.cluster.faults.script.read import Script, read_script
from minikafka.tools.cluster.faults.script.run import FaultRun
from minikafka.tools.cluster.faults.steps import HeldStep
from minikafka.tools.cluster.launch.plan import BROKERS_MAX, PORT_MAX, LaunchRequest, check_number
from minikafka.tools.cluster.lifecycle import START_TIMEOUT_MS
from minikafka.tools.cluster.processes import identify
from minikafka.tools.cluster.schema_registry import registry_of
from minikafka.tools.cluster.secure.files import FIRST_USER
from minikafka.tools.cluster.temporary import TemporaryDirectory
from minikafka.tools.cluster.time_and_state.snapshot import ClusterSnapshot
from minikafka.tools.cluster.time_and_state.snapshots import SnapshottedCluster

LOCAL_KEYS: Final[Mapping[str, object]] = {
    "zookeeper.session.timeout.ms": 2_000,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 5,
}
"""The broker keys whose default in a LocalCluster differs from Kafka's, to save time in tests (`docs/testing.md`)."""

T = TypeVar("T")
P = ParamSpec("P")


class LocalCluster(SnapshottedCluster):
    """ZooKeeper and brokers 1 … N on 127.0.0.1.

    `data`: the data directory (None: a temporary one, which `stop` removes). `config`: Kafka keys for all
    brokers, or a whole ClusterConfig. `brokers`: number of brokers. `port`: port of broker 1; the other
    brokers have the next ports (0: free ports). `metrics_port`: port for the metrics of broker 1, in the same way.
    `zookeeper`: "embedded" (the default of a new cluster), "managed" (Apache ZooKeeper), or host:port[/chroot] of an
    existing ZooKeeper. `coordination`: "controller" or "leaders"; a cluster keeps its mode. `listeners`: port of broker
    1 by the name of a listener, for example {"SASL_SSL": 0}; without `port`, there is then no listener PLAINTEXT.
    `secure`: the cluster gets certificates, users and ACLs, and only the listener SASL_SSL; it stays secure. `faults`:
    the verbs that harm disks and connections work until the cluster is stopped (`docs/faults.md`).
    `schema_registry`: "karapace", which then runs as a part of the cluster, or the URL of a registry elsewhere. These
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
        faults: bool = False,
        schema_registry: str | None = None,
        attached: bool = True,
    ) -> None:
        check_number("brokers", brokers, 1, BROKERS_MAX)
        check_number("port", port, 0, PORT_MAX)
        check_number("metrics_port", metrics_port, 0, PORT_MAX)
        for name, number in (listeners or {}).items():
            check_number(f"listeners[{name!r}]", number, 0, PORT_MAX)
        if data == "":
            raise ValueError("data must not be '': name a directory, or None for a temporary one")
        temporary = TemporaryDirectory() if data is None else None
        directory = ClusterDirectory(temporary.path if temporary else Path(str(data)))
        if not isinstance(config, ClusterConfig):
            keys = {**LOCAL_KEYS, **(config or {})}
            config = ClusterConfig(port=0, broker=keys, is_default=not config)
        request = LaunchRequest(
            brokers,
            port,
            config,
            zookeeper or config.zookeeper,
            identify(os.getpid()) if attached else None,
            metrics_port,
            coordination,
            None if listeners is None else parse_listener_ports(listeners),
            secure,
            faults,
        )
        super().__init__(directory, request, temporary)
        self._registry = registry_of(schema_registry, self._clock, self._rng)
        if self._registry is not None and (secure or not attached):
            what = "secure=True" if secure else "attached=False"
            raise ValueError(f"schema_registry cannot be combined with {what}")
        self._blocking: BlockingCluster | None = None

    def run_faults(self, script: Script, *, is_endless: bool = True) -> FaultRun:
        """Return a context manager that runs a fault script, a TOML file or a list of its entries, during its block.

        Its end ends all faults of the script, and raises FaultMissed if one has hit nothing (`docs/faults.md`).
        `is_endless`: faults without `for` last until the end of the block. Raises ClusterError for an invalid script,
        before anything is harmed.
        """
        return FaultRun(self, read_script(self.record, script, is_endless=is_endless))

    @property
    def schema_registry(self) -> str:
        """The URL of the Schema Registry. Raises ClusterError if the cluster has none, or was never started."""
        if self._registry is None or not self._registry.url:
            what = "was not started" if self._registry else "has no Schema Registry"
            raise ClusterError(f"the cluster {what}", "LocalCluster(schema_registry='karapace')")
        return self._registry.url

    async def start(
        self, broker_id: int | None = None, *, timeout_ms: int = START_TIMEOUT_MS
    ) -> None:
        """Start one broker, or ZooKeeper, all brokers that are down, and the Schema Registry, if there is one.

        The text at `OwnedCluster.start` holds too. If the registry does not start, all brokers are stopped again.
        """
        await super().start(broker_id, timeout_ms=timeout_ms)
        if broker_id is None and self._registry is not None:
            brokers = len(self.record.brokers)
            try:
                await self._registry.prepare(self.bootstrap, brokers)
                await self._registry.start(self.bootstrap, brokers, self.directory.logs)
            except BaseException:
                await super().stop()
                raise

    async def stop(self, broker_id: int | None = None) -> None:
        """Stop one broker by a controlled shutdown, or the Schema Registry, all brokers and the cluster's ZooKeeper.

        If the data directory is temporary, stopping everything kills the processes and removes the directory.
        """
        if broker_id is None and self._registry is not None:
            await self._registry.stop()
        await super().stop(broker_id)

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


def _text_of(error: ConfigError | OSError) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _blocking(
    method: Callable[Concatenate[LocalCluster, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[BlockingCluster, P], T]:
    """Return the method of BlockingCluster that calls this method of LocalCluster."""

    @wraps(method)
    def call(self: BlockingCluster, /, *args: P.args, **kwargs: P.kwargs) -> T:
        __tracebackhide__ = True  # a failed test shows its own lines
        return self._run(method(self._cluster, *args, **kwargs))

    return call


class BlockingCluster:
    """A LocalCluster for code without an event loop: each method returns when the action is done.

    Created by `with LocalCluster() as cluster`. In a coroutine, a method returns a coroutine, to be awaited. Methods
    raise ClusterError. Any thread may call any method, also several threads at the same time.
    """

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._is_closed = False

    def open(self) -> BlockingCluster:
        """Start the cluster. Raises ClusterError if that fails, or if an event loop runs in this thread."""
        if asyncio._get_running_loop() is not None:
            text = "an event loop is running in this thread: use async with LocalCluster()"
            raise ClusterError(text)
        run_blocking(self._cluster.__aenter__())
        return self

    def close(self, error: BaseException | None) -> None:
        """Stop the cluster. `error`: the exception that left the `with` block, or None."""
        self._is_closed = True  # other threads start nothing more
        run_blocking(self._cluster.__aexit__(type(error) if error else None, error, None))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._is_closed:
            work.close()
            raise ClusterError("the cluster was stopped at the end of its with block")
        return finish(work)

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

    @property
    def schema_registry(self) -> str:
        """The URL of the Schema Registry."""
        return self._cluster.schema_registry

    def keep_logs(self) -> None:
        """Keep the logs, `directory.logs`, when the end of the `with` block removes a temporary data directory."""
        self._cluster.keep_logs()

    def snapshots(self) -> list[ClusterSnapshot]:
        """Return the snapshots in the data directory, the oldest first."""
        return self._cluster.snapshots()

    def remove_snapshot(self, name: str) -> None:
        """Remove a snapshot. Raises ClusterError if there is none with this name."""
        self._cluster.remove_snapshot(name)

    def stop(self, broker_id: int) -> None:
        """Stop one broker by a controlled shutdown. The end of the `with` block stops the cluster."""
        return self._run(self._cluster.stop(broker_id))

    def run_faults(self, script: Script, *, is_endless: bool = True) -> FaultRun:
        """Return a context manager that runs a fault script, a TOML file or a list of its entries, during its block."""
        return self._cluster.run_faults(script, is_endless=is_endless)

    def at_step(self, step: str, brokers: Collection[int] | None = None) -> HeldStep:
        """Return a context manager, in which brokers block at this step. `wait()` returns who does."""
        return self._cluster.at_step(step, brokers)

    start = _blocking(LocalCluster.start)
    restart = _blocking(LocalCluster.restart)
    kill = _blocking(LocalCluster.kill)
    pause = _blocking(LocalCluster.pause)
    resume = _blocking(LocalCluster.resume)
    kill_zookeeper = _blocking(LocalCluster.kill_zookeeper)
    start_zookeeper = _blocking(LocalCluster.start_zookeeper)
    stop_zookeeper = _blocking(LocalCluster.stop_zookeeper)
    pause_zookeeper = _blocking(LocalCluster.pause_zookeeper)
    resume_zookeeper = _blocking(LocalCluster.resume_zookeeper)
    leader_of = _blocking(LocalCluster.leader_of)
    wait_for_isr = _blocking(LocalCluster.wait_for_isr)
    wait_until_in_sync = _blocking(LocalCluster.wait_until_in_sync)
    state = _blocking(LocalCluster.state)
    cut = _blocking(LocalCluster.cut)
    cut_clients = _blocking(LocalCluster.cut_clients)
    delay = _blocking(LocalCluster.delay)
    drop = _blocking(LocalCluster.drop)
    reset = _blocking(LocalCluster.reset)
    heal = _blocking(LocalCluster.heal)
    after = _blocking(LocalCluster.after)
    network_faults = _blocking(LocalCluster.network_faults)
    hold = _blocking(LocalCluster.hold)
    held = _blocking(LocalCluster.held)
    release = _blocking(LocalCluster.release)
    fill_disk = _blocking(LocalCluster.fill_disk)
    slow_sync = _blocking(LocalCluster.slow_sync)
    fail_sync = _blocking(LocalCluster.fail_sync)
    heal_disk = _blocking(LocalCluster.heal_disk)
    active_faults = _blocking(LocalCluster.active_faults)
    snapshot = _blocking(LocalCluster.snapshot)
    restore = _blocking(LocalCluster.restore)
    expire_session = _blocking(LocalCluster.expire_session)
    coordinator_of = _blocking(LocalCluster.coordinator_of)
    lose_coordinator = _blocking(LocalCluster.lose_coordinator)
    compact = _blocking(LocalCluster.compact)
    expire = _blocking(LocalCluster.expire)
    expire_group = _blocking(LocalCluster.expire_group)
    advance_clock = _blocking(LocalCluster.advance_clock)
