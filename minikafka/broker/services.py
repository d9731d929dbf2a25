"""Two arguments of every request handler: the broker's services and the context of the request.

Invariant: a handler accesses the broker only through `Services`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal, Protocol, TypeAlias

from minikafka.base.config import BrokerConfig
from minikafka.base.model import BrokerId, TopicPartition
from minikafka.base.ports import Clock, ControlPlane, Link, Rng
from minikafka.broker.admin import BrokerAdmin
from minikafka.broker.capabilities import AclStore, Administration
from minikafka.broker.clients.access import Access
from minikafka.broker.clients.authentication import Authentication
from minikafka.broker.clients.delegation_tokens import DelegationTokens
from minikafka.broker.clients.quotas import BrokerQuotas
from minikafka.broker.coordinators.group_host import GroupHost
from minikafka.broker.coordinators.markers import MarkerAppends
from minikafka.broker.coordinators.transaction_host import ProducerIds, TransactionHost
from minikafka.broker.coordinators.verification import TransactionVerifier
from minikafka.broker.ledger.pages import Page, Wanted
from minikafka.broker.metadata import MetadataCache
from minikafka.broker.replicas.manager import ReplicaManager
from minikafka.broker.reports.request_metrics import RequestMetrics
from minikafka.broker.settings.dynamic_config import DynamicConfig
from minikafka.broker.turns import Pauses


class Reports(Protocol):
    """What the broker tells about itself. All results can be encoded as JSON, except the pages of the ledger."""

    def summary(self, since: object = None) -> dict[str, Any]:
        """Return the state of the broker without its replicas (see `BrokerReports.summary`)."""

    def replica_rows(self, since: object = None) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
        """Return facts about the replicas, and the state of each in any order (see `BrokerReports.replica_rows`)."""

    def explain(self, tp: TopicPartition) -> dict[str, Any]:
        """Return what the broker knows about a partition."""

    def explain_group(self, group: str) -> dict[str, Any]:
        """Return what the broker knows about a consumer group."""

    async def plan(self, question: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return what an operation would cause (see `Diagnostics.plan`). Raises KafkaError."""

    def ledger_page(
        self, position: str, wanted: Wanted, *, follows: bool = False
    ) -> Generator[None, None, Page]:
        """Return a page of the ledger (see `read_page`), in steps. Raises ValueError and StorageFailed."""


@dataclass(slots=True)
class Services:
    """The parts of the broker that an API handler may use."""

    broker_id: BrokerId
    cluster_id: str
    config: BrokerConfig
    settings: DynamicConfig
    clock: Clock
    rng: Rng
    replicas: ReplicaManager
    metadata: MetadataCache
    admin: BrokerAdmin
    producer_ids: ProducerIds
    groups: GroupHost
    transactions: TransactionHost
    verifier: TransactionVerifier
    marker_appends: MarkerAppends
    tokens: DelegationTokens
    administration: Administration
    acls: AclStore
    access: Access
    control_plane: ControlPlane
    requests: RequestMetrics
    quotas: BrokerQuotas
    pauses: Pauses
    reports: Reports


Entity: TypeAlias = Any
"""A decoded request (`minikafka/kafka/messages/decoder.py`)."""
ANONYMOUS: Final = "User:ANONYMOUS"
"""Kafka's principal of a client that has not authenticated."""


class Later(Enum):
    """The type of `LATER`. It is an enum, so that type checkers can distinguish `LATER` from a response."""

    LATER = "later"


LATER: Final = Later.LATER
"""Result of a handler that does not return the response, but calls `RequestContext.answer(response)` later."""
Steps: TypeAlias = Generator[Any, None, bytes | Literal[Later.LATER]]
"""A generator that does a request's work in steps of less than 1 ms, and returns the response or LATER. It
yields after each step, so that the broker can handle other connections in between."""


@dataclass(slots=True)
class ClientConnection:
    """The client at the other end of one connection, the same object for all requests of that connection.

    `id` is unique among all connections that this broker process ever accepted. `peer` is the client's host:port.
    `listener` is the name of the listener that accepted the connection. `authentication`: None without SASL.
    `reauthenticated_at`: the monotonic time (ms) at which the client last began to authenticate again. `is_ending`: the
    connection is closed after the response to the current request.
    """

    id: int
    listener: str
    peer: str = "?"
    principal: str = ANONYMOUS
    authentication: Authentication | None = None
    reauthenticated_at: int | None = None
    is_ending: bool = False
    on_open: Callable[[ClientConnection, Link], None] | None = None

    def opened(self, link: Link) -> None:
        """Note that the connection is open, and who is at its other end."""
        self.peer = link.peer()
        if self.on_open is not None:
            self.on_open(self, link)

    @property
    def user(self) -> str:
        """The name of the user whose quotas apply to the client."""
        return self.principal.removeprefix("User:")

    @property
    def host(self) -> str:
        """The address of the client, without its port."""
        return self.peer.rpartition(":")[0].strip("[]")


@dataclass(slots=True)
class RequestContext:
    """The context of one request: its connection, client id and version, and a function to answer it later.

    `client_id` comes from the request header. A handler that returns LATER must call `answer(response)`
    exactly once, from any callback or task of the broker's event loop. The call has no effect if the
    connection has closed.
    """

    connection: ClientConnection
    client_id: str | None
    version: int
    answer: Callable[[bytes | Steps], None]
    throttle_ms: int = 0
    """Time that the client must wait because of its changes of topics. A handler sets it before the response."""

    def answer_with(self, encode: Callable[[int, Any], bytes | Steps]) -> Callable[[Any], None]:
        """Return a function that answers the request. It takes an outcome and sends `encode(version, outcome)`."""
        version, answer = self.version, self.answer
        return lambda outcome: answer(encode(version, outcome))


Handler: TypeAlias = Callable[
    [Services, Entity, RequestContext],
    bytes | Literal[Later.LATER] | Steps | Awaitable[bytes | Steps],
]
"""Function (services, request, context) -> one of: the encoded body of the response, `Steps` that return it,
LATER, or an awaitable of one of these three."""
