"""Early batches of idempotent producers: batches that arrive while a batch with lower sequence numbers is missing.

Kafka answers an early batch with OUT_OF_ORDER_SEQUENCE_NUMBER, or appends the batch if the producer is unknown.
After the error, librdkafka raises its epoch and may write records twice, or ends with a fatal error. After the
append, librdkafka regards the missing batch as written. This broker refuses the early batch with
LEADER_NOT_AVAILABLE while the missing batch may still arrive. Clients then refresh their metadata and retry. A
leader that has been replaced without knowing it, such as a paused broker that resumes, also refuses the early
batch, because the new leader may have batches that the old leader's log lacks.
"""

from __future__ import annotations

from typing import Final, NamedTuple

WAIT_MS: Final = 5_000
"""Time for which early batches of a producer are refused. A client that still has the earlier batch sends it
before retrying the later batch. If the topic was deleted and created again, the earlier batch never arrives."""
FIRST_BATCHES_MS: Final = 60_000
"""Time after an election in which a leader refuses later batches of an unknown producer, because the first
batch may still arrive. A client may wait this long for a response of the former leader (request.timeout.ms is
30 s, socket.timeout.ms 60 s)."""
_PRODUCERS_MAX: Final = 10_000


class _Refused(NamedTuple):
    after: tuple[int, int]
    first_at: int
    last_at: int


class EarlyBatches:
    """The producers of one partition whose early batches were refused. Times are monotonic ms.

    A batch is early if a batch of the same producer with lower sequence numbers is missing. `unknown_until`: until
    this time, if a producer has no batch in the log, all its batches except its first batch also count as early. The
    reason is that the first batch may still arrive.
    """

    __slots__ = ("_refused", "unknown_until")

    def __init__(self) -> None:
        self.unknown_until = 0
        self._refused: dict[int, _Refused] = {}

    def end_of_wait(self, producer_id: int, after: tuple[int, int], now: int) -> int:
        """Record an early batch of the producer; return the time (ms) until which its early batches are refused.

        A batch is early if a batch of the same producer with lower sequence numbers is missing. `after`: epoch and
        last sequence number of the producer in the log.
        A new wait begins when `after` has changed, or when no early batch has
        arrived for `WAIT_MS`.
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
