"""Planning of a cluster: the brokers of the cluster, and their ports.

Invariant: a broker keeps its ports until other ports are requested, even while the cluster is smaller and does
not include the broker. A port that this module chooses is not in use by another process or broker. The number
of brokers, the first Kafka port and the first control port are each taken from the first source in this list that
has a value:

1. the argument of LocalCluster
2. the configuration, if the user has named its file or has edited the value since the last start
3. the record of the last start
4. the configuration, also if it was not edited
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from minikafka.base.config import BrokerConfig
from minikafka.base.config.cluster import ClusterConfig
from minikafka.base.coordination import CONTROLLER, COORDINATION
from minikafka.base.errors import ConfigError
from minikafka.base.ports import Rng
from minikafka.base.zookeeper import EMBEDDED, OWN, parse_zookeeper
from minikafka.tools.cluster.directory import HOST, BrokerRecord, ClusterError, ClusterRecord
from minikafka.tools.cluster.ports import HeldPorts, free_ports
from minikafka.tools.cluster.processes import ProcessId

PORT_MAX: Final = 65_535
BROKERS_MAX: Final = 1000
_BROKERS: Final = "cluster.brokers"
_PORT: Final = "cluster.port"
_METRICS_PORT: Final = "cluster.metrics.port"
_CONNECT: Final = "zookeeper.connect"


class LaunchRequest(NamedTuple):
    """The arguments of LocalCluster.

    If `brokers`, `port` or `metrics_port` is None, the value comes from another source (see the docstring of this
    module). `coordination` None means the mode of the configuration, else of the existing cluster. Port 0 means any
    free ports. `zookeeper` None means the ZooKeeper of the existing
    cluster, or an embedded one for a new cluster.
    """

    brokers: int | None
    port: int | None
    config: ClusterConfig
    zookeeper: str | None
    owner: ProcessId | None
    metrics_port: int | None = None
    coordination: str | None = None


class LaunchPlan(NamedTuple):
    """The cluster to start. `postponed`: a text for each setting that cannot take effect while processes run."""

    record: ClusterRecord
    postponed: tuple[str, ...] = ()


class Running(NamedTuple):
    """The processes that already run. `anything`: True if any process of the cluster runs, also ZooKeeper."""

    brokers: Collection[int] = ()
    anything: bool = False


class _Ports(NamedTuple):
    """One of the two ports that each broker has.

    `argument` and `given`: name and value of LocalCluster's argument for the port of broker 1. `key` and
    `configured`: name and value of the key. `of` returns the port of a broker.
    """

    argument: str
    given: int | None
    key: str
    configured: int
    of: Callable[[BrokerRecord], int]


def check_number(name: str, value: object, low: int, high: int) -> None:
    """Raise TypeError if `value` is neither a whole number nor None; `plan` checks the range."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise TypeError(f"{name} must be a whole number from {low} to {high}, got {value!r}")


def plan(
    before: ClusterRecord | None,
    request: LaunchRequest,
    rng: Rng,
    running: Running | None = None,
    held: HeldPorts | None = None,
) -> LaunchPlan:
    """Return the plan of the cluster to start; `held` holds the ports that were chosen.

    Raises ClusterError, and ConfigError for an invalid `cluster.port`.
    """
    return _Planner(before, request, rng, running or Running(), held or HeldPorts()).plan()


def coordination_of(request: LaunchRequest, before: ClusterRecord | None) -> str:
    """Return the coordination mode of the cluster, which keeps the mode of its first start.

    Raises ClusterError if another mode was requested, and ConfigError for an invalid one.
    """
    key = BrokerConfig.keys()[COORDINATION]
    given = (request.coordination, request.config.broker.get(COORDINATION))
    modes = dict.fromkeys(key.parse(value) for value in given if value is not None)
    if len(modes) > 1:
        asked, configured = modes
        text = f"the configuration has {COORDINATION} = {configured}, but {asked} was requested"
        raise ClusterError(f"{text}: change one of them")
    mode: str = before.coordination if before else next(iter(modes), CONTROLLER)
    if other := modes.keys() - {mode}:
        text = f"the cluster has the coordination mode {mode}, not {other.pop()}"
        raise ClusterError(f"{text}: it keeps the mode of its first start", "--data OTHER_DIR")
    return mode


class _Planner:
    """The computation of one plan, and of the settings that cannot take effect while processes run."""

    def __init__(
        self,
        before: ClusterRecord | None,
        request: LaunchRequest,
        rng: Rng,
        running: Running,
        held: HeldPorts,
    ) -> None:
        self._before = before
        self._request = request
        self._rng = rng
        self._running = running
        self._held = held
        self._postponed: dict[str, str] = {}
        config = request.config
        self._kafka = _Ports("port", request.port, _PORT, config.port, _kafka_port)
        self._control = _Ports(
            "metrics_port", request.metrics_port, _METRICS_PORT, config.metrics_port, _control_port
        )
        configured = before.configured if before and not request.config.was_named else {}
        given = request.config.numbers
        self._edited = {name: n for name, n in given.items() if configured.get(name) != n}

    def plan(self) -> LaunchPlan:
        request, before = self._request, self._before
        if request.brokers is not None and not 1 <= request.brokers <= BROKERS_MAX:
            raise ClusterError(f"brokers must be from 1 to {BROKERS_MAX}, got {request.brokers}")
        count = self._count()
        first = self._first_port(self._kafka, count)
        control = self._first_port(self._control, count)
        if control is None and first == 0:
            control = self._control.configured
        brokers, retired, taken = self._brokers(count, first, control)
        _check_distinct(brokers)
        connect, kind = self._zookeeper(first, taken)
        is_same = before is not None and connect == before.zookeeper
        record = ClusterRecord(
            brokers,
            connect,
            zookeeper_process=before.zookeeper_process if before and is_same else None,
            zookeeper_kind=kind,
            owner=request.owner,
            retired=retired,
            configured=self._configured(),
            coordination=coordination_of(request, before),
        )
        return LaunchPlan(record, tuple(self._postponed.values()))

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

    def _first_port(self, ports: _Ports, count: int) -> int | None:
        """Return the port of broker 1; 0 means free ports, None means that the brokers keep their ports.

        Raises ClusterError or ConfigError if a port would be outside the range.
        """
        first = self._wanted_port(ports)
        if first is not None and first < 0:
            raise ClusterError(f"{ports.argument} must be from 0 to {PORT_MAX}, got {first}")
        if first and first + count - 1 > PORT_MAX:
            rule = f"must be at most {PORT_MAX - count + 1} with {count} brokers, got {first}"
            if ports.given is None:
                raise ConfigError(f"{ports.key} {rule}")
            raise ClusterError(f"{ports.argument} {rule}")
        return first

    def _wanted_port(self, ports: _Ports) -> int | None:
        before = self._before
        if ports.given is not None:
            return ports.given
        if before is None:
            return ports.configured
        first = self._edited.get(ports.key)
        if first is None or not self._running.brokers:
            return first
        if first and any(ports.of(broker) != first + broker.id - 1 for broker in before.brokers):
            self._postponed[ports.key] = (
                f"{ports.key} = {first}: takes effect after minikafka down and minikafka up"
            )
        return None

    def _zookeeper(self, first: int | None, taken: Collection[int]) -> tuple[str, str]:
        """Return the connection string and the kind of ZooKeeper. Raises ConfigError.

        The cluster keeps its ZooKeeper until another one is requested while no process runs. Servers of both kinds use
        the same port and the same data.
        """
        before, wanted = self._before, self._request.zookeeper
        kind, address = _requested(wanted, before)
        if before is not None:
            if self._running.anything:
                if kind != before.zookeeper_kind or address not in ("", before.zookeeper):
                    uses = f"the cluster uses {before.zookeeper} ({before.zookeeper_kind})"
                    self._postponed[_CONNECT] = (
                        f"{_CONNECT} = {wanted}: {uses} until minikafka down and minikafka up"
                    )
                return before.zookeeper, before.zookeeper_kind
            if before.runs_zookeeper and kind in OWN and first != 0:
                return before.zookeeper, kind
        return address or f"{HOST}:{self._free_port(taken)}", kind

    def _brokers(
        self, count: int, first: int | None, control: int | None
    ) -> tuple[tuple[BrokerRecord, ...], tuple[BrokerRecord, ...], set[int]]:
        """Return the brokers to start, the retired brokers, and all ports that the cluster uses."""
        known = self._known(first, control)
        taken = {port for broker in known.values() for port in (broker.port, broker.control_port)}
        if self._before is not None and self._before.runs_zookeeper:
            taken.add(int(self._before.zookeeper.rpartition(":")[2]))
        for start in (first, control):
            if start:
                taken.update(range(start, start + count))
        brokers = []
        for broker_id in range(1, count + 1):
            broker = known.get(broker_id, BrokerRecord(broker_id, 0, 0))
            port = (
                broker.port
                or self._new_port(broker_id, first, known, taken, _kafka_port)
                or self._free_port(taken)
            )
            taken.add(port)
            control_port = (
                broker.control_port
                or self._new_port(broker_id, control, known, taken, _control_port)
                or self._free_port(taken)
            )
            taken.add(control_port)
            broker = replace(broker, port=port, control_port=control_port)
            brokers.append(broker)
        retired = tuple(broker for id_, broker in sorted(known.items()) if id_ > count)
        return tuple(brokers), retired, taken

    def _known(self, first: int | None, control: int | None) -> dict[int, BrokerRecord]:
        """Return the brokers of the last start by id, with the requested ports; 0 for a port that is to be chosen."""
        before = self._before
        brokers = (*before.brokers, *before.retired) if before else ()
        if first == 0:
            brokers = tuple(broker for broker in brokers if broker.id in self._running.brokers)
        known = {broker.id: _moved(broker, first, control) for broker in brokers}
        if control == 0:
            known |= {
                id_: replace(broker, control_port=0)
                for id_, broker in known.items()
                if id_ not in self._running.brokers
            }
        return known

    def _free_port(self, taken: Collection[int]) -> int:
        return free_ports(1, self._rng, taken, self._held)[0]

    def _new_port(
        self,
        broker_id: int,
        first: int | None,
        known: Mapping[int, BrokerRecord],
        taken: Collection[int],
        of: Callable[[BrokerRecord], int],
    ) -> int | None:
        """Return the port of a new broker that `first` requests, or that continues the ports of the known brokers.

        Return None if the broker needs any free port: if `first` is 0, if the known ports are not consecutive, or if
        the new port is in use or exceeds 65535.
        """
        if first:
            return first + broker_id - 1
        firsts = {of(broker) - broker.id + 1 for broker in known.values()}
        if first == 0 or len(firsts) != 1:
            return None
        port = firsts.pop() + broker_id - 1
        return (
            port
            if port <= PORT_MAX and port not in taken and self._held.hold_if_free(port)
            else None
        )


def _requested(wanted: str | None, before: ClusterRecord | None) -> tuple[str, str]:
    """Return the requested kind of ZooKeeper, and the address of an external one. Raises ConfigError."""
    if wanted is not None:
        return parse_zookeeper(wanted)
    if before is None:
        return EMBEDDED, ""
    return before.zookeeper_kind, "" if before.runs_zookeeper else before.zookeeper


def _check_distinct(brokers: Collection[BrokerRecord]) -> None:
    """Raise ClusterError if two brokers, or the two listeners of a broker, have the same port."""
    users = {broker.port: broker.id for broker in brokers}
    for broker in brokers:
        if (user := users.get(broker.control_port)) is not None:
            uses = f"for the metrics of broker {broker.id} and for the clients of broker {user}"
            text = f"port {broker.control_port} cannot be used {uses}"
            raise ClusterError(f"{text}: choose another {_METRICS_PORT} or {_PORT}")


def _kafka_port(broker: BrokerRecord) -> int:
    return broker.port


def _control_port(broker: BrokerRecord) -> int:
    return broker.control_port


def _moved(broker: BrokerRecord, first: int | None, control: int | None) -> BrokerRecord:
    """Return the broker with new ports: `first` for broker 1, `first` + 1 for broker 2, and so on.

    A port stays unchanged if the new one is None or 0, or would exceed 65535.
    """
    port, control_port = ((start or 0) + broker.id - 1 for start in (first, control))
    return replace(
        broker,
        port=port if first and port <= PORT_MAX else broker.port,
        control_port=control_port if control and control_port <= PORT_MAX else broker.control_port,
    )
