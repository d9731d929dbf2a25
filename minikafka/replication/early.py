"""Batches of idempotent producers that reach a leader before an earlier batch of the same producer.

Kafka answers such a batch with OUT_OF_ORDER_SEQUENCE_NUMBER, or appends it if it does not know the producer. The
first makes librdkafka raise its epoch, after which it may write records twice, or end with a fatal error; the second
makes it take the earlier batch for written. Here the batch waits at the client (LEADER_NOT_AVAILABLE, after which
clients read the metadata again) as long as the earlier one may still come. It also waits at a leader that was replaced
and has not heard of it, whose log lacks what its successor has: a paused broker that goes on, for example.
"""

from __future__ import annotations

from typing import Final, NamedTuple

WAIT_MS: Final = 5_000
"""Time for which a producer is refused so. A client that has the earlier batch sends it before the next retry; in a
topic that was created again there is none."""
FIRST_BATCHES_MS: Final = 60_000
"""Time after an election in which a leader refuses a later batch of an unknown producer, whose first batch may
still arrive: a client may wait this long for the former leader (request.timeout.ms 30 s, socket.timeout.ms 60 s)."""
_PRODUCERS_MAX: Final = 10_000


class _Refused(NamedTuple):
    after: tuple[int, int]
    first_at: int
    last_at: int


class EarlyBatches:
    """The producers of one partition whose batches came too early. Times are monotonic ms.

    Until `unknown_until` the first batches of a producer that the log does not know may still come.
    """

    __slots__ = ("_refused", "unknown_until")

    def __init__(self) -> None:
        self.unknown_until = 0
        self._refused: dict[int, _Refused] = {}

    def end_of_wait(self, producer_id: int, after: tuple[int, int], now: int) -> int:
        """Return the time (ms) until which early batches of the producer are refused; one arrives now.

        `after`: epoch and last sequence number of the producer in the log. A new wait begins when they have changed,
        or when no early batch has arrived for `WAIT_MS`.
        """
        refused = self._refused.get(producer_id)
        if refused is None or refused.after != after or now - refused.last_at > WAIT_MS:
            if len(self._refused) >= _PRODUCERS_MAX:
                self._refused.clear()
            first_at = now
        else:
            first_at = refused.first_at
        self._refused[producer_id] = _Refused(after, first_at, now)
        return first_at + WAIT_MS
