"""One partition as this broker knows it: leader or follower, high watermark, ISR (KIP-101, 279, 320).

The rules that keep acknowledged records:
1. a follower reconciles its log with the leader at every new leader epoch before it fetches;
2. fetches and epoch questions are fenced by equal leader epochs;
3. the high watermark advances only from ISR members that fetched in the current epoch;
4. a follower joins the ISR only when it passed the start of the leader's epoch.

Synchronous and without effect objects: methods return ints, and who waits is told by plain sets.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

from minikafka.base.config import TopicConfig
from minikafka.base.errors import ErrorCode
from minikafka.base.model import NO_LEADER, BrokerId, LeaderAndIsr, PartitionState, TopicPartition
from minikafka.log.log import Log
from minikafka.log.producers import APPEND, UNKNOWN, WRITTEN
from minikafka.record.batch import (
    HEADER,
    HEADER_BYTES,
    PRODUCER_ID,
    check_produced,
    refusal_of_fragment,
    stamp_append_time,
)
from minikafka.replication.isr import Committed, IsrState, PendingExpand, PendingShrink
from minikafka.replication.progress import FollowerProgress

logger = logging.getLogger(__name__)

_unpack_header: Final = HEADER.unpack_from
_NOT_LEADER: Final = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_NOT_AVAILABLE: Final = int(ErrorCode.LEADER_NOT_AVAILABLE)
_NOT_ENOUGH: Final = int(ErrorCode.NOT_ENOUGH_REPLICAS)
_TOO_LARGE: Final = int(ErrorCode.MESSAGE_TOO_LARGE)
_DUPLICATE: Final = int(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
_STORAGE_ERROR: Final = int(ErrorCode.KAFKA_STORAGE_ERROR)
_FENCED: Final = int(ErrorCode.FENCED_LEADER_EPOCH)
_UNKNOWN_EPOCH: Final = int(ErrorCode.UNKNOWN_LEADER_EPOCH)
UNKNOWN_OFFSET: Final = -1
_NO_GENERATION: Final = -1
"""Layout generation of positions that have not been located."""
FIRST_BATCHES_MS: Final = 60_000
"""How long a leader that follows another wants the first batch of a producer that its log does not know: as
long as a client may wait for the former leader's answer (request.timeout.ms 30 s, socket.timeout.ms 60 s)."""
FIRST_BATCH_WAIT_MS: Final = 5_000
"""How long it wants it of one producer, from the first batch that it refused: a client that has it sends it in
its next try. A topic made anew has none to come."""


class ProduceWaiter(Protocol):
    """Something with produce answers that wait for this partition's high watermark (a connection)."""

    def fail_waiting(self, partition: Partition, error: int) -> None:
        """Answer every produce that waits on the partition with this error code."""

    def drain(self) -> None:
        """Send the answers that are ready."""

    def waiting_for(self, partition: Partition) -> int:
        """How many produces wait on the partition."""


class FetchWaiter(Protocol):
    """A consumer's fetch that waits for more bytes below the high watermark."""

    def attempt(self) -> None:
        """Answer if there is enough by now."""


class Partition:
    """A replica hosted here with all that the broker decides about it.

    `is_alive(broker_id)` says whether the metadata snapshot shows the broker alive (R24).
    """

    __slots__ = (
        "_high_watermark_position",
        "_last_stable_position",
        "_positions_generation",
        "appended_base",
        "broker_id",
        "controller_epoch",
        "epoch_start_offset",
        "fetch_waiting",
        "first_batches_until",
        "followers",
        "high_watermark",
        "is_alive",
        "is_leader",
        "isr_state",
        "lag_max_ms",
        "last_stable_offset",
        "leader",
        "leader_epoch",
        "log",
        "log_append_time",
        "min_isr",
        "offline",
        "produce_waiting",
        "refused_since",
        "replicas",
        "topic",
        "tp",
        "under_min_isr",
        "zk_version",
    )

    def __init__(
        self,
        tp: TopicPartition,
        broker_id: BrokerId,
        log: Log,
        lag_max_ms: int,
        is_alive: Callable[[int], bool],
    ) -> None:
        self.tp = tp
        self.topic = tp.topic.encode()
        self.broker_id = broker_id
        self.log = log
        self.lag_max_ms = lag_max_ms
        self.is_alive = is_alive
        self.is_leader = False
        self.offline = False
        self.leader: BrokerId = NO_LEADER
        self.leader_epoch = -1
        self.controller_epoch = -1
        self.zk_version = -1
        self.epoch_start_offset = 0
        self.replicas: tuple[BrokerId, ...] = ()
        self.isr_state: IsrState = Committed(())
        self.followers: dict[BrokerId, FollowerProgress] = {}
        self.high_watermark = self.last_stable_offset = log.log_start_offset
        self._high_watermark_position = self._last_stable_position = UNKNOWN_OFFSET
        self._positions_generation = _NO_GENERATION
        self.min_isr = 1
        self.log_append_time = False
        self.under_min_isr = False
        self.produce_waiting: dict[ProduceWaiter, int] = {}
        self.fetch_waiting: dict[FetchWaiter, None] = {}
        self.appended_base = -1
        self.first_batches_until = 0
        self.refused_since: dict[int, int] = {}

    # ---- roles

    def restore_high_watermark(self, checkpointed: int) -> None:
        """The checkpoint after a start, clamped to the log (S03, S35)."""
        log = self.log
        self._set_high_watermark(
            max(log.log_start_offset, min(checkpointed, log.written_log_end_offset))
        )

    def become_leader(self, state: PartitionState, now: int) -> bool:
        """Lead this partition in the state's epoch; whether the epoch is new here.

        The high watermark stays (X17); the epoch is noted at the log end even with no record in it (R37).
        """
        new_epoch = state.leader_epoch > self.leader_epoch
        if not self.is_leader and state.leader_epoch > 0:
            self.first_batches_until = now + FIRST_BATCHES_MS
            self.refused_since = {}
        self._take(state)
        self.is_leader = True
        if new_epoch:
            self.epoch_start_offset = self.log.log_end_offset
            self.log.epochs.assign(state.leader_epoch, self.epoch_start_offset)
        # A replica that a reassignment takes away counts until it is out of the ISR: it could be elected.
        others = dict.fromkeys((*state.replicas, *state.isr))
        others.pop(self.broker_id, None)
        self.followers = {
            replica: self.followers.get(replica) or FollowerProgress(self.log, replica, now)
            for replica in others
        }
        if new_epoch:
            for progress in self.followers.values():
                progress.restart(now)
        self._isr_changed()
        self.maybe_advance_high_watermark(now)
        return new_epoch

    def become_follower(self, state: PartitionState) -> bool:
        """Follow the state's leader; whether the epoch is new here. Waiting produces fail, never succeed."""
        new_epoch = state.leader_epoch > self.leader_epoch
        was_leader = self.is_leader
        self._take(state)
        self.is_leader = False
        self.followers = {}
        self.under_min_isr = False
        if was_leader:
            self.fail_produces(_NOT_LEADER)
        return new_epoch

    def stop(self) -> None:
        """Neither lead nor follow any more."""
        self.is_leader = False
        self.leader = NO_LEADER
        self.followers = {}
        self.fail_produces(_NOT_LEADER)

    def _take(self, state: PartitionState) -> None:
        assert state.leader_epoch >= self.leader_epoch, (state, self.leader_epoch)
        self.leader = state.leader
        self.leader_epoch = state.leader_epoch
        self.controller_epoch = state.controller_epoch
        self.zk_version = state.zk_version
        self.replicas = state.replicas
        self.isr_state = Committed(state.isr)

    # ---- questions

    @property
    def isr(self) -> tuple[BrokerId, ...]:
        """The committed ISR."""
        return self.isr_state.isr

    @property
    def log_start_offset(self) -> int:
        """The lowest offset that can be read."""
        return self.log.log_start_offset

    def read_limit(self, read_committed: bool) -> tuple[int, int]:
        """Return the offset at which a consumer's read ends and its byte position in the log.

        That is the last stable offset for `read_committed`, else the high watermark. Raises StorageFailed.
        """
        if self._positions_generation != self.log.layout_generation:
            self._locate_limits()
        if read_committed:
            return self.last_stable_offset, self._last_stable_position
        return self.high_watermark, self._high_watermark_position

    def _locate_limits(self) -> None:
        log = self.log
        self._high_watermark_position = log.locate(self.high_watermark)
        self._last_stable_position = (
            self._high_watermark_position
            if self.last_stable_offset == self.high_watermark
            else log.locate(self.last_stable_offset)
        )
        self._positions_generation = log.layout_generation

    def _set_high_watermark(self, offset: int) -> None:
        """Set the high watermark and the last stable offset; their positions are located when they are read."""
        self.high_watermark = self.last_stable_offset = offset
        self._positions_generation = _NO_GENERATION
        if self.log.producers.transactions:
            self._hold_back_last_stable_offset()

    def _hold_back_last_stable_offset(self) -> None:
        """Set the last stable offset to the start of the first unstable transaction below the high watermark."""
        log = self.log
        first = log.producers.first_unstable_offset(self.high_watermark)
        if first is not None and first < self.high_watermark:
            self.last_stable_offset = max(first, log.log_start_offset)
            self._positions_generation = _NO_GENERATION

    def advance_log_start_offset(self, offset: int) -> None:
        """Delete the records below the offset, which must not lie above the high watermark. Raises StorageFailed."""
        self.log.advance_log_start_offset(offset)
        self._set_high_watermark(self.high_watermark)

    @property
    def latest_offset_is_known(self) -> bool:
        """False right after an election, while the high watermark may lie below one already served (KIP-207)."""
        return self.high_watermark >= min(self.epoch_start_offset, self.log.log_end_offset)

    def check_leader_epoch(self, epoch: int) -> int:
        """The error code for a request that believes in this leader epoch (-1: believes nothing) (R41)."""
        if self.offline:
            return int(ErrorCode.KAFKA_STORAGE_ERROR)
        if epoch >= 0 and epoch != self.leader_epoch:
            return _FENCED if epoch < self.leader_epoch else _UNKNOWN_EPOCH
        return 0 if self.is_leader else _NOT_LEADER

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        """(largest epoch <= the one asked, its end offset); (-1, -1) when there is none (R38)."""
        return self.log.epochs.end_offset_for(epoch, self.log.log_end_offset)

    def diverging(self, last_fetched_epoch: int, fetch_offset: int) -> tuple[int, int] | None:
        """Where a follower's log leaves this one, or None while it agrees (KIP-595, R40)."""
        epochs = self.log.epochs
        if last_fetched_epoch < 0 or (
            last_fetched_epoch == epochs.latest and fetch_offset <= self.log.log_end_offset
        ):
            return None
        epoch, end_offset = self.epoch_end_offset(last_fetched_epoch)
        if epoch < last_fetched_epoch or end_offset < fetch_offset:
            return epoch, end_offset
        return None

    # ---- the per-batch path

    def append_as_leader(
        self,
        buf: bytearray,
        view: memoryview,
        start: int,
        end: int,
        acks: int,
        now: int,
        wall_ms: int,
        internal: bool = False,
    ) -> int:
        """Append one batch, the records field [start, end) of a request or, `internal`, of a coordinator.

        Return the offset after its last record, with its base offset in `appended_base`; or minus an error code.
        A later batch of an unknown producer may be one whose first still waits at the former leader: taken now,
        it would make librdkafka believe that the first was written too.
        """
        log = self.log
        if not self.is_leader or self.offline:
            return -_STORAGE_ERROR if self.offline else -_NOT_LEADER
        if acks < 0 and self.under_min_isr:
            return -_NOT_ENOUGH
        if end - start < HEADER_BYTES:
            return -refusal_of_fragment(buf, start, end)
        header = _unpack_header(buf, start)
        error = check_produced(view, start, end, header, internal)
        if error:
            return -error
        if end - start > log.config.max_message_bytes:
            return -_TOO_LARGE
        if header[PRODUCER_ID] >= 0 and not internal:
            known = log.producers.check(header)
            if known == UNKNOWN:
                if now < self.first_batches_until and self._wants_first_batch(header[9], now):
                    return -_NOT_AVAILABLE
            elif known == WRITTEN:
                # To a client it is a success without an offset, so it has to be committed first.
                committed = log.producers.written_below(header[9]) <= self.high_watermark
                return -_DUPLICATE if committed else -_NOT_AVAILABLE
            elif known != APPEND:
                self.appended_base = known
                return known + header[12] if known >= 0 else known
        if self.log_append_time:
            stamp_append_time(buf, start, end, wall_ms)
            header = _unpack_header(buf, start)
        self.appended_base = log.append(buf, view, start, end, header, self.leader_epoch, wall_ms)
        return log.log_end_offset

    def _wants_first_batch(self, producer_id: int, now: int) -> bool:
        since = self.refused_since.setdefault(producer_id, now)
        return now < since + FIRST_BATCH_WAIT_MS

    def written(self, now: int) -> bool:
        """The log was flushed; alone in the ISR, the high watermark may move now. Whether it did."""
        return (
            len(self.isr_state.isr) == 1
            and len(self.isr_state.maximal) == 1
            and self.maybe_advance_high_watermark(now)
        )

    def produce_waits(self, waiter: ProduceWaiter) -> None:
        """It owes an answer about what was appended so far, and is told when that is committed or fails."""
        self.produce_waiting[waiter] = self.log.log_end_offset

    def record_follower_fetch(self, progress: FollowerProgress, offset: int, now: int) -> bool:
        """A valid fetch in this epoch acknowledged everything below `offset`; whether the high watermark moved."""
        log = self.log
        end = log.written_log_end_offset
        old = progress.offset
        progress.acknowledge(offset)
        if offset >= end:
            progress.last_caught_up = now
        elif offset >= progress.caught_up_to >= 0:
            progress.last_caught_up = max(progress.last_caught_up, progress.last_fetch)
        progress.caught_up_to = end
        progress.last_fetch = now
        high_watermark = self.high_watermark
        if offset > high_watermark and (old <= high_watermark or not self._all_in_sync()):
            return self.maybe_advance_high_watermark(now)
        return False

    def _all_in_sync(self) -> bool:
        """Then only a fetch that passes the high watermark can move it. A follower outside the ISR may hold it
        back too, and die: no fetch tells of that."""
        return len(self.isr_state.isr) > len(self.followers)

    def maybe_advance_high_watermark(self, now: int) -> bool:
        """R31: the least written end over the maximal ISR and over followers about to join; never while
        the ISR is below its minimum; never backwards."""
        if not self.is_leader or self.under_min_isr or self.offline:
            return False
        log = self.log
        lowest = log.written_log_end_offset
        slowest = None
        for progress in self.followers.values():
            if progress.offset < lowest and (
                progress.broker_id in self.isr_state.maximal or self._about_to_join(progress, now)
            ):
                lowest = progress.offset
                slowest = progress
        if lowest <= self.high_watermark:
            return False
        if slowest is None:
            position, generation = log.written_position, log.layout_generation
        else:
            position, generation = slowest.position, slowest.generation
        self.high_watermark = self.last_stable_offset = lowest
        self._high_watermark_position = self._last_stable_position = position
        self._positions_generation = generation
        if log.producers.transactions:
            self._hold_back_last_stable_offset()
        return True

    def _about_to_join(self, progress: FollowerProgress, now: int) -> bool:
        """A caught-up follower outside the ISR holds the high watermark back, or it could never join (T13)."""
        return (
            progress.offset >= self.epoch_start_offset
            and now - progress.last_caught_up <= self.lag_max_ms
            and self.is_alive(progress.broker_id)
        )

    # ---- ISR

    def may_expand_isr(self, progress: FollowerProgress) -> bool:
        """R29: caught up with the high watermark and past the start of this epoch, alive, nothing pending."""
        return (
            self.is_leader
            and not self.offline
            and type(self.isr_state) is Committed
            and progress.broker_id not in self.isr_state.isr
            and progress.offset >= self.high_watermark
            and progress.offset >= self.epoch_start_offset
            and self.is_alive(progress.broker_id)
        )

    def next_to_join(self, now: int) -> FollowerProgress | None:
        """A follower that may join the ISR although it has nothing to fetch just now, so that no fetch of
        its own will say so: another change was pending, or it did not count as alive, when it caught up."""
        if len(self.isr_state.isr) == len(self.replicas):
            return None
        for progress in self.followers.values():
            item = progress.item
            if (
                item is not None
                and now - item.last_fetch() <= self.lag_max_ms
                and self.may_expand_isr(progress)
            ):
                return progress
        return None

    def expand_isr(self, broker_id: BrokerId) -> None:
        """Propose the ISR with this replica in it."""
        assert type(self.isr_state) is Committed
        self.isr_state = PendingExpand(self.isr_state.isr, broker_id)

    def maybe_shrink_isr(self, now: int) -> bool:
        """Propose the ISR without the replicas that lag (R30); whether there were any.

        Not after its own disk failed: nobody can catch up then, and the one replica left would be this one.
        """
        if not self.is_leader or self.offline or type(self.isr_state) is not Committed:
            return False
        end = self.log.written_log_end_offset
        lagging = frozenset(
            replica
            for replica in self.isr_state.isr
            if (progress := self.followers.get(replica)) is not None
            and progress.offset != end
            and now - progress.last_caught_up > self.lag_max_ms
        )
        if not lagging:
            return False
        self.isr_state = PendingShrink(self.isr_state.isr, lagging)
        return True

    def proposed_state(self) -> LeaderAndIsr:
        """What the leader's compare-and-set writes: its own leadership with the proposed ISR (R26)."""
        return LeaderAndIsr(
            self.leader,
            self.leader_epoch,
            self.isr_state.proposed,
            self.controller_epoch,
            self.zk_version,
        )

    def isr_committed(self, zk_version: int, now: int) -> bool:
        """ZooKeeper accepted the proposal; whether the high watermark moved."""
        self.isr_state = Committed(self.isr_state.proposed)
        self.zk_version = zk_version
        self._isr_changed()
        return self.maybe_advance_high_watermark(now)

    def isr_not_written(self) -> None:
        """The proposal was certainly not applied and may be made again."""
        self.isr_state = Committed(self.isr_state.isr)

    def configure(self, config: TopicConfig) -> None:
        """Take over the topic's settings."""
        self.log.configure(config)
        self.min_isr = config.min_insync_replicas
        self.log_append_time = config.message_timestamp_type == "LogAppendTime"
        if self.is_leader:
            self._isr_changed()

    def _isr_changed(self) -> None:
        """min.insync.replicas never asks for more replicas than the partition has."""
        required = min(self.min_isr, len(self.replicas))
        self.under_min_isr = len(self.isr_state.isr) < required
        if self.under_min_isr:
            self.fail_produces(int(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))

    def fail_produces(self, error: int) -> None:
        """Answer every produce that waits here with the error, now (R34, T17)."""
        waiting, self.produce_waiting = self.produce_waiting, {}
        for waiter in waiting:
            waiter.fail_waiting(self, error)

    # ---- following

    def follow_high_watermark(self, leader_high_watermark: int) -> None:
        """R33: min(leader's, own written end), taken after the append and after any truncation (T15)."""
        end = self.log.written_log_end_offset
        high_watermark = min(end, leader_high_watermark)
        if high_watermark > self.high_watermark:
            self._set_high_watermark(high_watermark)

    def truncate_to(self, offset: int) -> None:
        """Drop everything at or above the offset; the high watermark never lies beyond the log."""
        self.log.truncate_to(offset)
        self._set_high_watermark(min(self.high_watermark, self.log.log_end_offset))

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything and go on at the offset (R42)."""
        self.log.truncate_fully_and_start_at(offset)
        self._set_high_watermark(offset)

    def __repr__(self) -> str:
        role = "leader" if self.is_leader else "follower"
        return (
            f"Partition({self.tp}, {role}, epoch={self.leader_epoch}, isr={list(self.isr)}, "
            f"leo={self.log.log_end_offset}, hw={self.high_watermark})"
        )
