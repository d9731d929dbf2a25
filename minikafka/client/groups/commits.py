"""Offset commits of one group member.

Commits are sent in order, and retried if `retry` is set. They are refused while the member is not in the group,
or is joining the group.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.meanings import AnsweredError
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Clock
from minikafka.client.groups.coordinator_client import CoordinatorClient
from minikafka.client.groups.membership import Call, Membership, Reaction, State
from minikafka.client.groups.offsets import (
    OffsetAndMetadata,
    commit_request,
    fetch_request,
    partition_codes,
    read_committed,
)
from minikafka.client.retries import RETRY_BACKOFF_MS
from minikafka.wire import versions

logger = logging.getLogger(__name__)


class Commits:
    """The writer and reader of a group's committed offsets, for one member of the group.

    Invariant: commits reach the coordinator in the order in which they began, so an older offset cannot
    replace a newer one.
    """

    def __init__(
        self,
        coordinator: CoordinatorClient,
        membership: Membership,
        clock: Clock,
        time_limit_ms: int,
    ) -> None:
        self._coordinator = coordinator
        self._membership = membership
        self._clock = clock
        self._time_limit_ms = time_limit_ms
        self._order = asyncio.Lock()
        self.last: dict[TopicPartition, OffsetAndMetadata] = {}
        """The offsets that this member knows to be committed."""

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, retry: bool = True
    ) -> None:
        """Commit offsets. Raises KafkaError.

        UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, FENCED_INSTANCE_ID and REBALANCE_IN_PROGRESS mean that the
        partitions may belong to another member. `retry`: retry while the coordinator moves or loads.
        """
        if not offsets:
            return
        began = self._clock.now()
        async with self._order:
            while True:
                error, reaction = await self._attempt(offsets)
                if error is None:
                    self.last.update(offsets)
                    return
                late = self._clock.now() - began >= self._time_limit_ms
                if reaction is Reaction.FAIL or late or not retry:
                    raise error
                await self._clock.sleep(RETRY_BACKOFF_MS)

    async def _attempt(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> tuple[KafkaError | None, Reaction]:
        sent = self._membership.identity
        if self._membership.state is not State.STABLE:
            # Do not send the commit: an empty group would accept it without a generation, although the member was
            # removed.
            return self._not_a_member(), Reaction.FAIL
        body = commit_request(self._coordinator.group, sent, self._membership.instance_id, offsets)
        try:
            response = await self._coordinator.call(versions.OFFSET_COMMIT, body)
        except OSError as cause:
            return KafkaError(ErrorCode.NETWORK_EXCEPTION, str(cause)), Reaction.BACK_OFF
        except KafkaError as cause:
            return cause, Reaction.BACK_OFF if cause.code.retriable else Reaction.FAIL
        for tp, code in partition_codes(response).items():
            if code is not ErrorCode.NONE:
                reaction = self._membership.react(Call.COMMIT, code, sent)
                if reaction is Reaction.FIND_COORDINATOR:
                    self._coordinator.forget()
                return AnsweredError(code, f"commit of {tp}"), reaction
        return None, Reaction.GO_ON

    def _not_a_member(self) -> KafkaError:
        if self._membership.state is State.UNJOINED:
            detail = "the consumer is not in the group; its partitions may belong to another member"
            return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, detail)
        return KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "the consumer is joining its group")

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets; partitions without a committed offset are left out. Raises KafkaError."""
        if not partitions:
            return {}
        began = self._clock.now()
        body = fetch_request(self._coordinator.group, partitions)
        while True:
            try:
                response = await self._coordinator.call(versions.OFFSET_FETCH, body)
                return read_committed(response)
            except OSError as cause:
                error = KafkaError(ErrorCode.NETWORK_EXCEPTION, str(cause))
            except KafkaError as cause:
                if not cause.code.retriable:
                    raise
                error = cause
                if cause.code is ErrorCode.NOT_COORDINATOR:
                    self._coordinator.forget()
            if self._clock.now() - began >= self._time_limit_ms:
                raise error
            await self._clock.sleep(RETRY_BACKOFF_MS)
