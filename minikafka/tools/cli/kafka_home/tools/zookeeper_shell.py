"""`zookeeper-shell.sh`: one command of ZooKeeper's shell, or the commands of standard input."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from minikafka.base.errors import CoordinationError, MinikafkaError, NodeExists, NoNode
from minikafka.base.ports import Stat, ZooKeeper
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.tools.cli.execution.running import run as run_work
from minikafka.tools.cli.kafka_home.options import Arguments
from minikafka.tools.cli.terminal.echo import echo
from minikafka.tools.cluster.zookeeper.session import zookeeper_session

_TLS: Final = "-zk-tls-config-file"


def run(arguments: Arguments) -> None:
    """Run the command after `-server HOST:PORT`, else those of standard input. Raises MinikafkaError."""
    words = list(arguments.words)
    if len(words) < 2 or words[0] != "-server":
        raise MinikafkaError("USAGE: zookeeper-shell.sh zookeeper_host:port[/path] [command args]")
    if _TLS in words:
        raise MinikafkaError(f"{_TLS} is not implemented: minikafka's shell connects without TLS")
    connect, command = words[1], words[2:]

    async def work() -> None:
        async with zookeeper_session(connect, SystemClock(), SystemRng()) as zookeeper:
            echo(f"Connecting to {connect}", "", "WATCHER::", "")
            echo("WatchedEvent state:SyncConnected type:None path:null")
            if command:
                await _run(zookeeper, command)
                return
            for line in sys.stdin:
                typed = shlex.split(line)
                if typed[:1] in (["quit"], ["close"]):
                    return
                if typed:
                    await _report(zookeeper, typed)

    run_work(work())


async def _report(zookeeper: ZooKeeper, words: Sequence[str]) -> None:
    try:
        await _run(zookeeper, words)
    except MinikafkaError as error:
        echo(str(error))


async def _run(zookeeper: ZooKeeper, words: Sequence[str]) -> None:
    """Run one command. Raises MinikafkaError, with the text of ZooKeeper's shell."""
    name, *rest = words
    work = _COMMANDS.get(name)
    if work is None:
        known = ", ".join(_COMMANDS)
        raise MinikafkaError(f"Command not found: Command not found {name}; known: {known}, quit")
    plain = [word for word in rest if not word.startswith("-")]
    if not plain or not plain[0].startswith("/"):
        raise MinikafkaError(f"{name} needs a path, which begins with /")
    try:
        await work(zookeeper, plain, [word for word in rest if word.startswith("-")])
    except NoNode:
        raise MinikafkaError(f"Node does not exist: {plain[0]}") from None
    except NodeExists:
        raise MinikafkaError(f"Node already exists: {plain[0]}") from None
    except CoordinationError as error:
        raise MinikafkaError(f"{name} {plain[0]}: {error}") from error


async def _create(zookeeper: ZooKeeper, words: Sequence[str], flags: Sequence[str]) -> None:
    data = words[1].encode() if len(words) > 1 else b""
    path, _ = await zookeeper.create(
        words[0], data, ephemeral="-e" in flags, sequential="-s" in flags
    )
    echo(f"Created {path}")


async def _get(zookeeper: ZooKeeper, words: Sequence[str], flags: Sequence[str]) -> None:
    node = await zookeeper.get(words[0])
    echo(node.data.decode(errors="replace") if node.data else "null")
    if "-s" in flags:
        _show(node.stat)


async def _ls(zookeeper: ZooKeeper, words: Sequence[str], flags: Sequence[str]) -> None:
    paths = [words[0]]
    while paths:
        path = paths.pop(0)
        names, _ = await zookeeper.children(path)
        if "-R" not in flags:
            echo(f"[{', '.join(names)}]")
            return
        echo(path)
        paths[:0] = [f"{path.rstrip('/')}/{name}" for name in names]


async def _set(zookeeper: ZooKeeper, words: Sequence[str], _: Sequence[str]) -> None:
    await zookeeper.set(words[0], words[1].encode() if len(words) > 1 else b"", -1)


async def _stat(zookeeper: ZooKeeper, words: Sequence[str], _: Sequence[str]) -> None:
    stat = await zookeeper.exists(words[0])
    if stat is None:
        raise NoNode
    _show(stat)


async def _delete(zookeeper: ZooKeeper, words: Sequence[str], _: Sequence[str]) -> None:
    await zookeeper.delete(words[0], -1)


async def _delete_all(zookeeper: ZooKeeper, words: Sequence[str], _: Sequence[str]) -> None:
    names, _stat = await zookeeper.children(words[0])
    for name in names:
        await _delete_all(zookeeper, [f"{words[0].rstrip('/')}/{name}"], [])
    await zookeeper.delete(words[0], -1)


def _show(stat: Stat) -> None:
    echo(
        f"cZxid = 0x{stat.czxid:x}",
        f"mZxid = 0x{stat.mzxid:x}",
        f"pZxid = 0x{stat.pzxid:x}",
        f"cversion = {stat.cversion}",
        f"dataVersion = {stat.version}",
        f"aclVersion = {stat.aversion}",
        f"ephemeralOwner = 0x{stat.ephemeral_owner:x}",
        f"dataLength = {stat.data_length}",
        f"numChildren = {stat.num_children}",
    )


_Command = Callable[[ZooKeeper, Sequence[str], Sequence[str]], Awaitable[None]]
_COMMANDS: Final[dict[str, _Command]] = {
    "create": _create,
    "delete": _delete,
    "deleteall": _delete_all,
    "get": _get,
    "ls": _ls,
    "rmr": _delete_all,
    "set": _set,
    "stat": _stat,
}
