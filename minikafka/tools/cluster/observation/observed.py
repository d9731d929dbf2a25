"""The addresses, processes and current state of a cluster in a data directory, for reading and waiting.

Invariant: no object here belongs to one event loop or thread, so that any thread may call any method.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from minikafka.base.arguments import several
from minikafka.base.endpoints import Endpoint
from minikafka.base.errors import KafkaError
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Clock, Rng
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.tools.cluster.directory import HOST, ClusterDirectory, ClusterError, ClusterRecord
from minikafka.tools.cluster.launch.launcher import POLL_MS
from minikafka.tools.cluster.observation.state import (
    CALL_TIMEOUT_MS,
    ClusterState,
    brokers_know,
    call_all,
    read_state,
)
from minikafka.tools.cluster.processes import ProcessId
from minikafka.tools.cluster.running import RunningProcesses
from minikafka.tools.cluster.secure.clients import ClientAccess, client_config
from minikafka.tools.cluster.secure.files import FIRST_USER, SecurityFiles

WAIT_MS: Final = 60_000
SHOWN_MAX: Final = 5
"""Maximum number of partitions in an error message."""


def _scheme(control: Endpoint) -> str:
    return "https" if control.security.is_encrypted else "http"


class ObservedCluster:
    """A cluster in a data directory, which other processes may have started. LocalCluster adds starts and faults."""

    def __init__(self, directory: ClusterDirectory) -> None:
        self.directory = directory
        self._clock: Clock = SystemClock()
        self._rng: Rng = SystemRng()
        self._running = RunningProcesses(directory, self._clock)

    @property
    def record(self) -> ClusterRecord:
        """The content of `cluster.json`. Raises ClusterError if no cluster was started in the directory."""
        return self.directory.read_existing()

    @property
    def bootstrap(self) -> str:
        """The bootstrap servers: host:port of every broker, up or down.

        Of several listeners, the first one of the cluster, PLAINTEXT if it has it.
        """
        return self.record.bootstrap

    def bootstrap_of(self, listener: str) -> str:
        """Return the bootstrap servers for a listener, for example `SASL_SSL`.

        Raises ClusterError if the cluster has no such listener.
        """
        return self.record.bootstrap_of(listener)

    def client_access(self, user: str = FIRST_USER) -> ClientAccess:
        """Return how a user connects to a secure cluster. Raises ClusterError."""
        record = self.record
        if not record.is_secure:
            text = f"the cluster in {self.directory.path} is not secure, so it has no users"
            raise ClusterError(f"{text}: connect to {record.bootstrap} without a login")
        files = SecurityFiles(self.directory)
        return ClientAccess(record.bootstrap, files.authority, files.login(user))

    def client_config(self, kind: str, user: str = FIRST_USER) -> Any:
        """Return the configuration with which a client library connects to a secure cluster.

        `kind`: librdkafka, kafka-python, aiokafka or spark (a dictionary), properties or kafkajs (a text). `user`: one
        with a file NAME.properties in the directory `security`. Raises ClusterError.
        """
        return client_config(kind, self.client_access(user))

    @property
    def metrics_urls(self) -> dict[int, str]:
        """URLs of the brokers' Prometheus metrics, by broker id; brokers without metrics are left out."""
        return {
            broker.id: f"{_scheme(broker.control)}://{HOST}:{broker.control_port}/metrics"
            for broker in self.record.brokers
            if self.directory.serves_metrics(broker.id)
        }

    @property
    def zookeeper(self) -> str:
        """The ZooKeeper connection string, host:port[/chroot]."""
        return self.record.zookeeper

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
        brokers = None if brokers is None else several(int, brokers)
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
                more = ", ..." if len(behind) > SHOWN_MAX else ""
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
        """Return leader, epoch, ISR and offsets of every partition, as reported by the brokers that answer."""
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
        """Make one control-plane call to each of these brokers (None: all brokers that run and are not paused).

        Return, by broker id, the response or the error of the call.
        """
        record = self.record
        ids = self._running.answering_ids(record) if brokers is None else brokers
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
        ids = self._running.running_ids(record)
        return await brokers_know(self.directory, record, ids, tp, self._clock, self._rng)

    def check_faults(self) -> None:
        """Raise ClusterError if the cluster was started without faults."""
        if not self.record.has_faults:
            text = "the cluster was started without faults: use LocalCluster(faults=True)"
            raise ClusterError(text, "minikafka down, then minikafka up --faults")

    # Processes

    def process(self, broker_id: int) -> ProcessId | None:
        """Return the process of a broker, even if a user started it directly; None if the broker is down."""
        return self._running.broker(self.record, broker_id)

    def zookeeper_process(self) -> ProcessId | None:
        """Return the process of the cluster's ZooKeeper; None if it is down, or if the cluster runs none."""
        record = self.directory.read()
        return self._running.zookeeper(record) if record is not None else None

    def is_running(self) -> bool:
        """True if every process of the cluster runs, whether or not it serves clients yet."""
        record = self.directory.read()
        if record is None:
            return False
        if len(self._running.running_ids(record)) < len(record.brokers):
            return False
        if record.proxy is not None and self._running.proxy(record) is None:
            return False
        return not record.runs_zookeeper or self.zookeeper_process() is not None

    def _running_broker(self, broker_id: int) -> ProcessId:
        return self._running.broker_or_error(self.record, broker_id)
