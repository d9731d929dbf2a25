"""Copies of the data directories of a cluster whose processes stand or are dead.

A file is *linked* if its first bytes are never changed in place: the snapshot has a second name of the file, and its
length at that moment. These are the logs of segments, and the indexes of sealed ones. A broker only appends to a log,
and before a truncation it takes a copy for itself (`DiskFile.truncate`). Everything else is copied, small active
segments too, so that their truncation costs nothing later.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from minikafka.runtime.file_copies import copy_file

_LOG: Final = ".log"
_INDEXES: Final = (".index", ".timeindex")
_OFFSET_DIGITS: Final = 20
_LINKED_FROM: Final = 1 << 20
"""Bytes of an active segment from which it is linked."""
_LEFT_OUT: Final = (".lock", ".cleaned", ".deleted", ".tmp")
"""Ends of the names of files that a broker or ZooKeeper server makes again, or removes when it starts."""
_DELETED: Final = "-delete"


class LinkedFile(NamedTuple):
    """The length of a linked file when it was linked, and the time (ns) of its last change."""

    size: int
    modified_ns: int


@dataclass(slots=True)
class CopiedFiles:
    """Copies below the directory `root`, with the bytes of copied and of linked files.

    `former`: the linked files of the snapshot that is copied, by path below it; None if a cluster is copied.
    `linked`: the linked files of the copy, by path below `root`.
    """

    root: Path
    former: Mapping[str, LinkedFile] | None = None
    linked: dict[str, LinkedFile] = field(default_factory=dict)
    copied_bytes: int = 0
    linked_bytes: int = 0

    def copy(self, source: Path, below: str) -> None:
        """Copy a directory to the new path `below` under the root. Raises OSError."""
        (self.root / below).mkdir(mode=0o700, parents=True)
        with os.scandir(source) as found:
            entries = list(found)
        sealed = _sealed([entry.name for entry in entries])
        for entry in entries:
            path = f"{below}/{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                if not entry.name.endswith(_DELETED):
                    self.copy(Path(entry.path), path)
            elif entry.is_file(follow_symlinks=False) and not entry.name.endswith(_LEFT_OUT):
                if self.former is None:
                    self._keep(entry, path, is_sealed=entry.name.rpartition(".")[0] in sealed)
                else:
                    self._bring_back(entry, path, self.former.get(path))

    def _keep(self, entry: os.DirEntry[str], path: str, *, is_sealed: bool) -> None:
        """Link or copy a file of a cluster."""
        status = entry.stat()
        is_log = entry.name.endswith(_LOG)
        never_changes = is_sealed and (is_log or entry.name.endswith(_INDEXES))
        if (never_changes or (is_log and status.st_size >= _LINKED_FROM)) and self._link(
            entry, path
        ):
            self.linked[path] = LinkedFile(status.st_size, status.st_mtime_ns)
        else:
            self.copied_bytes += copy_file(entry.path, str(self.root / path))

    def _bring_back(self, entry: os.DirEntry[str], path: str, known: LinkedFile | None) -> None:
        """Link or copy a file of a snapshot, as long as it was: a broker may have appended to it since."""
        is_whole = known is not None and entry.stat().st_size == known.size
        if is_whole and self._link(entry, path):
            return
        target = str(self.root / path)
        self.copied_bytes += copy_file(entry.path, target, known.size if known else None)
        if known is not None:
            os.utime(target, ns=(known.modified_ns, known.modified_ns))

    def _link(self, entry: os.DirEntry[str], path: str) -> bool:
        try:
            os.link(entry.path, self.root / path, follow_symlinks=False)
        except OSError:  # a file system without hard links, or too many of them
            return False
        self.linked_bytes += entry.stat().st_size
        return True


def _sealed(names: Collection[str]) -> set[str]:
    """Return the base offsets, as in the names of the files, of all segments but the last."""
    stems = [name.removesuffix(_LOG) for name in names if name.endswith(_LOG)]
    bases = sorted(stem for stem in stems if len(stem) == _OFFSET_DIGITS and stem.isdecimal())
    return set(bases[:-1])


def replace_content(directory: Path, new: Path, former: Path) -> None:
    """Replace the entries of a directory by those of `new`, and move its former ones to the new directory `former`.

    The directory itself stays, because the saved ZooKeeper session of a broker counts only there
    (`broker/modes/zookeeper/session_file.py`). A lock file stays too. Raises OSError.
    """
    former.mkdir(parents=True)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in os.listdir(directory):
        if name != ".lock":
            os.rename(directory / name, former / name)
    for name in os.listdir(new):
        os.rename(new / name, directory / name)
