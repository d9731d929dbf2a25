"""Clients that a process keeps, so that the next task or planning call uses their connections again.

Spark uses its Python workers for several tasks, and one process plans all micro-batches of a stream. Invariants:
a client has one user at a time. A client is kept only if its user has finished without an error. After a fork,
the child uses no connection of its parent.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from minikafka.spark.wire.leaders import LeaderConnections

_KEPT_MAX: Final = 8
_kept: Final[dict[Hashable, LeaderConnections]] = {}
"""At most one client without a user for each key, in the order of their last use."""


@contextmanager
def kept_client(
    key: Hashable, make: Callable[[], LeaderConnections]
) -> Iterator[LeaderConnections]:
    """Yield the client that is kept for `key`, without the connections that are closed now, or else a new client."""
    client = _kept.pop(key, None)
    if client is None:
        client = make()
    try:
        client.drop_closed()
        yield client
    except BaseException:
        client.close()
        raise
    if (other := _kept.pop(key, None)) is not None:
        other.close()
    _kept[key] = client
    _close_oldest()


def _close_oldest() -> None:
    with suppress(StopIteration, KeyError):  # another thread may remove clients at the same time
        while len(_kept) > _KEPT_MAX:
            _kept.pop(next(iter(_kept))).close()


def close_kept() -> None:
    """Close all clients that have no user."""
    with suppress(KeyError):
        while _kept:
            _kept.popitem()[1].close()


atexit.register(close_kept)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=close_kept)
