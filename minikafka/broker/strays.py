"""Replicas found on this broker's disks that no longer belong here.

A stray is a replica whose partition was reassigned to other brokers while this broker was down, or by a controller
that died before it could send StopReplica. An orphan is a stray whose topic was deleted too.

Invariant: files are deleted or moved only after the first metadata of a controller or of a registration, which
names every partition (D5, R17), and those of an orphan only if its topic does not exist in the cluster.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from minikafka.base.errors import CoordinationError
from minikafka.base.model import (
    NO_EPOCH,
    NO_LEADER,
    BrokerId,
    TopicPartition,
    UpdateMetadataRequest,
)
from minikafka.broker.coordinator import TopicStore
from minikafka.broker.metadata import MetadataCache
from minikafka.log.manager import LogManager

logger = logging.getLogger(__name__)


class Strays:
    """Finds strays and orphans. `delete(tp)` deletes a replica, `set_aside(tp)` keeps its files as `…-stray`."""

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
        self._last_review = (NO_EPOCH, NO_EPOCH)
        """(controller epoch, broker epoch) of the last metadata that named every partition."""

    def names_every_partition(self, request: UpdateMetadataRequest) -> bool:
        """Return True for the first metadata of a controller, or of a registration of this broker."""
        sender = (request.controller_epoch, request.broker_epoch)
        if sender <= self._last_review:
            return False
        self._last_review = sender
        return True

    def delete_strays(self, request: UpdateMetadataRequest) -> None:
        """Delete the replicas that metadata of every partition assigns to other brokers.

        Kept are replicas of a topic with another id, which is not the topic in the metadata, and replicas whose
        partition has no leader: nobody else might have the records.
        """
        states = {state.tp: state for state in request.partitions}
        topic_ids = dict(request.topic_ids)
        for tp, log in list(self._logs.logs.items()):
            state = states.get(tp)
            if state is None or self._broker_id in (*state.replicas, *state.isr):
                continue
            if state.leader == NO_LEADER or topic_ids.get(tp.topic) != log.topic_id:
                continue
            logger.warning(
                "deleting the stray replica of %s: its replicas are %s", tp, list(state.replicas)
            )
            self._delete(tp)

    async def set_orphans_aside(self) -> None:
        """Set aside the replicas of topics that no longer exist.

        The metadata alone does not prove that a topic is gone: a topic whose stored data cannot be decoded is not in
        the metadata either.
        """
        hosted = {tp.topic for tp in self._logs.logs}
        unknown = sorted(hosted - self._metadata.topics.keys())
        try:
            existing = await self._topics.existing(unknown) if unknown else set()
        except CoordinationError as error:
            logger.info("replicas of deleted topics are not looked for: %s", error)
            return
        gone = set(unknown) - existing
        for tp in [tp for tp in self._logs.logs if tp.topic in gone]:
            self._set_aside(tp)
