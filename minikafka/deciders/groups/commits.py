"""OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete, DeleteGroups, and the removal of expired offsets.

Source: Kafka's `GroupCoordinator` and `GroupMetadataManager`. There is one difference from Kafka: a client's
request to remove offsets or groups is answered only after the tombstones are committed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from minikafka.base.coordinators import (
    MAY_BE_APPENDED,
    OFFSET_ERRORS,
    Append,
    KeyValue,
    TransactionalProducer,
)
from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.deciders.decider import Procedure, Procedures
from minikafka.deciders.groups import commands
from minikafka.deciders.groups.commands import (
    CommitResponse,
    DeleteGroupsResponse,
    DeleteOffsetsResponse,
    ExpireGroupResponse,
    FetchedGroup,
    FetchedOffset,
    FetchOffsetsResponse,
    VerifyTransaction,
)
from minikafka.deciders.groups.context import Context
from minikafka.deciders.groups.events import (
    NO_COMMIT_TIME,
    CommitRequest,
    DeleteGroupsRequest,
    DeleteOffsetsRequest,
    ExpireGroupRequest,
    FetchOffsetsRequest,
    Partitions,
    TopicsDeleted,
)
from minikafka.deciders.groups.group import Group
from minikafka.deciders.groups.offsets import CONSUMER, ExpiryRule, expiry_rule
from minikafka.deciders.groups.rebalance import Rebalances
from minikafka.deciders.groups.records import (
    NO_TIMESTAMP,
    TIMESTAMP_MAX,
    OffsetAndMetadata,
    confirmation_record,
    group_metadata_key,
)
from minikafka.deciders.groups.states import COMPLETING, DEAD, EMPTY, STABLE

_SWEEP_OFFSETS: Final = 20_000
"""Number of offsets after which one call of `sweep` ends, so that the call takes only a few milliseconds."""
_MINUTE_MS: Final = 60_000
_REFUSALS_MAX: Final = 20
"""Maximum number of (member, error) pairs per group for which refused commits are counted."""
_COUNTED_LENGTH: Final = 80
"""Number of characters of a member id by which refused commits are counted."""
_ONE_UNIT_MAX: Final = "\uffff"
"""The last character that takes one UTF-16 unit. Each greater character takes two units."""


class _Begun(NamedTuple):
    """A commit whose records are about to be appended."""

    group: Group
    token: int
    records: Sequence[KeyValue]


class Commits:
    """The committed offsets of all groups: storing, returning, deleting and expiring them."""

    def __init__(self, context: Context, procedures: Procedures, rebalances: Rebalances) -> None:
        self._context = context
        self._procedures = procedures
        self._rebalances = rebalances
        self._unswept: deque[Group] = deque()
        self.next_sweep: int | None = None
        """The time of the next call of `sweep` (monotonic ms)."""

    # ---- commit

    def commit(self, request: CommitRequest) -> Procedure[None]:
        """Process an OffsetCommit: its offsets are committed when their records are."""
        begun = self._begin(request)
        if begun is None:
            return
        group, token, records = begun
        error = yield Append(group.partition, records, token)
        if error:
            group.offsets.fail(token)
            self._note_failure(group, "offsets", error)
        else:
            group.offsets.complete(token)
        self._answer_commit(request, OFFSET_ERRORS.get(error, error))

    def commit_in_transaction(self, request: CommitRequest) -> Procedure[None]:
        """Process a TxnOffsetCommit: its offsets are committed by the transaction's marker."""
        producer = yield from self._verify(request)
        if producer is None:
            return
        begun = self._begin(request)  # refuses if the partition has moved during the verification
        if begun is None:
            return
        group, token, records = begun
        transactions = self._context.served[group.partition]
        transactions.add(producer.producer_id, group.offsets, token)
        error = yield Append(group.partition, records, token, producer)
        if error:
            self._note_failure(group, "offsets", error)
        # Offsets that may be in the log stay pending. Without this, a commit marker would complete them only for the
        # next coordinator, which reads them in the log.
        if error and error not in MAY_BE_APPENDED:
            transactions.drop(producer.producer_id, group.offsets, token)
        self._answer_commit(request, OFFSET_ERRORS.get(error, error))

    def _verify(self, request: CommitRequest) -> Procedure[TransactionalProducer | None]:
        """Return the producer with the guard of the verification; refuse the commit and return None if it fails.

        The group's partition must be in the transaction. Without this, no marker would ever complete offsets that an
        ended or unknown transaction commits. A group that is not served is refused later, without a verification.
        """
        producer = request.producer
        assert producer is not None
        if self._refusal_of(request):
            return producer
        partition, token = (
            self._context.partition_of(request.group_id),
            self._procedures.new_token(),
        )
        error, guard = yield VerifyTransaction(partition, request.transactional_id, producer, token)
        if error:
            self._refuse(request, OFFSET_ERRORS.get(error, error))
            return None
        return producer._replace(guard=guard)

    def _refusal_of(self, request: CommitRequest) -> int:
        """Return the error with which any commit to the group of this request is refused; NONE if it is served."""
        is_empty_allowed = request.producer is None
        if request.group_id in self._context.groups and (request.group_id or is_empty_allowed):
            return ErrorCode.NONE
        return self._context.refusal(request.group_id, needs_name=not is_empty_allowed)

    def _group_of(self, request: CommitRequest) -> Group | None:
        """Return the group of a commit, which may be new. Refuse the commit and return None if there is none."""
        context = self._context
        error = self._refusal_of(request)
        group = context.groups.get(request.group_id)
        if not error and group is None:
            if request.generation >= 0 and request.producer is None:
                error = ErrorCode.ILLEGAL_GENERATION
            elif not context.has_memory_for_group(request.group_id):
                error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if error:
            self._refuse(request, error)
            return None
        return group or context.create(request.group_id)

    def _begin(self, request: CommitRequest) -> _Begun | None:
        """Begin a commit. Return None if it was answered: refused, or without offsets."""
        group = self._group_of(request)
        if group is None:
            return None
        begun = self._begin_in(group, request)
        if begun is None:
            self._rebalances.drop_unused(group)
        return begun

    def _begin_in(self, group: Group, request: CommitRequest) -> _Begun | None:
        error = self._commit_error(group, request)
        if error:
            self._note_refusal(group, request, error)
            self._refuse(request, error)
            return None
        member = group.members.get(request.member_id)
        if member is not None and request.producer is None:
            self._rebalances.restart_session(member)
        offsets = self._offsets_of(request)
        if len(offsets) < sum(len(partitions) for _, partitions in request.topics):
            self._note_refusal(group, request, ErrorCode.OFFSET_METADATA_TOO_LARGE)
        if not offsets:
            self._answer_commit(request, ErrorCode.NONE)
            return None
        context = self._context
        if not context.offsets_memory.fits(group.offsets.growth(offsets), context.now):
            self._refuse(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return None
        token = self._procedures.new_token()
        try:
            return _Begun(group, token, group.offsets.prepare(token, offsets))
        except ValueError:  # a name is too long for a record
            self._refuse(request, ErrorCode.UNKNOWN_SERVER_ERROR)
            return None

    def _offsets_of(self, request: CommitRequest) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """Return the offsets of a commit whose metadata is not too large."""
        wall = self._context.wall_ms()
        kept_ms = request.retention_time_ms
        expires = NO_TIMESTAMP if kept_ms < 0 else min(wall + kept_ms, TIMESTAMP_MAX)
        return {
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
        return units <= self._context.settings.offset_metadata_max_bytes

    def _refuse(self, request: CommitRequest, error: int) -> None:
        """Answer every partition of a commit with this error."""
        topics = [
            (topic, [(item.partition, error) for item in partitions])
            for topic, partitions in request.topics
        ]
        self._procedures.answer(request.caller, CommitResponse(topics))

    def _note_refusal(self, group: Group, request: CommitRequest, error: int) -> None:
        """Count the refused commits of each member and error; write the 1st, 2nd, 4th, 8th, … to the ledger."""
        if len(group.refusals) >= _REFUSALS_MAX:
            group.refusals.clear()
        member_id = request.member_id[-_COUNTED_LENGTH:]  # the end has the UUID
        group.refusals[member_id, error] += 1
        count = group.refusals[member_id, error]
        if count & (count - 1) == 0:
            self._procedures.emit(
                group.note(
                    commands.COMMIT_REFUSED,
                    member=request.member_id,
                    instance=request.instance_id,
                    of_generation=request.generation,
                    error=int(error),
                    count=count,
                )
            )

    def _answer_commit(self, request: CommitRequest, error: int) -> None:
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
        self._procedures.answer(request.caller, CommitResponse(topics))

    def _note_failure(self, group: Group, what: str, error: int) -> None:
        self._rebalances.note_failure(group, what, error)

    # ---- fetch

    def fetch(self, request: FetchOffsetsRequest) -> Procedure[None]:
        """Process an OffsetFetch.

        A consumer that reads and writes in transactions would write records twice after an old answer. If it waits for
        stable offsets, a coordinator that was replaced and does not know it must not answer. So the answer follows an
        append, which only the current leader of the partition can commit.
        """
        errors: dict[int, int] = {}
        unconfirmed = self._unconfirmed(request)
        if unconfirmed:
            confirmations = (
                self._confirm(partition, group_id, errors)
                for partition, group_id in unconfirmed.items()
            )
            yield from self._procedures.run_all(confirmations)
        groups = [
            self._fetch(group_id, partitions, request.require_stable, errors)
            for group_id, partitions in request.groups
        ]
        self._procedures.answer(request.caller, FetchOffsetsResponse(groups))

    def _unconfirmed(self, request: FetchOffsetsRequest) -> dict[int, str]:
        """Return the partitions that need a confirmation, each with the id of a group in it."""
        groups = (self._context.groups.get(group_id) for group_id, _ in request.groups)
        return {
            group.partition: group.group_id
            for group in groups
            if request.require_stable and group is not None and group.offsets.is_transactional
        }

    def _confirm(self, partition: int, group_id: str, errors: dict[int, int]) -> Procedure[None]:
        """Append a record without meaning to a partition, and put the error into `errors`."""
        records = [confirmation_record(group_id)]
        errors[partition] = yield Append(partition, records, self._procedures.new_token())

    def _fetch(
        self,
        group_id: str,
        partitions: Partitions | None,
        require_stable: bool,
        errors: Mapping[int, int],
    ) -> FetchedGroup:
        """Return a group's committed offsets for these partitions; None requests all partitions that have one.

        `require_stable`: return UNSTABLE_OFFSET_COMMIT for partitions with a commit in progress. `errors`: the errors
        of the confirmations, by partition of `__consumer_offsets`.
        """
        context = self._context
        group = context.groups.get(group_id)
        unconfirmed = errors.get(context.partition_of(group_id), 0) if errors else 0
        if unconfirmed:
            return FetchedGroup(group_id, _fetch_error(unconfirmed))
        if group is None and (error := context.refusal(group_id, needs_name=False)):
            return FetchedGroup(group_id, error)
        if partitions is None:
            partitions = [] if group is None else _by_topic(group.offsets.partitions())
        topics = [
            (topic, [_fetched(group, topic, number, require_stable) for number in numbers])
            for topic, numbers in partitions
        ]
        return FetchedGroup(group_id, ErrorCode.NONE, topics)

    # ---- removal

    def delete(self, request: DeleteOffsetsRequest) -> Procedure[None]:
        """Process an OffsetDelete. The offsets of topics to which a member subscribes are kept."""
        group = self._context.named(request.group_id)
        if group is None:
            error: int = self._context.refusal(request.group_id) or ErrorCode.GROUP_ID_NOT_FOUND
            self._procedures.answer(request.caller, DeleteOffsetsResponse(error))
            return
        if group.state is not EMPTY and group.protocol_type != CONSUMER:
            refused = DeleteOffsetsResponse(ErrorCode.NON_EMPTY_GROUP)
            self._procedures.answer(request.caller, refused)
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
        error = yield from self._bury(group, records)
        response = DeleteOffsetsResponse(OFFSET_ERRORS.get(error, error), () if error else topics)
        self._procedures.answer(request.caller, response)

    def topics_deleted(self, event: TopicsDeleted) -> None:
        """Remove the offsets of deleted topics from all groups."""
        for group in list(self._context.groups.values()):
            self._bury_unasked(group, group.offsets.remove_topics(event.topics))

    def delete_groups(self, request: DeleteGroupsRequest) -> Procedure[None]:
        """Process a DeleteGroups: remove groups without members, and their offsets."""
        errors = {group_id: self._deletion_error(group_id) for group_id in request.group_ids}
        removable = [self._context.groups[name] for name, error in errors.items() if not error]
        deletions = (self._delete_group(group, errors) for group in removable)
        yield from self._procedures.run_all(deletions)
        response = DeleteGroupsResponse(tuple(errors.items()))
        self._procedures.answer(request.caller, response)

    def _deletion_error(self, group_id: str) -> int:
        group = self._context.groups.get(group_id)
        if group is None:
            refusal = self._context.refusal(group_id, needs_name=False)
            return refusal or ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.NONE if group.state is EMPTY else ErrorCode.NON_EMPTY_GROUP

    def _delete_group(self, group: Group, errors: dict[str, int]) -> Procedure[None]:
        """Remove a group, and put the error of its tombstones into `errors`."""
        records = group.offsets.remove_all()
        self._rebalances.remove_group(group, commands.DELETED)
        error = yield from self._append_tombstones(group, records)
        errors[group.group_id] = OFFSET_ERRORS.get(error, error)

    def _bury_unasked(self, group: Group, records: list[KeyValue]) -> None:
        """Append tombstones, if there are any. Remove the group if no members and no offsets are left."""
        if records or group.is_removable():
            self._procedures.start(self._bury(group, records))

    def _bury(self, group: Group, records: list[KeyValue]) -> Procedure[int]:
        """Append tombstones; return the error. Remove the group if no members and no offsets are left."""
        if group.is_removable():
            self._rebalances.remove_group(group, commands.EXPIRED)
        return (yield from self._append_tombstones(group, records))

    def _append_tombstones(self, group: Group, records: list[KeyValue]) -> Procedure[int]:
        """Append the tombstones of offsets in `records`; return the error.

        If the group is removed and has had a generation, also append the tombstone of the group. If the append fails,
        the next coordinator loads the removed offsets and removes them again.
        """
        if group.state is DEAD and group.generation > 0:
            records.append((group_metadata_key(group.group_id), None))
        if not records:
            return ErrorCode.NONE
        error: int = yield Append(group.partition, records, self._procedures.new_token())
        if error:
            self._note_failure(group, "tombstones", error)
        return error

    # ---- expiry

    def schedule_sweep(self) -> None:
        """Plan the first sweep. A sweep removes expired offsets, and groups that have neither offsets nor members."""
        if self.next_sweep is None:
            self.next_sweep = self._context.now + self._pause_ms

    @property
    def _pause_ms(self) -> int:
        return self._context.settings.offsets_retention_check_interval_ms

    def sweep(self) -> None:
        """Remove the expired offsets of the next groups. A later call goes on, or begins the next sweep."""
        context = self._context
        if not self._unswept:
            self._unswept = deque(context.groups.values())
        wall = context.wall_ms()
        retention = context.settings.offsets_retention_minutes * _MINUTE_MS
        checked = 0
        while self._unswept and checked < _SWEEP_OFFSETS:
            group = self._unswept.popleft()
            checked += 1 + len(group.offsets)
            self._expire(group, wall, retention)
        self.next_sweep = context.now + (0 if self._unswept else self._pause_ms)

    def sweep_all(self) -> None:
        """Remove the expired offsets of all groups."""
        self._unswept.clear()
        self.sweep()
        while self._unswept:
            self.sweep()

    def expire_group(self, request: ExpireGroupRequest) -> Procedure[None]:
        """Remove all offsets of a group without members, except those with a pending commit."""
        error, gone = self._deletion_error(request.group_id), dict[TopicPartition, int]()
        if not error:
            group = self._context.groups[request.group_id]
            before = {tp: group.offsets.fetch(tp) for tp in group.offsets.partitions()}
            records = group.offsets.expire(ExpiryRule(), TIMESTAMP_MAX, 0)
            left = set(group.offsets.partitions())
            gone = {tp: found.offset for tp, found in before.items() if found and tp not in left}
            error = yield from self._bury(group, records)
        self._procedures.answer(request.caller, ExpireGroupResponse(error, gone))

    def _expire(self, group: Group, wall_ms: int, retention_ms: int) -> None:
        if group.state is DEAD:
            return
        subscribed = None
        if group.state is STABLE and group.offsets.may_expire(wall_ms, retention_ms):
            subscribed = group.subscribed()
        rule = expiry_rule(group.state, group.protocol_type, group.state_timestamp, subscribed)
        records = [] if rule is None else group.offsets.expire(rule, wall_ms, retention_ms)
        self._bury_unasked(group, records)


def _fetch_error(error: int) -> int:
    """Return the error for a client whose OffsetFetch was not confirmed by an append. The client tries again."""
    is_replaced = OFFSET_ERRORS.get(error, error) == ErrorCode.NOT_COORDINATOR
    return ErrorCode.NOT_COORDINATOR if is_replaced else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


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
