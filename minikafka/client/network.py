"""The connections of a client: one per broker address, opened when first needed, replaced when lost.

Invariant: at most one connection per address is open or being opened, so a broker answers requests in
the order in which they were sent. Every failure is raised as OSError, or as NotAdmitted if a retry cannot succeed.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from typing import Any, Final, NamedTuple

from minikafka.base.errors import ConfigError, ProtocolViolation
from minikafka.base.ports import Clock
from minikafka.client.connection import BrokerConnection
from minikafka.client.login import Connector, TlsFailed
from minikafka.kafka.messages.decoder import Entity
from minikafka.kafka.wire import codec, versions

VERSIONS: Final = {
    versions.PRODUCE: 9,
    versions.FETCH: 12,
    versions.LIST_OFFSETS: 7,
    versions.METADATA: 12,
    versions.OFFSET_COMMIT: 8,
    versions.OFFSET_FETCH: 8,
    versions.FIND_COORDINATOR: 4,
    versions.JOIN_GROUP: 9,
    versions.HEARTBEAT: 4,
    versions.LEAVE_GROUP: 5,
    versions.SYNC_GROUP: 5,
    versions.DESCRIBE_GROUPS: 5,
    versions.LIST_GROUPS: 4,
    versions.CREATE_TOPICS: 7,
    versions.DELETE_TOPICS: 5,
    versions.DELETE_RECORDS: 2,
    versions.INIT_PRODUCER_ID: 4,
    versions.WRITE_TXN_MARKERS: 1,
    versions.DESCRIBE_ACLS: 3,
    versions.CREATE_ACLS: 3,
    versions.DELETE_ACLS: 3,
    versions.DESCRIBE_CONFIGS: 4,
    versions.DESCRIBE_LOG_DIRS: 4,
    versions.ALTER_REPLICA_LOG_DIRS: 2,
    versions.CREATE_PARTITIONS: 3,
    versions.DELETE_GROUPS: 2,
    versions.ELECT_LEADERS: 2,
    versions.INCREMENTAL_ALTER_CONFIGS: 1,
    versions.ALTER_PARTITION_REASSIGNMENTS: 0,
    versions.LIST_PARTITION_REASSIGNMENTS: 0,
    versions.OFFSET_DELETE: 0,
    versions.DESCRIBE_CLIENT_QUOTAS: 1,
    versions.ALTER_CLIENT_QUOTAS: 1,
    versions.DESCRIBE_USER_SCRAM_CREDENTIALS: 0,
    versions.ALTER_USER_SCRAM_CREDENTIALS: 0,
    versions.DESCRIBE_PRODUCERS: 0,
    versions.DESCRIBE_TRANSACTIONS: 0,
    versions.LIST_TRANSACTIONS: 1,
    versions.API_VERSIONS: 0,
    versions.INSPECT_BROKER: 0,
}
"""API version of each request that the client sends; minikafka and Kafka 3.3 to 4.x serve them all, except that
ListTransactions 1 came with Kafka 3.8, and that only minikafka has InspectBroker."""

CONNECT_TIMEOUT_MS: Final = 10_000
"""Kafka's `socket.connection.setup.timeout.ms`."""


class Address(NamedTuple):
    """Host and port of a broker's listener."""

    host: str
    port: int


class AddressUnreachable(ConnectionError):
    """The address refuses connections, or does not exist."""


class Network:
    """The connections to brokers, one per address, and the requests sent over them."""

    def __init__(self, connector: Connector, clock: Clock, client_id: str) -> None:
        self._connector = connector
        self._clock = clock
        self._client_id = client_id
        self._connections: dict[Address, BrokerConnection] = {}
        self._failed: set[Address] = set()
        self._opening: defaultdict[Address, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def call(self, address: Address, api: int, timeout_ms: int, body: bytes) -> Entity:
        """Send a request and return its response. Raises OSError, also for a malformed response."""
        try:
            connection = await self.connection(address, timeout_ms)
            data = await connection.request(api, VERSIONS[api], body, timeout_ms)
            response = decode(api, data)
        except OSError:
            self._failed.add(address)
            raise
        self._failed.discard(address)
        return response

    async def connection(self, address: Address, timeout_ms: int) -> BrokerConnection:
        """Return the open connection to an address; open one if there is none. Raises OSError."""
        async with self._opening[address]:
            connection = self._connections.get(address)
            if connection is None or not connection.is_open:
                connection = await self._connect(address, timeout_ms)
                self._connections[address] = connection
            return connection

    def least_loaded(self, addresses: Iterable[Address]) -> list[Address]:
        """Return the addresses, sorted by number of requests in flight, fewest first.

        Addresses whose last request failed come last, because a broker that hangs still accepts connections.
        """
        return sorted(sorted(set(addresses)), key=self._load)

    def close(self) -> None:
        """Close all connections; pending requests fail."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _load(self, address: Address) -> tuple[bool, int]:
        connection = self._connections.get(address)
        failed = address in self._failed
        if connection is None or not connection.is_open:
            return failed, 1
        return failed, 2 * connection.in_flight

    async def _connect(self, address: Address, timeout_ms: int) -> BrokerConnection:
        try:
            await self._connector.renew()  # a slow token endpoint is no slow broker
            async with asyncio.timeout(min(timeout_ms, CONNECT_TIMEOUT_MS) / 1000):
                handler: Any = await self._connector.connect(
                    partial(BrokerConnection, self._client_id, self._clock),
                    address.host,
                    address.port,
                    self._client_id,
                )
        except TimeoutError:
            raise
        except ssl.SSLError as error:
            raise TlsFailed(error) from error
        except ConnectionRefusedError as error:
            raise AddressUnreachable(error.errno, "connection refused") from error
        except OSError as error:
            raise AddressUnreachable(error.errno, error.strerror or str(error)) from error
        assert isinstance(handler, BrokerConnection)
        return handler


def request(api: int, **values: Any) -> bytes:
    """Return an encoded request with these field values, in the version of the API that the client uses."""
    return codec.request(api, VERSIONS[api], **values)


def decode(api: int, data: bytes) -> Entity:
    """Decode a response of the API version that the client uses. Raises OSError for a malformed response."""
    try:
        return codec.decode_response(api, VERSIONS[api], data)
    except ProtocolViolation as error:
        raise ConnectionError(str(error)) from error


def parse_bootstrap(text: str) -> list[Address]:
    """Parse bootstrap servers, written `host:port,host:port`. Raises ConfigError."""
    addresses = []
    for part in text.split(","):
        host, _, port = part.strip().rpartition(":")
        if not host or not port.isdecimal() or len(port) > 5 or not 0 < int(port) < 65536:
            raise ConfigError(f"bootstrap servers must be host:port,host:port, got {text!r}")
        addresses.append(Address(host.strip("[]"), int(port)))
    return addresses
