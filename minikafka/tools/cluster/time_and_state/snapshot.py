"""The snapshots in a data directory, `snapshots/NAME`, and what each says about itself in `snapshot.json`.

Invariant: a directory with this file is complete. It is written last, and the directory then gets its name.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from minikafka.tools.cluster.directory import ClusterDirectory, ClusterError, ClusterRecord
from minikafka.tools.cluster.time_and_state.copied_files import LinkedFile

FOLDER: Final = "snapshots"
ABOUT: Final = "snapshot.json"
RESTORING: Final = "restoring"
"""The file in the data directory that names the snapshot whose restore has begun and not ended."""
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_ZOOKEEPER: Final = "zookeeper"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """A snapshot. `taken_ms`: Unix ms. `stopped_ms`: for how long the processes stood.

    `linked`: the files that have a second name in the data directory, by path below the snapshot.
    """

    name: str
    taken_ms: int
    stopped_ms: int
    copied_bytes: int
    linked_bytes: int
    brokers: tuple[int, ...]
    coordination: str
    zookeeper: str
    cluster_id: str
    is_secure: bool
    advanced_ms: int
    linked: dict[str, LinkedFile]

    def check_cluster(self, record: ClusterRecord, cluster_id: str) -> None:
        """Raise ClusterError if the snapshot is of another cluster, or of one with other brokers or another mode."""
        here = tuple(broker.id for broker in record.brokers)
        for what, own, its in (
            ("brokers", _ids(here), _ids(self.brokers)),
            ("coordination", record.coordination, self.coordination),
            ("ZooKeeper", record.zookeeper_kind, self.zookeeper),
            ("security", _words(record.is_secure), _words(self.is_secure)),
            ("cluster id", cluster_id, self.cluster_id),
        ):
            if own != its:
                text = f"snapshot {self.name} does not fit this cluster: {what} {its}, here {own}"
                raise ClusterError(text, "minikafka snapshots list")


class Snapshots:
    """The snapshots of one data directory."""

    def __init__(self, directory: ClusterDirectory) -> None:
        self._directory = directory
        self.folder = directory.path / FOLDER

    def path(self, name: str) -> Path:
        """Return the path of a snapshot, whether or not it exists. Raises ClusterError for an invalid name."""
        if not _NAME.fullmatch(name):
            rule = "letters, digits, '.', '_' and '-', at most 100, not beginning with '.' or '-'"
            raise ClusterError(f"{name!r} cannot name a snapshot: use {rule}")
        return self.folder / name

    def read(self, name: str) -> ClusterSnapshot:
        """Return what a snapshot says about itself. Raises ClusterError if there is no such snapshot."""
        file = self.path(name) / ABOUT
        try:
            return _decode(name, json.loads(file.read_text()))
        except (FileNotFoundError, NotADirectoryError):
            known = ", ".join(one.name for one in self.all()) or "none"
            text = f"there is no snapshot {name} in {self._directory.path}; there are: {known}"
            raise ClusterError(text, f"minikafka snapshot {name} takes it") from None
        except (ValueError, KeyError, TypeError) as error:
            text = f"snapshot {name} is damaged: {file} is not readable ({error})"
            raise ClusterError(
                f"{text}. Remove it", f"minikafka snapshots remove {name}"
            ) from error

    def all(self) -> list[ClusterSnapshot]:
        """Return the complete snapshots, the oldest first."""
        names = [file.parent.name for file in self.folder.glob(f"*/{ABOUT}")]
        found = [self.read(name) for name in names if _NAME.fullmatch(name)]
        return sorted(found, key=lambda one: (one.taken_ms, one.name))

    def check_free(self, name: str) -> None:
        """Raise ClusterError if there is a snapshot with this name."""
        if self.path(name).exists():
            text = f"there is a snapshot {name} already: choose another name, or remove it"
            raise ClusterError(text, f"minikafka snapshots remove {name}")

    def check_links(self, snapshot: ClusterSnapshot) -> None:
        """Raise ClusterError if a linked file is gone, or is shorter than it was."""
        for name, linked in snapshot.linked.items():
            file = self.path(snapshot.name) / name
            found = file.stat().st_size if file.is_file() else -1
            if found < linked.size:
                now = "is gone" if found < 0 else f"has {found} bytes"
                had = f"{file} had {linked.size} bytes"
                text = f"snapshot {snapshot.name} is damaged: {had} and {now}"
                hint = f"minikafka snapshots remove {snapshot.name}"
                raise ClusterError(f"{text}. Take another snapshot", hint)

    def unfinished(self, name: str) -> Path:
        """Return the path at which a snapshot is written. Remove what an interrupted one has left."""
        for left in self.folder.glob(".*"):
            shutil.rmtree(left)
        return self.folder / f".{name}"

    def finish(self, path: Path, snapshot: ClusterSnapshot) -> None:
        """Write what the snapshot says about itself, and give its directory the name."""
        text = json.dumps({"version": _VERSION, **asdict(snapshot)}, indent=1)
        (path / ABOUT).write_text(text + "\n")
        path.rename(self.path(snapshot.name))

    def remove(self, name: str) -> None:
        """Remove a snapshot. Raises ClusterError if there is none."""
        path = self.path(name)
        if not path.is_dir():
            self.read(name)
        (path / ABOUT).unlink(missing_ok=True)  # first: what is left of it is no snapshot
        shutil.rmtree(path)

    def data(self, record: ClusterRecord) -> dict[str, Path]:
        """Return the directories that a snapshot has, by their names in it."""
        found = {_ZOOKEEPER: self._directory.zookeeper_data}
        for broker in record.brokers:
            data, ledger = (
                self._directory.broker_data(broker.id),
                self._directory.broker_ledger(broker.id),
            )
            found |= {data.name: data, ledger.name: ledger}
        return found


def check_restored(directory: ClusterDirectory) -> None:
    """Raise ClusterError if a restore was interrupted while it replaced the data of the cluster."""
    if (marker := directory.path / RESTORING).exists():
        name = marker.read_text()
        text = (
            f"the restore of snapshot {name} in {directory.path} was interrupted: restore it again"
        )
        raise ClusterError(f"{text}. No process was started", f"minikafka restore {name}")


def _decode(name: str, fields: dict[str, Any]) -> ClusterSnapshot:
    if fields.pop("version") != _VERSION:
        raise ValueError("it is of another version")
    linked = {path: LinkedFile(*values) for path, values in fields["linked"].items()}
    changed = {"name": name, "brokers": tuple(fields["brokers"]), "linked": linked}
    return ClusterSnapshot(**{**fields, **changed})


def _ids(brokers: tuple[int, ...]) -> str:
    return ", ".join(map(str, brokers))


def _words(is_secure: bool) -> str:
    return "on" if is_secure else "off"
