"""The data directory of a cluster: its files, and the record `cluster.json` that commands share.

```
DIR/cluster.json      ports and processes        DIR/broker-N.toml   configuration of broker N (0600)
DIR/secret            control-plane secret       DIR/broker-N/       log directory of broker N
DIR/security/         keys and passwords         DIR/broker-N-ledger/   ledger of broker N
DIR/zookeeper/        ZooKeeper                  DIR/logs/           output of the processes
DIR/faults/           faults that tests asked for
```
Invariant: ids, ports and data outlive every process. The record is replaced atomically, so a command that is
killed leaves either the old or the new record.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from minikafka.base.config import BrokerConfig
from minikafka.base.config.keys import INT_MAX, LONG_MAX
from minikafka.base.coordination import CONTROLLER, MODES
from minikafka.base.endpoints import PLAINTEXT, Endpoint, SecurityProtocol
from minikafka.base.errors import ConfigError, MinikafkaError
from minikafka.base.names import parse_cluster_id, parse_json, parse_replica_directory
from minikafka.base.ports import Clock, Rng
from minikafka.base.zookeeper import EMBEDDED, EXTERNAL, KINDS, MANAGED, OWN
from minikafka.broker.ledger.writer import directory_of
from minikafka.runtime.locks import close_to_others, holder_of, open_lock, try_lock
from minikafka.storage.log import checkpoints
from minikafka.tools.cluster.durable_files import is_same_file, make_durable, write_private
from minikafka.tools.cluster.processes import ProcessId
from minikafka.tools.cluster.settings import ClusterSettings, decode_settings, encode_settings

HOST: Final = "127.0.0.1"
CONTROL: Final = "CONTROLLER"
"""The name of the control listener."""
_ID_MAX: Final = 2**31 - 1
_PORT_MAX: Final = 65_535
_SECRET_BYTES: Final = 32
_LOCK_TIMEOUT_MS: Final = 60_000
_LOCK_POLL_MS: Final = 20


class ClusterError(MinikafkaError):
    """A request that the cluster cannot fulfil; the text is one line for the user.

    `hint`: the command or option that helps. The hint is not part of the text; only the command line shows it.
    """

    def __init__(self, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class BrokerRecord:
    """One broker: its permanent ports, and its latest process.

    `port`: the port of the listener PLAINTEXT, 0 if the broker has none. `listeners`: the ports of its other listeners
    for clients, by name. `protocols`: the security protocol of each listener of the latest process that is not
    PLAINTEXT, by the name of the listener.
    """

    id: int
    port: int
    control_port: int
    process: ProcessId | None = None
    listeners: Mapping[str, int] = field(default_factory=dict)
    protocols: Mapping[str, str] = field(default_factory=dict)

    @property
    def control(self) -> Endpoint:
        """The control listener, which receives signed calls."""
        return self._endpoint(CONTROL, self.control_port)

    @property
    def clients(self) -> tuple[Endpoint, ...]:
        """The listeners for clients, PLAINTEXT first."""
        plain = {PLAINTEXT.value: self.port} if self.port or not self.listeners else {}
        found = {**plain, **self.listeners}
        return tuple(self._endpoint(name, port) for name, port in found.items())

    @property
    def ports(self) -> dict[str, int]:
        """The ports of all listeners by name."""
        return {item.name: item.port for item in (*self.clients, self.control)}

    def with_ports(self, ports: Mapping[str, int]) -> BrokerRecord:
        """Return a copy with these listeners. `ports`: port by name."""
        others = {
            name: port for name, port in ports.items() if name not in (CONTROL, PLAINTEXT.value)
        }
        return replace(
            self,
            port=ports.get(PLAINTEXT.value, 0),
            control_port=ports[CONTROL],
            listeners=others,
        )

    def _endpoint(self, name: str, port: int) -> Endpoint:
        protocol = SecurityProtocol(self.protocols.get(name, PLAINTEXT.value))
        return Endpoint(name, HOST, port, protocol)


@dataclass(frozen=True, slots=True)
class ProxyRecord:
    """The proxy in front of every port of a cluster with `faults`, which delays, holds and drops bytes on request.

    `ports`: for each port that is advertised, the port on which the broker or ZooKeeper behind it listens. `process`:
    the latest process of the proxy.
    """

    ports: Mapping[int, int]
    process: ProcessId | None = None


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """The content of `cluster.json`.

    `zookeeper`: host:port[/chroot]. `zookeeper_kind`: EMBEDDED, MANAGED or EXTERNAL (`base/zookeeper.py`). `owner`:
    the process that started an attached cluster; the cluster ends when this process ends. `retired`: brokers that a
    smaller cluster no longer includes; they keep their ports until the cluster grows again. `configured`: the numbers
    in the table [cluster] that the last start applied from the configuration file; the next start compares them with
    the file to find edits.
    """

    brokers: tuple[BrokerRecord, ...]
    zookeeper: str
    zookeeper_process: ProcessId | None = None
    zookeeper_kind: str = EMBEDDED
    owner: ProcessId | None = None
    retired: tuple[BrokerRecord, ...] = ()
    configured: Mapping[str, int] = field(default_factory=dict)
    coordination: str = CONTROLLER
    """The coordination mode of all brokers, which never changes."""
    settings: ClusterSettings | None = None
    """The keys that the cluster keeps; None for a cluster of an older version."""
    advanced_ms: int = 0
    """By how much the wall clocks of the brokers are ahead of the machine's (`advance_clock`)."""
    is_secure: bool = False
    """True if the cluster was started with `secure`: it has an authority, users and ACLs of its own."""
    has_faults: bool = False
    """True if the latest start was one with faults: brokers accept faults of their disks and connections."""

    proxy: ProxyRecord | None = None
    """The proxy of a cluster that was started with `faults`; None if clients reach the brokers directly."""

    def listening(self, port: int) -> int:
        """Return the port on which the process listens that clients reach at an advertised port of the cluster."""
        return port if self.proxy is None else self.proxy.ports.get(port, port)

    @property
    def zookeeper_port(self) -> int:
        """The advertised port of the ZooKeeper server that the cluster runs."""
        return int(self.zookeeper.rpartition(":")[2])

    @property
    def listener_names(self) -> tuple[str, ...]:
        """The names of the listeners for clients, PLAINTEXT first."""
        return tuple(dict.fromkeys(item.name for b in self.brokers for item in b.clients))

    @property
    def bootstrap(self) -> str:
        """The bootstrap servers: host:port of every broker, up or down, for the first listener of the cluster.

        That is PLAINTEXT if the cluster has it.
        """
        return ",".join(map(_address, (broker.clients[0] for broker in self.brokers)))

    def bootstrap_of(self, listener: str) -> str:
        """Return the bootstrap servers for a listener. Raises ClusterError if the cluster has no such listener."""
        every = [item for broker in self.brokers for item in broker.clients]
        found = [item for item in every if item.name == listener.upper()]
        if not found:
            names = ", ".join(self.listener_names)
            raise ClusterError(f"the cluster has no listener {listener}, but {names}")
        return ",".join(map(_address, found))

    @property
    def runs_zookeeper(self) -> bool:
        """True if the cluster runs its ZooKeeper server itself."""
        return self.zookeeper_kind in OWN

    def address(self, broker_id: int) -> str:
        """Return host:port of a broker's first listener. Raises ClusterError if the cluster has no such broker."""
        return _address(self.broker(broker_id).clients[0])

    def broker(self, broker_id: int) -> BrokerRecord:
        """Return the record of a broker. Raises ClusterError if the cluster has no such broker."""
        for broker in self.brokers:
            if broker.id == broker_id:
                return broker
        ids = ", ".join(str(broker.id) for broker in self.brokers)
        raise ClusterError(f"there is no broker {broker_id}, the cluster has {ids}")

    def with_broker(self, changed: BrokerRecord) -> ClusterRecord:
        """Return a copy of this record, in which `changed` replaces the broker with the same id."""
        brokers = tuple(changed if broker.id == changed.id else broker for broker in self.brokers)
        return replace(self, brokers=brokers)


@dataclass(slots=True)
class ClusterDirectory:
    """The paths in the data directory, and the methods that read and write the files of the cluster.

    Raises ClusterError if the path is not UTF-8.
    """

    path: Path
    lock_holder: str = ""
    """The process that holds the lock for which `locked` waits, as text; "" if nothing waits."""
    _record_file: Path = field(init=False)

    def __post_init__(self) -> None:
        self.path = self.path.resolve()
        if not _is_text(self.path):
            text = f"the path of the data directory, {os.fsencode(self.path)!r}, is not UTF-8"
            rule = "configuration files could not name it. Rename it, or choose another one"
            raise ClusterError(f"{text}: {rule}", "--data DIR")
        self._record_file = self.path / "cluster.json"

    @property
    def zookeeper(self) -> Path:
        """Directory of the ZooKeeper server that the cluster runs."""
        return self.path / "zookeeper"

    @property
    def security(self) -> Path:
        """Directory of the keys and passwords of a secure cluster."""
        return self.path / "security"

    @property
    def zookeeper_data(self) -> Path:
        """Directory of the snapshots and logs of this server, of either kind."""
        return self.zookeeper / "data"

    def zookeeper_is_empty(self) -> bool:
        """True if there is neither a snapshot nor a log of the ZooKeeper server."""
        return not any(self.zookeeper_data.glob("version-2/*"))

    def zookeeper_is_new(self) -> bool:
        """True if the ZooKeeper server has no file: after a failed start, all that is there may be removed."""
        return not any(self.zookeeper_data.glob("*"))

    @property
    def logs(self) -> Path:
        """Directory of the files `NAME.log` with the output of the processes."""
        return self.path / "logs"

    def logged_brokers(self) -> list[int]:
        """Return the ids of the brokers in `cluster.json`; without this file, the ids of brokers with a log file.

        A failed first start of a cluster leaves log files but no `cluster.json`.
        """
        record = self.read()
        if record is not None:
            return [broker.id for broker in record.brokers]
        names = (file.stem.removeprefix("broker-") for file in self.logs.glob("broker-*.log"))
        return sorted(int(name) for name in names if name.isdecimal())

    def broker_file(self, broker_id: int) -> Path:
        """Return the path of the broker's configuration file."""
        return self.path / f"broker-{broker_id}.toml"

    def broker_data(self, broker_id: int) -> Path:
        """Return the path of the broker's log directory."""
        return self.path / f"broker-{broker_id}"

    def topics(self) -> set[str]:
        """Return the names of the topics of which a broker has a replica in this directory."""
        found: set[str] = set()
        for path in self.path.glob("broker-[0-9]*/*-[0-9]*"):
            with suppress(ValueError):
                found.add(parse_replica_directory(path.name).topic)
        return found

    def disk_faults(self, broker_id: int) -> Path:
        """Return the path of the file with the faults of the broker's disk (`runtime/disk_faults.py`)."""
        return self.path / "faults" / f"disk-{broker_id}.json"

    def broker_ledger(self, broker_id: int) -> Path:
        """Return the path of the broker's ledger directory."""
        return Path(directory_of(str(self.broker_data(broker_id))))

    def cluster_id(self, broker_id: int) -> str | None:
        """Return the cluster id stored in the broker's data; None before the broker's first start.

        The result is also None if the file is damaged; the broker reports the damage when it starts.
        """
        file = self.broker_data(broker_id) / checkpoints.META_PROPERTIES
        try:
            return parse_cluster_id(checkpoints.decode_properties(file.read_bytes())["cluster.id"])
        except (OSError, ValueError, KeyError):
            return None

    def output(self, name: str) -> Path:
        """Return the path of the file for the output of the process `name`; create its directory."""
        self.logs.mkdir(parents=True, exist_ok=True)
        return self.logs / f"{name}.log"

    def read(self) -> ClusterRecord | None:
        """Return the record; None if no cluster was ever started in this directory.

        Raises ClusterError if the record is invalid, or if the path of the directory is a file.
        """
        try:
            return _decode(parse_json(self._record_file.read_bytes()))
        except FileNotFoundError:
            return None
        except NotADirectoryError as error:
            text = f"{self.path} is not a directory"
            raise ClusterError(f"{text}: name another data directory", "--data DIR") from error
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            hint = "remove the file (the data of the cluster stays)"
            raise ClusterError(f"{self._record_file} is invalid ({error!r}): {hint}") from error

    def read_existing(self) -> ClusterRecord:
        """Return the content of `cluster.json`.

        Raises ClusterError if no cluster was ever started in this directory.
        """
        record = self.read()
        if record is None:
            text = f"there is no cluster in {self.path}"
            raise ClusterError(text, "minikafka up creates one")
        return record

    def write(self, record: ClusterRecord) -> None:
        """Write the record to `cluster.json`."""
        write_private(self._record_file, json.dumps(_encode(record), indent=1) + "\n")

    def remember(self) -> DirectorySnapshot:
        """Return a snapshot of the directory, which `DirectorySnapshot.restore` can restore."""
        return DirectorySnapshot(self)

    def configuration_files(self) -> list[Path]:
        """Return the files that exist: the record, the secret, and the configuration files of brokers."""
        files = [self._record_file, self.path / "secret", *self.path.glob("broker-*.toml")]
        return [file for file in files if file.is_file()]

    def data_directories(self) -> list[Path]:
        """Return the existing data directories: those of ZooKeeper, of security, of brokers, and of their ledgers."""
        found = [self.zookeeper, self.security, *self.path.glob("broker-*")]
        return [directory for directory in found if directory.is_dir()]

    def secret(self, rng: Rng, given: object = None) -> str:
        """Return the control-plane secret: `given`, else the stored secret, else a new secret. Store the result."""
        file = self.path / "secret"
        if given is not None:
            write_private(file, f"{given}\n")
        try:
            if text := file.read_text(encoding="utf-8").strip():
                return text
        except FileNotFoundError:
            pass
        except UnicodeDecodeError as error:
            hint = "stop the cluster and remove the file, and the next start makes a new one"
            raise ClusterError(f"{file} is not text: {hint}") from error
        text = rng.bytes(_SECRET_BYTES).hex()
        write_private(file, text + "\n")
        return text

    def write_broker_file(self, broker_id: int, keys: Mapping[str, object]) -> Path:
        """Write the broker's configuration file with these Kafka keys; return its path."""
        lines = [f"{json.dumps(key)} = {_toml(value)}" for key, value in sorted(keys.items())]
        file = self.broker_file(broker_id)
        write_private(file, "\n".join(["[broker]", *lines, ""]))
        return file

    def broker_config(self, broker_id: int) -> BrokerConfig | None:
        """Return the content of the broker's configuration file; None if it is missing or invalid."""
        try:
            return BrokerConfig.parse(self.broker_file(broker_id).read_text())
        except (OSError, ConfigError, UnicodeDecodeError):
            return None

    def broker_settings(self, broker_id: int) -> dict[str, str]:
        """Return the settings in the broker's configuration file as text, without secrets. Raises ConfigError."""
        config = BrokerConfig.parse(self.broker_file(broker_id).read_text())
        found = {name: config.text(name) for name in sorted({*config.given, *config.listener_keys})}
        return {name: value for name, value in found.items() if value is not None}

    def serves_metrics(self, broker_id: int) -> bool:
        """True if the broker's configuration file is readable and does not disable metrics."""
        config = self.broker_config(broker_id)
        return config is not None and config.minikafka_metrics_enable

    @asynccontextmanager
    async def locked(self, clock: Clock) -> AsyncIterator[None]:
        """Hold the lock of the cluster, so that only one command at a time changes it. Close the directory to others.

        The lock is released at the end of the `with` block, or when this process ends. If the directory was
        created for the lock and contains no other file at the end, it is removed. Raises ClusterError after a
        minute of waiting.
        """
        deadline = clock.now() + _LOCK_TIMEOUT_MS
        lock = self.path / "lock"
        while True:
            is_new = not self.path.exists()
            make_durable(self.path)
            close_to_others(self.path)
            try:
                file = os.fdopen(open_lock(str(lock)), "ab")
            except FileNotFoundError:  # the directory was removed in between
                continue
            with file:
                if try_lock(file.fileno()) and is_same_file(file, lock):
                    self.lock_holder = ""
                    try:
                        yield
                    finally:
                        if is_new and [*self.path.iterdir()] == [lock]:
                            lock.unlink()
                            self.path.rmdir()
                    return
            self.lock_holder = holder_of(lock)
            if clock.now() >= deadline:
                text = f"{self.path} is in use: {self.lock_holder} holds {lock}"
                raise ClusterError(f"{text}: wait until it has ended, or end it")
            await clock.sleep(_LOCK_POLL_MS)


def _address(endpoint: Endpoint) -> str:
    return f"{endpoint.host}:{endpoint.port}"


def _is_text(path: Path) -> bool:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


class DirectorySnapshot:
    """A snapshot of a data directory before a start: its configuration files, and a list of data directories."""

    def __init__(self, directory: ClusterDirectory) -> None:
        self._directory = directory
        self._files = {file: file.read_text() for file in directory.configuration_files()}
        self._data = directory.data_directories()
        self._has_record = directory.read() is not None

    def restore(self) -> None:
        """Undo the changes that a failed start made to the files. The processes of the start must have ended.

        If there was no cluster before, the data directories that the start created are removed too.
        """
        for file in self._directory.configuration_files():
            if file not in self._files:
                file.unlink()
        for file, text in self._files.items():
            write_private(file, text)
        if not self._has_record:
            for created in self._directory.data_directories():
                if created not in self._data:
                    shutil.rmtree(created, ignore_errors=True)


def _encode(record: ClusterRecord) -> dict[str, Any]:
    return {
        "bootstrap": record.bootstrap,
        "zookeeper": {
            "connect": record.zookeeper,
            "kind": record.zookeeper_kind,
            "managed": record.runs_zookeeper,  # the only field that older versions read
            "process": _encode_process(record.zookeeper_process),
        },
        "brokers": list(map(_encode_broker, record.brokers)),
        "retired": list(map(_encode_broker, record.retired)),
        "owner": _encode_process(record.owner),
        "configured": dict(record.configured),
        "coordination": record.coordination,
        "settings": None if record.settings is None else encode_settings(record.settings),
        "secure": record.is_secure,
        "clock_advanced_ms": record.advanced_ms,
        "faults": record.has_faults,
        **({} if record.proxy is None else {"proxy": _encode_proxy(record.proxy)}),
    }


def _decode(value: Any) -> ClusterRecord:
    zookeeper = value["zookeeper"]
    if not value["brokers"]:
        raise ValueError("no brokers")
    return ClusterRecord(
        brokers=tuple(map(_decode_broker, value["brokers"])),
        zookeeper=str(zookeeper["connect"]),
        zookeeper_process=_decode_process(zookeeper["process"]),
        owner=_decode_process(value["owner"]),
        # Records of older versions do not have these fields.
        zookeeper_kind=_decode_kind(zookeeper),
        retired=tuple(map(_decode_broker, value.get("retired", ()))),
        configured={str(name): int(n) for name, n in value.get("configured", {}).items()},
        coordination=_decode_mode(value.get("coordination", CONTROLLER)),
        settings=decode_settings(found) if (found := value.get("settings")) else None,
        is_secure=bool(value.get("secure", False)),
        advanced_ms=int(value.get("clock_advanced_ms", 0)),
        has_faults=bool(value.get("faults", False)),
        proxy=_decode_proxy(value["proxy"]) if "proxy" in value else None,
    )


def _encode_proxy(proxy: ProxyRecord) -> dict[str, Any]:
    ports = {str(advertised): listening for advertised, listening in proxy.ports.items()}
    return {"ports": ports, "process": _encode_process(proxy.process)}


def _decode_proxy(value: Any) -> ProxyRecord:
    ports = value["ports"]
    return ProxyRecord(
        {int(name): _decode_number(ports, name, _PORT_MAX) for name in ports},
        _decode_process(value["process"]),
    )


def _encode_broker(broker: BrokerRecord) -> dict[str, Any]:
    return {
        "id": broker.id,
        "port": broker.port,
        "control_port": broker.control_port,
        "listeners": dict(broker.listeners),
        "protocols": dict(broker.protocols),
        "process": _encode_process(broker.process),
    }


def _decode_broker(value: Any) -> BrokerRecord:
    listeners = value.get("listeners", {})
    return BrokerRecord(
        _decode_number(value, "id", _ID_MAX),
        _decode_number(value, "port", _PORT_MAX),
        _decode_number(value, "control_port", _PORT_MAX),
        _decode_process(value["process"]),
        # Records of older versions do not have these fields.
        {name: _decode_number(listeners, name, _PORT_MAX) for name in listeners},
        {name: SecurityProtocol(text).value for name, text in value.get("protocols", {}).items()},
    )


def _decode_number(value: Any, name: str, high: int) -> int:
    number = value[name]
    if type(number) is not int or not 0 <= number <= high:
        raise ValueError(f"{name} {number!a}")
    return number


def _decode_mode(value: Any) -> str:
    if value not in MODES:
        raise ValueError(f"coordination {value!a}")
    return str(value)


def _decode_kind(zookeeper: Any) -> str:
    """Return the kind of ZooKeeper. Clusters of older versions run Apache ZooKeeper, or use an external one."""
    kind = zookeeper.get("kind", MANAGED if zookeeper["managed"] else EXTERNAL)
    if kind not in KINDS:
        raise ValueError(f"kind {kind!a}")
    return str(kind)


def _encode_process(process: ProcessId | None) -> dict[str, int] | None:
    return None if process is None else process._asdict()


def _decode_process(value: Any) -> ProcessId | None:
    return (
        None
        if value is None
        else ProcessId(
            _decode_number(value, "pid", INT_MAX), _decode_number(value, "started", LONG_MAX)
        )
    )


def _toml(value: object) -> str:
    """Return a value as TOML, which equals JSON for strings, numbers, booleans and lists."""
    return json.dumps(value, ensure_ascii=False)
