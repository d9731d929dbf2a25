"""Replicas on this broker's disks that the cluster no longer assigns to this broker.

A stray is a replica whose partition was reassigned to other brokers while this broker was down, or by a controller
that died before it could send StopReplica. An orphan is a stray whose topic has been deleted.

Invariant: files are deleted or moved only after an update of the metadata that names every partition (D5, R17). If
such an update names no leader for a stray's partition, the stray is kept until a later update names a leader,
because perhaps no other broker has the records.
The files of an orphan are moved only if its topic is missing both in the metadata and in the `TopicStore`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from minikafka.base.errors import CoordinationError
from minikafka.base.model import (
    NO_LEADER,
    BrokerId,
    MetadataUpdate,
    PartitionState,
    TopicPartition,
)
from minikafka.broker.capabilities import Confirm, TopicStore, always_confirmed
from minikafka.broker.metadata import MetadataCache
from minikafka.storage.log.manager import LogManager

logger = logging.getLogger(__name__)


class Strays:
    """The search for strays and orphans.

    `delete(tp)` deletes a replica. `set_aside(tp)` renames a replica's directory to `…-stray`.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        logs: LogManager,
        metadata: MetadataCache,
        topics: TopicStore,
        delete: Callable[[TopicPartition], None],
        set_aside: Callable[[TopicPartition], None],
    ) -> None:
        self._broker_id = broker_id
        self._logs = logs
        self._metadata = metadata
        self._topics = topics
        self._delete = delete
        self._set_aside = set_aside
        self._undecided: set[TopicPartition] = set()
        """Replicas that may be strays: no update of the metadata has named the leaders of their partitions yet."""

    async def delete_strays(
        self, update: MetadataUpdate, *, is_whole: bool, confirm: Confirm = always_confirmed
    ) -> None:
        """Delete the replicas of partitions that the update assigns to other brokers.

        `is_whole`: the update names every partition. A replica is kept if its topic id differs from the topic id
        in the update. A replica is kept until a later update if its partition has no leader, or has this broker
        in its ISR. `confirm` is awaited before the first deletion. If it raises, nothing is deleted or decided.
        """
        if is_whole:
            self._undecided = set(self._logs.logs)
        if not self._undecided:
            return
        decided = [
            state
            for state in update.partitions
            if state.tp in self._undecided and not self._must_wait(state)
        ]
        topic_ids = dict(update.topic_ids)
        strays = [state for state in decided if self._is_stray(state, topic_ids)]
        if strays:
            await confirm()
        self._undecided.difference_update(state.tp for state in decided)
        for state in strays:
            logger.warning(
                "deleting the stray replica of %s: the partition's replicas are %s",
                state.tp,
                list(state.replicas),
            )
            self._delete(state.tp)

    def _must_wait(self, state: PartitionState) -> bool:
        return self._broker_id not in state.replicas and (
            state.leader == NO_LEADER or self._broker_id in state.isr
        )

    def _is_stray(self, state: PartitionState, topic_ids: Mapping[str, bytes]) -> bool:
        log = self._logs.logs.get(state.tp)
        return (
            log is not None
            and topic_ids.get(state.tp.topic) == log.topic_id
            and self._broker_id not in state.replicas
        )

    async def set_orphans_aside(self, confirm: Confirm = always_confirmed) -> None:
        """Rename to `…-stray` the directories of replicas whose topic no longer exists.

        The metadata also lacks existing topics whose stored data cannot be decoded. Therefore the stored topics are
        checked too.
        """
        hosted = {tp.topic for tp in self._logs.logs}
        unknown = sorted(hosted - self._metadata.topics.keys())
        try:
            existing = await self._topics.existing(unknown) if unknown else set()
        except CoordinationError as error:
            logger.info("cannot look for replicas of deleted topics: %s", error)
            return
        gone = set(unknown) - existing
        if gone:
            await confirm()
        for tp in [tp for tp in self._logs.logs if tp.topic in gone]:
            self._set_aside(tp)
