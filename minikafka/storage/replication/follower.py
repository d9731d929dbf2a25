"""The partitions that a broker replicates from one leader broker: reconcile, then fetch (R39–R45).

One request is in flight at a time. The class does no network I/O: `epoch_questions` and `next_fetch` return the
content of requests, `on_epoch_answer`, `on_session` and `on_partition` process responses, `get_timer` and
`handle_timer` resume delayed partitions. Invariant: a partition is fetched only after it was reconciled in its
current leader epoch. A response is used only if leader epoch and log end have not changed since the request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeAlias

from minikafka.base.errors import CorruptBatch, ErrorCode, OffsetGap, StorageFailed
from minikafka.base.fetch_rows import RequestRow
from minikafka.base.model import TopicPartition
from minikafka.storage.replication.partition import Partition
from minikafka.storage.replication.throttle import RETRY_MS

logger = logging.getLogger(__name__)

TRUNCATING: Final = 0
ASKED: Final = 1
FETCHING: Final = 2
DELAYED: Final = 3
STOPPED: Final = 4
"""State of a partition that was fenced or whose log directory failed, until the next LeaderAndIsr."""

_SOON_MS: Final = 50
"""Delay of a retry (ms) if the leader has probably not received its LeaderAndIsr request yet."""
_OUT_OF_RANGE: Final = int(ErrorCode.OFFSET_OUT_OF_RANGE)
_CORRUPT: Final = int(ErrorCode.CORRUPT_MESSAGE)
_FENCED: Final = int(ErrorCode.FENCED_LEADER_EPOCH)
_SOON: Final = frozenset(
    int(code)
    for code in (
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)
Key: TypeAlias = tuple[bytes, int]
Question: TypeAlias = tuple[str, int, int, int]
"""A row of OffsetForLeaderEpoch: topic, partition, current leader epoch, requested epoch."""


class Followed:
    """One followed partition. `epoch`: its leader epoch when it was added.

    `sent_offset` is the fetch offset of the last request. `refused_gap` is the last gap in the leader's log that was
    refused, as (expected offset, offset found).
    """

    __slots__ = ("epoch", "partition", "refused_gap", "retry_at", "sent_offset", "state")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.epoch = partition.leader_epoch
        self.state = TRUNCATING
        self.retry_at = 0
        self.sent_offset = -1
        self.refused_gap = (-1, -1)


class Follower:
    """All partitions that this broker replicates from one leader broker over one connection.

    `on_storage_failed(partition, failure)` is called when a file operation fails. `on_awaited(partition)` is
    called when a high watermark that consumers wait for has moved. Collections of partitions: `unreconciled`
    (the leader must be asked for their epochs), `to_list` (the next fetch must list them), `forgotten` (the
    next fetch removes them from the session), `listed` (in the session), `delayed` (wait for a timer), `held` (wait
    for the throttle of this broker). `limits`: bytes that the throttle allows in the next fetch.
    """

    def __init__(
        self,
        partition_max_bytes: int,
        backoff_ms: int,
        on_storage_failed: Callable[[Partition, StorageFailed], None],
        on_awaited: Callable[[Partition], None],
    ) -> None:
        self.partition_max_bytes = partition_max_bytes
        self.backoff_ms = backoff_ms
        self.on_storage_failed = on_storage_failed
        self.on_awaited = on_awaited
        self.followed: dict[Key, Followed] = {}
        self.session_id = 0
        self.session_epoch = 0
        self.unreconciled: dict[Key, Followed] = {}
        self.to_list: dict[Key, Followed] = {}
        self.delayed: dict[Key, Followed] = {}
        self.held: dict[Key, Followed] = {}
        self.limits: dict[Key, int] = {}
        self.forgotten: dict[Key, None] = {}
        self.listed: set[Key] = set()

    # ---- followed partitions

    def add(self, partition: Partition) -> None:
        """Follow the partition in its current leader epoch.

        The log is first compared with the leader's log, even if the leader has not changed (R45).
        """
        key = (partition.topic, partition.tp.partition)
        self._drop(key)
        followed = self.followed[key] = self.unreconciled[key] = Followed(partition)
        assert followed.epoch >= 0, partition

    def remove(self, tp: TopicPartition) -> None:
        """Stop following the partition."""
        key = (tp.topic.encode(), tp.partition)
        self._drop(key)
        if self.followed.pop(key, None) is not None and key in self.listed:
            self.forgotten[key] = None

    def _drop(self, key: Key) -> None:
        self.unreconciled.pop(key, None)
        self.to_list.pop(key, None)
        self.delayed.pop(key, None)
        self.held.pop(key, None)
        self.forgotten.pop(key, None)

    def disconnected(self) -> None:
        """Forget the fetch session, which ended with its connection. Unanswered requests will be sent again."""
        self.session_id = self.session_epoch = 0
        self.listed.clear()
        self.forgotten.clear()
        for key, followed in self.followed.items():
            if followed.state == ASKED:
                followed.state = TRUNCATING
                self.unreconciled[key] = followed
            elif followed.state == FETCHING:
                self._fetch_next(key, followed)

    # ---- truncating

    def epoch_questions(self) -> list[Question]:
        """Return the content of an OffsetForLeaderEpoch request for the partitions that must be reconciled."""
        questions: list[Question] = []
        for key, followed in self.unreconciled.items():
            followed.state = ASKED
            latest = max(followed.partition.log.epochs.latest, 0)
            questions.append((key[0].decode(), key[1], followed.epoch, latest))
        self.unreconciled.clear()
        return questions

    def on_epoch_answer(self, key: Key, error: int, epoch: int, end_offset: int) -> None:
        """Process one partition of an OffsetForLeaderEpoch response (R38, R39).

        `epoch` and `end_offset` are -1 if the leader does not know the requested epoch.
        """
        followed = self.followed.get(key)
        if (
            followed is None
            or followed.state != ASKED
            or followed.epoch != followed.partition.leader_epoch
        ):
            return
        if error:
            self._refused(key, followed, error)
            return
        try:
            reconciled = reconcile(followed.partition, epoch, end_offset)
        except StorageFailed as failure:
            self._disk_failed(key, followed, failure)
            return
        if reconciled:
            followed.state = FETCHING
            self._fetch_next(key, followed)
        else:
            followed.state = TRUNCATING
            self.unreconciled[key] = followed

    # ---- fetching

    def has_fetch(self) -> bool:
        """True if the next fetch covers at least one partition: it lists one, or one stays in the fetch session."""
        return bool(self.to_list) or len(self.listed) > len(self.forgotten)

    def _fetch_next(self, key: Key, followed: Followed) -> None:
        """List the partition in the next fetch, or hold it until `release_held` if it is throttled."""
        (self.to_list if followed.partition.follower_throttle is None else self.held)[key] = (
            followed
        )

    def release_held(self) -> None:
        """Add partitions in `held` (they wait for the throttle) to the next fetch, as many as the throttle now allows.

        Call this before each fetch. Each throttled partition that is added gets a limit of bytes (`limits`).
        Partitions that stay in `held` are removed from the session, so that the leader does not send their records.
        """
        granted = 0
        for key, followed in tuple(self.held.items()):
            throttle = followed.partition.follower_throttle
            if throttle is not None:
                room = throttle.room() - granted
                if room < 0 or (granted and not room):
                    if key in self.listed:
                        self.forgotten[key] = None
                    continue
                limit = self.limits[key] = max(min(room, self.partition_max_bytes), 1)
                granted += limit
            del self.held[key]
            self.forgotten.pop(key, None)
            self.to_list[key] = followed

    def next_row(self) -> tuple[bytes, RequestRow] | None:
        """Return (topic, `RequestRow`) of the only partition in the next fetch, which is the common case.

        In this case, this method replaces `next_fetch`, which saves 0.3 of the 1.2 µs that `next_fetch` and the
        encoding take. Return None if the next fetch lists no partition or several, or forgets a partition.
        """
        if len(self.to_list) != 1 or self.forgotten:
            return None
        key, followed = self.to_list.popitem()
        self.listed.add(key)
        return key[0], self._row(key, followed)

    def _row(self, key: Key, followed: Followed) -> RequestRow:
        assert followed.state == FETCHING, (
            followed.state
        )  # a log is reconciled before it is fetched (R39)
        log = followed.partition.log
        offset = followed.sent_offset = log.log_end_offset
        epoch = log.epochs.latest
        max_bytes = self.partition_max_bytes
        if self.limits:
            max_bytes = self.limits.pop(key, max_bytes)
        return (key[1], followed.epoch, offset, epoch, log.log_start_offset, max_bytes)

    def next_fetch(self) -> tuple[dict[bytes, list[RequestRow]], dict[bytes, list[int]]]:
        """Return the listed and the forgotten partitions of the next fetch, by topic. Call this once per request."""
        topics: dict[bytes, list[RequestRow]] = {}
        listed = self.listed
        for key, followed in self.to_list.items():
            rows = topics.get(key[0])
            if rows is None:
                rows = topics[key[0]] = []
            rows.append(self._row(key, followed))
            listed.add(key)
        self.to_list.clear()
        forgotten: dict[bytes, list[int]] = {}
        if self.session_id:  # a request that begins a session has nothing to forget
            for topic, number in self.forgotten:
                forgotten.setdefault(topic, []).append(number)
        for key in self.forgotten:
            listed.discard(key)
        self.forgotten.clear()
        return topics, forgotten

    def on_session(self, error: int, session_id: int) -> bool:
        """Process the head of a Fetch response; return True if the response has no error.

        After an error the next request begins a new session.
        """
        if error:
            self.disconnected()
            return False
        self.session_id = session_id
        self.session_epoch = 1 if self.session_epoch >= 0x7FFFFFFF else self.session_epoch + 1
        return True

    def on_partition(
        self,
        key: Key,
        error: int,
        high_watermark: int,
        log_start_offset: int,
        records: tuple[bytearray, memoryview, int, int],
        diverging: tuple[int, int] | None,
    ) -> None:
        """Process one partition of a Fetch response.

        `records`: (buffer, memoryview of the buffer, start, end); the batches are the bytes [start, end). `diverging`:
        (epoch, end offset) at which both logs diverge according to the leader, None if they agree.
        """
        followed = self.followed.get(key)
        if (
            followed is None
            or followed.state != FETCHING
            or followed.epoch != followed.partition.leader_epoch
            or followed.sent_offset != followed.partition.log.log_end_offset
        ):
            return
        if error or diverging is not None:
            self._not_fetched(key, followed, error, log_start_offset)
            return
        partition = followed.partition
        buf, view, start, end = records
        if end > start:
            try:
                partition.log.append_replicated(buf, view, start, end)
            except OffsetGap as gap:
                self._found_gap(key, followed, gap)
                return
            except CorruptBatch as corrupt:
                logger.error(
                    "partition %s: refusing the leader's records: %s", partition.tp, corrupt
                )
                self._delay(key, followed, self.backoff_ms)
                return
            except StorageFailed as failure:
                self._disk_failed(key, followed, failure)
                return
            if partition.follower_throttle is None:
                self.to_list[key] = followed
            else:
                self._count_throttled(key, followed, end - start, high_watermark)
        # After the append, because the high watermark is at most the end of the own log.
        if partition.follow_high_watermark(high_watermark):
            self.on_awaited(partition)
        if log_start_offset > partition.log.log_start_offset:
            # This replica may not have fetched up to the leader's log start offset yet.
            partition.advance_log_start_offset(min(log_start_offset, partition.high_watermark))
            # The next fetch tells the leader the new log start offset. Without it, DeleteRecords would wait until the
            # partition has new records.
            self._fetch_next(key, followed)

    def _count_throttled(
        self, key: Key, followed: Followed, size: int, high_watermark: int
    ) -> None:
        """Count the received bytes of a throttled replica.

        If the replica is in sync, the next fetch lists it. Otherwise the replica waits for the throttle.
        """
        partition = followed.partition
        assert partition.follower_throttle is not None
        partition.follower_throttle.record(size)
        is_in_sync = partition.log.log_end_offset >= high_watermark
        (self.to_list if is_in_sync else self.held)[key] = followed

    def _found_gap(self, key: Key, followed: Followed, gap: OffsetGap) -> None:
        """Process a gap in the offsets of the leader's records: fetch again, and accept the gap if it is still there.

        If the leader's recovery found that records are missing, the leader does not send any records after the gap
        (`Log.is_missing`). So if two responses have the same gap, the gap comes from a compaction of the topic.
        """
        partition = followed.partition
        if followed.refused_gap != (gap.expected, gap.found):
            followed.refused_gap = (gap.expected, gap.found)
            logger.warning("partition %s: %s in the leader's response", partition.tp, gap)
            self._delay(key, followed, self.backoff_ms)
            return
        logger.warning(
            "partition %s: accepting that %s, because the topic was compacted earlier",
            partition.tp,
            gap,
        )
        try:
            partition.log.gaps.mark(partition.log.log_start_offset)
        except StorageFailed as failure:
            self._disk_failed(key, followed, failure)
            return
        self._fetch_next(key, followed)

    def _not_fetched(self, key: Key, followed: Followed, error: int, log_start_offset: int) -> None:
        """Process an error or a divergence in a Fetch response.

        After OFFSET_OUT_OF_RANGE, an empty log restarts at the leader's log start offset. This loses no record,
        even if the empty log's end offset lies above the leader's log end.
        """
        partition = followed.partition
        log = partition.log
        is_empty = log.log_end_offset == log.log_start_offset
        if error == _OUT_OF_RANGE and (is_empty or log_start_offset > log.log_end_offset):
            logger.warning(
                "partition %s: the log restarts at the leader's log start offset %d",
                partition.tp,
                log_start_offset,
            )
            try:
                partition.truncate_fully_and_start_at(log_start_offset)
            except StorageFailed as failure:
                self._disk_failed(key, followed, failure)
                return
            self._fetch_next(key, followed)
        elif error:
            self._refused(key, followed, error)
        else:
            followed.state = TRUNCATING
            self.unreconciled[key] = followed

    def _refused(self, key: Key, followed: Followed, error: int) -> None:
        if error == _CORRUPT:
            logger.error(
                "partition %s: the leader lost the records from offset %d on; elect another leader if there is one",
                followed.partition.tp,
                followed.partition.log.log_end_offset,
            )
        if error == _FENCED:
            followed.state = STOPPED
            self._drop(key)
        else:
            self._delay(key, followed, _SOON_MS if error in _SOON else self.backoff_ms)

    def _disk_failed(self, key: Key, followed: Followed, failure: StorageFailed) -> None:
        """Stop following the partition; follow it again after a pause if only a file descriptor was missing."""
        if failure.lacks_descriptors:
            self._delay(key, followed, self.backoff_ms)
        else:
            followed.state = STOPPED
            self._drop(key)
        self.on_storage_failed(followed.partition, failure)

    # ---- time

    def _delay(self, key: Key, followed: Followed, ms: int) -> None:
        followed.state = DELAYED
        followed.retry_at = -ms
        self._drop(key)
        self.delayed[key] = followed

    def get_timer(self, now: int) -> int | None:
        """Return the time (monotonic ms) at which to call `handle_timer`; None if no partition waits for that call.

        The delay of a partition begins at the first call of this method after `_delay`, which does not know the time.
        """
        for followed in self.delayed.values():
            if followed.retry_at <= 0:
                followed.retry_at = now - followed.retry_at
        due = min((followed.retry_at for followed in self.delayed.values()), default=None)
        if self.held:
            return now + RETRY_MS if due is None else min(due, now + RETRY_MS)
        return due

    def handle_timer(self, now: int) -> None:
        """Resume the partitions whose delay is over.

        Before a resumed partition is fetched, its log is compared with the leader's log again.
        """
        for key, followed in list(self.delayed.items()):
            if 0 < followed.retry_at <= now:
                del self.delayed[key]
                followed.state = TRUNCATING
                self.unreconciled[key] = followed


def reconcile(partition: Partition, epoch: int, end_offset: int) -> bool:
    """Truncate the log to the part that agrees with the leader's log.

    Return False if the leader must be asked again. `epoch` is the leader's largest epoch up to the requested epoch;
    `end_offset` is the end of `epoch` in the leader's log (KIP-101). If this replica does not have `epoch`, its log
    is truncated to the end of its own largest epoch below `epoch`, and the leader must be asked again (KIP-279).
    Raises StorageFailed.
    """
    assert not partition.is_leader, partition  # others reconcile their logs with a leader's log
    log = partition.log
    lost_from = log.gaps.lost_from
    if lost_from is not None:  # the leader has the missing records and all later records
        logger.warning(
            "partition %s: truncating to offset %d, from which records are missing",
            partition.tp,
            lost_from,
        )
        partition.truncate_to(lost_from)
    end = log.log_end_offset
    target, agreed = _agreed_end(partition, epoch, end_offset)
    if target < end:
        logger.info(
            "partition %s: truncating the log, whose end offset is %d, to offset %d",
            partition.tp,
            end,
            target,
        )
        partition.truncate_to(target)
    # This also removes a latest epoch that has no record in the log: a leader adds its epoch before its first record.
    log.epochs.truncate_from_end(target)
    return agreed


def _agreed_end(partition: Partition, epoch: int, end_offset: int) -> tuple[int, bool]:
    """Return the offset to which the log is truncated, and False if the leader must be asked again."""
    log = partition.log
    end = log.log_end_offset
    if end == log.log_start_offset:
        return end, True
    if end_offset < 0 and log.epochs.latest > partition.leader_epoch:
        logger.warning(
            "partition %s: removing leader epoch %d from %s, because no leader had this epoch",
            partition.tp,
            log.epochs.latest,
            log.epochs.path,
        )
        log.epochs.forget_above(partition.leader_epoch)
        return end, False
    if end_offset < 0:
        # The leader knows no such epoch: only records below the high watermark are certainly in its log (KIP-101).
        return min(partition.high_watermark, end), True
    own_epoch, own_end = log.epochs.end_offset_for(epoch, end)
    if own_epoch < 0:  # records of the oldest format have no leader epoch
        return min(end_offset, end), True
    if own_epoch != epoch:
        return min(own_end, end), False
    return min(own_end, end_offset, end), True
