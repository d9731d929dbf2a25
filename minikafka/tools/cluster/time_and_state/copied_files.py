"""Copies of the data directories of a cluster whose processes stand or are dead.

The log of a sealed segment and its two indexes are *linked*: the copy is a second name of the file. No process changes
these files in place. Where a broker changes a sealed log after all, as a truncation does, it ends the link first
(`File.unshare` in `base/ports.py`). Everything else is copied.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from minikafka.runtime.file_copies import copy_file

_LOG: Final = ".log"
_LINKED: Final = (_LOG, ".index", ".timeindex")
_OFFSET_DIGITS: Final = 20
_LEFT_OUT: Final = (".lock", ".cleaned", ".deleted", ".tmp")
"""Ends of the names of files that a broker or ZooKeeper server makes again, or removes when it starts."""
_DELETED: Final = "-delete"


@dataclass(slots=True)
class CopiedFiles:
    """What was copied: bytes of copied and of linked files, and the sizes of the linked ones by relative path."""

    copied_bytes: int = 0
    linked_bytes: int = 0
    linked: dict[str, int] = field(default_factory=dict)

    def copy(self, source: Path, target: Path, root: Path) -> None:
        """Copy a directory to a new path below `root`. Raises OSError."""
        target.mkdir(mode=0o700, parents=True)
        with os.scandir(source) as found:
            entries = list(found)
        sealed = _sealed([entry.name for entry in entries])
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if not entry.name.endswith(_DELETED):
                    self.copy(Path(entry.path), target / entry.name, root)
            elif entry.is_file(follow_symlinks=False) and not entry.name.endswith(_LEFT_OUT):
                is_linked = entry.name.rpartition(".")[0] in sealed and entry.name.endswith(_LINKED)
                self._add(entry.path, target / entry.name, root, is_linked=is_linked)

    def _add(self, source: str, target: Path, root: Path, *, is_linked: bool) -> None:
        if is_linked and _link(source, target):
            size = os.stat(target).st_size
            self.linked[str(target.relative_to(root))] = size
            self.linked_bytes += size
        else:
            self.copied_bytes += copy_file(source, str(target))


def _sealed(names: Collection[str]) -> set[str]:
    """Return the base offsets, as in the names of the files, of all segments but the last."""
    stems = [name.removesuffix(_LOG) for name in names if name.endswith(_LOG)]
    bases = sorted(stem for stem in stems if len(stem) == _OFFSET_DIGITS and stem.isdecimal())
    return set(bases[:-1])


def _link(source: str, target: Path) -> bool:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # a file system without hard links, or too many of them
        return False
    return True


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
