"""Which brokers a cluster is started with, and on which ports: decided before anything is written.

Invariant: a broker that was ever part of the cluster keeps its ports, also through a time in which the
cluster was smaller, unless a first port is asked for; a port that is chosen here is nobody else's.
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
    """What was asked for. None: as it was before, else as the config says; `port` 0: free ones."""

    brokers: int | None
    port: int | None
    config: ClusterConfig
    zookeeper: str | None
    owner: ProcessId | None


def check_number(name: str, value: object, low: int, high: int) -> None:
    """Raises TypeError for what is neither a whole number nor None; `plan` judges which number it is."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        rule = f"it is a whole number, {low} to {high}"
        raise TypeError(f"{name} cannot be {value!r}: {rule}")


def plan(before: ClusterRecord | None, asked: Request, rng: Rng) -> ClusterRecord:
    """The record to start from. Raises ClusterError and ConfigError for numbers and ports that cannot be."""
    if asked.brokers is not None and not 1 <= asked.brokers <= BROKERS_MAX:
        raise ClusterError(f"brokers cannot be {asked.brokers}: it is 1 to {BROKERS_MAX}")
    if asked.port is not None and asked.port < 0:
        raise ClusterError(f"port cannot be {asked.port}: it is 0 to {PORT_MAX}")
    count = asked.brokers or (len(before.brokers) if before else asked.config.brokers)
    first = asked.config.port if asked.port is None and before is None else asked.port
    if first and first + count - 1 > PORT_MAX:
        raise _beyond_the_last(first, count, asked)
    brokers, retired, taken = _brokers(before, count, first or None, rng)
    if asked.zookeeper is None and before is not None and before.managed:
        return replace(before, brokers=brokers, retired=retired, owner=asked.owner)
    managed = asked.zookeeper is None
    zookeeper = asked.zookeeper or f"{HOST}:{free_ports(1, rng, taken)[0]}"
    return ClusterRecord(brokers, zookeeper, managed=managed, owner=asked.owner, retired=retired)


def _brokers(
    before: ClusterRecord | None, count: int, first: int | None, rng: Rng
) -> tuple[tuple[BrokerRecord, ...], tuple[BrokerRecord, ...], set[int]]:
    """Those that are started, those that retire, and all ports that are given away."""
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
    """A broker in its place behind the first port; one that retired may find no room there."""
    port = first + broker.id - 1
    return replace(broker, port=port) if port <= PORT_MAX else broker


def _port_after(
    broker_id: int, known: Mapping[int, BrokerRecord], taken: Collection[int]
) -> int | None:
    """The port that goes on where the cluster's own end; None where they are not in a row, or it is taken."""
    firsts = {broker.port - broker.id + 1 for broker in known.values()}
    if len(firsts) != 1:
        return None
    port = firsts.pop() + broker_id - 1
    return port if port <= PORT_MAX and port not in taken and is_free(port) else None


def _beyond_the_last(first: int, count: int, asked: Request) -> ConfigError | ClusterError:
    rule = f"cannot be {first} with {count} brokers: at most {PORT_MAX - count + 1}"
    if asked.port is None:
        return ConfigError(f"cluster.port {rule}")
    return ClusterError(f"--port {rule}")
