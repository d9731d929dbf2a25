"""How the tools connect to brokers that encrypt or authenticate: with the keys in the files of the brokers.

Who can read these files, which have the secret of the cluster too, may act as a broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from minikafka.base.endpoints import PLAINTEXT, Endpoint
from minikafka.base.ports import Rng
from minikafka.runtime.clock import SystemClock
from minikafka.tools.cluster.directory import BrokerRecord, ClusterDirectory

if TYPE_CHECKING:
    from minikafka.client.login import Connector
    from minikafka.runtime.tls import RenewableTls


class BrokerAccess(NamedTuple):
    """A listener of brokers, as host:port,…, and how to connect to it; None: in the clear, without a login."""

    servers: str
    connector: Connector | None


def control_tls(
    directory: ClusterDirectory, brokers: Iterable[BrokerRecord]
) -> RenewableTls | None:
    """Return how calls to the control listeners of these brokers are encrypted; None if they are not.

    Raises ConfigError if the truststore of the brokers cannot be read.
    """
    encrypted = [broker.id for broker in brokers if broker.control.security.is_encrypted]
    config = next(filter(None, map(directory.broker_config, encrypted)), None)
    if config is None:
        return None
    from minikafka.runtime.transport import SocketTransport

    keys = config.security_of(config.endpoints.inter_broker)
    return SocketTransport().tls(keys, server=False)


def inter_broker_access(
    directory: ClusterDirectory, brokers: Sequence[BrokerRecord], rng: Rng
) -> BrokerAccess:
    """Return how the other brokers connect to these brokers. Raises ConfigError if their keys cannot be read."""
    config = next(filter(None, (directory.broker_config(broker.id) for broker in brokers)), None)
    name = config.endpoints.inter_broker if config is not None else ""
    found = [_listener(broker, name) for broker in brokers]
    servers = ",".join(f"{item.host}:{item.port}" for item in found)
    if config is None or all(item.security is PLAINTEXT for item in found):
        return BrokerAccess(servers, None)
    from minikafka.broker.inter_broker import connector_of
    from minikafka.runtime.transport import SocketTransport

    return BrokerAccess(servers, connector_of(config, SocketTransport(), rng, SystemClock()))


def _listener(broker: BrokerRecord, name: str) -> Endpoint:
    """Return the listener of this name, else the first one of the broker."""
    return next((item for item in broker.clients if item.name == name), broker.clients[0])
