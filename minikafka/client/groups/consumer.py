"""A consumer in a group: `async for record in consumer`, with commits and rebalances.

While the application waits for the next record, the consumer does the work of Kafka's `poll`: it joins the
group, calls the rebalance callbacks, commits and fetches. Heartbeats are sent in the background. A record
counts as processed when the application asks for the next record, or leaves the `async with` block without an
exception. Automatic commits cover only processed records, so a crash loses no record.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from inspect import isawaitable
from types import TracebackType
from typing import Final, Self, TypeAlias

from minikafka.base.arguments import several
from minikafka.base.errors import ErrorCode, KafkaError, MinikafkaError
from minikafka.base.meanings import AnsweredError
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Clock
from minikafka.client.consumer import ConsumedRecord
from minikafka.client.groups.commits import Commits
from minikafka.client.groups.coordinator_client import CoordinatorClient
from minikafka.client.groups.fetching import UNKNOWN, Fetching
from minikafka.client.groups.member import GroupMember
from minikafka.client.groups.offsets import NoOffset, OffsetAndMetadata
from minikafka.client.groups.settings import GroupSettings
from minikafka.client.log_offsets import EARLIEST, LATEST, LogOffsets
from minikafka.client.metadata import Metadata
from minikafka.client.network import Network
from minikafka.client.retries import RETRY_BACKOFF_MS, Retries
from minikafka.runtime.tasks import TaskRegistry

logger = logging.getLogger(__name__)

CLOSE_TIMEOUT_MS: Final = 10_000
"""Time for the last commit and for leaving the group."""
MISSING_TOPIC_MS: Final = 1_000
"""Interval at which metadata is refreshed while a subscribed topic does not exist."""
INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state"})
"""Topics that a subscription by pattern ignores."""

Callback: TypeAlias = Callable[[list[TopicPartition]], Awaitable[None] | None]
"""A rebalance callback, called with partitions in the task that reads. It may be a coroutine function."""
Topics: TypeAlias = Iterable[str] | re.Pattern[str]


def _ignore(partitions: list[TopicPartition]) -> None:
    """Do nothing: the application has no callback."""


class GroupConsumer:
    """One member of a group, created by `Client.group_consumer`. Only one task may read from it."""

    def __init__(
        self,
        group: str,
        topics: Topics,
        settings: GroupSettings,
        *,
        network: Network,
        parking: Network,
        fetch_network: Network,
        metadata: Metadata,
        clock: Clock,
        request_timeout_ms: int,
        api_timeout_ms: int,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        self._settings = settings
        self._metadata = metadata
        self._clock = clock
        self._parking = parking
        self._on_assigned = on_assigned or _ignore
        self._on_revoked = on_revoked or _ignore
        self._on_lost = on_lost or self._on_revoked
        self._coordinator = CoordinatorClient(group, network, metadata, request_timeout_ms, parking)
        self._member = GroupMember(
            self._coordinator,
            metadata,
            clock,
            settings,
            late=self._is_late,
            on_change=self._wake,
        )
        self._commits = Commits(self._coordinator, self._member.membership, clock, api_timeout_ms)
        self._fetching = Fetching(
            fetch_network,
            metadata,
            clock,
            settings.fetch_max_wait_ms,
            request_timeout_ms,
            self._wake,
        )
        self._retries = Retries(clock, metadata, api_timeout_ms)
        self._log_offsets = LogOffsets(network, metadata, self._retries, request_timeout_ms)
        self._background = TaskRegistry()
        self._committing = TaskRegistry()
        self._is_joining = False
        self._joined: list[tuple[TopicPartition, ...] | MinikafkaError | None] = []
        self._awake = asyncio.Event()
        self._resets: dict[TopicPartition, int] = {}
        self._unfinished: ConsumedRecord | None = None
        """The last returned record, until the application asks for the next record."""
        self._returned_at: int | None = None
        self._metadata_due = 0
        self._positions_due = 0
        self._commit_due = clock.now() + settings.auto_commit_interval_ms
        self._is_started = False
        self._is_closed = False
        self.subscribe(topics)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self._unfinished = None
        await self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumedRecord:
        """Wait for the next record of any assigned partition, and return it. Raises KafkaError and NoOffset."""
        self._unfinished = None
        while not self._is_closed:
            self._returned_at = None
            self._awake.clear()
            await self._keep_up()
            record = self._fetching.next_record()
            if record is not None:
                self._returned_at = self._clock.now()
                self._unfinished = record
                return record
            if not self._is_closed:
                await self._fetch()
        raise StopAsyncIteration

    # Subscription and positions

    def subscribe(self, topics: Topics) -> None:
        """Change the subscription to these topics, or to the topics whose whole name matches a pattern."""
        self._pattern = topics if isinstance(topics, re.Pattern) else None
        self._topics = [] if isinstance(topics, re.Pattern) else sorted(set(several(str, topics)))
        self._metadata_due = 0
        self._member.membership.request_rejoin("the subscription has changed")
        self._wake()

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that this consumer has at the moment."""
        return set(self._fetching.places)

    @property
    def member_id(self) -> str:
        """The member id from the coordinator; empty while this consumer is not in the group."""
        return self._member.membership.member_id

    @property
    def generation(self) -> int:
        """The group generation that this member has joined; -1 while this consumer is not in the group."""
        return self._member.membership.generation

    @property
    def is_assigned(self) -> bool:
        """True if `assignment` is that of the current generation, and no rebalance is in progress or necessary."""
        return self.generation >= 0 and not self._must_join()

    async def position(self, tp: TopicPartition) -> int:
        """Return the offset of the next record of an assigned partition. Raises KafkaError, ValueError."""
        self._require(tp)

        async def find() -> int:
            if tp in self._fetching.without_position:
                await self._find_positions()
            self._require(tp)
            position = self._fetching.places[tp].position
            if position == UNKNOWN:
                raise AnsweredError(ErrorCode.LEADER_NOT_AVAILABLE, str(tp))
            return position

        return await self._retries(find)

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Continue at this offset of an assigned partition.

        Raises ValueError if `tp` is not assigned, or if the offset is negative.
        """
        if offset < 0:
            raise ValueError(f"an offset must not be negative, got {offset}")
        self._require(tp)
        self._resets.pop(tp, None)
        self._fetching.move(tp, offset)
        self._wake()

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue at the first record of these assigned partitions (no argument: all). Raises ValueError."""
        self._reset(partitions, EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue at the end of these assigned partitions (no argument: all). Raises ValueError."""
        self._reset(partitions, LATEST)

    def pause(self, *partitions: TopicPartition) -> None:
        """Stop returning records of these partitions until they are resumed. Raises ValueError."""
        for tp in partitions:
            self._require(tp)
            self._fetching.places[tp].is_paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        """Continue to return records of these partitions. Raises ValueError."""
        for tp in partitions:
            self._require(tp)
            self._fetching.places[tp].is_paused = False
            self._fetching.offer(tp)
        self._wake()

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return {tp for tp, place in self._fetching.places.items() if place.is_paused}

    # Commits

    async def commit(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None
    ) -> None:
        """Commit offsets and wait for the response. None: commit the position of each assigned partition.

        Raises KafkaError, for example ILLEGAL_GENERATION if the partitions may belong to other members.
        """
        await self._commits.commit(self._offsets(offsets))

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
        on_done: Callable[[KafkaError | None], None] | None = None,
    ) -> None:
        """Commit offsets in the background, without retries. `on_done` is called with the error or None.

        Without `on_done` an error is logged. Commits are sent in the order of the calls.
        """
        wanted = self._offsets(offsets)

        async def work() -> None:
            failure: KafkaError | None = None
            try:
                await self._commits.commit(wanted, retry=False)
            except KafkaError as error:
                failure = error
            if on_done is not None:
                on_done(failure)
            elif failure is not None:
                logger.warning("group %s: commit failed: %s", self._coordinator.group, failure)

        self._committing.spawn(work(), "group-commit")

    async def committed(
        self, *partitions: TopicPartition
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets; partitions without a committed offset are left out. Raises KafkaError."""
        return await self._commits.committed(several(TopicPartition, partitions))

    async def close(self) -> None:
        """Commit the processed records if automatic commits are enabled, then leave the group.

        A static member (`group_instance_id`) does not leave, so that it can rejoin within the session timeout.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._returned_at = None
        self._wake()
        await self._background.close()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_MS / 1000):
                await self._give_up_all()
                await self._member.leave("the consumer was closed")
        except TimeoutError:
            logger.warning("group %s: the coordinator does not answer", self._coordinator.group)
        finally:
            self._fetching.close()
            await self._committing.close()
            self._parking.close()

    async def _give_up_all(self) -> None:
        """Commit the processed records and call `on_revoked` before the consumer closes.

        If the member has lost its generation, only call `on_lost`.
        """
        owned = sorted(self._fetching.places)
        if not owned:
            return
        if self._member.membership.has_lost_generation:
            await _call(self._on_lost, owned)
            return
        await self._commit_processed()
        await _call(self._on_revoked, owned)

    # Work done while the application waits

    async def _keep_up(self) -> None:
        """Do the tasks that are due: check the metadata, join the group, commit, look up positions."""
        member = self._member
        if member.failure is not None:
            raise member.failure
        if not self._is_started:
            self._is_started = True
            self._background.spawn(member.send_heartbeats(), "group-heartbeats")
        now = self._clock.now()
        if now >= self._metadata_due:
            await self._look_at_metadata(now)
        while self._must_join():
            await self._rejoin()
        if self._settings.enable_auto_commit and now >= self._commit_due:
            self._commit_due = now + self._settings.auto_commit_interval_ms
            if changed := self._processed():
                self.commit_async(changed)
        if self._fetching.without_position and now >= self._positions_due:
            await self._find_positions()

    async def _fetch(self) -> None:
        """Process fetch responses and send new fetches.

        If no fetched record is left, wait until a response arrives or the next task is due.
        """
        outside = self._fetching.receive()
        if outside:
            self._reset_by_policy(outside, "its position is outside of the log")
            return
        await self._fetching.send()
        if self._fetching.has_records():
            return
        due = self._metadata_due
        if self._settings.enable_auto_commit and self._fetching.places:
            due = min(due, self._commit_due)
        if self._fetching.without_position:
            due = min(due, self._positions_due)
        timer = self._clock.call_later(max(1, due - self._clock.now()), self._wake)
        try:
            await self._awake.wait()
        finally:
            timer.cancel()

    def _wake(self) -> None:
        self._awake.set()

    def _is_late(self) -> bool:
        """True if the application has been processing its last record for longer than `max_poll_interval_ms`."""
        since = self._returned_at
        limit = self._settings.max_poll_interval_ms
        return since is not None and self._clock.now() - since > limit

    async def _look_at_metadata(self, now: int) -> None:
        """Request a rejoin if the topics that match the pattern have changed.

        The leader also requests a rejoin if the number of partitions of a subscribed topic has changed.
        """
        self._metadata_due = now + self._settings.metadata_max_age_ms
        member = self._member
        names = None if self._pattern is not None else {*self._topics, *(member.led or ())}
        try:
            counts = await member.partition_counts(names)
        except OSError as error:
            logger.warning("group %s: %s", self._coordinator.group, error)
            self._metadata_due = now + MISSING_TOPIC_MS
            return
        if self._pattern is not None:
            matching = self._pattern.fullmatch
            topics = [name for name in sorted(counts.keys() - INTERNAL_TOPICS) if matching(name)]
            if topics != self._topics:
                self._topics = topics
                member.membership.request_rejoin("the topics that match the pattern have changed")
        if not self._topics or not counts.keys() >= set(self._topics):
            self._metadata_due = now + min(MISSING_TOPIC_MS, self._settings.metadata_max_age_ms)
        led = (member.led or {}).items()
        if any(counts.get(topic, 0) != count for topic, count in led):
            member.membership.request_rejoin("the partitions of a topic have changed")

    # Rebalances

    async def _rejoin(self) -> None:
        """Give up the partitions that the member must not keep during a join, then try once to join the group."""
        member = self._member
        if not self._is_joining:
            await self._prepare_to_join()
            self._is_joining = True
            self._background.spawn(self._try_to_join(), "group-join")
        # If the caller is cancelled, the join continues: the coordinator already has the request.
        about = f"the rebalance of group {self._coordinator.group}"
        with self._metadata.waits.during(about, self._clock.now()):
            while not self._joined:
                self._awake.clear()
                await self._awake.wait()
                if self._is_closed:
                    return
        self._is_joining = False
        assigned = self._joined.pop()
        if isinstance(assigned, MinikafkaError):
            raise assigned
        if assigned is None:
            return
        new = set(assigned)
        owned = self.assignment()
        gone = sorted(owned - new)
        added = sorted(new - owned)
        if gone:
            await self._revoke(gone)
            member.membership.request_rejoin(
                "this member has revoked partitions that go to other members"
            )
        self._fetching.add(added)
        self._commits.last = {
            tp: at for tp, at in self._commits.last.items() if tp in self._fetching.places
        }
        logger.info(
            "group %s: generation %d, %d partitions",
            self._coordinator.group,
            self.generation,
            len(new),
        )
        await _call(self._on_assigned, added)

    def _must_join(self) -> bool:
        """True if the member must join the group, or is joining it."""
        wants_to = self._member.membership.must_rejoin and (self._topics or self._fetching.places)
        return not self._is_closed and (self._is_joining or bool(wants_to))

    async def _try_to_join(self) -> None:
        try:
            owned = sorted(self._fetching.places)
            self._joined.append(await self._member.try_to_join(self._topics, owned))
        except MinikafkaError as error:
            self._joined.append(error)
        self._wake()

    async def _prepare_to_join(self) -> None:
        owned = sorted(self._fetching.places)
        if not owned:
            return
        if self._member.membership.has_lost_generation:
            try:
                await _call(self._on_lost, owned)
            finally:
                self._drop(owned)
            return
        await self._commit_processed()
        kept = self._topics if self._member.is_cooperative else ()
        gone = [tp for tp in owned if tp.topic not in kept]
        if gone:
            await self._revoke(gone)

    async def _revoke(self, partitions: list[TopicPartition]) -> None:
        """Call `on_revoked`, which can still commit offsets. Then stop reading the partitions."""
        try:
            await _call(self._on_revoked, partitions)
        finally:
            self._drop(partitions)

    def _drop(self, partitions: Collection[TopicPartition]) -> None:
        self._fetching.drop(partitions)
        for tp in partitions:
            self._resets.pop(tp, None)

    # Positions and offsets

    async def _find_positions(self) -> None:
        """Look up a start position for each assigned partition that has no position yet."""
        missing = sorted(self._fetching.without_position)
        if not missing:
            return
        unknown = [tp for tp in missing if tp not in self._resets]
        committed = await self._commits.committed(unknown)
        self._commits.last.update(committed)
        for tp, found in committed.items():
            self._fetching.move(tp, found.offset, found.leader_epoch)
        without = [tp for tp in unknown if tp not in committed]
        self._reset_by_policy(without, "it has no committed offset")
        resets = {tp: at for tp, at in self._resets.items() if tp in self._fetching.places}
        offsets, errors = await self._log_offsets.look_up_once(resets)
        for tp, offset in offsets.items():
            if self._resets.pop(tp, None) is not None:
                self._fetching.move(tp, offset)
        for error in errors.values():
            if not error.code.retriable:
                raise error
        if errors:  # retry later: a partition without leader must not delay the others
            self._positions_due = self._clock.now() + RETRY_BACKOFF_MS

    def _reset_by_policy(self, partitions: Sequence[TopicPartition], why: str) -> None:
        policy = self._settings.auto_offset_reset
        if policy == "none" and partitions:
            raise NoOffset(f"{partitions[0]}: {why}, and auto_offset_reset is none")
        self._reset(partitions, EARLIEST if policy == "earliest" else LATEST, named=True)

    def _reset(
        self, partitions: Collection[TopicPartition], timestamp: int, *, named: bool = False
    ) -> None:
        for tp in partitions or (() if named else list(self._fetching.places)):
            self._require(tp)
            self._fetching.move(tp, UNKNOWN)
            self._resets[tp] = timestamp
        self._wake()

    def _require(self, tp: TopicPartition) -> None:
        if tp not in self._fetching.places:
            raise ValueError(f"{tp} is not assigned to this consumer")

    def _offsets(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        if offsets is None:
            return self._fetching.positions()
        return {
            TopicPartition(*tp): OffsetAndMetadata(at) if isinstance(at, int) else at
            for tp, at in offsets.items()
        }

    def _processed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return by partition the offset after the last processed record; leave out offsets already committed."""
        positions = self._fetching.positions()
        if self._unfinished is not None:
            tp = TopicPartition(self._unfinished.topic, self._unfinished.partition)
            if tp in positions:
                positions[tp] = self._fetching.position_before(self._unfinished)
        last = self._commits.last
        return {
            tp: at for tp, at in positions.items() if tp not in last or last[tp].offset != at.offset
        }

    async def _commit_processed(self) -> None:
        """Commit the processed records if automatic commits are enabled; a failure is only logged."""
        if not self._settings.enable_auto_commit:
            return
        try:
            await self._commits.commit(self._processed())
        except KafkaError as error:
            logger.warning("group %s: commit failed: %s", self._coordinator.group, error)


async def _call(callback: Callback, partitions: list[TopicPartition]) -> None:
    result = callback(partitions)
    if isawaitable(result):
        await result
