"""A cluster elsewhere, as the console observes it: only what its brokers answer to clients.

A broker that no broker lists as alive is UNREACHABLE: whether it is down cannot be seen from here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from json import loads
from typing import Any, Final

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import Node
from minikafka.base.ports import Clock
from minikafka.broker.ledger.reader import merged, parsed_lines
from minikafka.broker.rpc.messages import STATE
from minikafka.client import Client
from minikafka.client.login import Connector
from minikafka.client.network import Address
from minikafka.tools.cluster.observation.access import BrokerAccess
from minikafka.tools.cluster.observation.remote import RemoteCluster, remote_cluster, state_of
from minikafka.tools.cluster.observation.sights import Known, Sights
from minikafka.tools.console.observation.client_view import refusal, state_for_clients
from minikafka.tools.console.observation.members import (
    ASK_MS,
    RUNNING,
    UNREACHABLE,
    BrokerMember,
    CommandOptions,
)
from minikafka.tools.explain.gather import Sources
from minikafka.tools.explain.remote import LEDGER, RemoteSources

_LEDGER_MS: Final = 1_000
"""Time for a broker to send a page of its ledger."""
_NODES_MS: Final = 1_000
"""Time for which the list of live brokers is used before it is read again."""


class RemoteBrokers:
    """The brokers of a cluster elsewhere. `user`: the user as whom `connector` connects; None without security."""

    def __init__(
        self,
        servers: str,
        connector: Connector | None,
        options: CommandOptions,
        user: str | None,
        clock: Clock,
    ) -> None:
        self.options = options
        self.user = user
        self._access = BrokerAccess(servers, connector)
        self._clock = clock
        self._client = Client(
            servers,
            connector=connector,
            client_id="minikafka-console",
            request_timeout_ms=ASK_MS,
            api_timeout_ms=ASK_MS,
        )
        self._nodes: dict[int, Node] = {}
        self._alive: set[int] = set()
        self._read_ms = -_NODES_MS
        self._replicas: set[int] = set()
        """The ids of all brokers that have replicas."""
        self._positions: dict[int, str] = {}
        """By broker: where the next lines of its ledger begin."""
        self._refusals: dict[int, str] = {}
        """By broker that answers only the questions of ordinary clients: why."""

    async def members(self) -> Sequence[BrokerMember]:
        """Return the brokers that live or have replicas, from the metadata of any broker. Raises KafkaError."""
        now = self._clock.now()
        if now - self._read_ms >= _NODES_MS:
            self._read_ms = now
            known = (await self._client.describe_cluster()).brokers
            self._nodes |= known
            self._alive = set(known)
        return [self._member(id_) for id_ in sorted(self._nodes.keys() | self._replicas)]

    def _member(self, broker: int) -> BrokerMember:
        node = self._nodes.get(broker)
        state = RUNNING if broker in self._alive else UNREACHABLE
        if node is None:
            return BrokerMember(broker, None, None, None, state)
        return BrokerMember(broker, node.host, node.port, node.rack, state)

    async def ask(self, broker: int, question: str, argument: dict[str, Any]) -> Mapping[str, Any]:
        """Send InspectBroker to one broker."""
        node = self._nodes.get(broker)
        if node is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "its address is not known")
        address = Address(node.host, node.port)
        try:
            rows = await self._client.inspection.ask(
                address, question, argument, broker=broker, timeout_ms=ASK_MS
            )
        except KafkaError as error:
            if question != STATE or not (reason := refusal(error)):
                raise
            self._refusals[broker] = reason
            state = await state_for_clients(self._client, broker)
        else:
            if question != STATE:
                return dict(loads(rows[0]))
            self._refusals.pop(broker, None)
            state = state_of(rows)
        self._replicas.update(id_ for row in state["replicas"] for id_ in row["replicas"])
        return state

    async def sights(self, answers: Known) -> Sights:
        """Return what the brokers tell of themselves. Raises KafkaError if none tells anything."""
        answers = {id_: one for id_, one in answers.items() if id_ not in self._refusals}
        if self._refusals and all(isinstance(one, Exception) for one in answers.values()):
            reason = next(iter(self._refusals.values()))
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, reason)
        cluster = RemoteCluster(self._client, (), self._access.servers)
        cluster.nodes = {id_: node for id_, node in self._nodes.items() if id_ in self._alive}
        return cluster.sights_from(answers)

    def has_faults(self) -> bool:
        return False  # they are commands for the machine of the cluster

    def access(self) -> BrokerAccess:
        return self._access

    @asynccontextmanager
    async def sources(self) -> AsyncIterator[Sources]:
        """Yield the sources of `minikafka why --bootstrap`."""
        access = self._access
        async with remote_cluster(access.servers, access.connector) as cluster:
            yield RemoteSources(cluster, access.connector, self._clock, self.options.where)

    async def ledger_lines(self) -> list[dict[str, Any]]:
        """Ask the brokers that are alive for new lines; leave out those that do not answer, or refuse it."""
        ids = [id_ for id_ in sorted(self._alive) if id_ not in self._refusals]
        return merged(await asyncio.gather(*map(self._ledger_lines, ids)))

    async def _ledger_lines(self, broker: int) -> list[dict[str, Any]]:
        node = self._nodes[broker]
        try:
            rows, following = await self._client.inspection.page(
                Address(node.host, node.port),
                LEDGER,
                {"follows": True},
                self._positions.get(broker, ""),
                broker=broker,
                timeout_ms=_LEDGER_MS,
            )
        except KafkaError:
            return []
        self._positions[broker] = following
        return [*parsed_lines(rows)]

    async def close(self) -> None:
        await self._client.close()
