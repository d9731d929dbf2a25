"""Requests that this broker refuses: the leader to ask instead, and log lines if the refusals last.

Refusals are normal for a moment after an election. Lasting refusals mean that a broker has not received the result
of the election, that a high watermark does not advance, or that a client does not read the metadata again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from minikafka.base.errors import ErrorCode
from minikafka.base.model import BrokerId, Node, TopicPartition
from minikafka.base.ports import Clock
from minikafka.broker.metadata import MetadataCache
from minikafka.storage.replication.partition import Partition

logger = logging.getLogger(__name__)

LASTS_MS: Final = 5_000
"""Refusals are logged when they have lasted for this time, without a pause longer than this time."""
AGAIN_MS: Final = 60_000
"""Interval (ms) between further log lines about one kind of request for one partition."""
_PARTITIONS_MAX: Final = 1_000
_PASSING: Final = frozenset(
    map(
        int,
        (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.LEADER_NOT_AVAILABLE,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.NOT_ENOUGH_REPLICAS,
            ErrorCode.KAFKA_STORAGE_ERROR,
            ErrorCode.FENCED_LEADER_EPOCH,
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            ErrorCode.OFFSET_NOT_AVAILABLE,
        ),
    )
)
"""Errors that clients retry because they expect the cause to be temporary. Only these errors are noted."""


class _Run:
    """Refusals of one kind of request for one partition, each at most `LASTS_MS` after the previous refusal."""

    __slots__ = ("count", "first_at", "last_at", "logged_at")

    def __init__(self, now: int) -> None:
        self.first_at = self.last_at = now
        self.logged_at: int | None = None
        self.count = 0


class Refusals:
    """The requests that one broker has recently refused, counted by API and partition.

    `session_state()` returns the state, in one word, of the broker's session with the coordination service.
    """

    def __init__(
        self,
        partitions: Mapping[TopicPartition, Partition],
        metadata: MetadataCache,
        clock: Clock,
        session_state: Callable[[], str],
    ) -> None:
        self._clock = clock
        self._partitions = partitions
        self._metadata = metadata
        self._session_state = session_state
        self._runs: dict[tuple[str, TopicPartition], _Run] = {}

    def note(self, api: str, tp: TopicPartition, error: int) -> None:
        """Note a refused request. Log the refusals of this API for the partition if they have lasted `LASTS_MS`."""
        if error not in _PASSING:
            return
        now = self._clock.now()
        run = self._runs.get((api, tp))
        if run is None or now - run.last_at > LASTS_MS:
            if len(self._runs) >= _PARTITIONS_MAX:
                self._runs.clear()
            run = self._runs[api, tp] = _Run(now)
        run.last_at = now
        run.count += 1
        if now - run.first_at < LASTS_MS:
            return
        if run.logged_at is None or now - run.logged_at >= AGAIN_MS:
            run.logged_at = now
            self._log(api, tp, error, run)

    def leader(self, tp: TopicPartition, listener: str) -> tuple[tuple[BrokerId, int], Node | None]:
        """Return ((id, leader epoch), address) of the leader that a refused client should ask (KIP-951).

        The replica knows its leader before the metadata does. The id and epoch are -1 if there is no such partition;
        the address is None if the leader is not live or does not have the client's listener.
        """
        known = self._partitions.get(tp) or self._metadata.topics.get(tp.topic, {}).get(
            tp.partition
        )
        if known is None:
            return (-1, -1), None
        broker = self._metadata.brokers.get(known.leader)
        node = None if broker is None else broker.node(listener)
        return (known.leader, known.leader_epoch), node

    def _log(self, api: str, tp: TopicPartition, error: int, run: _Run) -> None:
        replica = self._partitions.get(tp)
        view = self._metadata.topics.get(tp.topic, {}).get(tp.partition)
        logger.warning(
            "refused %s for %s %d times in %.1f s, last with %s; this broker has %s; metadata of controller %d: %s, "
            "live brokers %s; ZooKeeper session: %s",
            api,
            tp,
            run.count,
            (run.last_at - run.first_at) / 1_000,
            ErrorCode(error).name,
            f"{replica!r} of leader {replica.leader}" if replica else "no replica",
            self._metadata.controller_id,
            f"leader {view.leader} in epoch {view.leader_epoch}, ISR {list(view.isr)}"
            if view
            else "no such partition",
            sorted(self._metadata.brokers),
            self._session_state(),
        )
