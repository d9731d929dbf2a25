"""Planning of a cluster: the brokers of the cluster, and their ports.

Invariant: a broker keeps its ports until other ports are requested, even while the cluster is smaller and does
not include the broker. A port that this module chooses is not in use by another process or broker. The number
of brokers, the first Kafka port and the first control port are each taken from the first source in this list that
has a value, and so is the first port of each other listener:

1. the argument of LocalCluster
2. the configuration, if the user has named its file or has edited the value since the last start
3. the record of the last start
4. the configuration, also if it was not edited

A cluster has the listeners that the argument names, else those of the configuration, else those of the last start. A
new listener of a broker that runs takes effect at the broker's next start. A secure cluster has the listener SASL_SSL
only, in the place of PLAINTEXT. It stays secure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from minikafka.base.config import BrokerConfig
from minikafka.base.config.cluster import LISTENER_KEY, ClusterConfig
from minikafka.base.coordination import CONTROLLER, COORDINATION
from minikafka.base.endpoints import PLAINTEXT
from minikafka.base.errors import ConfigError
from minikafka.base.ports import Rng
from minikafka.base.zookeeper import EMBEDDED, OWN, parse_zookeeper
from minikafka.tools.cluster.directory import (
    CONTROL,
    HOST,
    BrokerRecord,
    ClusterError,
    ClusterRecord,
    ProxyRecord,
)
from minikafka.tools.cluster.ports import HeldPorts, free_ports
from minikafka.tools.cluster.processes import ProcessId
from minikafka.tools.cluster.secure.files import LISTENER

PORT_MAX: Final = 65_535
BROKERS_MAX: Final = 1000
_BROKERS: Final = "cluster.brokers"
_PORT: Final = "cluster.port"
_METRICS_PORT: Final = "cluster.metrics.port"
_CONNECT: Final = "zookeeper.connect"
_LOOPBACK: Final = ("127.", "localhost:")


class LaunchRequest(NamedTuple):
    """The arguments of LocalCluster.

    If `brokers`, `port` or `metrics_port` is None, the value comes from another source (see the docstring of this
    module). `coordination` None means the mode of the configuration, else of the existing cluster. Port 0 means any
    free ports. `zookeeper` None means the ZooKeeper of the existing
    cluster, or an embedded one for a new cluster. `listeners`: port of broker 1 by listener name, without PLAINTEXT,
    which the cluster has if `port` is given or no other listener is named; None if another source names the listeners.
    `is_secure`: the cluster is to be secure; False keeps what it is. `has_faults`: brokers accept faults of their disks
    and connections; while a process runs, the cluster keeps what it is.
    """

    brokers: int | None
    port: int | None
    config: ClusterConfig
    zookeeper: str | None
    owner: ProcessId | None
    metrics_port: int | None = None
    coordination: str | None = None
    listeners: Mapping[str, int] | None = None
    is_secure: bool = False
    has_faults: bool = False


class LaunchPlan(NamedTuple):
    """The cluster to start. `postponed`: a text for each setting that cannot take effect while processes run."""

    record: ClusterRecord
    postponed: tuple[str, ...] = ()


class Running(NamedTuple):
    """The processes that already run. `anything`: True if any process of the cluster runs, also ZooKeeper."""

    brokers: Collection[int] = ()
    anything: bool = False


class _Ports(NamedTuple):
    """The ports of one listener of each broker.

    `argument` and `given`: name and value of LocalCluster's argument for the port of broker 1. `key` and
    `configured`: name and value of the key.
    """

    listener: str
    argument: str
    given: int | None
    key: str
    configured: int

    def of(self, broker: BrokerRecord) -> int:
        """Return the port of a broker, 0 if the broker has none for this listener."""
        return broker.ports.get(self.listener, 0)


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
        configured = before.configured if before and not request.config.was_named else {}
        given = request.config.numbers
        self._is_secure = request.is_secure or (before is not None and before.is_secure)
        self._first = LISTENER if self._is_secure else PLAINTEXT.value
        """The name of the listener that `port` and `cluster.port` are for."""
        self._edited = {name: n for name, n in given.items() if configured.get(name) != n}

    def plan(self) -> LaunchPlan:
        request, before = self._request, self._before
        if request.brokers is not None and not 1 <= request.brokers <= BROKERS_MAX:
            raise ClusterError(f"brokers must be from 1 to {BROKERS_MAX}, got {request.brokers}")
        self._check_secure()
        count = self._count()
        rows = self._listeners()
        firsts = {row: self._first_port(row, count) for row in rows}
        is_new_everywhere = rows[0].listener == self._first and firsts[rows[0]] == 0
        if is_new_everywhere:
            firsts = {row: row.configured if n is None else n for row, n in firsts.items()}
        brokers, retired, taken = self._brokers(count, firsts, is_new_everywhere)
        _check_distinct(brokers, self._first)
        connect, kind = self._zookeeper(is_new_everywhere, taken)
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
            is_secure=self._is_secure,
            advanced_ms=before.advanced_ms if before is not None else 0,
            has_faults=self._has_faults(),
        )
        if record.has_faults:
            record = replace(record, proxy=self._proxy(record, taken))
        return LaunchPlan(record, tuple(self._postponed.values()))

    def _has_faults(self) -> bool:
        """True if brokers are to accept faults, which running processes cannot begin or cease to do."""
        wanted, before = self._request.has_faults, self._before
        if before is None or not self._running.anything or wanted == before.has_faults:
            return wanted
        if wanted:
            self._postponed["faults"] = "faults: takes effect after minikafka down and minikafka up"
        return before.has_faults

    def _proxy(self, record: ClusterRecord, taken: Collection[int]) -> ProxyRecord:
        """Return the proxy of a cluster. A port that had a port behind it keeps it.

        Raises ClusterError if ZooKeeper cannot be reached from the loopback addresses of the brokers.
        """
        servers = record.zookeeper.partition("/")[0].split(",")
        if far := [server for server in servers if not server.startswith(_LOOPBACK)]:
            text = f"with faults, brokers connect from 127.77.0.0/16, which does not reach ZooKeeper at {far[0]}"
            raise ClusterError(f"{text}: use one on this machine", "leave --zookeeper out")
        former = self._before.proxy if self._before else None
        known = former.ports if former else {}
        advertised = [port for broker in record.brokers for port in broker.ports.values()]
        if record.runs_zookeeper:
            advertised.append(record.zookeeper_port)
        used = {*taken, *advertised, *known.values()}
        ports = {port: known[port] for port in advertised if port in known}
        new = [port for port in advertised if port not in known]
        found = free_ports(len(new), self._rng, used, self._held)
        process = former.process if former else None
        return ProxyRecord(ports | dict(zip(new, found, strict=True)), process)

    def _check_secure(self) -> None:
        """Raise ClusterError or ConfigError if the request does not fit a secure cluster, or cannot make one."""
        request, before = self._request, self._before
        if not self._is_secure:
            return
        if before is not None and not before.is_secure:
            text = "the cluster was started without --secure and stays as it is"
            hint = "--data OTHER_DIR; docs/security.md has the steps from PLAINTEXT to SASL_SSL"
            raise ClusterError(text, hint)
        if request.listeners or request.config.listeners:
            rule = f"its only listener is {LISTENER}, with the ports of {_PORT}"
            raise ConfigError(f"[listeners] cannot be set in a secure cluster: {rule}")
        wanted = request.zookeeper
        if wanted not in (None, EMBEDDED):
            rule = "must be embedded in a secure cluster, which protects its own server"
            raise ClusterError(f"{_CONNECT} {rule}, got {wanted}", "leave --zookeeper out")

    def _listeners(self) -> list[_Ports]:
        """Return the listeners of the cluster, the control listener last."""
        request, config = self._request, self._request.config
        ports, given = config.listeners or {}, request.listeners or {}
        rows = [
            _Ports(name, "port", request.port, _PORT, config.port)
            if name == self._first
            else _Ports(
                name,
                f"listeners[{name!r}]",
                given.get(name),
                f"{LISTENER_KEY}{name}",
                ports.get(name, 0),
            )
            for name in self._names()
        ]
        metrics = request.metrics_port
        return [
            *rows,
            _Ports(CONTROL, "metrics_port", metrics, _METRICS_PORT, config.metrics_port),
        ]

    def _names(self) -> list[str]:
        """Return the names of the listeners for clients, PLAINTEXT first. Raises ClusterError."""
        request, before = self._request, self._before
        if self._is_secure:
            return [LISTENER]
        known = before.listener_names if before else ()
        wanted = request.config.listener_names or known or (PLAINTEXT.value,)
        if request.listeners is not None:
            is_plain = not request.listeners or request.port is not None
            wanted = (*([PLAINTEXT.value] if is_plain else []), *request.listeners)
        elif request.port is not None and PLAINTEXT.value not in wanted:
            text = "port is the port of the listener PLAINTEXT, which the cluster does not have"
            raise ClusterError(f"{text}: set {_PORT} in the configuration, or leave it out")
        removed = [name for name in known if name not in wanted] if self._running.brokers else []
        for name in removed:
            key = _PORT if name == PLAINTEXT.value else f"{LISTENER_KEY}{name}"
            self._postponed[key] = (
                f"the listener {name} is kept until minikafka down and minikafka up"
            )
        return sorted((*wanted, *removed), key=lambda name: name != PLAINTEXT.value)

    def _configured(self) -> dict[str, int]:
        """Return the configured values of cluster.brokers and of ports that this start applies.

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
        if before is None or not any(map(ports.of, (*before.brokers, *before.retired))):
            return ports.configured
        first = self._edited.get(ports.key)
        if first is None or not self._running.brokers:
            return first
        if first and any(ports.of(broker) != first + broker.id - 1 for broker in before.brokers):
            self._postponed[ports.key] = (
                f"{ports.key} = {first}: takes effect after minikafka down and minikafka up"
            )
        return None

    def _zookeeper(self, is_moved: bool, taken: Collection[int]) -> tuple[str, str]:
        """Return the connection string and the kind of ZooKeeper. Raises ConfigError.

        The cluster keeps its ZooKeeper until another one is requested while no process runs. Servers of both kinds use
        the same port and the same data. `is_moved`: a server of the cluster gets another port.
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
            if before.runs_zookeeper and kind in OWN and not is_moved:
                return before.zookeeper, kind
        return address or f"{HOST}:{self._free_port(taken)}", kind

    def _brokers(
        self, count: int, firsts: Mapping[_Ports, int | None], is_new_everywhere: bool
    ) -> tuple[tuple[BrokerRecord, ...], tuple[BrokerRecord, ...], set[int]]:
        """Return the brokers to start, the retired brokers, and all ports that the cluster uses.

        `firsts`: the port of broker 1 for each listener. `is_new_everywhere`: brokers that are down get new ports.
        """
        known = self._known(firsts, is_new_everywhere)
        taken = {port for broker in known.values() for port in broker.ports.values()}
        if self._before is not None and self._before.runs_zookeeper:
            taken.add(int(self._before.zookeeper.rpartition(":")[2]))
        for start in filter(None, firsts.values()):
            taken.update(range(start, start + count))
        brokers = []
        for broker_id in range(1, count + 1):
            broker = known.get(broker_id, BrokerRecord(broker_id, 0, 0))
            ports = {}
            for row, first in firsts.items():
                ports[row.listener] = (
                    row.of(broker)
                    or self._new_port(broker_id, first, known, taken, row)
                    or self._free_port(taken)
                )
                taken.add(ports[row.listener])
            brokers.append(broker.with_ports(ports))
        retired = tuple(broker for id_, broker in sorted(known.items()) if id_ > count)
        return tuple(brokers), retired, taken

    def _known(
        self, firsts: Mapping[_Ports, int | None], is_new_everywhere: bool
    ) -> dict[int, BrokerRecord]:
        """Return the brokers of the last start by id, with the requested ports; 0 for a port that is to be chosen."""
        before, running = self._before, self._running.brokers
        brokers = (*before.brokers, *before.retired) if before else ()
        if is_new_everywhere:
            brokers = tuple(broker for broker in brokers if broker.id in running)
        return {broker.id: _moved(broker, firsts, broker.id in running) for broker in brokers}

    def _free_port(self, taken: Collection[int]) -> int:
        return free_ports(1, self._rng, taken, self._held)[0]

    def _new_port(
        self,
        broker_id: int,
        first: int | None,
        known: Mapping[int, BrokerRecord],
        taken: Collection[int],
        row: _Ports,
    ) -> int | None:
        """Return the port of a new broker that `first` requests, or that continues the ports of the known brokers.

        Return None if the broker needs any free port: if `first` is 0, if the known ports are not consecutive, or if
        the new port is in use or exceeds 65535.
        """
        if first:
            return first + broker_id - 1
        firsts = {port - broker.id + 1 for broker in known.values() if (port := row.of(broker))}
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


def _check_distinct(brokers: Collection[BrokerRecord], first: str) -> None:
    """Raise ClusterError if two listeners, of one broker or of two, have the same port.

    `first`: the listener that `cluster.port` is for.
    """
    uses = {first: ("the clients", _PORT), CONTROL: ("the metrics", _METRICS_PORT)}
    users: dict[int, tuple[int, str]] = {}
    for name in dict.fromkeys(name for broker in brokers for name in broker.ports):
        what, key = uses.get(name, (f"the listener {name}", f"{LISTENER_KEY}{name}"))
        for broker in brokers:
            port = broker.ports[name]
            if port in users:
                user, other = users[port]
                of_user, other_key = uses.get(
                    other, (f"the listener {other}", f"{LISTENER_KEY}{other}")
                )
                both = f"for {what} of broker {broker.id} and for {of_user} of broker {user}"
                text = f"port {port} cannot be used {both}"
                raise ClusterError(f"{text}: choose another {key} or {other_key}")
            users[port] = broker.id, name


def _moved(
    broker: BrokerRecord, firsts: Mapping[_Ports, int | None], is_running: bool
) -> BrokerRecord:
    """Return the broker with new ports: the first port for broker 1, the next one for broker 2, and so on.

    A port stays unchanged if there is no new one, or if it would exceed 65535. It becomes 0 if it is to be chosen.
    """
    ports = {}
    for row, first in firsts.items():
        port = (first or 0) + broker.id - 1
        if first and port <= PORT_MAX:
            ports[row.listener] = port
        elif first == 0 and not is_running:
            ports[row.listener] = 0
        else:
            ports[row.listener] = row.of(broker)
    return broker.with_ports(ports)
