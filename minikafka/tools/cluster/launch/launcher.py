"""Starting a cluster: plan the ids and ports, write them to the directory, and start missing processes.

Invariant: a configuration that cannot be started is refused before any file is written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from minikafka.base.config import BrokerConfig
from minikafka.base.config.cluster import LISTENER_KEY
from minikafka.base.coordination import COORDINATION
from minikafka.base.endpoints import PLAINTEXT
from minikafka.base.errors import ConfigError
from minikafka.base.ports import Clock, Rng
from minikafka.base.zookeeper import EMBEDDED, MANAGED
from minikafka.broker.rpc.messages import SettingChange
from minikafka.tools.cluster.directory import (
    CONTROL,
    BrokerRecord,
    ClusterDirectory,
    ClusterError,
    ClusterRecord,
)
from minikafka.tools.cluster.launch.broker_keys import (
    SECRET_KEY,
    changes_between,
    check_inter_broker,
    laid_keys,
    protocols_of,
    settings_after,
    settings_in,
)
from minikafka.tools.cluster.launch.plan import (
    LaunchPlan,
    LaunchRequest,
    Running,
    coordination_of,
    plan,
)
from minikafka.tools.cluster.launch.proxy import PROXY, behind_proxy, proxy_command, set_routes
from minikafka.tools.cluster.launch.tls_check import check_tls
from minikafka.tools.cluster.ports import HeldPorts, is_free
from minikafka.tools.cluster.processes import (
    ProcessId,
    find_broker,
    identify,
    is_alive,
    is_paused,
    kill,
    spawn,
    wait_until_gone,
)
from minikafka.tools.cluster.running import RunningProcesses
from minikafka.tools.cluster.secure.files import LISTENER, SecurityFiles
from minikafka.tools.cluster.secure.users import write_users
from minikafka.tools.cluster.settings import ClusterSettings
from minikafka.tools.cluster.zookeeper.lost_data import known_cluster_ids, why_empty, why_lost
from minikafka.zookeeper.processes.apache import ApacheZooKeeper
from minikafka.zookeeper.processes.child import EmbeddedZooKeeper, ServerProcess

PORT_WAIT_MS: Final = 2_000
DYING_MS: Final = 500
"""Time for a killed broker to end. A broker whose process still exists after this time counts as running."""
POLL_MS: Final = 50
_SERVERS: Final[Mapping[str, type[ServerProcess]]] = {
    EMBEDDED: EmbeddedZooKeeper,
    MANAGED: ApacheZooKeeper,
}
"""The ZooKeeper server that a cluster runs, by the kind in its record."""


@dataclass(slots=True)
class Launcher:
    """One start of a cluster, as described by `request`.

    `spawned`: the processes started so far. `postponed`: a text for each setting that cannot take effect
    while processes run.
    """

    directory: ClusterDirectory
    running: RunningProcesses
    request: LaunchRequest
    clock: Clock
    rng: Rng
    held: HeldPorts = field(default_factory=HeldPorts)
    """Holds the ports of the brokers and of ZooKeeper, so that no other start takes them."""
    spawned: list[ProcessId] = field(default_factory=list)
    _written: dict[int, int] = field(default_factory=dict)
    """Broker id -> bytes of its output before this launcher started it."""
    postponed: list[str] = field(default_factory=list)
    saved: ClusterRecord | None = None
    """The last record that this start has written; None before the first write."""
    changes: dict[int, list[SettingChange]] = field(default_factory=dict)
    """By id of a broker that was down: the settings in its file that this start has changed."""

    @property
    def security(self) -> SecurityFiles:
        """The keys and passwords of a secure cluster."""
        return SecurityFiles(self.directory)

    @property
    def record(self) -> ClusterRecord:
        """The current record in `cluster.json`. Raises ClusterError if another thread has removed the cluster."""
        return self.directory.read_existing()

    def check(self) -> None:
        """Raise ConfigError if the cluster cannot be started as requested; write nothing."""
        before = self.directory.read()
        held = HeldPorts()
        try:
            record = self._planned(before, held).record
        finally:
            held.release()  # the plan of the start chooses again
        if before is not None and record.is_secure:
            self.security.check()
        self._check_overrides(record)
        self._check_keys(record, record.brokers)

    def _check_keys(self, record: ClusterRecord, brokers: Collection[BrokerRecord]) -> None:
        """Raise ConfigError if brokers could not start with their keys."""
        secret = self.request.config.broker.get(SECRET_KEY)
        keys = [self._broker_keys(broker, record, secret) for broker in brokers]
        if not record.is_secure:  # a start makes or replaces the certificate of a secure cluster
            check_tls(map(BrokerConfig.from_mapping, keys))

    async def start_all(self) -> list[int]:
        """Start ZooKeeper and all brokers that are down, and resume paused brokers; return all broker ids."""
        before = await self._finish_former_run()
        planned = self.plan(before)
        await self._check_ports(planned.record, planned.record.brokers, alone=True)
        self.write(planned)
        return await self._start(planned.record.brokers)

    async def start_broker(self, broker_id: int) -> list[int]:
        """Start one broker, and ZooKeeper if it is down. Raises ClusterError if the broker already runs."""
        return await self._start([await self._stopped_broker(broker_id)])

    async def _start(self, brokers: Collection[BrokerRecord]) -> list[int]:
        self.check_zookeeper_files()
        await self.start_proxy()
        zookeeper = await self.spawn_zookeeper()
        await self.open_ports()
        await self.check_cluster(zookeeper)
        if self.record.is_secure:
            await self._write_users(zookeeper)
        for broker in brokers:
            process = self.running.broker(self.record, broker.id)
            if process is None:
                await self._spawn_broker(broker)
            elif is_paused(process):
                await self.running.set_paused(process, False)
        if zookeeper is not None:
            await zookeeper.wait_until_serving()
        return [broker.id for broker in brokers]

    async def _write_users(self, started: ServerProcess | None) -> None:
        """Let ZooKeeper have the users with whom brokers log in to each other. `started`: as in `check_cluster`."""
        if started is not None:
            await started.wait_until_serving()
        is_new = not known_cluster_ids(self.directory, self.record)
        await write_users(self.directory, self.record, self.clock, self.rng, is_new=is_new)

    def check_zookeeper_files(self) -> None:
        """Raise ClusterError if the cluster's own ZooKeeper, which is down, has lost all its files.

        Brokers that still run would end as soon as they find a server without them.
        """
        if self.running.zookeeper(self.record) is not None or not self.directory.zookeeper_is_new():
            return
        if lost := why_empty(self.directory, self.record):
            raise ClusterError(f"{lost}. No broker was started")

    async def check_cluster(self, started: ServerProcess | None = None) -> None:
        """Raise ClusterError if ZooKeeper does not have the cluster of the log directories.

        `started`: the ZooKeeper server that this start has started. In this case it is killed.
        """
        if not known_cluster_ids(self.directory, self.record):
            return
        if started is not None:
            await started.wait_until_serving()
        if not (lost := await why_lost(self.directory, self.record, self.clock, self.rng)):
            return
        if started is not None and (process := identify(started.pid)) is not None:
            await kill(process, self.clock)
        raise ClusterError(f"{lost}. No broker was started")

    async def _stopped_broker(self, broker_id: int) -> BrokerRecord:
        """Return the record of a broker that is down or ends within DYING_MS. Raises ClusterError for other brokers."""
        record = self.record
        broker = record.broker(broker_id)
        process = self.running.broker(record, broker_id)
        if process is not None and not await wait_until_gone(process, self.clock, DYING_MS):
            if is_paused(process):
                hint = f"minikafka resume {broker_id} lets it continue"
                raise ClusterError(f"broker {broker_id} is paused (SIGSTOP), not down", hint)
            raise ClusterError(f"broker {broker_id} is already running")
        return broker

    async def _finish_former_run(self) -> ClusterRecord | None:
        """Return the record of the previous run, after killing processes that the previous run left behind.

        Raises ClusterError if the cluster of the previous run is still in use.
        """
        record = self.directory.read()
        owner = self.request.owner
        if record is None or record.owner == owner:
            return record
        alive = [process for process in self.running.every_process(record) if is_alive(process)]
        if is_alive(record.owner):
            assert record.owner is not None
            raise ClusterError(f"{self.directory.path} is in use by process {record.owner.pid}")
        if record.owner is None and alive:
            text = f"a cluster is running in {self.directory.path}"
            raise ClusterError(text, "minikafka down stops it")
        # The owner died before it could end the processes.
        for process in alive:
            await kill(process, self.clock)
        return record

    def _check_overrides(self, record: ClusterRecord) -> None:
        """Raise ConfigError if the configuration has a table [broker.N] for a broker that does not exist."""
        config = self.request.config
        count = max(len(record.brokers), config.brokers)
        for broker_id in sorted(config.overrides):
            if broker_id > count:
                text = f"[broker.{broker_id}] is for a broker that the cluster does not have"
                raise ConfigError(f"{text}: its brokers are 1 to {count} (cluster.brokers)")

    def _check_running(self, before: ClusterRecord, record: ClusterRecord) -> None:
        """Raise ClusterError if `record` omits a running broker or changes its port."""
        kept = {broker.id: broker for broker in record.brokers}
        for broker in before.brokers:
            if self.running.broker(before, broker.id) is None:
                continue
            if broker.id not in kept:
                text = f"broker {broker.id} is still running"
                raise ClusterError(text, f"minikafka stop {broker.id} first")
            new = kept[broker.id].ports
            for name, old_port in broker.ports.items():
                if (new_port := new.get(name)) != old_port:
                    words = f"{_words(name, before.is_secure)} {old_port}"
                    ports = f"runs on {words} and cannot change to {new_port or 'no port'}"
                    text = f"broker {broker.id} {ports} now: stop the cluster first"
                    raise ClusterError(text, "minikafka down")

    def plan(self, before: ClusterRecord | None) -> LaunchPlan:
        """Return the plan of the cluster to start; write nothing. Raises ClusterError and ConfigError."""
        planned = self._planned(before, self.held)
        if before is not None:
            self._check_running(before, planned.record)
        return planned

    def _planned(self, before: ClusterRecord | None, held: HeldPorts) -> LaunchPlan:
        request = self.request._replace(is_secure=self._is_secure(before))
        planned = plan(before, request, self.rng, self._running_now(before), held)
        former = None if before is None else self._former_settings(before)
        settings = settings_after(former, self.request.config, len(planned.record.brokers))
        return planned._replace(record=replace(planned.record, settings=settings))

    def _is_secure(self, before: ClusterRecord | None) -> bool:
        """True if the cluster is secure, or is to become so. Without a record, the files of its security decide."""
        known = self.security.exist if before is None else before.is_secure
        return self.request.is_secure or known

    def _former_settings(self, record: ClusterRecord) -> ClusterSettings:
        if record.settings is not None:
            return record.settings
        files = {broker.id: self.directory.broker_config(broker.id) for broker in record.brokers}
        return settings_in({id_: file for id_, file in files.items() if file is not None})

    def settings_now(self) -> ClusterSettings:
        """Return the settings of the existing cluster with the requested configuration. Raises ClusterError."""
        record = self.record
        former = self._former_settings(record)
        return settings_after(former, self.request.config, len(record.brokers))

    def _running_now(self, record: ClusterRecord | None) -> Running:
        if record is None:
            return Running()
        ids = self.running.running_ids(record)
        others = [self.running.zookeeper(record), self.running.proxy(record)]
        return Running(ids, bool(ids) or any(others))

    def write(self, planned: LaunchPlan) -> None:
        """Write the cluster record (`cluster.json`) and the configuration files of the brokers."""
        self.postponed.extend(planned.postponed)
        running = self.running.running_ids(planned.record)
        if planned.record.is_secure:
            self.security.prepare(self.clock, self.rng)
        self._save(planned.record)
        self._write_files(planned.record, planned.record.brokers)
        self.changes = {id_: of for id_, of in self.changes.items() if id_ not in running}

    def write_files(self, ids: Collection[int]) -> None:
        """Write the configuration files of these brokers, for their next start. Raises ConfigError."""
        coordination_of(self.request, self.record)
        self._check_overrides(self.record)
        record = replace(self.record, settings=self.settings_now())
        brokers = [record.broker(id_) for id_ in ids]
        self._check_keys(record, brokers)
        self._write_files(record, brokers)
        self._save(record)

    def unapplied(self, broker_id: int) -> list[SettingChange]:
        """Return the settings in which the requested configuration differs from the broker's file; write nothing.

        Raises ConfigError.
        """
        record = replace(self.record, settings=self.settings_now())
        return self._changes(record.broker(broker_id), record)

    def _changes(self, broker: BrokerRecord, record: ClusterRecord) -> list[SettingChange]:
        before = self.directory.broker_config(broker.id)
        keys = self._broker_keys(broker, record, None)
        return [] if before is None else changes_between(before, BrokerConfig.from_mapping(keys))

    def _write_files(self, record: ClusterRecord, brokers: Collection[BrokerRecord]) -> None:
        secret = self._secret(record)
        keys = {broker.id: self._broker_keys(broker, record, secret) for broker in brokers}
        self.changes = {broker.id: self._changes(broker, record) for broker in brokers}
        for broker_id, of_broker in keys.items():
            self.directory.write_broker_file(broker_id, of_broker)

    def _save(self, record: ClusterRecord) -> None:
        self.directory.write(record)
        self.saved = record

    def _secret(self, record: ClusterRecord) -> str:
        """Return the cluster's secret. While a broker runs, ignore a new secret, and report this in `postponed`."""
        given = self.request.config.broker.get(SECRET_KEY)
        if given is not None and self.running.running_ids(record):
            stored = self.directory.secret(self.rng)
            if stored != str(given):
                after = "takes effect after minikafka down and minikafka up"
                self.postponed.append(f"{SECRET_KEY}: {after}")
            return stored
        return self.directory.secret(self.rng, given)

    def _broker_keys(
        self, broker: BrokerRecord, record: ClusterRecord, secret: object
    ) -> dict[str, object]:
        """Return the checked configuration of a broker. Raises ConfigError."""
        own = {
            "broker.id": broker.id,
            "listeners": ",".join(map(str, (*broker.clients, broker.control))),
            "log.dirs": str(self.directory.broker_data(broker.id)),
            "zookeeper.connect": record.zookeeper,
        }
        assert record.settings is not None, "set by the plan of a start"
        keys = record.settings.keys_of(broker.id)
        for name in own.keys() & keys.keys():
            raise ConfigError(f"{name} is set by the cluster for each broker: leave it out")
        secure = self.security.broker_keys() if record.is_secure else {}
        for name in secure.keys() & keys.keys():
            raise ConfigError(f"{name} is set by the secure cluster itself: leave it out")
        found = {
            **laid_keys(record.settings, len(record.brokers)),
            **secure,
            **keys,
            **({SECRET_KEY: secret} if secret else {}),
            COORDINATION: record.coordination,
            **own,
        }
        if record.proxy is not None:
            behind = behind_proxy(broker, record)
            for name in (behind.keys() - own.keys()) & keys.keys():
                raise ConfigError(f"{name} is set by the cluster with faults itself: leave it out")
            found |= behind
        if not broker.port:
            check_inter_broker(found, broker.listeners)
        BrokerConfig.from_mapping(found)
        return found

    async def spawn_zookeeper(self) -> ServerProcess | None:
        """Start the cluster's ZooKeeper, record its process and return the server.

        Return None, and start nothing, if the server already runs or is external. A paused server continues.
        """
        record = self.record
        if not record.runs_zookeeper:
            return None
        if (process := self.running.zookeeper(record)) is not None:
            if is_paused(process):
                await self.running.set_paused(process, False)
            return None
        port = record.listening(record.zookeeper_port)
        await self._wait_until_free(port)
        new_server: Callable[..., ServerProcess] = _SERVERS[record.zookeeper_kind]
        if record.is_secure:
            new_server = partial(EmbeddedZooKeeper, config=self.security.zookeeper)
        server = new_server(
            self.directory.zookeeper,
            port,
            clock=self.clock,
            attached=self.request.owner is not None,
            log=self.directory.output("zookeeper"),
        )
        server.spawn()
        process = identify(server.pid)
        if process is not None:
            self.spawned.append(process)
        self._save(replace(record, zookeeper_process=process))
        return server

    async def _spawn_broker(self, broker: BrokerRecord) -> None:
        """Start the process of a broker and record it. Raises ClusterError if a port is in use."""
        await self._check_ports(self.record, [broker])
        arguments = ["broker", "--config", str(self.directory.broker_file(broker.id))]
        if self.request.owner is not None:
            arguments += ["--parent", str(self.request.owner.pid)]
        if self.record.has_faults:
            file = self.directory.disk_faults(broker.id)
            file.parent.mkdir(exist_ok=True)
            arguments += ["--disk-faults", str(file)]
        if advanced_ms := self.record.advanced_ms:
            arguments += ["--clock-advanced-ms", str(advanced_ms)]
        output = self.output(broker.id)
        self._written[broker.id] = output.stat().st_size if output.exists() else 0
        config = self.directory.broker_config(broker.id)
        process = spawn(arguments, output)
        self.spawned.append(process)
        protocols = broker.protocols if config is None else protocols_of(config)
        self._save(self.record.with_broker(replace(broker, process=process, protocols=protocols)))

    async def start_proxy(self) -> None:
        """Start the proxy of a cluster with faults if it does not run."""
        record = self.record
        if record.proxy is None or self.running.proxy(record) is not None:
            return
        await self._check_advertised_ports(record)
        process = spawn(proxy_command(self.request.owner), self.directory.output(PROXY))
        self.spawned.append(process)
        self._save(replace(record, proxy=replace(record.proxy, process=process)))

    async def open_ports(self) -> None:
        """Wait until the proxy of a cluster with faults answers, and tell it which ports there are."""
        record = self.record
        if record.proxy is not None and record.proxy.process is not None:
            await set_routes(record.proxy.process, self.directory, record, self.clock)

    async def _check_advertised_ports(self, record: ClusterRecord) -> None:
        """Raise ClusterError if a port that the proxy is to open is in use."""
        for broker in record.brokers:
            for name, port in broker.ports.items():
                if not await self._wait_until_free(port):
                    raise self._port_error(broker, name, port)

    async def _check_ports(
        self, record: ClusterRecord, brokers: Collection[BrokerRecord], *, alone: bool = False
    ) -> None:
        """Raise ClusterError if a port on which a broker that is down is to listen is in use.

        `alone`: a port that another start holds counts as in use too. The program that runs an attached cluster holds
        its ports.
        """
        for broker in brokers:
            if is_alive(broker.process) or find_broker(self.directory.broker_file(broker.id)):
                continue
            for name, advertised in broker.ports.items():
                port = record.listening(advertised)
                if not await self._wait_until_free(port, alone=alone):
                    raise self._port_error(broker, name, port)

    def _port_error(self, broker: BrokerRecord, name: str, port: int) -> ClusterError:
        text = f"port {port} of broker {broker.id} is in use: stop the process that listens there"
        hint = _other_ports(name, self._is_secure(self.directory.read()))
        return ClusterError(f"{text}, or choose other ports", hint)

    async def _wait_until_free(self, port: int, *, alone: bool = False) -> bool:
        """Wait up to PORT_WAIT_MS until the port is free; return False if it is still in use.

        A killed process keeps its ports until its last thread has ended.
        """
        deadline = self.clock.now() + PORT_WAIT_MS
        while not ((self.held.hold(port) or not alone) and is_free(port)):
            if self.clock.now() >= deadline:
                return False
            await self.clock.sleep(POLL_MS)
        return True

    def output(self, broker_id: int) -> Path:
        """Return the path of the file with the output of a broker's process."""
        return self.directory.output(f"broker-{broker_id}")

    def last_lines(self, broker_id: int, count: int) -> list[str]:
        """Return the last `count` lines that a broker printed."""
        file = self.output(broker_id)
        text = file.read_text(errors="replace") if file.exists() else ""
        return text.splitlines()[-count:]

    def last_output(self, broker_id: int) -> str:
        """Return the last line that a broker has printed since this launcher started it, with the path of its log."""
        file, start = self.output(broker_id), self._written.get(broker_id, 0)
        data = file.read_bytes()[start:] if file.exists() else b""
        lines = data.decode(errors="replace").splitlines()
        last = next((line for line in reversed(lines) if line.strip()), "it printed nothing")
        return f"{last} ({file})"


def _words(listener: str, is_secure: bool) -> str:
    """Return what the port of a listener is called."""
    if listener == CONTROL:
        return "metrics port"
    is_first = listener == (LISTENER if is_secure else PLAINTEXT.value)
    return "port" if is_first else f"{listener} port"


def _other_ports(listener: str, is_secure: bool) -> str:
    """Return how to choose other ports for a listener."""
    words = _words(listener, is_secure)
    is_own = words.startswith(listener)
    return (
        f"{LISTENER_KEY}{listener} = 0" if is_own else f"minikafka up --{words.replace(' ', '-')} 0"
    )
