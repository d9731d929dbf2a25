"""Logging of the malformed nodes that a reader of ZooKeeper has skipped.

Anyone may write to ZooKeeper. A malformed node usually stays until a person removes it, and is read many times.
Invariant: as long as a node has the same fault, the fault is logged only once, with the node's path.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

logger = logging.getLogger(__name__)

_PATHS_MAX: Final = 10_000
"""Maximum number of remembered malformed nodes. The fault of a forgotten node is logged again."""


class Faults:
    """The last logged fault of each malformed node."""

    def __init__(self) -> None:
        self._logged: dict[str, str] = {}

    def report(self, path: str, fault: object) -> None:
        """Log that a node, or a part of a node, is skipped because of this fault.

        Do nothing if the last logged fault of the node is the same.
        """
        text = str(fault)
        if self._logged.get(path) == text:
            return
        logger.error("%s is not readable and is skipped: %s", _printable(path), text)
        self._logged.pop(path, None)
        self._logged[path] = text
        if len(self._logged) > _PATHS_MAX:
            del self._logged[next(iter(self._logged))]

    @property
    def found(self) -> dict[str, str]:
        """The malformed nodes by path, each with its last fault."""
        return dict(self._logged)

    def keep(self, directory: str, names: Iterable[str]) -> None:
        """Forget the faults of all nodes below `directory`, except the faults of the children `names`."""
        there = {f"{directory}/{name}" for name in names}
        below = [path for path in self._logged if path.startswith(f"{directory}/")]
        for path in below:
            if path not in there:
                del self._logged[path]

    def mended(self, path: str) -> None:
        """Forget the fault of a node that is readable again or has been deleted."""
        self._logged.pop(path, None)


def _printable(path: str) -> str:
    """Return the path as printable ASCII. Other characters, such as newlines, become backslash escapes."""
    return path if path.isascii() and path.isprintable() else ascii(path)[1:-1]
