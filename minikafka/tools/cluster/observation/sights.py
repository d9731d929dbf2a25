"""The condition of a cluster's processes, found in /proc, ports, disks, logs and the answers of the brokers.

Invariant: `look` ends within twice LOOK_MS plus the time of one client request, even if no process answers.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from minikafka.base.config import BrokerConfig
from minikafka.base.coordination import CONTROLLER
from minikafka.base.errors import (
    ConfigError,
    CoordinationError,
    ErrorCode,
    KafkaError,
    MinikafkaError,
)
from minikafka.base.ports import Clock, Rng
from minikafka.broker.rpc.messages import STATE
from minikafka.runtime.descriptors import open_files
from minikafka.storage.log.directory import LOCK
from minikafka.tools.cluster.directory import BrokerRecord, ClusterDirectory, ClusterRecord
from minikafka.tools.cluster.observation.state import CONNECTED, call_all, is_disputed
from minikafka.tools.cluster.ports import is_free
from minikafka.tools.cluster.processes import ProcessId, is_paused, started_at_ms
from minikafka.tools.cluster.running import RunningProcesses
from minikafka.tools.cluster.zookeeper.lost_data import why_empty, why_lost

LOOK_MS: Final = 800
"""Time for a broker or ZooKeeper to answer."""
CLIENT_MS: Final = 500
"""Time for a broker that does not answer the control plane to answer a client's request."""
FULL_BYTES: Final = 64 * 1024
"""A file system with less free space counts as full: a batch of records may not fit."""
RUNS: Final = "runs"
PAUSED: Final = "paused"
DOWN: Final = "down"
UNREACHABLE: Final = "unreachable"
"""The state of a broker elsewhere that does not answer here."""
UNTOLD: Final = "unknown"
"""The state of a broker elsewhere that serves clients, but does not tell its state."""
REFUSED: Final = "connection refused"
"""The failure of a call to a process that has ended."""
_API_VERSIONS: Final = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""A whole request of the oldest version: length, API, version, correlation id, no client id."""
CLEAN_END: Final = "has stopped"
"""The end of the last line of a broker that was stopped."""
FAILED: Final = "minikafka: "
"""The beginning of the last line of a process that has ended with an error."""
_TAIL_BYTES: Final = 16 * 1024
_ZOOKEEPER_PORT: Final = 2181


@dataclass(frozen=True, slots=True)
class ProcessSight:
    """The condition of one process: `state` is RUNS, PAUSED or DOWN; elsewhere RUNS, UNREACHABLE or UNTOLD.

    `taken`: its ports that another process uses while it is down. `full`: its directories on file systems without free
    space. `last_line`: the last line of its output. `log`: the file of its output. `missing`: its directories that were
    removed or moved while the process runs.
    """

    state: str
    pid: int | None = None
    taken: tuple[int, ...] = ()
    full: tuple[str, ...] = ()
    last_line: str = ""
    log: str = ""
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BrokerSight:
    """One broker. `answer`: its answer to the control-plane call `state`, None if there is none.

    `failure`: why the call failed. `answers_clients`: whether it answers a client's request, None if it was not asked.
    `session_timeout_ms`: its setting, None if its configuration cannot be read. `host`: of its listener for clients, ""
    if it is not known.
    """

    id: int
    port: int
    control_port: int
    process: ProcessSight
    answer: Mapping[str, Any] | None = None
    failure: str = ""
    answers_clients: bool | None = None
    session_timeout_ms: int | None = None
    host: str = ""

    @property
    def address(self) -> str:
        """Host and port of the listener for clients, "" if they are not known."""
        return f"{self.host}:{self.port}" if self.host else ""


@dataclass(frozen=True, slots=True)
class ZooKeeperSight:
    """ZooKeeper. `process`: None if it is external. `failure`: why it does not serve, "" if it does.

    `lost`: why it does not have the cluster of the log directories, "" if it has. This is read only if a broker is
    down or has no session, because it takes a session.
    """

    address: str
    process: ProcessSight | None
    failure: str = ""
    lost: str = ""


@dataclass(frozen=True, slots=True)
class Sights:
    """All observations of one moment.

    `is_attached`: the cluster belongs to a running program, not to commands. `retired`: brokers that a smaller cluster
    no longer includes. `coordination`: the mode of the cluster. `elected`: the broker that ZooKeeper names as the
    controller, read only if the brokers disagree; else None. `is_remote`: the cluster is elsewhere, so that only the
    answers of its brokers were observed. `proxy_is_gone`: the proxy of a cluster with faults has ended.
    """

    zookeeper: ZooKeeperSight
    brokers: Mapping[int, BrokerSight]
    is_attached: bool = False
    retired: tuple[int, ...] = ()
    coordination: str = CONTROLLER
    elected: int | None = None
    is_remote: bool = False
    proxy_is_gone: bool = False
    answers: Mapping[int, Mapping[str, Any]] = field(init=False)
    """The answers of the brokers to the call `state`, by broker id."""

    def __post_init__(self) -> None:
        found = {id_: seen.answer for id_, seen in self.brokers.items() if seen.answer is not None}
        object.__setattr__(self, "answers", found)

    @property
    def zookeeper_is_away(self) -> bool:
        """True if ZooKeeper does not serve brokers."""
        return not _serves(self.zookeeper) or bool(self.zookeeper.lost)


def _serves(zookeeper: ZooKeeperSight) -> bool:
    is_gone = zookeeper.process is not None and zookeeper.process.state != RUNS
    return not (is_gone or zookeeper.failure)


Known = Mapping[int, Mapping[str, Any] | OSError | KafkaError]
"""By broker id: the answer to the call `state`, or the error of the call."""


async def look(
    directory: ClusterDirectory, clock: Clock, rng: Rng, known: Known | None = None
) -> Sights:
    """Return the condition of every process of the cluster. Raises ClusterError if there is no cluster.

    `known`: the answers of the brokers, if the caller has asked all that run; None: ask them.
    """
    record = directory.read_existing()
    running = RunningProcesses(directory, clock)
    processes = {broker.id: running.broker(record, broker.id) for broker in record.brokers}
    ids = [id_ for id_, found in processes.items() if found is not None and not is_paused(found)]
    answers, zookeeper = await asyncio.gather(
        _answers(directory, record, ids, clock, rng, known),
        _zookeeper(directory, record, running, clock, rng),
    )
    connected = [a for a in answers.values() if not isinstance(a, Exception)]
    connected = [answer for answer in connected if answer["session_state"] == CONNECTED]
    if len(connected) < len(processes) and _serves(zookeeper):
        lost = await why_lost(directory, record, clock, rng, LOOK_MS)
        zookeeper = replace(zookeeper, lost=lost)
    silent = [id_ for id_ in ids if isinstance(answers.get(id_), Exception)]
    asked = await asyncio.gather(*(_answers_clients(record.broker(id_)) for id_ in silent))
    is_client_answered = dict(zip(silent, asked, strict=True))
    brokers = {}
    for broker in record.brokers:
        answer = answers.get(broker.id)
        config = _config(directory, broker.id)
        brokers[broker.id] = BrokerSight(
            broker.id,
            broker.clients[0].port,
            broker.control_port,
            _broker_process(directory, record, broker, processes[broker.id], config),
            None if isinstance(answer, Exception) else answer,
            _reason(answer)
            if isinstance(answer, Exception)
            else _unasked(broker.id in ids, answers),
            is_client_answered.get(broker.id),
            config.zookeeper_session_timeout_ms if config else None,
        )
    retired = tuple(broker.id for broker in record.retired)
    attached = running.is_attached(record)
    is_gone = record.proxy is not None and running.proxy(record) is None
    mode = record.coordination
    seen = Sights(zookeeper, brokers, attached, retired, mode, proxy_is_gone=is_gone)
    if not is_disputed(seen.answers) or seen.zookeeper_is_away:
        return seen
    return replace(seen, elected=await _elected(directory, record, clock, rng))


async def _answers(
    directory: ClusterDirectory,
    record: ClusterRecord,
    ids: list[int],
    clock: Clock,
    rng: Rng,
    known: Known | None,
) -> Known:
    if known is not None:
        return {id_: answer for id_, answer in known.items() if id_ in ids}
    return await call_all(directory, record, ids, STATE, {}, clock, rng, timeout_ms=LOOK_MS)


async def _elected(
    directory: ClusterDirectory, record: ClusterRecord, clock: Clock, rng: Rng
) -> int | None:
    """Return the broker that ZooKeeper names as the controller; None if there is none, or no answer within LOOK_MS."""
    from minikafka.tools.cluster.zookeeper.session import cluster_session
    from minikafka.zookeeper.nodes import election

    try:
        async with cluster_session(directory, record, clock, rng, LOOK_MS) as zookeeper:
            found = await election.read_controller(zookeeper)
    except (MinikafkaError, CoordinationError, ValueError):
        return None
    return None if found is None else found.broker_id


def _unasked(is_running: bool, answers: Mapping[int, object]) -> str:
    """Return why a running broker was not asked; "" if it was.

    Without a cluster id in a log directory, no broker can be asked. A log directory gets the id at the first start.
    """
    if not is_running or answers:
        return ""
    return "no log directory of the cluster has a cluster id (meta.properties)"


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {LOOK_MS / 1000:g} s"
    if isinstance(error, KafkaError) and error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return error.detail
    text = str(error).rpartition(": ")[2] or repr(error)
    return REFUSED if text.startswith("Connect call failed") else text


def _config(directory: ClusterDirectory, broker_id: int) -> BrokerConfig | None:
    try:
        return BrokerConfig.parse(directory.broker_file(broker_id).read_text())
    except (OSError, ConfigError, UnicodeDecodeError):
        return None


def _broker_process(
    directory: ClusterDirectory,
    record: ClusterRecord,
    broker: BrokerRecord,
    process: ProcessId | None,
    config: BrokerConfig | None,
) -> ProcessSight:
    log = directory.logs / f"broker-{broker.id}.log"
    directories = config.log_dirs if config else [str(directory.broker_data(broker.id))]
    if process is not None:
        state = PAUSED if is_paused(process) else RUNS
        full = full_among(directories)
        missing = _removed(process, directories)
        line = last_line(log, started_at_ms(process))
        if line.startswith(FAILED) or line == f"broker {broker.id} {CLEAN_END}":
            line = ""  # of the run before: these lines end a run
        return ProcessSight(state, process.pid, (), full, line, str(log), missing)
    taken = tuple(
        port for port in map(record.listening, broker.ports.values()) if not is_free(port)
    )
    since = started_at_ms(broker.process) if broker.process else 0
    line = last_line(log, since)
    return ProcessSight(DOWN, None, taken, full_among(directories), line, str(log))


def _removed(broker: ProcessId, directories: Sequence[str]) -> tuple[str, ...]:
    """Return the log directories that were removed or moved since the broker has locked them.

    A broker that starts has not made its directories yet. Afterwards it keeps the lock of each open.
    """
    missing = tuple(path for path in directories if not os.path.isdir(path))
    if not missing:
        return ()
    files = [one.removesuffix(" (deleted)") for one in open_files(str(broker.pid))]
    locked = {os.path.dirname(one) for one in files if os.path.basename(one) == LOCK}
    is_moved = bool(locked - {os.path.realpath(path) for path in directories})
    return tuple(path for path in missing if is_moved or os.path.realpath(path) in locked)


async def _zookeeper(
    directory: ClusterDirectory,
    record: ClusterRecord,
    running: RunningProcesses,
    clock: Clock,
    rng: Rng,
) -> ZooKeeperSight:
    address = record.zookeeper.partition("/")[0]
    if not record.runs_zookeeper:
        return ZooKeeperSight(address, None, await _zookeeper_failure(address))
    process = running.zookeeper(record)
    if process is None:
        down = zookeeper_down(directory, record)
        lost = why_empty(directory, record)
        if down.taken:  # perhaps by a server that was started by hand
            lost = await why_lost(directory, record, clock, rng, LOOK_MS)
        return ZooKeeperSight(address, down, lost=lost)
    state = PAUSED if is_paused(process) else RUNS
    failure = "" if state == PAUSED else await _zookeeper_failure(address)
    full = full_among([str(directory.zookeeper)])
    log = str(_zookeeper_log(directory))
    missing = () if directory.zookeeper.is_dir() else (str(directory.zookeeper),)
    sight = ProcessSight(state, process.pid, (), full, "", log, missing)
    return ZooKeeperSight(address, sight, failure)


def zookeeper_down(directory: ClusterDirectory, record: ClusterRecord) -> ProcessSight:
    """Return the condition of the cluster's ZooKeeper, which has no process."""
    port = record.listening(record.zookeeper_port)
    taken = () if is_free(port) else (port,)
    full = full_among([str(directory.zookeeper)])
    log = _zookeeper_log(directory)
    since = started_at_ms(record.zookeeper_process) if record.zookeeper_process else 0
    return ProcessSight(DOWN, None, taken, full, last_line(log, since), str(log))


def _zookeeper_log(directory: ClusterDirectory) -> Path:
    return directory.logs / "zookeeper.log"


async def _zookeeper_failure(servers: str) -> str:
    """Return why none of the ZooKeeper servers `host:port,host:port` serves clients; "" if one of them does."""
    asked = await asyncio.gather(*(_server_failure(server) for server in servers.split(",")))
    return "" if not all(asked) else ", ".join(dict.fromkeys(asked))


async def _server_failure(server: str) -> str:
    from minikafka.zookeeper.processes.child import four_letter_word

    host, _, port = server.strip().rpartition(":")
    number = int(port) if host and port.isdecimal() else _ZOOKEEPER_PORT
    try:
        answer = await four_letter_word(host.strip("[]") or server, number, "srvr", LOOK_MS)
    except TimeoutError:
        return f"no answer within {LOOK_MS / 1000:g} s"
    except OSError as error:
        return (os.strerror(error.errno) if error.errno else str(error)).lower()
    return answer.strip().lower() if "not currently serving" in answer else ""


async def _answers_clients(broker: BrokerRecord) -> bool:
    """True if the broker answers a client's ApiVersions request, or a TLS handshake if its listener is encrypted.

    Nothing is read from the broker, so its certificate is not checked.
    """
    listener = broker.clients[0]
    tls = _any_server() if listener.security.is_encrypted else None
    try:
        async with asyncio.timeout(CLIENT_MS / 1000):
            reader, writer = await asyncio.open_connection(listener.host, listener.port, ssl=tls)
            try:
                if tls is not None:
                    return True
                writer.write(_API_VERSIONS)
                return len(await reader.read(1)) > 0
            finally:
                writer.close()
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")  # the broker answers: it demands a certificate
    except OSError:
        return False


def _any_server() -> ssl.SSLContext:
    """Return the context for a TLS handshake with any server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def full_among(directories: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    """Return the directories on file systems with less than FULL_BYTES of free space, or without free inodes."""
    return tuple(filter(partial(_is_full), directories))


def _is_full(directory: str) -> bool:
    try:
        inodes = os.statvfs(directory)
        is_out_of_inodes = inodes.f_files > 0 and inodes.f_ffree == 0
        return shutil.disk_usage(directory).free < FULL_BYTES or is_out_of_inodes
    except OSError:
        return False


def last_line(log: Path, since_ms: int = 0) -> str:
    """Return the last line of a log that is not blank; "" if nothing was written to it after `since_ms` (Unix ms)."""
    try:
        with log.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_mtime_ns // 1_000_000 < since_ms:
                return ""
            file.seek(max(0, status.st_size - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
