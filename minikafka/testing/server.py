"""A running Kafka under test: a LocalCluster, or another Kafka at an address; with one client for all tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, NoReturn

from minikafka.base.errors import KafkaError
from minikafka.client import Client
from minikafka.client.login import Connector
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.testing.repair import Repairs
from minikafka.tools.cluster import ClusterError, LocalCluster
from minikafka.tools.cluster.observation.access import inter_broker_access
from minikafka.tools.cluster.running import RunningProcesses

KNOWN_MS: Final = 5_000
"""Maximum time until every broker knows a new topic."""
POLL_MS: Final = 10
DELETE_SECONDS: Final = 10
"""Maximum time for the deletion of topics at the end, on another Kafka."""
REPLICAS_MAX: Final = 3


class Server:
    """A Kafka with one client. Its coroutines run in one event loop.

    `cluster`: the cluster of this process; None for another Kafka. `bootstrap`: the addresses of its brokers. `refuse`:
    called with a text if a test uses a fault verb of another Kafka; None: raise ClusterError.
    """

    def __init__(
        self,
        cluster: LocalCluster | None,
        bootstrap: str,
        refuse: Callable[[str], NoReturn] | None = None,
    ) -> None:
        self.cluster = cluster
        self.repairs = None if cluster is None else Repairs(cluster)
        self.bootstrap = bootstrap
        self.clock = SystemClock()
        self.rng = SystemRng()
        self._refuse = refuse
        self._clients: dict[tuple[str, bool], Client] = {}
        self._doomed: list[str] = []
        self._deletion: asyncio.Task[None] | None = None

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

    def verbs(self, name: str) -> LocalCluster:
        """Return the cluster for its method `name`, and remember that a test may change the cluster.

        Raises the exception of `refuse` for another Kafka, or ClusterError.
        """
        if self.cluster is None or self.repairs is None:
            text = (
                f"{name} needs a cluster of minikafka, but the tests run against {self.bootstrap}"
            )
            if self._refuse is not None:
                self._refuse(text)
            raise ClusterError(text)
        self.repairs.note_use(name)
        return self.cluster

    async def close(self) -> None:
        """End the deletion of topics, or finish it on another Kafka; close the connections."""
        deletion = self._deletion
        if deletion is not None:
            if self.cluster is None:
                await asyncio.wait([deletion], timeout=DELETE_SECONDS)
            deletion.cancel()
            await asyncio.gather(deletion, return_exceptions=True)
        for client in self._clients.values():
            await client.close()
        self._clients.clear()

    # Topics

    def replicas(self) -> int:
        """Return the number of replicas of a new topic: 3, or one per broker of a smaller cluster; -1: the default."""
        return -1 if self.cluster is None else min(REPLICAS_MAX, len(self.cluster.record.brokers))

    async def wait_until_known(self, topic: str) -> None:
        """Wait until every broker that runs knows the leaders of the topic, so that any client may use any broker."""
        if self.cluster is None:
            return
        deadline = self.clock.now() + KNOWN_MS
        running = RunningProcesses(self.cluster.directory, self.clock)
        for broker in running.answering_ids(self.cluster.record):
            client = self.client(broker=broker)
            while not await _knows(client, topic) and self.clock.now() < deadline:
                await self.clock.sleep(POLL_MS)

    async def delete_later(self, topics: Iterable[str]) -> None:
        """Delete topics, together with those that are added while the request runs. Errors are ignored."""
        self._doomed += topics
        if self._deletion is not None:
            return
        self._deletion = asyncio.current_task()
        try:
            while self._doomed:
                names, self._doomed = self._doomed, []
                with suppress(KafkaError):  # a test has stopped the cluster
                    await self.client().admin.delete_topics(names)
        finally:
            self._deletion = None


async def _knows(client: Client, topic: str) -> bool:
    try:
        _, found = await client.admin.describe([topic], retries=False)
    except (KafkaError, OSError):
        return False
    return bool(found) and all(part.leader >= 0 for part in found[0].partitions.values())
