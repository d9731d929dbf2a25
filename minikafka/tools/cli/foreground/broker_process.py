"""The process of one broker: it uses the real clock, disk, network and ZooKeeper, under uvloop.

SIGTERM and SIGINT cause a controlled shutdown. SIGHUP causes a clean shutdown without handing over leaderships;
`minikafka down` sends SIGHUP, because it stops all brokers. Before the broker serves clients, each of these
signals ends the process at once, and the next start recovers the logs.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import uvloop

from minikafka.base.config import BrokerConfig
from minikafka.base.coordination import LEADERS
from minikafka.base.disk_faults import DiskFault
from minikafka.base.encryption import Tls
from minikafka.base.errors import (
    ClusterLost,
    ConfigError,
    MinikafkaError,
    NoAuth,
    NoChildrenForEphemerals,
    NotConnected,
    ZooKeeperLoginRefused,
)
from minikafka.base.ports import Clock, Transport
from minikafka.broker.broker import BrokerServer, create_broker
from minikafka.broker.capabilities import CoordinationMode
from minikafka.broker.ports import BrokerPorts
from minikafka.broker.rpc.key_sets import fetch_text
from minikafka.broker.rpc.server import HttpControlPlane
from minikafka.runtime.busy_poll import BusyPoll, has_quota
from minikafka.runtime.cleaner_processes import CleanerProcesses
from minikafka.runtime.clock import SystemClock, SystemProcessor, SystemRng
from minikafka.runtime.descriptors import ProcessDescriptors, raise_soft_limit
from minikafka.runtime.memory import find_trim, return_freed_memory
from minikafka.runtime.service_manager import ServiceManager
from minikafka.runtime.spawning import die_with
from minikafka.runtime.storage import DiskStorage
from minikafka.runtime.tasks import TaskRegistry, ThreadExecutor
from minikafka.runtime.tls import keep_fresh
from minikafka.runtime.transport import SocketTransport
from minikafka.tools.cli.arguments.config_files import errors_name_file
from minikafka.tools.cli.foreground.authorizer_log import log_verdicts
from minikafka.tools.cli.foreground.broker_file import BrokerFile, load
from minikafka.tools.cli.foreground.exit_codes import (
    SECOND_SIGNAL,
    end_by_signals_as_init,
    without_restart,
)
from minikafka.tools.cli.foreground.server_log import ServerLog
from minikafka.tools.cluster.launch.tls_check import check_tls
from minikafka.tools.cluster.zookeeper.access import access_of
from minikafka.zookeeper.client.access import ZooKeeperAccess
from minikafka.zookeeper.client.client import ZooKeeperClient, close_session

logger = logging.getLogger(__name__)

RETRY_MS: Final = 200


def run_broker(
    config_file: str,
    log_format: str,
    parent: int | None,
    disk_faults: str | None = None,
    advanced_ms: int = 0,
) -> None:
    """Run a broker until it is shut down. `parent`: pid of a process; the broker is killed when that process ends.

    `disk_faults`: the file with the faults of its disk; None: its disk has none. `advanced_ms`: by how much its wall
    clock is ahead of the machine's.

    Raises ConfigError, and the errors of `serve`.
    """
    if parent is not None:
        die_with(parent)
    file = Path(config_file)
    run_process(file, partial(load, file), ServerLog(log_format), disk_faults, advanced_ms)


def run_process(
    file: Path,
    read: Callable[[], BrokerFile],
    log: ServerLog,
    disk_faults: str | None = None,
    advanced_ms: int = 0,
) -> None:
    """Run the broker whose configuration `read` returns, until it is shut down. `file`: named in errors.

    Raises ConfigError, and the errors of `serve`.
    """
    end_by_signals_as_init()
    raise_soft_limit()
    with without_restart(ConfigError), log.end_of_process():
        found = read()
        log.name_broker(found.config.broker_id)
        if found.config.authorizer_class_name:
            log_verdicts(found.config)
        warn_about(found)
        with errors_name_file(file):
            uvloop.run(serve(found.config, log, _disk(disk_faults), advanced_ms))


def warn_about(file: BrokerFile) -> None:
    """Log a warning for each listener that other machines can reach, each key without effect, and refused metrics."""
    config = file.config
    if file.unread:
        lines = ", ".join(f"{name} (line {line})" for name, line in sorted(file.unread.items()))
        logger.warning("keys of Kafka that have no effect: %s", lines)
    for listener, lacking in config.exposed_listeners.items():
        logger.warning("%s can be reached from other machines, without %s", listener, lacking)
    for name, reason in config.unread_keys.items():
        logger.warning("%s has no effect: %s", name, reason)
    is_encrypted = config.endpoints.control.security.is_encrypted
    if config.is_secured and config.minikafka_metrics_enable and not is_encrypted:
        logger.warning("/metrics is not served, because brokers connect to each other without TLS")


class _Disk(NamedTuple):
    """The ports for the disk. `set_faults`: None if the disk has no faults."""

    storage: DiskStorage
    cleaners: CleanerProcesses
    set_faults: Callable[[Sequence[DiskFault]], None] | None = None


def _disk(faults_file: str | None) -> _Disk:
    """Return the ports for the disk: with faults if a file keeps them, whose module is imported only then."""
    if faults_file is None:
        return _Disk(DiskStorage(), CleanerProcesses())
    from minikafka.runtime.disk_faults import DiskFaults, FaultyCleaners, FaultyStorage

    faults = DiskFaults(faults_file)
    return _Disk(FaultyStorage(faults), FaultyCleaners(faults), faults.replace)


async def serve(config: BrokerConfig, log: ServerLog, disk: _Disk, advanced_ms: int) -> None:
    """Start the broker, wait for a signal, and shut it down.

    Raises the errors of `create_broker` and `BrokerServer.start`, and MinikafkaError if a task crashed.
    """
    loop = asyncio.get_running_loop()
    manager = ServiceManager()
    ended: asyncio.Future[bool] = loop.create_future()
    clock = SystemClock(advanced_ms)
    broker = await start(
        config, lambda name, error: _end(ended, _failure(name, error)), disk, clock
    )
    relax_garbage_collector()
    for number, controlled in (
        (signal.SIGTERM, True),
        (signal.SIGINT, True),
        (signal.SIGHUP, False),
    ):
        loop.add_signal_handler(number, _end, ended, controlled)
    addresses = _addresses(broker)
    log.serves(
        f"broker {config.broker_id} serves on {addresses}",
        broker.security.accounts.credentials.users,
    )
    manager.ready(f"serves on {addresses}")
    try:
        controlled = await ended
    except MinikafkaError as error:
        logger.error("%s", error)
        manager.stopping(str(error))
        await broker.shutdown(controlled=not isinstance(error, ClusterLost))
        raise
    manager.stopping("hands over its leaderships and stops" if controlled else "stops")
    await broker.shutdown(controlled=controlled)
    log.stopped(f"broker {config.broker_id} has stopped")


def _failure(task: str, error: Exception) -> MinikafkaError:
    return error if isinstance(error, ConfigError) else MinikafkaError(f"task {task}: {error!r}")


def _addresses(running: BrokerServer) -> str:
    """Return host:port of every Kafka listener that the broker has registered, separated by commas."""
    control = running.config.endpoints.control.name
    endpoints = (item for item in running.info.endpoints if item.name != control)
    return ",".join(f"{item.host}:{item.port}" for item in endpoints)


def relax_garbage_collector() -> None:
    """Make garbage collections rare and short, because a collection blocks the event loop.

    Objects created at start are never examined again. They are not examined now either: this would free 0.6 MB, but
    take a tenth of the start. Most collections examine only the newest 10,000 objects. This is sufficient, because
    the code that processes batches creates no reference cycles. Up to 15 % more requests per second at 259 B.
    """
    gc.freeze()
    gc.set_threshold(10_000, 5, 1_000)


def _end(ended: asyncio.Future[bool], outcome: bool | MinikafkaError) -> None:
    """Begin the shutdown at the first signal or crash; a second signal ends the process at once."""
    if isinstance(outcome, MinikafkaError):
        if not ended.done():
            ended.set_exception(outcome)
    elif ended.done():
        logger.warning("second signal: the broker ends without a clean shutdown")
        os._exit(SECOND_SIGNAL)
    else:
        ended.set_result(outcome)


async def start(
    config: BrokerConfig,
    on_crash: Callable[[str, Exception], None],
    disk: _Disk | None = None,
    clock: SystemClock | None = None,
) -> BrokerServer:
    """Create and start a broker with the real clock, disk and network, in its coordination mode."""
    check_tls([config])
    disk = disk or _disk(None)
    clock = clock or SystemClock()
    rng, storage, tasks = SystemRng(), disk.storage, TaskRegistry(on_crash)
    connect, descriptors = config.zookeeper_connect, ProcessDescriptors()
    secret = config.minikafka_cluster_secret.encode()
    transport = _transport(asyncio.get_running_loop(), config.minikafka_source_address)
    access = access_of(config, rng)
    zookeeper = ZooKeeperClient(
        connect,
        config.zookeeper_session_timeout_ms,
        clock,
        rng,
        tasks,
        transport,
        access=access,
        connect_timeout_ms=config.zookeeper_connection_timeout_ms,
    )
    end_session = partial(_end_session, connect, clock, transport, access)
    ports = BrokerPorts(
        clock,
        SystemProcessor(),
        rng,
        storage,
        transport,
        tasks,
        ThreadExecutor(),
        disk.cleaners,
        lambda cluster_id, tls: HttpControlPlane(
            secret,
            cluster_id,
            config.broker_id,
            clock,
            rng,
            descriptors.limit,
            tls,
            config.protocol_versions,
            config.minikafka_source_address,
        ),
        descriptors,
        fetch_text,
        disk.set_faults,
    )
    new_mode = _mode_class(config)
    mode = new_mode(config, clock, rng, storage, tasks, zookeeper, end_session)
    with errors_name_zookeeper(connect):
        broker = await create_broker(config, ports, mode)
        await broker.start()
    renewable: list[Tls] = [*broker.security.encryption]
    if access.tls is not None:
        renewable.append(access.tls)
    if renewable:
        tasks.spawn(keep_fresh(renewable, clock), "certificates")
    if trim := find_trim():
        tasks.spawn(return_freed_memory(clock, trim), "memory")
    return broker


@contextmanager
def errors_name_zookeeper(connect: str) -> Iterator[None]:
    """Say in the errors of ZooKeeper which key names it, and what to do."""
    key = f"zookeeper.connect = {connect}"
    try:
        yield
    except ZooKeeperLoginRefused:
        raise
    except ClusterLost as error:
        raise ClusterLost(f"{error} ({key})") from error
    except NotConnected as error:
        raise NotConnected(f"{key}: {error}; start ZooKeeper, or correct the key") from error
    except (NoAuth, NoChildrenForEphemerals) as error:
        raise ConfigError(
            f"{key}: ZooKeeper refuses to read or write {error}: {_REFUSALS[type(error)]}"
        ) from error


_REFUSALS: Final = {
    NoAuth: "give this broker's user the rights, or name another chroot",
    NoChildrenForEphemerals: "its parent is ephemeral; name another chroot",
}


def _mode_class(config: BrokerConfig) -> Callable[..., CoordinationMode]:
    """Return the class of the coordination mode. The modules of the other mode, 1 MB, are not imported."""
    if config.minikafka_coordination == LEADERS:
        from minikafka.broker.modes.leaders import LeadersMode

        return LeadersMode
    from minikafka.broker.modes.controller import ControllerMode

    return ControllerMode


def _transport(loop: asyncio.AbstractEventLoop, source: str | None) -> SocketTransport:
    """Return the socket transport. It busy-polls sockets under heavy traffic if the process has no CPU quota."""
    return SocketTransport(None if has_quota() else BusyPoll(loop).after_read, source)


async def _end_session(
    connect: str,
    clock: Clock,
    transport: Transport,
    access: ZooKeeperAccess,
    session_id: int,
    password: bytes,
) -> None:
    """End the ZooKeeper session of this broker's previous process; retry while ZooKeeper is unreachable."""
    while True:
        try:
            await close_session(connect, session_id, password, clock, transport, access)
        except NotConnected as error:
            logger.info("%s", error)
            await clock.sleep(RETRY_MS)
        else:
            return
