"""One replica of a partition: its log, followers, high watermark and ISR (KIP-101, KIP-279, KIP-320).

Four rules keep acknowledged records:
1. a follower reconciles its log with the leader at every new leader epoch before it fetches;
2. fetches and OffsetForLeaderEpoch requests are refused unless both sides have the same leader epoch;
3. the high watermark advances only from ISR members that fetched in the current epoch;
4. a follower joins the ISR only after its log end has reached the start of the leader's epoch.

The class is synchronous. To save time, most methods return plain ints, and waiting requests are in dicts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Final, Protocol

from minikafka.base.config import TopicConfig
from minikafka.base.errors import ErrorCode
from minikafka.base.model import NO_LEADER, BrokerId, LeaderAndIsr, PartitionState, TopicPartition
from minikafka.kafka.records.batch import check_produced, refusal_of_fragment, stamp_append_time
from minikafka.kafka.records.header import (
    ATTRIBUTES,
    CONTROL,
    HEADER,
    HEADER_BYTES,
    PRODUCER_ID,
    TRANSACTIONAL,
)
from minikafka.kafka.records.rules import rules_of
from minikafka.storage.log.log import Log
from minikafka.storage.log.producers import APPEND
from minikafka.storage.replication.early import FIRST_BATCHES_MS, EarlyBatches, result_of_unexpected
from minikafka.storage.replication.isr import Committed, IsrState, PendingExpand, PendingShrink
from minikafka.storage.replication.progress import FollowerProgress
from minikafka.storage.replication.role import ReplicaRole
from minikafka.storage.replication.throttle import Throttle
from minikafka.storage.replication.verification import NO_GUARD, Verifications

logger = logging.getLogger(__name__)

_unpack_header: Final = HEADER.unpack_from
_NOT_LEADER: Final = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_NOT_ENOUGH: Final = int(ErrorCode.NOT_ENOUGH_REPLICAS)
_STORAGE_ERROR: Final = int(ErrorCode.KAFKA_STORAGE_ERROR)
_TOO_LARGE: Final = int(ErrorCode.MESSAGE_TOO_LARGE)


class ProduceWaiter(Protocol):
    """The produce requests of one connection that wait for a partition's high watermark."""

    def fail_waiting(self, partition: Partition, error: int) -> None:
        """Answer every produce request that waits on the partition with this error code."""

    def drain(self) -> None:
        """Send the responses that are ready."""

    def waiting_for(self, partition: Partition) -> int:
        """Return the number of produce requests that wait on the partition."""


class Partition(ReplicaRole):
    """One replica of a partition on this broker, as leader or follower.

    `is_alive(broker_id)` is True if the metadata snapshot shows the broker alive (R24). Times are monotonic ms.
    """

    __slots__ = (
        "appended_base",
        "early_batches",
        "follower_throttle",
        "followers",
        "is_alive",
        "isr_state",
        "lag_max_ms",
        "leader_throttle",
        "log_append_time",
        "max_message_bytes",
        "min_isr",
        "produce_waiting",
        "record_rules",
        "refuses_acks_all",
        "remote_readers",
        "under_min_isr",
        "verifications",
    )

    def __init__(
        self,
        tp: TopicPartition,
        broker_id: BrokerId,
        log: Log,
        lag_max_ms: int,
        is_alive: Callable[[int], bool],
    ) -> None:
        super().__init__(tp, broker_id, log)
        self.lag_max_ms = lag_max_ms
        self.is_alive = is_alive
        self.isr_state: IsrState = Committed(())
        self.followers: dict[BrokerId, FollowerProgress] = {}
        self.min_isr = 1
        self.log_append_time = False
        self.max_message_bytes = log.config.max_message_bytes
        self.record_rules = rules_of(log.config)
        self.leader_throttle: Throttle | None = None
        self.follower_throttle: Throttle | None = None
        self.under_min_isr = False
        self.refuses_acks_all = False
        """True if the ISR is too small, or if too few of its members follow, although this is not stored yet."""
        self.produce_waiting: dict[ProduceWaiter, int] = {}
        self.remote_readers: dict[FollowerProgress, int] = {}
        """Followers that consumers were told to read from → last time (ms). They get the high watermark promptly."""
        self.appended_base = -1
        self.early_batches = EarlyBatches()
        self.verifications = Verifications()

    # ---- roles

    def restore_high_watermark(self, checkpointed: int) -> None:
        """Set the checkpointed high watermark after a start, clamped to the log (S03, S35)."""
        log = self.log
        self._set_high_watermark(
            max(log.log_start_offset, min(checkpointed, log.written_log_end_offset))
        )

    def become_leader(self, state: PartitionState, now: int, *, opens_later: bool = False) -> bool:
        """Become leader in the epoch of `state`; return True if the replica's leader epoch rises.

        The high watermark does not change (X17). The new epoch is recorded at the log end at once, even if no
        record is ever appended in it (R37). If `opens_later`, only followers are served until `open` is called.
        """
        new_epoch = state.leader_epoch > self.leader_epoch
        assert state.leader == self.broker_id, state
        self._set_state(state)
        self.is_leader, self.is_follower = True, False
        if opens_later:
            self._close_to_clients()
        else:
            self.open(now)
        if new_epoch:
            # Where the epoch begins: a follower joins the ISR only when its log has reached this offset (S10).
            self.epoch_start_offset = self.log.log_end_offset
            self.log.epochs.assign(state.leader_epoch, self.epoch_start_offset)
            assert self.log.epochs.latest == self.leader_epoch, self
            self.verifications.begin_leader_epoch()
        # Keep the progress of a replica that a reassignment removes: it can be elected until it leaves the ISR.
        others = dict.fromkeys((*state.replicas, *state.isr))
        others.pop(self.broker_id, None)
        self._set_followers(
            {
                replica: self.followers.get(replica) or FollowerProgress(self.log, replica, now)
                for replica in others
            }
        )
        if new_epoch:
            # What a follower acknowledged in an earlier epoch does not count: it may have lost its files since (S51).
            for progress in self.followers.values():
                progress.restart(now)
        # First, because the high watermark must not move while the ISR is smaller than min.insync.replicas.
        self._isr_changed()
        self.maybe_advance_high_watermark(now)
        return new_epoch

    def open(self, now: int) -> None:
        """Serve clients from now on, as leader (C18)."""
        assert self.is_leader, self
        if not self.is_open and self.leader_epoch > 0:
            self.early_batches.unknown_until = now + FIRST_BATCHES_MS
        self.is_open = True

    def _close_to_clients(self) -> None:
        """Stop serving clients; the produce requests that wait fail with NOT_LEADER_OR_FOLLOWER."""
        if self.is_open:
            self.is_open = False
            self.fail_produces(_NOT_LEADER)

    def become_follower(self, state: PartitionState) -> bool:
        """Become a follower of the leader in `state`; return True if the replica's leader epoch rises.

        Waiting produce requests fail with NOT_LEADER_OR_FOLLOWER.
        """
        new_epoch = state.leader_epoch > self.leader_epoch
        assert state.leader != self.broker_id, state
        self._set_state(state)
        self.is_leader, self.is_follower = False, True
        self._set_followers({})
        self.under_min_isr = self.refuses_acks_all = False
        self._close_to_clients()
        return new_epoch

    def end_role(self) -> None:
        """Stop being leader or follower; a follower may follow the same leader again in the same epoch."""
        followed = self.leader if self.is_follower else self.followed_before
        self.stop()
        self.followed_before = followed

    def stop(self) -> None:
        """Stop being leader or follower; waiting produce requests fail with NOT_LEADER_OR_FOLLOWER."""
        self.followed_before = NO_LEADER
        self.is_leader = self.is_follower = self.is_open = False
        self.leader = NO_LEADER
        self._set_followers({})
        self.wake_readers()
        self.fail_produces(_NOT_LEADER)

    def _set_followers(self, followers: dict[BrokerId, FollowerProgress]) -> None:
        for replica, progress in self.followers.items():
            if replica not in followers:
                progress.release()
        self.followers = followers
        self.remote_readers.clear()

    def _set_state(self, state: PartitionState) -> None:
        assert state.leader_epoch >= self.leader_epoch, (state, self.leader_epoch)
        # An epoch has one leader: two of them would append different records at the same offsets.
        is_resumed = state.leader_epoch == self.leader_epoch and self.leader != NO_LEADER
        assert not is_resumed or state.leader == self.leader, (state, self.leader)
        self.leader = state.leader
        self.followed_before = NO_LEADER
        self.leader_epoch = state.leader_epoch
        self.controller_epoch = state.controller_epoch
        self.state_version = state.state_version
        self.replicas = state.replicas
        self.adding, self.removing = state.adding, state.removing
        self.isr_state = Committed(state.isr)
        self.wake_readers()

    # ---- offsets

    @property
    def isr(self) -> tuple[BrokerId, ...]:
        """The committed ISR."""
        return self.isr_state.isr

    @property
    def log_start_offset(self) -> int:
        """The first offset that consumers can read."""
        return self.log.log_start_offset

    def advance_log_start_offset(self, offset: int) -> None:
        """Delete the records below the offset, which must not lie above the high watermark.

        These records can no longer be read; the next check of retention (`broker/replicas/upkeep.py`) removes their
        segments. A leader sends the new log start offset to its followers at once; they delete the records too.
        """
        assert offset <= self.high_watermark, (offset, self)
        self.log.advance_log_start_offset(offset)
        # It does not move, but the last stable offset may lie below the new log start offset.
        self._set_high_watermark(self.high_watermark)
        for progress in self.followers.values():
            if progress.item is not None:
                progress.item.mark_changed()

    # ---- the per-batch path

    def append_as_leader(
        self,
        field: memoryview,
        acks: int,
        now: int,
        wall_ms: int,
        *,
        internal: bool = False,
        invalid: int = 0,
        guard: int = NO_GUARD,
    ) -> int:
        """Append one batch as leader: the records field of a produce request, a slice of the receive buffer.

        Return the offset after the batch, or a negated error code; set `appended_base` to the batch's base offset.
        `internal`: one of the broker's own coordinators wrote the batch. `invalid`: the error code from the check of
        the records (`kafka/records/walk.py`), which is returned if the header is valid. `guard`: the result of
        `verification_of` before the batch was verified. Raises StorageFailed.
        """
        log = self.log
        if not self.is_open or self.offline:
            return -_STORAGE_ERROR if self.offline else -_NOT_LEADER
        if acks < 0 and self.refuses_acks_all:
            return -_NOT_ENOUGH
        if len(field) < HEADER_BYTES:
            return -refusal_of_fragment(field)
        header = _unpack_header(field)
        error = check_produced(field, header, internal) or invalid
        if error:
            return -error
        if len(field) > self.max_message_bytes and not header[ATTRIBUTES] & CONTROL:
            return -_TOO_LARGE
        if header[PRODUCER_ID] >= 0:
            if not internal:  # a coordinator's markers have no sequence numbers
                known = log.producers.check(header)
                if known != APPEND and (result := result_of_unexpected(self, header, known, now)):
                    return result
            if header[ATTRIBUTES] & TRANSACTIONAL or log.producers.transactions:
                transactional = field, header, guard, internal
                if error := self.verifications.refusal(log.producers, *transactional):
                    return -error
        if self.log_append_time:
            # After all checks: a batch that is refused must keep the bytes that its checksum covers.
            stamp_append_time(field, wall_ms)
            header = _unpack_header(field)
        self.appended_base = log.append(field, header, self.leader_epoch, wall_ms)
        return log.log_end_offset

    def verification_of(self, batch: memoryview) -> int:
        """Begin the verification of a batch that was refused with INVALID_TXN_STATE; return its guard.

        Pass the guard to `append_as_leader` when the coordinator has verified the batch. Return `NO_GUARD` if
        verification does not help: the batch is not transactional, or its transaction is open in this log.
        """
        return self.verifications.guard_of(self.log.producers, _unpack_header(batch))

    def verification_for(self, producer_id: int, epoch: int) -> int:
        """Begin the verification of a producer's next transactional batch; return its guard.

        Return `NO_GUARD` if the batch needs no verification, because the transaction is open in this log.
        """
        return self.verifications.guard_for(self.log.producers, producer_id, epoch)

    def written(self, now: int) -> bool:
        """Advance the high watermark after a flush if this replica is alone in the ISR; return True if it moved."""
        return (
            len(self.isr_state.isr) == 1
            and len(self.isr_state.maximal) == 1
            and self.maybe_advance_high_watermark(now)
        )

    def produce_waits(self, waiter: ProduceWaiter) -> None:
        """Register `waiter`, which is called when all records appended so far are committed or have failed."""
        self.produce_waiting[waiter] = self.log.log_end_offset

    def record_follower_fetch(self, progress: FollowerProgress, offset: int, now: int) -> bool:
        """Record that a valid fetch in this epoch acknowledged every record below `offset`.

        Return True if the high watermark moved. Raises StorageFailed.
        """
        log = self.log
        # A fetch beyond the log end would acknowledge records that this leader does not have.
        assert offset <= log.log_end_offset, (offset, self)
        end = log.written_log_end_offset
        old = progress.offset
        progress.offset = offset
        if offset == progress.next_offset and progress.generation == log.layout_generation:
            progress.position = progress.next_position
        else:
            progress.locate()
        if offset >= end:
            progress.last_caught_up = now
        elif offset >= progress.caught_up_to >= 0:
            # It now has all that the log had at its last fetch, so it was caught up at that time (R30).
            progress.last_caught_up = max(progress.last_caught_up, progress.last_fetch)
        progress.caught_up_to = end
        progress.last_fetch = now
        high_watermark = self.high_watermark
        if offset > high_watermark and (old <= high_watermark or not self._all_in_sync()):
            return self.maybe_advance_high_watermark(now)
        return False

    def _all_in_sync(self) -> bool:
        """True if every follower is in the ISR.

        If True, the high watermark can move only when a fetch takes a follower's offset above it. If False, every
        fetch must check the high watermark: a follower outside of the ISR that is about to join holds it back. When
        this follower dies, the high watermark can move although no follower's offset passes it.
        """
        return len(self.isr_state.isr) > len(self.followers)

    def maybe_advance_high_watermark(self, now: int) -> bool:
        """Advance the high watermark to the lowest log end of the counted replicas; return True if it moved (R31).

        The replicas in the maximal ISR and the followers that are about to join the ISR are counted. The high
        watermark never moves backwards, and does not move while the ISR is smaller than min.insync.replicas.
        """
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
        if lowest <= self.high_watermark:  # consumers may have read up to it
            return False
        self.refuses_acks_all = False  # every member of the ISR follows
        if slowest is None:
            self._move_high_watermark(lowest, log.written_position, log.layout_generation)
        else:
            self._move_high_watermark(lowest, slowest.position, slowest.generation)
        return True

    def _about_to_join(self, progress: FollowerProgress, now: int) -> bool:
        """True if a follower outside of the ISR is caught up and alive.

        The high watermark waits for such a follower. Otherwise the follower might never reach the high watermark,
        and never join the ISR (T13).
        """
        return (
            progress.offset >= self.epoch_start_offset
            and now - progress.last_caught_up <= self.lag_max_ms
            and self.is_alive(progress.broker_id)
        )

    # ---- ISR

    def may_expand_isr(self, progress: FollowerProgress) -> bool:
        """True if the follower may be proposed for the ISR (R29).

        The follower must be alive and must have reached the high watermark and the start of this epoch. No other
        ISR change may be pending, and the leader must be open: while it opens, the mode writes the ISR.
        """
        return (
            self.is_open
            and not self.offline
            and type(self.isr_state) is Committed
            and progress.broker_id not in self.isr_state.isr
            and progress.offset >= self.high_watermark
            and progress.offset >= self.epoch_start_offset
            and self.is_alive(progress.broker_id)
        )

    def next_to_join(self, now: int) -> FollowerProgress | None:
        """Return a follower that may join the ISR without a further fetch, None if there is none.

        Such a follower could not join at its last fetch, because another ISR change was pending or the follower
        was not known to be alive.
        """
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
        """Propose the ISR with this replica added; no other change may be pending."""
        assert broker_id in self.followers, (broker_id, self)
        assert broker_id not in self.isr_state.isr, (broker_id, self)
        self._propose(PendingExpand(self.isr_state.isr, broker_id))

    def maybe_shrink_isr(
        self,
        now: int,
        suspects: AbstractSet[BrokerId] = frozenset(),
        behind: AbstractSet[BrokerId] = frozenset(),
    ) -> bool:
        """Propose the ISR without followers that lag (R30) or are suspects; return True if there is such a proposal.

        `behind`: followers that lag in any case. A leader that is opening proposes nothing yet. A leader whose disk
        failed proposes nothing: its followers cannot catch up, so only the leader would stay in the ISR.

        If too few members stay, acks=all is refused at once: without ZooKeeper the leader cannot store the smaller ISR.
        """
        if not self.is_open or self.offline or type(self.isr_state) is not Committed:
            return False
        end, oldest = self.log.written_log_end_offset, now - self.lag_max_ms
        followers = self.followers
        lagging = {
            id_
            for id_ in followers.keys() & self.isr_state.isr
            if id_ in behind
            # With every record it does not lag, however long ago it fetched them.
            or (followers[id_].offset != end and followers[id_].last_caught_up < oldest)
        }
        change = self.isr_state.without(lagging, suspects & followers.keys(), self._required_isr)
        if change is not None:
            self._propose(change)
        self._refuse_acks_all(len(self.isr_state.proposed) < self._required_isr)
        return change is not None

    def _propose(self, change: PendingExpand | PendingShrink) -> None:
        assert type(self.isr_state) is Committed, self.isr_state
        assert set(change.maximal) == {*change.isr, *change.proposed}, change
        assert self.is_leader, self
        # Without itself, the ISR would elect a replica that lacks what the leader acknowledged. Only a tool writes such
        # an ISR, and the leader must be able to go on with it.
        is_member = self.broker_id in change.proposed
        assert is_member or self.broker_id not in change.isr, (change, self)
        self.isr_state = change

    def proposed_state(self) -> LeaderAndIsr:
        """Return the state that the leader writes with compare-and-set: its leadership and the proposed ISR (R26)."""
        return LeaderAndIsr(
            self.leader,
            self.leader_epoch,
            self.isr_state.proposed,
            self.controller_epoch,
            self.state_version,
        )

    def isr_committed(self, state_version: int, now: int) -> bool:
        """Commit the proposed ISR, which was stored at `state_version`; return True if the high watermark moved."""
        assert type(self.isr_state) is not Committed, self
        # The version may be lower than before: a tool has deleted the node and made it again with the proposed ISR.
        self.isr_state = Committed(self.isr_state.proposed)
        self.state_version = state_version
        self._isr_changed()
        return self.maybe_advance_high_watermark(now)

    def isr_not_written(self) -> None:
        """Withdraw the proposed ISR, because it was certainly not stored."""
        assert type(self.isr_state) is not Committed, self
        self.isr_state = Committed(self.isr_state.isr)

    def replace_log(self, log: Log) -> None:
        """Use a log with the same records and another `layout_generation`, in another directory."""
        assert log.log_end_offset == self.log.log_end_offset, (log, self)
        assert log.layout_generation != self.log.layout_generation, (log, self)
        self.log = log
        for progress in self.followers.values():
            progress.log = log

    def configure(self, config: TopicConfig) -> None:
        """Replace the settings of the topic. Raises StorageFailed, when all settings are replaced."""
        self.min_isr = config.min_insync_replicas
        self.log_append_time = config.message_timestamp_type == "LogAppendTime"
        self.max_message_bytes = config.max_message_bytes
        self.record_rules = rules_of(config)
        if self.is_leader:
            self._isr_changed()
        self.log.configure(config)

    @property
    def _required_isr(self) -> int:
        """min.insync.replicas; a value above the number of replicas counts as the number of replicas."""
        return min(self.min_isr, len(self.replicas))

    def _isr_changed(self) -> None:
        """Update `under_min_isr`; if it is True, fail the waiting produce requests."""
        self.under_min_isr = len(self.isr_state.isr) < self._required_isr
        self._refuse_acks_all(self.under_min_isr)

    def _refuse_acks_all(self, refuses: bool) -> None:
        self.refuses_acks_all = refuses
        if refuses:
            self.fail_produces(int(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))

    def fail_produces(self, error: int) -> None:
        """Answer every waiting produce request with the error code (R34, T17)."""
        waiting, self.produce_waiting = self.produce_waiting, {}
        for waiter in waiting:
            waiter.fail_waiting(self, error)

    def __repr__(self) -> str:
        return (
            f"Partition({self.tp}, {self.role}, epoch={self.leader_epoch}, isr={list(self.isr)}, "
            f"leo={self.log.log_end_offset}, hw={self.high_watermark})"
        )
