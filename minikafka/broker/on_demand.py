"""What only time would do, done at once on one broker: compaction, retention, expiry of offsets, a later wall clock.

The calls come from `minikafka topics compact` and the like. Nothing here runs, and nothing is slower, without a call.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import (
    CleaningFailed,
    CoordinationError,
    ErrorCode,
    KafkaError,
    StorageFailed,
)
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Call, Clock
from minikafka.broker.clients.delegation_tokens import DelegationTokens
from minikafka.broker.coordinators.group_host import GroupHost
from minikafka.broker.coordinators.transaction_host import TransactionHost
from minikafka.broker.replicas.log_cleaner import LogCleaner
from minikafka.broker.replicas.manager import ReplicaManager
from minikafka.broker.rpc import time_calls
from minikafka.broker.rpc.time_calls import Demand, Due, PartitionGone
from minikafka.deciders.decider import ClockAdvanced
from minikafka.deciders.groups.commands import ExpireGroupResponse
from minikafka.deciders.groups.events import ExpireGroupRequest
from minikafka.storage.log.cleaner.dirt import is_due
from minikafka.storage.replication.partition import Partition

logger = logging.getLogger(__name__)

_POLL_MS: Final = 10
_LOADS_MS: Final = 10_000
_APPENDS_MS: Final = 10_000
"""Time for the tombstones of expired transactional ids to be written."""


class OnDemand:
    """Serves the calls in `rpc/time_calls.py`. `apply_settings()` applies all settings of topics written so far."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        replicas: ReplicaManager,
        cleaner: LogCleaner,
        groups: GroupHost,
        transactions: TransactionHost,
        tokens: DelegationTokens,
        apply_settings: Callable[[], Awaitable[None]],
    ) -> None:
        self._apply_settings = apply_settings
        self._config = config
        self._clock = clock
        self._replicas = replicas
        self._cleaner = cleaner
        self._groups = groups
        self._transactions = transactions
        self._tokens = tokens

    async def serve(self, call: Call) -> dict[str, Any]:
        """Return the response to one of the calls. Raises KafkaError."""
        if call.method == time_calls.EXPIRE_GROUP:
            return time_calls.encode_offsets(
                await self._expire_group(time_calls.decode_group(call.body))
            )
        await self._read_settings()
        if call.method == time_calls.ADVANCE_CLOCK:
            return time_calls.encode_due(
                await self._advance_clock(time_calls.decode_advance(call.body))
            )
        asked = time_calls.decode_asked(call.body)
        work = self._compact if call.method == time_calls.COMPACT else self._expire
        return time_calls.encode_gone(await self._on_each(asked, work))

    async def _read_settings(self) -> None:
        """Apply what was altered just before the call, such as `retention.ms`, if ZooKeeper answers."""
        try:
            await self._apply_settings()
        except CoordinationError as error:
            logger.warning("the latest settings of topics are not known: %s", error)

    async def _on_each(
        self, asked: Demand, work: Callable[[Partition], Awaitable[PartitionGone]]
    ) -> list[PartitionGone]:
        """Do the work on each hosted partition whose records are all committed; one failure does not end the others."""
        hosted = {
            tp: partition
            for tp in asked.partitions
            if (partition := self._replicas.partition(tp)) is not None
        }
        found = []
        deadline = self._clock.now() + asked.wait_ms
        for tp, partition in hosted.items():
            try:
                async with asyncio.timeout(max(deadline - self._clock.now(), 0) / 1000):
                    await self._until_committed(partition, asked.partitions[tp])
                    found.append(await work(partition))
            except TimeoutError:
                mark = partition.high_watermark
                reason = f"not finished in time; its high watermark is {mark}"
                found.append(PartitionGone(tp, 0, 0, -1, reason))
            except (CleaningFailed, StorageFailed) as failure:
                found.append(PartitionGone(tp, 0, 0, -1, str(failure)))
        return found

    async def _until_committed(self, partition: Partition, end_offset: int) -> None:
        while partition.high_watermark < end_offset:
            await self._clock.sleep(_POLL_MS)

    async def _compact(self, partition: Partition) -> PartitionGone:
        _check_policy(partition, "compact")
        done = await self._cleaner.compact_now(partition)
        return PartitionGone(partition.tp, *done, "")

    async def _expire(self, partition: Partition) -> PartitionGone:
        _check_policy(partition, "delete")
        found = await self._replicas.upkeep.retain_now([partition])
        gone = found.get(partition.tp)
        records, size = (gone.records, gone.size) if gone else (0, 0)
        return PartitionGone(partition.tp, records, size, -1, "")

    async def _expire_group(self, group: str) -> Mapping[TopicPartition, int]:
        """Raises KafkaError: NOT_COORDINATOR, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, COORDINATOR_LOAD_IN_PROGRESS."""
        answered: asyncio.Future[ExpireGroupResponse] = asyncio.get_running_loop().create_future()
        self._groups.handle(ExpireGroupRequest(group, answered.set_result))
        response = await answered
        if response.error:
            raise KafkaError(ErrorCode(response.error))
        return response.offsets

    async def _advance_clock(self, advanced_ms: int) -> Due:
        """Let the wall clock be this far ahead of the machine's, and do what that makes due. It never goes back."""
        if advanced_ms < self._clock.advanced_ms:
            text = f"the clock is {self._clock.advanced_ms} ms ahead and does not go back"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        self._clock.advanced_ms = advanced_ms
        logger.warning("the wall clock is %d ms ahead of the machine's from now on", advanced_ms)
        partitions = list(self._replicas.partitions.values())
        retained = await self._replicas.upkeep.retain_now(partitions)
        await self._until_loaded()
        return Due(
            tuple(PartitionGone(tp, g.records, g.size, -1, "") for tp, g in retained.items()),
            tuple(
                [await self._compact_overdue(one) for one in partitions if self._is_overdue(one)]
            ),
            self._expire_offsets(),
            await self._expire_transactional_ids(),
            await self._expire_tokens(),
            self._forget_producers(partitions),
        )

    async def _until_loaded(self) -> None:
        """Wait until this broker has loaded the groups and transactional ids that it coordinates."""
        groups, transactions = self._groups.context, self._transactions.context
        deadline = self._clock.now() + _LOADS_MS
        while (groups.loading or transactions.loads) and self._clock.now() < deadline:
            await self._clock.sleep(_POLL_MS)

    def _is_overdue(self, partition: Partition) -> bool:
        """True if the clock has made a compaction due (`max.compaction.lag.ms`)."""
        dirt = self._cleaner.dirt(partition)
        return dirt is not None and dirt.overdue_ms > 0 and is_due(partition.log, dirt)

    async def _compact_overdue(self, partition: Partition) -> PartitionGone:
        try:
            return await self._compact(partition)
        except (CleaningFailed, StorageFailed) as failure:
            return PartitionGone(partition.tp, 0, 0, -1, str(failure))

    def _expire_offsets(self) -> tuple[tuple[str, TopicPartition], ...]:
        before = self._offsets()
        self._groups.handle(ClockAdvanced())
        after = set(self._offsets())
        return tuple(one for one in before if one not in after)

    def _offsets(self) -> list[tuple[str, TopicPartition]]:
        groups = self._groups.context.groups
        return [(name, tp) for name, group in groups.items() for tp in group.offsets.partitions()]

    async def _expire_transactional_ids(self) -> tuple[str, ...]:
        context = self._transactions.context
        limit = self._clock.wall_ms() - context.settings.expiration_ms
        expired = {
            name
            for name, txn in context.ids.items()
            if txn.stored is not None
            and txn.stored.is_between
            and txn.stored.updated_ms <= limit
            and not txn.is_busy
        }
        self._transactions.handle(ClockAdvanced())
        deadline = self._clock.now() + _APPENDS_MS
        while expired & context.ids.keys() and self._clock.now() < deadline:
            await self._clock.sleep(_POLL_MS)
        return tuple(sorted(expired - context.ids.keys()))

    async def _expire_tokens(self) -> tuple[str, ...]:
        try:
            return tuple(await self._tokens.remove_expired())
        except (KafkaError, CoordinationError):  # another broker removes them
            return ()

    def _forget_producers(self, partitions: list[Partition]) -> int:
        """Forget the producer ids that have expired; return their number."""
        count, wall_ms = 0, self._clock.wall_ms()
        for producers in (one.log.producers for one in partitions):
            before = len(producers)
            for _ in range(
                2
            ):  # the first call ends the round in which a producer may have appended
                producers.expire(wall_ms, self._config.producer_id_expiration_ms)
            count += before - len(producers)
        return count


def _check_policy(partition: Partition, wanted: str) -> None:
    """Raise CleaningFailed if the topic's cleanup policy lacks this word."""
    policy = partition.log.config.cleanup_policy
    if wanted not in policy:
        raise CleaningFailed(f"the topic has cleanup.policy={','.join(policy)}, without {wanted}")
