"""Planning of a cluster: which brokers it has, and which ports they get.

Invariant: a broker that was ever part of the cluster keeps its ports, also while the cluster is smaller,
unless a first port is requested. A port chosen here is not in use by another process or broker.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from minikafka.base.config import ClusterConfig
from minikafka.base.errors import ConfigError
from minikafka.base.ports import Rng
from minikafka.cluster.directory import (
    HOST,
    BrokerRecord,
    ClusterError,
    ClusterRecord,
    free_ports,
    is_free,
)
from minikafka.cluster.processes import ProcessId

PORT_MAX: Final = 65_535
BROKERS_MAX: Final = 1000


class Request(NamedTuple):
    """The arguments of LocalCluster.

    None means: as stored in the directory, else as in the configuration. `port` 0: any free ports.
    """

    brokers: int | None
    port: int | None
    config: ClusterConfig
    zookeeper: str | None
    owner: ProcessId | None


def check_number(name: str, value: object, low: int, high: int) -> None:
    """Raise TypeError unless `value` is a whole number or None; `plan` checks the range."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise TypeError(f"{name} must be a whole number from {low} to {high}, got {value!r}")


def plan(before: ClusterRecord | None, request: Request, rng: Rng) -> ClusterRecord:
    """Return the record of the cluster to start. Raises ClusterError and ConfigError for invalid numbers."""
    if request.brokers is not None and not 1 <= request.brokers <= BROKERS_MAX:
        raise ClusterError(f"brokers must be from 1 to {BROKERS_MAX}, got {request.brokers}")
    if request.port is not None and request.port < 0:
        raise ClusterError(f"port must be from 0 to {PORT_MAX}, got {request.port}")
    count = request.brokers or (len(before.brokers) if before else request.config.brokers)
    first = request.config.port if request.port is None and before is None else request.port
    if first and first + count - 1 > PORT_MAX:
        raise _port_error(first, count, request)
    brokers, retired, taken = _brokers(before, count, first or None, rng)
    if request.zookeeper is None and before is not None and before.managed:
        return replace(before, brokers=brokers, retired=retired, owner=request.owner)
    managed = request.zookeeper is None
    zookeeper = request.zookeeper or f"{HOST}:{free_ports(1, rng, taken)[0]}"
    return ClusterRecord(brokers, zookeeper, managed=managed, owner=request.owner, retired=retired)


def _brokers(
    before: ClusterRecord | None, count: int, first: int | None, rng: Rng
) -> tuple[tuple[BrokerRecord, ...], tuple[BrokerRecord, ...], set[int]]:
    """Return the brokers to start, the retired brokers, and all ports that are taken by brokers."""
    known = {broker.id: broker for broker in (*before.brokers, *before.retired)} if before else {}
    if first is not None:
        known = {id_: _moved(broker, first) for id_, broker in known.items()}
    taken = {port for broker in known.values() for port in (broker.port, broker.control_port)}
    if before is not None and before.managed:
        taken.add(int(before.zookeeper.rpartition(":")[2]))
    if first is not None:
        taken.update(range(first, first + count))
    brokers = []
    for broker_id in range(1, count + 1):
        broker = known.get(broker_id)
        if broker is None:
            free, control_port = free_ports(2, rng, taken)
            following = _port_after(broker_id, known, taken)
            port = first + broker_id - 1 if first is not None else following or free
            broker = BrokerRecord(broker_id, port, control_port)
            taken.update((port, control_port))
        brokers.append(broker)
    retired = tuple(broker for id_, broker in sorted(known.items()) if id_ > count)
    return tuple(brokers), retired, taken


def _moved(broker: BrokerRecord, first: int) -> BrokerRecord:
    """Return the broker with the port that follows from the first port; unchanged if that exceeds 65535."""
    port = first + broker.id - 1
    return replace(broker, port=port) if port <= PORT_MAX else broker


def _port_after(
    broker_id: int, known: Mapping[int, BrokerRecord], taken: Collection[int]
) -> int | None:
    """Return the port that continues the cluster's consecutive ports; None if there is no such free port."""
    firsts = {broker.port - broker.id + 1 for broker in known.values()}
    if len(firsts) != 1:
        return None
    port = firsts.pop() + broker_id - 1
    return port if port <= PORT_MAX and port not in taken and is_free(port) else None


def _port_error(first: int, count: int, request: Request) -> ConfigError | ClusterError:
    rule = f"must be at most {PORT_MAX - count + 1} with {count} brokers, got {first}"
    if request.port is None:
        return ConfigError(f"cluster.port {rule}")
    return ClusterError(f"--port {rule}")
