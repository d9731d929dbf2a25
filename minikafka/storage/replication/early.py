"""Early batches of idempotent producers: batches that arrive while a batch with lower sequence numbers is missing.

Kafka answers an early batch with OUT_OF_ORDER_SEQUENCE_NUMBER, or appends the batch if the producer is unknown.
After the error, librdkafka raises its epoch and may write records twice, or ends with a fatal error. After the
append, librdkafka regards the missing batch as written. This broker refuses the early batch with
LEADER_NOT_AVAILABLE while the missing batch may still arrive. Clients then refresh their metadata and retry. A
leader that has been replaced without knowing it, such as a paused broker that resumes, also refuses the early
batch, because the new leader may have batches that the old leader's log lacks.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from minikafka.base.errors import ErrorCode
from minikafka.base.model import BrokerId
from minikafka.kafka.records.header import COUNT, PRODUCER_ID, Header
from minikafka.storage.log.log import Log
from minikafka.storage.log.producers import EARLY, FULL, UNKNOWN, WRITTEN
from minikafka.storage.replication.isr import IsrState
from minikafka.storage.replication.progress import FollowerProgress

_NOT_AVAILABLE: Final = int(ErrorCode.LEADER_NOT_AVAILABLE)
_OUT_OF_ORDER: Final = int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
_DUPLICATE: Final = int(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
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
                self._refused.clear()  # their waits begin again
            first_at = now
        else:
            first_at = refused.first_at
        self._refused[producer_id] = _Refused(after, first_at, now)
        return first_at + WAIT_MS


class LeaderPartition(Protocol):
    """The attributes of a `Partition` of which this broker is the leader that the functions below use."""

    log: Log
    early_batches: EarlyBatches
    isr_state: IsrState
    followers: dict[BrokerId, FollowerProgress]
    high_watermark: int
    appended_base: int


def result_of_unexpected(partition: LeaderPartition, header: Header, known: int, now: int) -> int:
    """Check a batch with an unexpected sequence number. Return 0 if the batch is to be appended.

    Otherwise return the result of the append. `known`: the result of `ProducerStates.check`. If the batch is in the
    log already, set `partition.appended_base`.
    """
    if known in (UNKNOWN, FULL):
        is_first = known == UNKNOWN and now < partition.early_batches.unknown_until
        is_refused = known == FULL or (is_first and _may_be_early(partition, header, now))
        return -_NOT_AVAILABLE if is_refused else 0
    if known == EARLY:
        return -(_NOT_AVAILABLE if _may_be_early(partition, header, now) else _OUT_OF_ORDER)
    producers = partition.log.producers
    if known == WRITTEN:
        # The client takes DUPLICATE_SEQUENCE_NUMBER for success, so the batch must be committed.
        committed = producers.written_below(header[PRODUCER_ID]) <= partition.high_watermark
        return -(_DUPLICATE if committed else _NOT_AVAILABLE)
    partition.appended_base = known
    return known + header[COUNT] if known >= 0 else known


def _may_be_early(partition: LeaderPartition, header: Header, now: int) -> bool:
    """True while the producer's missing batch may still arrive, or another broker may have become the leader.

    False if the wait for the missing batch is over and this broker was certainly the leader during the whole wait.
    That is certain if a follower has fetched after the wait, or if no other replica can have been elected.
    """
    after = partition.log.producers.last_of(header[PRODUCER_ID])
    end = partition.early_batches.end_of_wait(header[PRODUCER_ID], after, now)
    alone = len(partition.isr_state.maximal) == 1
    return now < end or not (alone or any(p.has_fetched(end) for p in partition.followers.values()))
