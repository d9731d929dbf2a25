"""The limit of open client connections: a part of the file descriptors is kept for everything else.

Idle connections could otherwise take every descriptor. Then the broker could neither begin a segment nor reach
ZooKeeper or another broker. Invariant: a connection is accepted only while at least `reserve_of(limit)` descriptors
are free, and while fewer than `max.connections` connections are open.
"""

from __future__ import annotations

import logging
from typing import Final

from minikafka.base.metrics import Metrics
from minikafka.base.ports import Clock, Descriptors

logger = logging.getLogger(__name__)

_SHARE: Final = 4
"""Client connections must leave one in `_SHARE` of all descriptors free."""
_RESERVE_MIN: Final = 32
_RESERVE_MAX: Final = 1_024
_VALID_MS: Final = 1_000
"""A count of the open descriptors is used for at most this time."""
_COUNT_AGAIN_MS: Final = 50
"""Interval between two counts while no connection is accepted: a count takes up to 4 ms."""
_EPISODE_MS: Final = 60_000
"""A refusal after this time without a refusal begins a new episode, which gets a log line."""


def reserve_of(limit: int) -> int:
    """Return how many of `limit` descriptors client connections must leave free."""
    return min(max(limit // _SHARE, _RESERVE_MIN), _RESERVE_MAX)


class ConnectionRoom:
    """Decides whether one more connection may be accepted. `most`: the current value of `max.connections`.

    `refused` counts the connections that were closed at once, `replaced` those that were closed for others.
    """

    def __init__(self, descriptors: Descriptors, clock: Clock, most: int) -> None:
        self._descriptors = descriptors
        self._clock = clock
        self.most = most
        self._left = 0
        """Number of connections that may be accepted before the descriptors are counted again."""
        self._is_full = False
        """True if the last count found no descriptor for a connection."""
        self._counted_at = -_VALID_MS
        self._short_at = -_EPISODE_MS
        self.refused = self.replaced = 0

    def has_place(self, connections: int, *, is_protected: bool = False) -> bool:
        """Return True, and count the new connection, if it may be accepted in addition to the open connections.

        `is_protected`: the number `most` does not concern it.
        """
        now = self._clock.now()
        if now - self._counted_at >= (_COUNT_AGAIN_MS if self._is_full else _VALID_MS) or (
            self._left <= 0 and not self._is_full
        ):
            self._count(now)
        if self._left > 0 and (is_protected or connections < self.most):
            self._left -= 1
            return True
        self._log_refusal(now, connections)
        return False

    def _count(self, now: int) -> None:
        self._counted_at = now
        left = self._free() - reserve_of(self._descriptors.limit())
        self._is_full = left <= 0
        self._left = (
            left + 1
        ) // 2  # half, because other descriptors may be opened before the next count

    def surplus(self, connections: int) -> int:
        """Return how many of the open connections must be closed.

        Other descriptors have taken half of the reserve, or `most` is smaller than before.
        """
        missing = reserve_of(self._descriptors.limit()) // 2 - self._free()
        return max(missing, connections - self.most, 0)

    def _free(self) -> int:
        return self._descriptors.limit() - self._descriptors.used()

    def _log_refusal(self, now: int, connections: int) -> None:
        """Write a log line if this is the first refusal of an episode."""
        if now - self._short_at >= _EPISODE_MS:
            limit = self._descriptors.limit()
            logger.warning(
                "%d client connections and %d of %d file descriptors are open; %d descriptors are kept for log files, "
                "ZooKeeper and other brokers, and max.connections is %d: a new connection replaces an unused "
                "one, or is refused. Raise the limit (ulimit -n) if the clients are wanted",
                connections,
                self._descriptors.used(),
                limit,
                reserve_of(limit),
                self.most,
            )
        self._short_at = now

    def register(self, metrics: Metrics) -> None:
        """Register the metrics of descriptors and refused connections."""
        descriptors, bean = self._descriptors, "kafka.network:type=SocketServer,name="
        metrics.gauge("process_open_fds", "Open file descriptors.", descriptors.used)
        metrics.gauge("process_max_fds", "Maximum number of file descriptors.", descriptors.limit)
        metrics.computed_counter(
            bean + "RefusedConnections",
            "Connections closed at once, because too few file descriptors are free.",
            lambda: self.refused,
        )
        metrics.computed_counter(
            bean + "ReplacedConnections",
            "Idle connections closed to free file descriptors.",
            lambda: self.replaced,
        )
