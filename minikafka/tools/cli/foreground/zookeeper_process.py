"""The process of one ZooKeeper server: real clock, disk and network, under plain asyncio.

SIGTERM and SIGINT end it cleanly: what was applied is made durable, and sessions stay open for the next start. A
second signal ends it at once. If the log cannot be written, the process ends without a further reply.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import signal
import sys
from functools import partial

from minikafka.base.endpoints import Endpoint
from minikafka.base.errors import ConfigError, MinikafkaError
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.runtime.descriptors import raise_soft_limit, soft_limit
from minikafka.runtime.forking import in_child
from minikafka.runtime.service_manager import ServiceManager
from minikafka.runtime.spawning import die_with
from minikafka.runtime.storage import DiskStorage
from minikafka.runtime.tasks import TaskRegistry, ThreadExecutor
from minikafka.runtime.tls import keep_fresh
from minikafka.runtime.transport import SocketTransport
from minikafka.tools.cli.foreground.exit_codes import (
    SECOND_SIGNAL,
    end_by_signals_as_init,
    without_restart,
)
from minikafka.tools.cli.foreground.server_log import ServerLog
from minikafka.zookeeper.server.authentication import NO_AUTHENTICATION, ClientAuthentication
from minikafka.zookeeper.server.server import SecurePort, ZooKeeperServer
from minikafka.zookeeper.server.settings import DEFAULTS, ServerSettings
from minikafka.zookeeper.server.store.files import CorruptData, UnsupportedData
from minikafka.zookeeper.server.store.store import Store

logger = logging.getLogger(__name__)

_OWN_DESCRIPTORS = 64
"""Descriptors that are kept for files and the event loop."""


def run_zookeeper(
    data: str,
    host: str,
    port: int | None,
    config: str | None,
    tick_ms: int,
    session_timeout_max_ms: int | None,
    snapshot_after: int,
    log: ServerLog,
    parent: int | None,
) -> None:
    """Run a server until it is ended. `parent`: pid of a process; the server is killed when that process ends.

    `port` None: no port without TLS. `config`: the file with the keys of encryption and authentication. Raises OSError
    if it cannot listen, and MinikafkaError if its data or its configuration cannot be used.
    """
    if parent is not None:
        die_with(parent)
    end_by_signals_as_init()
    raise_soft_limit()
    settings = ServerSettings(
        tick_ms=tick_ms,
        session_timeout_max_ms=session_timeout_max_ms,
        connections_max=min(DEFAULTS.connections_max, soft_limit() - _OWN_DESCRIPTORS),
        snapshot_after=snapshot_after,
    )
    wrong = (ConfigError, CorruptData, UnsupportedData)
    with without_restart(*wrong), log.end_of_process():
        authentication, secure = _security(config, host)
        if port is None and secure is None:
            raise ConfigError(
                "the server has no port: give --port, or set secureClientPort in --config"
            )
        directory = os.path.realpath(data)
        asyncio.run(_serve(directory, host, port, settings, authentication, secure, log))


def _security(config: str | None, host: str) -> tuple[ClientAuthentication, SecurePort | None]:
    if config is None:
        return NO_AUTHENTICATION, None
    from minikafka.tools.cluster.zookeeper.secure_server import load_security

    return load_security(config, host)


async def _serve(
    data: str,
    host: str,
    port: int | None,
    settings: ServerSettings,
    authentication: ClientAuthentication,
    secure: SecurePort | None,
    log: ServerLog,
) -> None:
    ended = asyncio.Event()
    manager = ServiceManager()
    tasks = TaskRegistry(lambda name, error: _end_at_once(f"task {name}: {error!r}"))
    server = ZooKeeperServer(
        Store(DiskStorage(), data),
        SystemClock(),
        SystemRng(),
        SocketTransport(),
        tasks,
        ThreadExecutor(),
        settings=settings,
        authentication=authentication,
        in_child=in_child,
        on_failure=_end_at_once,
    )
    gc.disable()  # collections would take a third of the time to load a large snapshot
    try:
        await server.start(host, port, secure)
    except OSError as error:
        raise MinikafkaError(_refusal(host, server, port, secure, error)) from error
    if secure is not None:
        tasks.spawn(keep_fresh([secure.tls], SystemClock()), "certificates")
    gc.freeze()
    gc.enable()
    gc.set_threshold(10_000, 5, 1_000)
    if port is not None and not Endpoint("", host, port).is_loopback:
        logger.warning(
            "%s:%d can be reached from other machines, without encryption", host, server.port
        )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, partial(_end, ended))
    serves = f"serves on {_addresses(host, server, secure)}"
    log.serves(f"zookeeper {serves}: one node, not replicated; data in {data}")
    manager.ready(serves)
    await ended.wait()
    manager.stopping("stops")
    await server.close()
    await tasks.close()
    log.stopped("zookeeper has stopped")


def _addresses(host: str, server: ZooKeeperServer, secure: SecurePort | None) -> str:
    """Return the addresses of the server's ports, that with TLS last."""
    found = [f"{host}:{server.port}"] if server.port else []
    found += [f"TLS {secure.host}:{server.secure_port}"] if secure is not None else []
    return ", ".join(found)


def _refusal(
    host: str,
    server: ZooKeeperServer,
    port: int | None,
    secure: SecurePort | None,
    error: OSError,
) -> str:
    names = "--host or --port"
    if secure is not None and (port is None or server.port):  # the first port is open
        host, port, names = secure.host, secure.port, "secureClientPort or its address"
    if error.errno == errno.EADDRINUSE:
        names = names.replace("--host or ", "").removesuffix(" or its address")
        return f"{host}:{port} is in use by another process; choose another {names}, or stop it"
    reason = error.strerror or str(error)
    return f"cannot listen on {host}:{port}: {reason}; choose another {names}"


def _end(ended: asyncio.Event) -> None:
    """Begin the end at the first signal; a second signal ends the process at once."""
    if ended.is_set():
        os._exit(SECOND_SIGNAL)
    ended.set()


def _end_at_once(reason: str) -> None:
    """End the process without a further reply: what it has promised must be true after the next start.

    The process ends even if the line cannot be written, for example because its log is on the same full disk.
    """
    try:
        print(f"minikafka: {reason}", file=sys.stderr, flush=True)
    finally:
        os._exit(1)
