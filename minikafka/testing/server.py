"""A running Kafka under test: a LocalCluster, or another Kafka at an address; with one client for all tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, NoReturn

from minikafka.base.errors import KafkaError
from minikafka.client import Client
from minikafka.client.login import Connector
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.tools.cluster import ClusterError, LocalCluster
from minikafka.tools.cluster.observation.access import inter_broker_access
from minikafka.tools.cluster.processes import ProcessId, is_paused
from minikafka.tools.cluster.running import RunningProcesses

KNOWN_MS: Final = 5_000
"""Maximum time until every broker knows a new topic."""
POLL_MS: Final = 5
READS: Final = (
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


class Server:
    """A Kafka with one client. Its coroutines run in one event loop.

    `cluster`: the cluster of this process; None for another Kafka. `bootstrap`: the addresses of its brokers.
    """

    def __init__(
        self,
        cluster: LocalCluster | None,
        bootstrap: str,
        refuse: Callable[[str], NoReturn] | None = None,
    ) -> None:
        self.cluster = cluster
        self.bootstrap = bootstrap
        self.clock = SystemClock()
        self.rng = SystemRng()
        self._refuse = refuse
        self._clients: dict[tuple[str, bool], Client] = {}
        self._settled: list[ProcessId | None] = []
        self._doomed: list[str] = []
        self._is_deleting = False
        self.was_touched = False
        """True if a test may have changed the cluster since the last repair."""

    # Clients

    def client(self, *, read_committed: bool = False, broker: int | None = None) -> Client:
        """Return the client that all tests share. `broker`: one that asks only this broker of the own cluster."""
        servers, connector = self._access(broker)
        key = (servers, read_committed)
        if key not in self._clients:
            self._clients[key] = Client(
                servers,
                connector=connector,
                read_committed=read_committed,
                client_id="minikafka-kit",
            )
        return self._clients[key]

    def _access(self, broker: int | None) -> tuple[str, Connector | None]:
        if self.cluster is None:
            return self.bootstrap, None
        record = self.cluster.record
        brokers = record.brokers if broker is None else [record.broker(broker)]
        return inter_broker_access(self.cluster.directory, brokers, self.rng)

    async def close(self) -> None:
        """Delete the topics of another Kafka, and close the connections."""
        if self.cluster is None and self._doomed:
            with suppress(KafkaError):
                await self._delete()
        for client in self._clients.values():
            await client.close()
        self._clients.clear()

    # Topics

    def replicas(self) -> int:
        """Return the number of replicas of a new topic: 3, or one per broker of a smaller cluster; -1: the default."""
        return -1 if self.cluster is None else min(3, len(self.cluster.record.brokers))

    async def wait_until_known(self, topic: str) -> None:
        """Wait until every broker that runs knows the leaders of the topic, so that any client may use any broker."""
        if self.cluster is None:
            return
        deadline = self.clock.now() + KNOWN_MS
        for broker in self._answering():
            client = self.client(broker=broker)
            while not await _knows(client, topic) and self.clock.now() < deadline:
                await self.clock.sleep(POLL_MS)

    def _answering(self) -> list[int]:
        assert self.cluster is not None
        running = RunningProcesses(self.cluster.directory, self.clock)
        return running.answering_ids(self.cluster.record)

    async def delete_later(self, topics: Iterable[str]) -> None:
        """Delete topics, together with those that are added while the request runs. Errors are ignored."""
        self._doomed += topics
        if self._is_deleting:
            return
        self._is_deleting = True
        try:
            while self._doomed:
                await self._delete()
        except KafkaError:  # a cluster that a test has stopped
            pass
        finally:
            self._is_deleting = False

    async def _delete(self) -> None:
        names, self._doomed = self._doomed, []
        await self.client().admin.delete_topics(names)

    # Faults

    def verbs(self, name: str) -> LocalCluster:
        """Return the cluster for its method `name`, and remember that a test may have changed the cluster.

        Raises the exception of `refuse` for another Kafka, or ClusterError.
        """
        if self.cluster is None:
            text = f"{name} needs a cluster of minikafka; the tests run against {self.bootstrap}"
            if self._refuse is not None:
                self._refuse(text)
            raise ClusterError(text)
        if name not in READS:
            self.was_touched = True
        return self.cluster

    def settle(self) -> None:
        """Remember the processes of the cluster as those of a whole cluster."""
        self._settled = self._processes()
        self.was_touched = False

    @property
    def is_whole(self) -> bool:
        """True if the processes are those of the last `settle` and none is paused, and no test used a verb."""
        if self.cluster is None:
            return True
        return not (self.was_touched or self._processes() != self._settled or self._has_paused())

    def _has_paused(self) -> bool:
        return any(process is not None and is_paused(process) for process in self._processes())

    def _processes(self) -> list[ProcessId | None]:
        if self.cluster is None:
            return []
        record = self.cluster.record
        own = [self.cluster.zookeeper_process()] if record.runs_zookeeper else []
        return [*own, *(self.cluster.process(broker.id) for broker in record.brokers)]

    async def repair(self) -> None:
        """Start, resume and heal what a test has stopped, paused or cut; wait until all replicas are in sync.

        Raises ClusterError.
        """
        if self.cluster is None or self.is_whole:
            return
        if self._processes() != self._settled or self._has_paused():
            await self.cluster.start()
        await self.cluster.wait_until_in_sync()
        self.settle()


async def _knows(client: Client, topic: str) -> bool:
    try:
        _, found = await client.admin.describe([topic], retries=False)
    except (KafkaError, OSError):
        return False
    return bool(found) and all(part.leader >= 0 for part in found[0].partitions.values())
