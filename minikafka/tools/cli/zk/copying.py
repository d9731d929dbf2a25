"""What `zk export` and `zk import` share: a checked copy of ZooKeeper's data.

Both servers have the same file formats: a move is a copy of the newest snapshot and the logs after it, which is then
read back and compared with its source, node by node.
"""

from __future__ import annotations

import os
from typing import Any, Final

import minikafka.tools.cli.terminal.progress as displays
import minikafka.zookeeper.server.store.moving as moving
from minikafka.base.errors import DirectoryInUse
from minikafka.runtime.clock import SystemClock
from minikafka.runtime.descriptors import process_that_uses
from minikafka.runtime.storage import DiskStorage
from minikafka.tools.cli.terminal.echo import wants_json

_VERSION: Final = 1
"""Version of the JSON format."""
_OF_CLUSTER: Final = os.path.join("zookeeper", "data")
"""Where the data are in the directory of `minikafka up`."""


def data_in(directory: str) -> str:
    """Return the data directory that a user means: the directory itself, or that of a cluster."""
    path = os.path.abspath(directory)
    inner = os.path.join(path, _OF_CLUSTER)
    return inner if os.path.isdir(inner) else path


def copy(source: str, logs: str | None, destination: str) -> moving.Copied:
    """Copy a data directory, with its logs in `logs` (None: in `source`), and show the progress.

    Raises DirectoryInUse if a server uses it.
    """
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


def as_json(action: str, source: str, destination: str, copied: moving.Copied) -> dict[str, Any]:
    """Return the JSON object of a copy, for `--json`."""
    return {
        "version": _VERSION,
        "action": action,
        "source": source,
        "destination": destination,
        **copied._asdict(),
        "zxid": hex(copied.zxid),
    }


def lines(target: str, copied: moving.Copied) -> list[str]:
    """Return the lines about a copy: its notes, its files, and what was compared."""
    ephemeral = f"{copied.ephemeral_nodes:,} of them ephemeral"
    return [
        *(f"note: {note}" for note in copied.notes),
        f"copied {', '.join(copied.files)} ({displays.size(copied.bytes)}) to {target}",
        f"checked: the copy has the same {copied.nodes:,} nodes ({ephemeral}, {copied.containers:,} containers) with"
        f" their data, Stats and ACLs, the same {copied.sessions:,} sessions, and the last zxid {copied.zxid:#x}",
    ]
