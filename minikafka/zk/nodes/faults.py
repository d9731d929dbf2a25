"""The malformed nodes that one reader of ZooKeeper has met and skipped.

Anyone may write to ZooKeeper, and a malformed node usually stays until a person removes it, while the nodes around it
are read again and again. Invariant: a fault is logged once with the node's path, until the node has another fault.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

logger = logging.getLogger(__name__)

_PATHS_MAX: Final = 10_000
"""Number of malformed nodes that are remembered; the fault of a forgotten one is logged again."""


class Faults:
    """The fault that was last logged for each path."""

    def __init__(self) -> None:
        self._logged: dict[str, str] = {}

    def report(self, path: str, fault: object) -> None:
        """Log that the node, or a part of it, is skipped because of this fault.

        Do nothing if this fault was the last one logged for the path.
        """
        text = str(fault)
        if self._logged.get(path) == text:
            return
        logger.error("%s is not readable and is skipped: %s", _printable(path), text)
        self._logged.pop(path, None)
        self._logged[path] = text
        if len(self._logged) > _PATHS_MAX:
            del self._logged[next(iter(self._logged))]

    def keep(self, directory: str, names: Iterable[str]) -> None:
        """Forget the faults of nodes below the directory, except its existing children `names`."""
        there = {f"{directory}/{name}" for name in names}
        below = [path for path in self._logged if path.startswith(f"{directory}/")]
        for path in below:
            if path not in there:
                del self._logged[path]

    def mended(self, path: str) -> None:
        """Forget the node: it is gone, or readable again."""
        self._logged.pop(path, None)


def _printable(path: str) -> str:
    """Return the path as printable ASCII: other characters, such as newlines, become backslash escapes."""
    return path if path.isascii() and path.isprintable() else ascii(path)[1:-1]
