"""The process of a console: the cluster that its options name, and the server until a signal ends it."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys

import click

from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.tools.cli.arguments.command_config import connector
from minikafka.tools.cli.arguments.find_cluster import bootstrap_servers, find_cluster
from minikafka.tools.cli.terminal.echo import show
from minikafka.tools.cluster.observation.access import BrokerAccess
from minikafka.tools.console.access import TOKEN_BYTES
from minikafka.tools.console.context import Console
from minikafka.tools.console.local import LocalBrokers
from minikafka.tools.console.members import ObservedBrokers
from minikafka.tools.console.opening import listen
from minikafka.tools.console.server import ConsoleServer


def serve(port: int, bootstrap: str | None, data: str | None) -> None:
    """Serve a console until a signal ends it. Raises RequestRefused if the port is in use."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(asctime)s %(message)s")
    logging.getLogger("minikafka.tools.console").setLevel(logging.INFO)
    observed = _observed(bootstrap, data)
    token = SystemRng().bytes(TOKEN_BYTES).hex()
    with listen(port) as listening:
        asyncio.run(_serve(observed, listening, token))


def _observed(bootstrap: str | None, data: str | None) -> ObservedBrokers:
    clock, rng = SystemClock(), SystemRng()
    if bootstrap:
        raise click.UsageError("--bootstrap is not supported yet")
    found = find_cluster(data)
    servers = bootstrap_servers(None, data)
    return LocalBrokers(found, BrokerAccess(servers, connector()), None, clock, rng)


async def _serve(observed: ObservedBrokers, listening: socket.socket, token: str) -> None:
    server = ConsoleServer(Console(observed, SystemClock()), token, SystemRng())
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    await server.start(listening)
    show({"url": server.url, "port": server.port}, [server.url])
    try:
        await ended.wait()
    finally:
        await server.close()
