"""The requests of one group member to its coordinator: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

This module sends the requests; `Membership` decides how to react to each response. `try_to_join` makes only one
attempt, so that the consumer can give up lost partitions between two attempts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NoReturn

from minikafka.base.errors import ErrorCode, KafkaError, ProtocolViolation
from minikafka.base.meanings import AnsweredError
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Clock
from minikafka.client.groups.assignors import (
    ASSIGNORS,
    NOTHING_OWNED,
    Member,
    Owned,
    choose_assignors,
    is_cooperative,
)
from minikafka.client.groups.coordinator_client import CoordinatorClient
from minikafka.client.groups.membership import Call, Membership, Reaction, State
from minikafka.client.groups.protocol import (
    NO_GENERATION,
    PROTOCOL_TYPE,
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from minikafka.client.groups.settings import GroupSettings
from minikafka.client.metadata import Metadata, error_code
from minikafka.client.network import request
from minikafka.client.retries import RETRY_BACKOFF_MS, WARN_AFTER_MS
from minikafka.wire import versions

logger = logging.getLogger(__name__)

JOIN_GRACE_MS: Final = 5_000
"""Time beyond the rebalance timeout for the coordinator to answer JoinGroup, as in Kafka's consumer."""


class GroupMember:
    """The requests of one member. `late()` returns True if the application exceeds `max_poll_interval_ms`."""

    def __init__(
        self,
        coordinator: CoordinatorClient,
        metadata: Metadata,
        clock: Clock,
        settings: GroupSettings,
        *,
        late: Callable[[], bool],
        on_change: Callable[[], None],
    ) -> None:
        """`on_change`: called when the member must join again, or when `failure` is set."""
        self.membership = Membership(settings.group_instance_id)
        self.failure: KafkaError | None = None
        self.led: Mapping[str, int] | None = None
        """Partition counts by topic when this member, as the leader, assigned the partitions; 0 if the topic does
        not exist. None if this member is not the leader.
        """
        self._coordinator = coordinator
        self._metadata = metadata
        self._clock = clock
        self._settings = settings
        self._assignors = choose_assignors(settings.assignors)
        self.is_cooperative = is_cooperative(self._assignors)
        self._late = late
        self._on_change = on_change
        self._last = NOTHING_OWNED
        self._failing_since: int | None = None
        self._has_warned = False

    async def try_to_join(
        self, topics: Sequence[str], owned: Sequence[TopicPartition]
    ) -> tuple[TopicPartition, ...] | None:
        """Try once to join the group; return the assignment, or None if another attempt is needed.

        `owned`: the partitions that a cooperative member still has. Raises KafkaError for an error that is
        not retriable.
        """
        membership = self.membership
        membership.begin_join()
        try:
            joined = await self._join(topics, owned)
            found = None if joined is None else await self._sync(joined)
        except OSError as error:
            await self._retry_join(str(error))
            return None
        except KafkaError as error:
            if not error.code.retriable:
                membership.abort_join()
                raise
            await self._retry_join(str(error))
            return None
        except BaseException:
            membership.abort_join()
            raise
        if found is not None:
            self._last = Owned(found.partitions, membership.generation)
            return found.partitions
        return None

    async def _retry_join(self, reason: str) -> None:
        """Wait for the backoff before another attempt; warn once if attempts have failed for WARN_AFTER_MS."""
        self.membership.abort_join()
        now = self._clock.now()
        if self._failing_since is None:
            self._failing_since = now
        if now - self._failing_since >= WARN_AFTER_MS and not self._has_warned:
            self._has_warned = True
            group = self._coordinator.group
            logger.warning("group %s cannot be joined yet: %s (retrying)", group, reason)
        await self._clock.sleep(RETRY_BACKOFF_MS)

    async def _join(self, topics: Sequence[str], owned: Sequence[TopicPartition]) -> Any | None:
        """Send JoinGroup; return the successful response, or None if another attempt is needed."""
        while True:
            sent = self.membership.identity
            response = await self._coordinator.call(
                versions.JOIN_GROUP,
                self._join_request(topics, owned),
                wait_ms=self._settings.max_poll_interval_ms + JOIN_GRACE_MS,
            )
            code = error_code(response.error_code)
            reaction = self.membership.react(Call.JOIN, code, sent, response.member_id)
            if reaction is Reaction.GO_ON:
                self.membership.joined(response.member_id, response.generation_id)
                return response
            if reaction is not Reaction.RETRY:
                await self._after(reaction, code)
                return None
            if code is ErrorCode.UNKNOWN_MEMBER_ID and owned:
                self.membership.abort_join()
                return None  # before it joins again, the consumer must give up its partitions

    def _join_request(self, topics: Sequence[str], owned: Sequence[TopicPartition]) -> Any:
        membership = self.membership
        generation = self._last.generation if owned else NO_GENERATION
        protocols = []
        for assignor in self._assignors:
            data = assignor.user_data(self._last)
            subscription = Subscription(tuple(topics), data, tuple(owned), generation)
            protocols.append({"name": assignor.name, "metadata": encode_subscription(subscription)})
        return request(
            versions.JOIN_GROUP,
            group_id=self._coordinator.group,
            session_timeout=self._settings.session_timeout_ms,
            rebalance_timeout=self._settings.max_poll_interval_ms,
            member_id=membership.member_id,
            group_instance_id=membership.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=protocols,
            reason=membership.reason,
        )

    async def _sync(self, joined: Any) -> Assignment | None:
        """Send SyncGroup and return this member's assignment; None if the member must join again.

        If this member is the leader, the request contains the assignments of all members, or none if the
        assignments do not change.
        """
        membership = self.membership
        sent = membership.identity
        shares: dict[str, bytes] = {}
        self.led = None
        if joined.leader == joined.member_id:
            shares = await self._assign(joined)
        body = request(
            versions.SYNC_GROUP,
            group_id=self._coordinator.group,
            generation_id=sent.number,
            member_id=sent.member_id,
            group_instance_id=membership.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=[{"member_id": id_, "assignment": data} for id_, data in shares.items()],
        )
        response = await self._coordinator.call(
            versions.SYNC_GROUP, body, wait_ms=self._settings.max_poll_interval_ms + JOIN_GRACE_MS
        )
        code = error_code(response.error_code)
        reaction = membership.react(Call.SYNC, code, sent)
        if reaction is not Reaction.GO_ON:
            membership.abort_join()
            await self._after(reaction, code)
            return None
        membership.synced()
        self._failing_since = None
        self._has_warned = False
        try:
            return decode_assignment(response.assignment)
        except ProtocolViolation as error:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"assignment: {error}") from error

    async def _assign(self, joined: Any) -> dict[str, bytes]:
        """As the leader, return the encoded assignments by member id; {} if the assignments do not change."""
        members = [
            Member(m.member_id, m.group_instance_id, decode_subscription(m.metadata))
            for m in joined.members
        ]
        topics = {topic for member in members for topic in member.subscription.topics}
        counts = await self.partition_counts(topics)
        self.led = {topic: counts.get(topic, 0) for topic in topics}
        if joined.skip_assignment:
            return {}
        shares = ASSIGNORS[joined.protocol_name].assign(members, counts)
        return {id_: encode_assignment(Assignment(tuple(share))) for id_, share in shares.items()}

    async def partition_counts(self, topics: Collection[str] | None) -> dict[str, int]:
        """Return the partition counts of these topics (None: all); missing topics are left out. Raises OSError."""
        _, found = await self._metadata.describe(topics)
        return {info.name: len(info.partitions) for info, code in found if code is ErrorCode.NONE}

    async def _after(self, reaction: Reaction, code: ErrorCode) -> None:
        """Do what `reaction` requires before the next attempt to join the group.

        FIND_COORDINATOR: forget the coordinator, and wait for the backoff. BACK_OFF: only wait for the backoff.
        FAIL: raise KafkaError. Other reactions require nothing.
        """
        if reaction is Reaction.FAIL:
            self._fail(code)
        if reaction is Reaction.FIND_COORDINATOR:
            self._coordinator.forget()
        if reaction in (Reaction.FIND_COORDINATOR, Reaction.BACK_OFF):
            await self._retry_join(code.name)

    def _fail(self, code: ErrorCode) -> NoReturn:
        self.membership.abort_join()
        raise AnsweredError(code, f"group {self._coordinator.group}")

    async def send_heartbeats(self) -> None:
        """Send heartbeats while the member is in the group; leave the group if the application is too slow."""
        delay = self._settings.heartbeat_interval_ms
        while self.failure is None:
            await self._clock.sleep(delay)
            delay = self._settings.heartbeat_interval_ms
            if self.membership.state is not State.STABLE:
                continue
            if self._late():
                logger.warning(
                    "group %s: the application took more than max_poll_interval_ms (%d) for its records; "
                    "the consumer leaves the group until it asks for the next record",
                    self._coordinator.group,
                    self._settings.max_poll_interval_ms,
                )
                await self.leave(
                    "the application took longer than max.poll.interval.ms", always=True
                )
            elif not await self._heartbeat():
                delay = min(delay, RETRY_BACKOFF_MS)
            if self.membership.must_rejoin:
                self._on_change()

    async def _heartbeat(self) -> bool:
        """Send one heartbeat; return False if the next heartbeat must be sent after only RETRY_BACKOFF_MS."""
        membership = self.membership
        sent = membership.identity
        body = request(
            versions.HEARTBEAT,
            group_id=self._coordinator.group,
            generation_id=sent.number,
            member_id=sent.member_id,
            group_instance_id=membership.instance_id,
        )
        try:
            response = await self._coordinator.call(versions.HEARTBEAT, body)
        except (OSError, KafkaError) as error:
            logger.debug("heartbeat: %s", error)
            return False
        code = error_code(response.error_code)
        reaction = membership.react(Call.HEARTBEAT, code, sent)
        if reaction is Reaction.FAIL:
            self.failure = AnsweredError(code, f"group {self._coordinator.group}")
            self._on_change()
        elif reaction is Reaction.FIND_COORDINATOR:
            self._coordinator.forget()
        return reaction is Reaction.GO_ON

    async def leave(self, reason: str, *, always: bool = False) -> None:
        """Leave the group. A static member sends LeaveGroup only if `always` is set.

        Without `always`, a static member stays in the group for its session timeout. Errors are ignored,
        because the coordinator removes the member after the session timeout.
        """
        membership = self.membership
        identity = membership.identity
        membership.leave(reason)
        if not identity.member_id or (membership.instance_id is not None and not always):
            return
        member = {
            "member_id": identity.member_id,
            "group_instance_id": membership.instance_id,
            "reason": reason,
        }
        body = request(versions.LEAVE_GROUP, group_id=self._coordinator.group, members=[member])
        try:
            await self._coordinator.call(versions.LEAVE_GROUP, body)
        except (OSError, KafkaError) as error:
            logger.debug("leaving group %s: %s", self._coordinator.group, error)
