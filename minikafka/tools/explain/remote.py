"""The sources of an explanation of a cluster elsewhere: the answers of its brokers, and the ledgers that they send."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from json import loads
from typing import Any, Final

import minikafka.client.login as logins
from minikafka.base.errors import KafkaError
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Clock
from minikafka.broker.ledger.reader import Line, merged, parsed_lines
from minikafka.broker.rpc.messages import PLAN, STATE
from minikafka.tools.cluster.observation.access import BrokerAccess
from minikafka.tools.cluster.observation.remote import RemoteCluster
from minikafka.tools.cluster.observation.sights import Sights
from minikafka.tools.cluster.observation.state import ClusterState, combine
from minikafka.tools.explain.evidence import Answer, Nodes, ReplicaFiles
from minikafka.tools.explain.gather import PLAN_MS, Plan, Sources

LEDGER: Final = "ledger"
_PAGE_MS: Final = 10_000
"""Time for one page of a ledger, for which a broker may have to read 8 MiB of files."""


class RemoteSources(Sources):
    """The sources of a cluster elsewhere. `access`: how to connect; None: in the clear, without a login."""

    def __init__(
        self, cluster: RemoteCluster, access: logins.Connector | None, clock: Clock, where: str
    ) -> None:
        super().__init__(clock, where, f"the cluster at {cluster.servers}")
        self._cluster = cluster
        self._access = access

    def access(self) -> BrokerAccess:
        """Return how to connect to the brokers, as the user of the command does."""
        return BrokerAccess(self._cluster.servers, self._access)

    async def ask(self, method: str, body: dict[str, Any]) -> dict[int, Answer]:
        """Ask all brokers that are alive; return the answers by broker id, without failed ones."""
        sights = await self.sights()
        if method == STATE:
            return dict(sights.answers)
        found = await self._cluster.ask(method, body)
        return {id_: loads(rows[0]) for id_, rows in found.items() if isinstance(rows, list)}

    async def plans(self, question: dict[str, Any]) -> dict[int, Plan | Exception]:
        """Ask all brokers that are alive what an operation would cause."""
        found = await self._cluster.ask(PLAN, question, PLAN_MS)
        return {
            id_: rows if isinstance(rows, KafkaError) else [loads(row) for row in rows]
            for id_, rows in found.items()
        }

    async def sights(self) -> Sights:
        """Return what the brokers tell of themselves, as the first call found it. Raises KafkaError if none does."""
        return await self._cluster.sights()

    async def state(self) -> ClusterState:
        """Return the state of every partition, as reported by the brokers that answer."""
        return combine((await self.sights()).answers)

    async def nodes(self, tp: TopicPartition) -> Nodes | None:
        """Return None: only brokers connect to ZooKeeper."""
        return None

    async def partition_lines(self, topic: str) -> list[Line]:
        """Read the ledger lines of all brokers that answer, page by page."""
        return await self._lines({"topic": topic})

    async def group_lines(self, group: str) -> list[Line]:
        """Read the lines about a consumer group from the ledgers of all brokers that answer."""
        return await self._lines({"group": group})

    async def _lines(self, wanted: Mapping[str, str]) -> list[Line]:
        await self.sights()
        found = await self._cluster.ask(LEDGER, wanted, _PAGE_MS)
        return merged([[*parsed_lines(rows)] for rows in found.values() if isinstance(rows, list)])

    def files(self, broker: int, tp: TopicPartition) -> ReplicaFiles | None:
        """Return None: the files are on another machine."""
        return None

    def topics(self) -> Iterable[str]:
        """Return the names of the topics that the client may describe."""
        return self._cluster.topics

    async def unseen(self) -> list[str]:
        """Return the brokers that do not answer, and what is never examined over a network."""
        return self._cluster.unseen((await self.sights()).brokers.keys())
