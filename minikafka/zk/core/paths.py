"""The syntax of paths. Only writes check it: a read of a malformed path finds no node [measured]."""

from __future__ import annotations

import re
from typing import Final

from minikafka.zk.messages.codes import BAD_ARGUMENTS, Refused

ROOT: Final = "/"
SYSTEM_PATHS: Final = ("/zookeeper", "/zookeeper/quota", "/zookeeper/config")
"""Nodes that every server has, and that no client can delete."""
_ILLEGAL: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")
_BAD_NAMES: Final = re.compile(r"//|/\.\.?(/|$)|[^/]/$")
_PLAIN: Final = re.compile(r"(?:/[A-Za-z0-9_\-:]++)++\Z")
"""Most paths. One match is faster than the checks that all other paths need. It never goes back in a deep path."""


def check_path(path: str | None) -> None:
    """Raise Refused (BAD_ARGUMENTS) for a path that ZooKeeper does not accept in a write."""
    if path and _PLAIN.match(path):
        return
    if not path or path[0] != "/":
        raise Refused(BAD_ARGUMENTS)
    if len(path) > 1 and (_BAD_NAMES.search(path) or _ILLEGAL.search(path)):
        raise Refused(BAD_ARGUMENTS)


def parent_of(path: str) -> str:
    """Return the path of the parent, "/" for a top-level node. The path must contain a slash."""
    return path[: path.rindex("/")] or ROOT


def name_of(path: str) -> str:
    """Return the last component of the path."""
    return path[path.rindex("/") + 1 :]


def sequence_number(created: int) -> str:
    """Return the number in a sequential node's name."""
    return f"{int32(created):010d}"


def int32(count: int) -> int:
    """Return a count as ZooKeeper keeps it: with 32 bits, so that it goes on below zero."""
    return (count + 2**31) % 2**32 - 2**31
