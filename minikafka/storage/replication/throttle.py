"""The rate limit of throttled replicas (KIP-73, Kafka's ReplicationQuotaManager).

A broker has one throttle for the records that it sends as a leader, and one throttle for the records that it
fetches as a follower. The bytes of all throttled replicas count, but only replicas outside of the ISR wait, so
that a throttle never shrinks an ISR.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from minikafka.base.config.keys import LONG_MAX
from minikafka.base.ports import Clock

RETRY_MS: Final = 100
"""Interval at which replicas that wait for the throttle are tried again."""
_HEAD_START_MS: Final = 100
"""After a window without a transfer, the bytes that are granted in this time may be transferred at once."""


class Throttle:
    """The number of bytes that throttled replicas may transfer now, and the transfer rate over the last windows.

    Bytes are granted continuously, at the limit of the rate. Unused bytes are kept for later. During a transfer
    at most the bytes of one window are kept, to bridge the pauses between two fetches. After an idle window at
    most the bytes of 0.1 s are kept, so that short copies do not exceed the limit. (Kafka keeps the bytes of idle
    windows.) A transfer above the limit delays later transfers by at most `count` windows of `window_ms`.
    """

    __slots__ = (
        "_at",
        "_clock",
        "_count",
        "_credit",
        "_last",
        "_total",
        "_window_ms",
        "_windows",
        "limit",
    )

    def __init__(self, clock: Clock, count: int, window_ms: int) -> None:
        self.limit = LONG_MAX
        """Limit of the rate in bytes per second; LONG_MAX: no limit."""
        self._clock = clock
        self._count = count
        self._window_ms = window_ms
        self._credit = 0
        """Thousandths of a byte that may be transferred now; negative after a transfer above the limit."""
        self._at = clock.now()
        self._last = self._at - window_ms
        """`_at`: time (ms) up to which the credit is computed; `_last`: time of the last transfer."""
        self._windows: deque[tuple[int, int]] = deque()
        """(start, bytes) of each window, oldest first; a window begins with its first bytes."""
        self._total = 0

    def set_limit(self, limit: int) -> None:
        """Set the limit of the rate, in bytes per second."""
        if limit != self.limit:
            self._credit = min(self._credit, 0)
            self._at = self._clock.now()
            self._last = self._at - self._window_ms
            self._credit += limit * _HEAD_START_MS
            self.limit = limit

    def record(self, size: int) -> None:
        """Count bytes that were transferred."""
        now = self._clock.now()
        if self.limit != LONG_MAX:
            self._grant(now)
            debt_max = self.limit * self._count * self._window_ms
            self._credit = max(self._credit - 1000 * size, -debt_max)
        self._last = now
        self._note(size, now)

    def room(self) -> int:
        """Return how many bytes may be transferred now; negative while the rate is exceeded."""
        if self.limit == LONG_MAX:
            return LONG_MAX
        self._grant(self._clock.now())
        return self._credit // 1000

    def _grant(self, now: int) -> None:
        is_idle = now - self._last >= self._window_ms
        kept = self.limit * (_HEAD_START_MS if is_idle else self._window_ms)
        self._credit = min(self._credit + self.limit * (now - self._at), kept)
        self._at = now

    # ---- the measured rate

    def rate(self) -> int:
        """Return the measured rate over the windows, in bytes per second."""
        now = self._clock.now()
        self._expire(now)
        measured_ms = now - self._windows[0][0] if self._windows else 0
        return self._total * 1000 // max(measured_ms, self._window_ms)

    def _note(self, size: int, now: int) -> None:
        self._expire(now)
        windows = self._windows
        if windows and now - windows[-1][0] < self._window_ms:
            start, before = windows[-1]
            windows[-1] = (start, before + size)
        else:
            windows.append((now, size))
        self._total += size

    def _expire(self, now: int) -> None:
        windows = self._windows
        while windows and now - windows[0][0] >= (self._count + 1) * self._window_ms:
            self._total -= windows.popleft()[1]
