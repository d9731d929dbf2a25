"""`broker`: one broker over the real clock, disk, network and ZooKeeper, in the foreground under uvloop.

SIGTERM and SIGINT are a controlled shutdown. SIGHUP closes everything cleanly without handing leaderships
over, which is what is wanted when all brokers go (`minikafka down`). Before the broker serves, every signal
just ends it: nothing was begun that a start does not recover.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import click
import uvloop

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import ConfigError, MinikafkaError, NotConnected
from minikafka.base.ports import Clock
from minikafka.broker.broker import Broker
from minikafka.cli.target import read_config
from minikafka.cluster.processes import die_with
from minikafka.rpc.server import HttpControlPlane
from minikafka.runtime.busy_poll import BusyPoll
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.runtime.cpu_quota import has_quota
from minikafka.runtime.storage import DiskStorage
from minikafka.runtime.tasks import TaskRegistry, ThreadExecutor
from minikafka.runtime.transport import SocketTransport
from minikafka.zk.coordination import ZooKeeperCoordination, close_session

logger = logging.getLogger(__name__)

RETRY_MS: Final = 200
_LINE: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


@click.command()
@click.option("--config", metavar="FILE", required=True, help="TOML with Kafka keys in [broker].")
@click.option("--parent", type=int, metavar="PID", hidden=True, help="End when this process ends.")
def broker(config: str, parent: int | None) -> None:
    """Run one broker until SIGTERM, which is a controlled shutdown."""
    if parent is not None:
        die_with(parent)
    found = load(Path(config))
    logging.basicConfig(format=_LINE, level=logging.INFO, stream=sys.stderr)
    for listener in found.exposed_listeners:
        logger.warning(
            "%s can be reached from other machines, without encryption or login", listener
        )
    uvloop.run(serve(found))


def load(file: Path) -> BrokerConfig:
    """The broker's configuration. Raises ConfigError, which names the file."""
    text = read_config(file, "name a TOML file with Kafka keys in [broker]")
    try:
        found = BrokerConfig.parse(text)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from error
    if not found.zookeeper_connect:
        raise ConfigError(f"{file}: zookeeper.connect is not set: write host:port,host:port/chroot")
    if not found.minikafka_cluster_secret:
        text = (
            "minikafka.cluster.secret is not set: 16 or more characters, the same for every broker"
        )
        raise ConfigError(f"{file}: {text}")
    _check_log_dirs(file, found)
    return found


def _check_log_dirs(file: Path, found: BrokerConfig) -> None:
    """Two names of one directory, one of them through `..` or a symbolic link, say. Raises ConfigError."""
    names: dict[str, str] = {}
    for name in found.log_dirs:
        place = os.path.realpath(name)
        if place in names:
            text = f"{place} twice, as {names[place]} and as {name}: leave one out"
            raise ConfigError(f"{file}: log.dirs names {text}")
        names[place] = name


async def serve(config: BrokerConfig) -> None:
    """From start to shutdown. Raises what `Broker.start` raises, MinikafkaError when a task of it crashed."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[bool] = loop.create_future()
    wired = wire(config, lambda name, error: _end(ended, MinikafkaError(f"task {name}: {error!r}")))
    await wired.start()
    _tame_the_collector()
    address = f"{wired.info.host}:{wired.info.port}"
    print(f"broker {config.broker_id} serves on {address}", flush=True)
    for number, controlled in (
        (signal.SIGTERM, True),
        (signal.SIGINT, True),
        (signal.SIGHUP, False),
    ):
        loop.add_signal_handler(number, _end, ended, controlled)
    try:
        controlled = await ended
    except MinikafkaError:
        await wired.shutdown(controlled=True)
        raise
    await wired.shutdown(controlled=controlled)
    print(f"broker {config.broker_id} has stopped", flush=True)


def _tame_the_collector() -> None:
    """What was made by now stays; the per-batch path leaves no cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _end(ended: asyncio.Future[bool], outcome: bool | MinikafkaError) -> None:
    """The first reason to end counts; a signal during the shutdown ends the process at once."""
    if isinstance(outcome, MinikafkaError):
        if not ended.done():
            ended.set_exception(outcome)
    elif ended.done():
        logger.warning("second signal: ended without a clean shutdown")
        os._exit(1)
    else:
        ended.set_result(outcome)


def wire(config: BrokerConfig, on_crash: Callable[[str, Exception], None]) -> Broker:
    """A broker over the real ports."""
    clock, rng, tasks = SystemClock(), SystemRng(), TaskRegistry(on_crash)
    connect = config.zookeeper_connect
    secret = config.minikafka_cluster_secret.encode()
    coordination = ZooKeeperCoordination(
        connect,
        config.zookeeper_session_timeout_ms,
        clock,
        rng,
        tasks,
        connect_timeout_ms=config.zookeeper_connection_timeout_ms,
    )
    return Broker(
        config,
        clock,
        rng,
        DiskStorage(),
        _transport(asyncio.get_running_loop()),
        coordination,
        lambda cluster_id: HttpControlPlane(secret, cluster_id, config.broker_id, clock, rng),
        tasks,
        ThreadExecutor(),
        partial(_end_session, connect, clock),
    )


def _transport(loop: asyncio.AbstractEventLoop) -> SocketTransport:
    """Sockets that the loop polls under dense traffic, unless polled time counts against a quota."""
    return SocketTransport(None if has_quota() else BusyPoll(loop).after_read)


async def _end_session(connect: str, clock: Clock, session_id: int, password: bytes) -> None:
    """End a session of a former process of this broker; waits for ZooKeeper as its own session would."""
    while True:
        try:
            await close_session(connect, session_id, password, clock)
        except NotConnected as error:
            logger.info("%s", error)
            await clock.sleep(RETRY_MS)
        else:
            return
