"""The process of a console: the cluster that its options name, and the server until a signal ends it."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import re
import signal
import socket
import sys
from pathlib import Path

import minikafka.tools.console.standby as standby
from minikafka.base.endpoints import PLAINTEXT
from minikafka.base.errors import MinikafkaError
from minikafka.base.properties import decode_properties
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.runtime.memory import find_trim, return_freed_memory
from minikafka.runtime.tasks import TaskRegistry
from minikafka.tools.cli.arguments.command_config import (
    command_config_file,
    connector,
    profile_in_use,
)
from minikafka.tools.cli.arguments.find_cluster import (
    data_directory,
    find_cluster,
    recorded_servers,
)
from minikafka.tools.cli.terminal.echo import show
from minikafka.tools.cluster.observation.access import BrokerAccess
from minikafka.tools.cluster.secure.files import ADMIN
from minikafka.tools.console.access import TOKEN_BYTES
from minikafka.tools.console.context import Console
from minikafka.tools.console.live_site import LiveSite
from minikafka.tools.console.observation.local_brokers import LocalBrokers
from minikafka.tools.console.observation.members import CommandOptions, ObservedBrokers
from minikafka.tools.console.observation.remote_brokers import RemoteBrokers
from minikafka.tools.console.opening import listen
from minikafka.tools.console.replaying.replay_site import LedgerDirectories, ReplaySite
from minikafka.tools.console.server import ConsoleServer
from minikafka.tools.console.site import Site

IDLE_MS = 60_000
"""A console that `minikafka up` has started takes up little memory again after this time without a visitor."""


def serve(port: int, descriptor: int | None, bootstrap: str | None, data: str | None) -> None:
    """Serve a console until a signal ends it. Raises RequestRefused if the port is in use.

    `descriptor`: the socket of a console that `minikafka up` has started.
    """
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(asctime)s %(message)s")
    logging.getLogger("minikafka.tools.console").setLevel(logging.INFO)
    observed = _observed(bootstrap, data)
    site = LiveSite(Console(observed, SystemClock()), SystemRng().bytes(4).hex())
    if descriptor is None:
        _serve_on(port, site)
        return
    found = find_cluster(data)
    record = standby.read(found.directory)
    if record is None:
        raise MinikafkaError(f"{found.directory.path} has no console.json")
    with socket.socket(fileno=os.dup(descriptor)) as listening:
        is_idle = asyncio.run(_serve(site, listening, record.token, IDLE_MS))
    if is_idle:
        standby.become_doorkeeper(descriptor, str(found.directory.path.resolve()))


def play(port: int, folder: str) -> None:
    """Serve the ledgers in a folder until a signal ends it. Raises RequestRefused."""
    _serve_on(port, ReplaySite(LedgerDirectories(Path(folder)), SystemClock()))


def _serve_on(port: int, site: Site) -> None:
    token = SystemRng().bytes(TOKEN_BYTES).hex()
    with listen(port) as listening:
        asyncio.run(_serve(site, listening, token))


def _observed(bootstrap: str | None, data: str | None) -> ObservedBrokers:
    """Return the cluster that the options name. Raises ClusterError, and ConfigError for a wrong --command-config."""
    clock, rng = SystemClock(), SystemRng()
    file, profile = command_config_file(), profile_in_use()
    if not bootstrap and file is None:
        found, servers = find_cluster(data), recorded_servers(data)
        access, user = BrokerAccess(servers, connector()), ADMIN if found.record.is_secure else None
        return LocalBrokers(found, access, user, clock, rng)
    servers = bootstrap or recorded_servers(data)
    before: tuple[str, ...] = ()
    client: tuple[str, ...] = ("--bootstrap", servers)
    if profile is not None:
        before, client = ("--cluster", profile.name), ()
    if file is not None:
        client = (*client, "--command-config", str(Path(file).resolve()))
    machine = None if bootstrap else ("--data", data_directory(data))
    options = CommandOptions(before, client, machine)
    return RemoteBrokers(servers, connector(), options, _user(), clock)


def _user() -> str | None:
    """Return the user that the configuration of the command names; None without security."""
    file, profile = command_config_file(), profile_in_use()
    entries = list(profile.entries) if profile is not None else []
    if profile is not None:
        file = profile.command_config
    if file is not None:
        entries = decode_properties(Path(file).read_bytes())
    values = {entry.name: entry.value for entry in entries}
    if values.get("security.protocol", PLAINTEXT.value) == PLAINTEXT.value:
        return None
    named = re.search(r'username\s*=\s*"?([^"\s;]+)', values.get("sasl.jaas.config", ""))
    return named[1] if named else f"the user of {file or (profile and profile.file)}"


async def _serve(
    site: Site, listening: socket.socket, token: str, idle_ms: int | None = None
) -> bool:
    """Serve until a signal comes, or until nobody has looked for `idle_ms`; return True in the second case."""
    server = ConsoleServer(site, token, SystemClock())
    ended, tasks = asyncio.Event(), TaskRegistry()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    await server.start(listening)
    # `__main__` makes collections rare for the imports. Closed connections are reference cycles and would stay.
    gc.freeze()
    gc.set_threshold(10_000)
    if trim := find_trim():
        tasks.spawn(return_freed_memory(SystemClock(), trim), "memory")
    idle = asyncio.Event()

    async def wait_until_idle(limit_ms: int) -> None:
        await server.until_idle(limit_ms)
        idle.set()
        ended.set()

    if idle_ms is None:
        show({"url": server.url, "port": server.port}, [server.url])
    else:
        tasks.spawn(wait_until_idle(idle_ms), "idle")
    await ended.wait()
    await tasks.close()
    await server.close()
    return idle.is_set()
