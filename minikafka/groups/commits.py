"""OffsetCommit, OffsetFetch, OffsetDelete, and the removal of expired offsets and unused groups.

Source: Kafka's `GroupCoordinator` and `GroupMetadataManager`. There is one difference from Kafka: a client's
request to remove offsets or groups is answered only after the tombstones are committed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Final

from minikafka.base.coordinators import Caller, KeyValue
from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.groups.messages import commands
from minikafka.groups.messages.append_errors import MAY_BE_APPENDED, offsets_error
from minikafka.groups.messages.records import (
    NO_TIMESTAMP,
    TIMESTAMP_MAX,
    OffsetAndMetadata,
    group_metadata_key,
)
from minikafka.groups.messages.requests import (
    NO_COMMIT_TIME,
    CommitRequest,
    DeleteOffsetsRequest,
    Partitions,
)
from minikafka.groups.messages.responses import (
    CommitResponse,
    DeleteGroupsResponse,
    DeleteOffsetsResponse,
    FetchedGroup,
    FetchedOffset,
)
from minikafka.groups.outbox import OnAppended, Outbox
from minikafka.groups.rebalance import Rebalances
from minikafka.groups.settings import GroupSettings
from minikafka.groups.state.group import Group
from minikafka.groups.state.memory import Memory
from minikafka.groups.state.offsets import CONSUMER, expiry_rule
from minikafka.groups.state.states import COMPLETING, DEAD, EMPTY, STABLE
from minikafka.groups.state.transactions import PendingCommits

_SWEEP_OFFSETS: Final = 20_000
"""Number of offsets after which one call of `sweep` ends, so that the call takes only a few milliseconds."""
_MINUTE_MS: Final = 60_000
_REFUSALS_MAX: Final = 20
"""Maximum number of (member, error) pairs per group for which refused commits are counted."""
_COUNTED_LENGTH: Final = 80
"""Number of characters of a member id by which refused commits are counted."""
_ONE_UNIT_MAX: Final = "\uffff"
"""The last character that takes one UTF-16 unit. Each greater character takes two units."""


class Commits:
    """The committed offsets of all groups: storing, returning, deleting and expiring them.

    `remove_group(group, cause)` removes a group. `memory`: the memory of all offsets.
    """

    def __init__(
        self,
        settings: GroupSettings,
        outbox: Outbox,
        rebalances: Rebalances,
        wall_ms: Callable[[], int],
        remove_group: Callable[[Group, str], None],
        memory: Memory,
    ) -> None:
        self._settings = settings
        self._outbox = outbox
        self._rebalances = rebalances
        self._wall_ms = wall_ms
        self._remove_group = remove_group
        self._memory = memory
        self._unswept: deque[Group] = deque()

    # ---- commit

    def commit(
        self,
        group: Group,
        transactions: PendingCommits,
        request: CommitRequest,
        caller: Caller,
        now: int,
    ) -> None:
        """Process an OffsetCommit or a TxnOffsetCommit.

        `transactions`: the transactions that are open in the group's partition.
        """
        error = self._commit_error(group, request)
        if error:
            self._note_refusal(group, request, error)
            self.refuse(request, caller, error)
            return
        member = group.members.get(request.member_id)
        if member is not None and request.producer is None:
            self._rebalances.restart_session(member, now)
        wall = self._wall_ms()
        kept_ms = request.retention_time_ms
        expires = NO_TIMESTAMP if kept_ms < 0 else min(wall + kept_ms, TIMESTAMP_MAX)
        offsets = {
            TopicPartition(topic, item.partition): OffsetAndMetadata(
                item.offset,
                item.leader_epoch,
                item.metadata,
                wall if item.commit_timestamp == NO_COMMIT_TIME else item.commit_timestamp,
                expires,
            )
            for topic, partitions in request.topics
            for item in partitions
            if self._fits(item.metadata)
        }
        if len(offsets) < sum(len(partitions) for _, partitions in request.topics):
            self._note_refusal(group, request, ErrorCode.OFFSET_METADATA_TOO_LARGE)
        if not offsets:
            self._answer_commit(request, caller, ErrorCode.NONE)
            return
        if not self._memory.fits(group.offsets.growth(offsets), now):
            self.refuse(request, caller, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return
        token = self._outbox.new_token()
        try:
            records = group.offsets.prepare(token, offsets)
        except ValueError:  # a name is too long for a record
            self.refuse(request, caller, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        producer = request.producer
        if producer is None:
            done = partial(self._committed, group, token, request, caller)
        else:
            transactions.add(producer.producer_id, group.offsets, token)
            done = partial(self._written, group, transactions, token, request, caller)
        self._outbox.append(group.partition, records, done, token, producer)

    @staticmethod
    def _commit_error(group: Group, request: CommitRequest) -> int:
        """Return the error with which to refuse a commit; NONE if the commit is allowed.

        A client that is not a member may commit only to an empty group, or in a transaction: old producers do not
        send their consumer's member id. A commit in a transaction is not refused during a rebalance.
        """
        is_member = request.generation >= 0 or request.member_id or request.instance_id is not None
        if request.generation < 0 and group.state is EMPTY:
            return ErrorCode.NONE
        in_transaction = request.producer is not None
        if not is_member:
            is_allowed = in_transaction or group.state is EMPTY
            return ErrorCode.NONE if is_allowed else ErrorCode.UNKNOWN_MEMBER_ID
        error = group.check_member(request.member_id, request.instance_id)
        if error:
            return error
        if request.generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if group.state is COMPLETING and not in_transaction:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def _fits(self, metadata: str) -> bool:
        """True if the metadata has at most `offset.metadata.max.bytes` UTF-16 units (Kafka's measure)."""
        units = len(metadata)
        if not metadata.isascii():
            units += sum(character > _ONE_UNIT_MAX for character in metadata)
        return units <= self._settings.offset_metadata_max_bytes

    def refuse(self, request: CommitRequest, caller: Caller, error: int) -> None:
        """Answer every partition of a commit with this error."""
        topics = [
            (topic, [(item.partition, error) for item in partitions])
            for topic, partitions in request.topics
        ]
        self._outbox.answer(caller, CommitResponse(topics))

    def _note_refusal(self, group: Group, request: CommitRequest, error: int) -> None:
        """Count the refused commits of each member and error; write the 1st, 2nd, 4th, 8th, … to the ledger."""
        if len(group.refusals) >= _REFUSALS_MAX:
            group.refusals.clear()
        member_id = request.member_id[-_COUNTED_LENGTH:]  # the end has the UUID
        group.refusals[member_id, error] += 1
        count = group.refusals[member_id, error]
        if count & (count - 1) == 0:
            self._outbox.note(
                commands.COMMIT_REFUSED,
                group,
                member=request.member_id,
                instance=request.instance_id,
                of_generation=request.generation,
                error=int(error),
                count=count,
            )

    def _answer_commit(self, request: CommitRequest, caller: Caller, error: int) -> None:
        too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
        topics = [
            (
                topic,
                [
                    (item.partition, error if self._fits(item.metadata) else too_large)
                    for item in partitions
                ],
            )
            for topic, partitions in request.topics
        ]
        self._outbox.answer(caller, CommitResponse(topics))

    def _committed(
        self, group: Group, token: int, request: CommitRequest, caller: Caller, error: int, now: int
    ) -> None:
        if error:
            group.offsets.fail(token)
            self._outbox.note(commands.APPEND_FAILED, group, what="offsets", error=error)
        else:
            group.offsets.complete(token)
        self._answer_commit(request, caller, offsets_error(error))

    def _written(
        self,
        group: Group,
        transactions: PendingCommits,
        token: int,
        request: CommitRequest,
        caller: Caller,
        error: int,
        now: int,
    ) -> None:
        """Process the result of appending offsets of a transaction, which the transaction's marker completes.

        Offsets that may be in the log stay pending. Without this, a commit marker would complete them only for the
        next coordinator, which reads them in the log.
        """
        if error:
            self._outbox.note(commands.APPEND_FAILED, group, what="offsets", error=error)
            if error not in MAY_BE_APPENDED:
                assert request.producer is not None
                transactions.drop(request.producer.producer_id, group.offsets, token)
        self._answer_commit(request, caller, offsets_error(error))

    # ---- fetch

    @staticmethod
    def fetch(
        group_id: str, group: Group | None, partitions: Partitions | None, require_stable: bool
    ) -> FetchedGroup:
        """Return a group's committed offsets for these partitions. `group`: None if the group does not exist.

        `partitions`: None requests all partitions with a committed offset. `require_stable`: return
        UNSTABLE_OFFSET_COMMIT for partitions with a commit in progress.
        """
        if partitions is None:
            partitions = [] if group is None else _by_topic(group.offsets.partitions())
        topics = [
            (topic, [_fetched(group, topic, number, require_stable) for number in numbers])
            for topic, numbers in partitions
        ]
        return FetchedGroup(group_id, ErrorCode.NONE, topics)

    # ---- removal

    def delete(self, group: Group, request: DeleteOffsetsRequest, caller: Caller) -> None:
        """Process an OffsetDelete. The offsets of topics to which a member subscribes are kept."""
        if group.state is not EMPTY and group.protocol_type != CONSUMER:
            self._outbox.answer(caller, DeleteOffsetsResponse(ErrorCode.NON_EMPTY_GROUP))
            return
        subscribed = group.subscribed()
        is_kept = {
            topic: group.state is not EMPTY and (subscribed is None or topic in subscribed)
            for topic, _ in request.partitions
        }
        records = group.offsets.remove(
            TopicPartition(topic, number)
            for topic, numbers in request.partitions
            if not is_kept[topic]
            for number in numbers
        )
        kept = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        topics = [
            (topic, [(number, kept if is_kept[topic] else ErrorCode.NONE) for number in numbers])
            for topic, numbers in request.partitions
        ]

        def answer(error: int, now: int) -> None:
            self._outbox.answer(
                caller, DeleteOffsetsResponse(offsets_error(error), () if error else topics)
            )

        self.bury(group, records, answer)

    def delete_topics(self, groups: Iterable[Group], topics: Collection[str]) -> None:
        """Remove the offsets of deleted topics from groups."""
        for group in groups:
            self.bury(group, group.offsets.remove_topics(topics))

    def delete_groups(
        self, groups: Sequence[Group], errors: dict[str, int], caller: Caller
    ) -> None:
        """Remove `groups`, which have no members, and their offsets. Answer when all tombstones are written.

        `errors`: error code by group id, for every group in the request. For a group in `groups`, this method replaces
        the code by the result of the removal.
        """
        left = {group.group_id for group in groups}

        def buried(group_id: str, error: int, now: int) -> None:
            errors[group_id] = offsets_error(error)
            left.discard(group_id)
            if not left:
                self._outbox.answer(caller, DeleteGroupsResponse(tuple(errors.items())))

        for group in groups:
            records = group.offsets.remove_all()
            self._remove_group(group, commands.DELETED)
            self._append_tombstones(group, records, partial(buried, group.group_id))
        if not groups:
            self._outbox.answer(caller, DeleteGroupsResponse(tuple(errors.items())))

    def bury(self, group: Group, records: list[KeyValue], done: OnAppended | None = None) -> None:
        """Append tombstones, and remove the group if no members and no offsets are left.

        `done` is called with the result of the append, or with success if there is nothing to append.
        """
        if group.is_removable():
            self._remove_group(group, commands.EXPIRED)
        self._append_tombstones(group, records, done)

    def _append_tombstones(
        self, group: Group, records: list[KeyValue], done: OnAppended | None
    ) -> None:
        """Append the tombstones of offsets in `records`.

        If the group is removed and has had a generation, also append the tombstone of the group.
        """
        if group.state is DEAD and group.generation > 0:
            records.append((group_metadata_key(group.group_id), None))
        if records:
            self._outbox.append(group.partition, records, partial(self._buried, group, done))
        elif done is not None:
            done(ErrorCode.NONE, 0)

    def _buried(self, group: Group, done: OnAppended | None, error: int, now: int) -> None:
        """Call `done` with the result of appending tombstones; record a failure in the ledger.

        If the append failed, the next coordinator loads the removed offsets and removes them again.
        """
        if error:
            self._outbox.note(commands.APPEND_FAILED, group, what="tombstones", error=error)
        if done is not None:
            done(error, now)

    # ---- expiry

    def begin_sweep(self, groups: Iterable[Group]) -> None:
        """Begin a sweep. A sweep removes expired offsets, and groups that have neither offsets nor members."""
        self._unswept = deque(groups)

    def is_sweeping(self) -> bool:
        """True if the sweep that `begin_sweep` began still has groups to check."""
        return bool(self._unswept)

    def sweep(self) -> None:
        """Check the next groups of the sweep: remove expired offsets, and groups without members and offsets."""
        wall = self._wall_ms()
        retention = self._settings.offsets_retention_minutes * _MINUTE_MS
        checked = 0
        while self._unswept and checked < _SWEEP_OFFSETS:
            group = self._unswept.popleft()
            checked += 1 + len(group.offsets)
            self._expire(group, wall, retention)

    def _expire(self, group: Group, wall_ms: int, retention_ms: int) -> None:
        if group.state is DEAD:
            return
        subscribed = None
        if group.state is STABLE and group.offsets.may_expire(wall_ms, retention_ms):
            subscribed = group.subscribed()
        rule = expiry_rule(group.state, group.protocol_type, group.state_timestamp, subscribed)
        records = [] if rule is None else group.offsets.expire(rule, wall_ms, retention_ms)
        self.bury(group, records)


def _by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, Sequence[int]]]:
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return list(topics.items())


def _fetched(group: Group | None, topic: str, number: int, require_stable: bool) -> FetchedOffset:
    if group is None:
        return FetchedOffset(number)
    tp = TopicPartition(topic, number)
    if require_stable and group.offsets.is_pending(tp):
        return FetchedOffset(number, error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
    found = group.offsets.fetch(tp)
    if found is None:
        return FetchedOffset(number)
    return FetchedOffset(number, found.offset, found.leader_epoch, found.metadata)
