"""Planning of a cluster: the brokers of the cluster, and their ports.

Invariant: a broker keeps its ports until other ports are requested, even while the cluster is smaller and does
not include the broker. A port that this module chooses is not in use by another process or broker. The number
of brokers and the first port are each taken from the first source in this list that has a value:

1. the argument of LocalCluster
2. the configuration, if the user has named its file or has edited the value since the last start
3. the record of the last start
4. the configuration, also if it was not edited
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from minikafka.base.cluster_config import ClusterConfig
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
_BROKERS: Final = "cluster.brokers"
_PORT: Final = "cluster.port"


class Request(NamedTuple):
    """The arguments of LocalCluster.

    If `brokers` or `port` is None, the value comes from another source (see the docstring of this module).
    `port` 0 means any free ports. `zookeeper` None means a ZooKeeper that the cluster manages.
    """

    brokers: int | None
    port: int | None
    config: ClusterConfig
    zookeeper: str | None
    owner: ProcessId | None


class Plan(NamedTuple):
    """The cluster to start. `postponed`: a text for each setting that cannot take effect while processes run."""

    record: ClusterRecord
    postponed: tuple[str, ...] = ()


class Running(NamedTuple):
    """The processes that already run. `anything`: True if any process of the cluster runs, also ZooKeeper."""

    brokers: Collection[int] = ()
    anything: bool = False


def check_number(name: str, value: object, low: int, high: int) -> None:
    """Raise TypeError if `value` is neither a whole number nor None; `plan` checks the range."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise TypeError(f"{name} must be a whole number from {low} to {high}, got {value!r}")


def plan(
    before: ClusterRecord | None, request: Request, rng: Rng, running: Running | None = None
) -> Plan:
    """Return the plan of the cluster to start. Raises ClusterError, and ConfigError for an invalid `cluster.port`."""
    return _Planner(before, request, rng, running or Running()).plan()


class _Planner:
    """The computation of one plan, and of the settings that cannot take effect while processes run."""

    def __init__(
        self, before: ClusterRecord | None, request: Request, rng: Rng, running: Running
    ) -> None:
        self._before = before
        self._request = request
        self._rng = rng
        self._running = running
        self._postponed: dict[str, str] = {}
        configured = before.configured if before and not request.config.was_named else {}
        given = request.config.numbers
        self._edited = {name: n for name, n in given.items() if configured.get(name) != n}

    def plan(self) -> Plan:
        request, before = self._request, self._before
        if request.brokers is not None and not 1 <= request.brokers <= BROKERS_MAX:
            raise ClusterError(f"brokers must be from 1 to {BROKERS_MAX}, got {request.brokers}")
        if request.port is not None and request.port < 0:
            raise ClusterError(f"port must be from 0 to {PORT_MAX}, got {request.port}")
        count = self._count()
        first = self._first_port()
        if first and first + count - 1 > PORT_MAX:
            raise _port_error(first, count, request)
        brokers, retired, taken = self._brokers(count, first)
        connect, managed = self._zookeeper(first, taken)
        is_same = before is not None and connect == before.zookeeper
        record = ClusterRecord(
            brokers,
            connect,
            zookeeper_process=before.zookeeper_process if before and is_same else None,
            managed=managed,
            owner=request.owner,
            retired=retired,
            configured=self._configured(),
        )
        return Plan(record, tuple(self._postponed.values()))

    def _configured(self) -> dict[str, int]:
        """Return the configured values of cluster.brokers and cluster.port that this start applies.

        If the change of a value is postponed, the former value is returned. See `ClusterRecord.configured`.
        """
        known = self._before.configured if self._before else {}
        given = self._request.config.numbers
        applied = {name: n for name, n in given.items() if name not in self._postponed}
        kept = {name: n for name, n in known.items() if name in self._postponed}
        return {**applied, **kept}

    def _count(self) -> int:
        request, before = self._request, self._before
        if request.brokers is not None:
            return request.brokers
        if before is None:
            return request.config.brokers
        count = self._edited.get(_BROKERS, len(before.brokers))
        extra = [id_ for id_ in self._running.brokers if id_ > count]
        if extra:
            commands = ", ".join(f"minikafka stop {id_}" for id_ in extra)
            self._postponed[_BROKERS] = (
                f"{_BROKERS} = {count}: takes effect after {commands} and minikafka up"
            )
            return len(before.brokers)
        return count

    def _first_port(self) -> int | None:
        """Return the port of broker 1; 0 means free ports, None means that the brokers keep their ports."""
        request, before = self._request, self._before
        if request.port is not None:
            return request.port
        if before is None:
            return request.config.port
        port = self._edited.get(_PORT)
        if port is None or not self._running.brokers:
            return port
        if port and any(broker.port != port + broker.id - 1 for broker in before.brokers):
            self._postponed[_PORT] = (
                f"{_PORT} = {port}: takes effect after minikafka down and minikafka up"
            )
        return None

    def _zookeeper(self, first: int | None, taken: Collection[int]) -> tuple[str, bool]:
        """Return the connection string of ZooKeeper, and True if the cluster manages this ZooKeeper."""
        before, wanted = self._before, self._request.zookeeper
        if before is not None:
            has_all_ports = first != 0 or self._running.anything
            if before.managed and wanted is None and has_all_ports:
                return before.zookeeper, True
            if self._running.anything and (before.managed or wanted != before.zookeeper):
                after = "until minikafka down and minikafka up"
                self._postponed["zookeeper.connect"] = (
                    f"zookeeper.connect: the cluster uses {before.zookeeper} {after}"
                )
                return before.zookeeper, before.managed
        if wanted is not None:
            return wanted, False
        return f"{HOST}:{free_ports(1, self._rng, taken)[0]}", True

    def _brokers(
        self, count: int, first: int | None
    ) -> tuple[tuple[BrokerRecord, ...], tuple[BrokerRecord, ...], set[int]]:
        """Return the brokers to start, the retired brokers, and all ports that the cluster uses."""
        before = self._before
        known = (
            {broker.id: broker for broker in (*before.brokers, *before.retired)} if before else {}
        )
        if first == 0:
            known = {id_: broker for id_, broker in known.items() if id_ in self._running.brokers}
        elif first is not None:
            known = {id_: _moved(broker, first) for id_, broker in known.items()}
        taken = {port for broker in known.values() for port in (broker.port, broker.control_port)}
        if before is not None and before.managed:
            taken.add(int(before.zookeeper.rpartition(":")[2]))
        if first:
            taken.update(range(first, first + count))
        brokers = []
        for broker_id in range(1, count + 1):
            broker = known.get(broker_id)
            if broker is None:
                free, control_port = free_ports(2, self._rng, taken)
                following = None if first == 0 else _port_after(broker_id, known, taken)
                port = first + broker_id - 1 if first else following or free
                broker = BrokerRecord(broker_id, port, control_port)
                taken.update((port, control_port))
            brokers.append(broker)
        retired = tuple(broker for id_, broker in sorted(known.items()) if id_ > count)
        return tuple(brokers), retired, taken


def _moved(broker: BrokerRecord, first: int) -> BrokerRecord:
    """Return the broker with a new port: `first` for broker 1, `first` + 1 for broker 2, and so on.

    Return the broker unchanged if the new port would exceed 65535.
    """
    port = first + broker.id - 1
    return replace(broker, port=port) if port <= PORT_MAX else broker


def _port_after(
    broker_id: int, known: Mapping[int, BrokerRecord], taken: Collection[int]
) -> int | None:
    """Return the port of a new broker that continues the consecutive ports of the known brokers.

    Return None if the known ports are not consecutive, or if the new port is in use or exceeds 65535.
    """
    firsts = {broker.port - broker.id + 1 for broker in known.values()}
    if len(firsts) != 1:
        return None
    port = firsts.pop() + broker_id - 1
    return port if port <= PORT_MAX and port not in taken and is_free(port) else None


def _port_error(first: int, count: int, request: Request) -> ConfigError | ClusterError:
    rule = f"must be at most {PORT_MAX - count + 1} with {count} brokers, got {first}"
    if request.port is None:
        return ConfigError(f"cluster.port {rule}")
    return ClusterError(f"port {rule}")
