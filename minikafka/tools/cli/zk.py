"""`zk export` and `zk import`: move ZooKeeper's data between minikafka's own server and Apache ZooKeeper.

Both servers have the same file formats: a move is a copy of the newest snapshot and the logs after it, which is then
read back and compared with its source, node by node.
"""

from __future__ import annotations

import os
from typing import Any, Final

import click

import minikafka.tools.cli.terminal.progress as displays
import minikafka.zookeeper.server.store.moving as moving
from minikafka.runtime.clock import SystemClock
from minikafka.runtime.descriptors import process_that_uses
from minikafka.runtime.storage import DiskStorage
from minikafka.tools.cli.recover import recover
from minikafka.tools.cli.terminal.command_group import CommandGroup
from minikafka.tools.cli.terminal.echo import echo, json_option, show, wants_json
from minikafka.zookeeper.server.store.files import DirectoryInUse

_VERSION: Final = 1
"""Version of the JSON format."""
_DIRECTORY: Final = click.Path(file_okay=False)
_EXISTING: Final = click.Path(exists=True, file_okay=False)
_OF_CLUSTER: Final = os.path.join("zookeeper", "data")
"""Where the data are in the directory of `minikafka up`."""

log_dir_option = click.option(
    "--log-dir",
    type=_EXISTING,
    metavar="DIR",
    help="The directory of the logs, if zoo.cfg sets dataLogDir.",
)


@click.group(cls=CommandGroup)
def zk() -> None:
    """Move ZooKeeper's data to and from Apache ZooKeeper, or rebuild them."""


zk.add_command(recover)


@zk.command("export")
@click.argument("data", type=_EXISTING, metavar="DATA")
@click.argument("destination", type=_DIRECTORY, metavar="DEST")
@json_option
def export(data: str, destination: str) -> None:
    """Copy the data of minikafka's ZooKeeper server to DEST, a dataDir for Apache ZooKeeper.

    DATA is the directory of `minikafka zookeeper`, or of `minikafka up`. Stop the server first. The copy is checked;
    DATA is not changed. For an ensemble, copy DEST to ALL members before the first start of any.
    """
    target = os.path.abspath(destination)
    copied = _copy(_data_in(data), None, target)
    show(_as_json("export", data, destination, copied), lambda: _print_export(target, copied))


@zk.command("import")
@click.argument("source", type=_EXISTING, metavar="SOURCE")
@click.argument("data", type=_DIRECTORY, metavar="DATA")
@log_dir_option
@json_option
def import_(source: str, data: str, log_dir: str | None) -> None:
    """Copy SOURCE, the dataDir of an Apache ZooKeeper server, to DATA, for minikafka's server.

    DATA is a directory for `minikafka zookeeper`; for `minikafka up --data DIR`, it is DIR/zookeeper/data. SOURCE may
    be the dataDir of any one member of an ensemble: take the member with the highest zxid. Stop all members first. The
    copy is checked; SOURCE is not changed.
    """
    target = os.path.abspath(data)
    copied = _copy(_data_in(source), log_dir and os.path.abspath(log_dir), target)
    show(_as_json("import", source, data, copied), lambda: _print_import(target, copied))


def _data_in(directory: str) -> str:
    """Return the data directory that a user means: the directory itself, or that of a cluster."""
    path = os.path.abspath(directory)
    inner = os.path.join(path, _OF_CLUSTER)
    return inner if os.path.isdir(inner) else path


def _copy(source: str, logs: str | None, destination: str) -> moving.Copied:
    _refuse_running(source, logs)
    with displays.Progress(SystemClock(), "", shown=not wants_json()) as progress:
        on_progress: moving.OnProgress = lambda step, done, total: progress.update(  # noqa: E731
            {step: displays.Amount(done, total)}
        )
        return moving.copy(
            DiskStorage(), moving.CopiedDirectory(source, logs), destination, on_progress
        )


def _refuse_running(source: str, logs: str | None) -> None:
    """Refuse the directory of a server that runs. Apache ZooKeeper has no lock, but keeps its log open."""
    for directory in filter(None, (source, logs)):
        if (pid := process_that_uses(directory)) is not None:
            raise DirectoryInUse(
                f"{directory} is in use by process {pid}; stop this server first (a cluster: minikafka down)"
            )


# ---- output


def _as_json(action: str, source: str, destination: str, copied: moving.Copied) -> dict[str, Any]:
    return {
        "version": _VERSION,
        "action": action,
        "source": source,
        "destination": destination,
        **copied._asdict(),
        "zxid": hex(copied.zxid),
    }


def _print_export(target: str, copied: moving.Copied) -> None:
    _print_copied(target, copied)
    _print_lines(
        "Before Apache ZooKeeper starts on it:",
        f"- one server: set dataDir={target} in zoo.cfg; remove dataLogDir, or move the files log.* there",
        f"- an ensemble: copy {target} to the dataDir of ALL members before you start any of them. Members without",
        "  data could form a quorum, and the others would then drop these data. Each member needs its number in",
        "  dataDir/myid, and a line server.N=HOST:2888:3888 for each member in zoo.cfg.",
        "Clients open new sessions: Apache ZooKeeper does not know the passwords of the old ones. Sessions that were",
        "open, and their ephemeral nodes, end after their timeout.",
    )


def _print_import(target: str, copied: moving.Copied) -> None:
    _print_copied(target, copied)
    _print_lines(
        f"Start the server with: minikafka zookeeper --data {target} --port 2181",
        "Clients open new sessions: the passwords of the old ones are not valid here. Sessions that were open, and",
        "their ephemeral nodes, end after their timeout.",
    )


def _print_copied(target: str, copied: moving.Copied) -> None:
    ephemeral = f"{copied.ephemeral_nodes:,} of them ephemeral"
    _print_lines(
        *(f"note: {note}" for note in copied.notes),
        f"copied {', '.join(copied.files)} ({displays.size(copied.bytes)}) to {target}",
        f"checked: the copy has the same {copied.nodes:,} nodes ({ephemeral}, {copied.containers:,} containers) with"
        f" their data, Stats and ACLs, the same {copied.sessions:,} sessions, and the last zxid {copied.zxid:#x}",
    )


def _print_lines(*lines: str) -> None:
    for line in lines:
        echo(line)
