"""The group coordinator of a broker: the decider in `deciders.groups`, its host, its topic and its metrics."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any, Final

from minikafka.base.config import BrokerConfig
from minikafka.base.metrics import Metrics
from minikafka.base.model import TopicPartition, version_4_uuid
from minikafka.base.names import GROUP_TOPIC
from minikafka.base.ports import Clock, Ledger, Rng, Tasks
from minikafka.broker.coordinators.host import CoordinatorHost
from minikafka.broker.coordinators.internal_topic import InternalTopic, TopicSettings
from minikafka.broker.coordinators.verification import TransactionVerifier
from minikafka.broker.host import CommandTable
from minikafka.broker.ledger.record import GROUP
from minikafka.broker.replicas.manager import ReplicaManager
from minikafka.deciders.decider import Outcome
from minikafka.deciders.groups.commands import Note, VerifyTransaction
from minikafka.deciders.groups.context import Context, GroupSettings
from minikafka.deciders.groups.coordinator import GroupCoordinator
from minikafka.deciders.groups.states import GroupState
from minikafka.storage.replication.verification import NO_GUARD

_BEAN: Final = "kafka.coordinator.group:type=GroupMetadataManager,name="


class GroupHost(CoordinatorHost):
    """The group coordinator of one broker, in its host."""

    def __init__(
        self,
        config: BrokerConfig,
        replicas: ReplicaManager,
        topic: InternalTopic,
        clock: Clock,
        rng: Rng,
        tasks: Tasks,
        ledger: Ledger,
        metrics: Metrics,
        verifier: TransactionVerifier,
    ) -> None:
        self._replicas = replicas
        self._ledger = ledger
        self._verifier = verifier
        self._coordinator = GroupCoordinator(
            settings_of(config), partial(_new_uuid, rng), clock.wall_ms, topic.partition_count
        )
        own: CommandTable = {VerifyTransaction: self._verify, Note: self._note}
        super().__init__(self._coordinator, topic, replicas, clock, tasks, own)
        _register_gauges(metrics, self.context)

    @property
    def context(self) -> Context:
        """The groups that this broker coordinates. The caller must not change them."""
        return self._coordinator.context

    def explain(self, group_id: str) -> dict[str, Any]:
        """Return the state of a group for diagnosis, in the format of `GroupCoordinator.explain`."""
        return self._coordinator.explain(group_id, self._clock.now())

    def _verify(self, question: VerifyTransaction) -> None:
        """Ask the transaction coordinator, unless the transaction is open in the partition's log."""
        producer, token = question.producer, question.token
        tp = TopicPartition(GROUP_TOPIC, question.partition)
        partition = self._replicas.partition(tp)
        guard = NO_GUARD
        if partition is not None:
            guard = partition.verification_for(producer.producer_id, producer.producer_epoch)
        if guard == NO_GUARD:
            self.handle(Outcome(token, (0, NO_GUARD)))
            return
        self._verifier.verify_one(
            tp,
            question.transactional_id,
            producer.producer_id,
            producer.producer_epoch,
            lambda error: self.handle(Outcome(token, (error, guard))),
        )

    def _note(self, note: Note) -> None:
        self._ledger.record(
            GROUP,
            "",
            {
                "fact": note.kind,
                "group": note.group_id,
                "generation": note.generation,
                **note.fields,
            },
        )


def _register_gauges(metrics: Metrics, context: Context) -> None:
    """Register gauges with the names of Kafka's JMX beans: groups, in total and by state, and committed offsets.

    The groups are counted once each time the metrics are read.
    """
    states: Counter[GroupState] = Counter()

    def refresh() -> None:
        states.clear()
        states.update(context.state_counts())

    def offsets() -> int:
        return sum(len(group.offsets) for group in context.groups.values())

    metrics.before_read(refresh)
    metrics.gauge(_BEAN + "NumGroups", "Groups of this coordinator.", states.total)
    metrics.gauge(_BEAN + "NumOffsets", "Committed offsets of those groups.", offsets)
    for state in GroupState:
        metrics.gauge(
            f"{_BEAN}NumGroups{state.value}",
            f"Groups in the state {state.value}.",
            partial(states.__getitem__, state),
        )


def offsets_topic(config: BrokerConfig) -> TopicSettings:
    """Return the settings of `__consumer_offsets` from a broker's configuration."""
    return TopicSettings(
        GROUP_TOPIC,
        config.offsets_topic_num_partitions,
        config.offsets_topic_replication_factor,
        "offsets.topic.replication.factor",
        {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        },
        config.offsets_topic_compression_codec,
        config.offsets_commit_timeout_ms,
        config.offsets_load_buffer_size,
    )


def settings_of(config: BrokerConfig) -> GroupSettings:
    """Return the settings of the group coordinator from a broker's configuration."""
    return GroupSettings(
        group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        group_min_session_timeout_ms=config.group_min_session_timeout_ms,
        group_max_session_timeout_ms=config.group_max_session_timeout_ms,
        group_max_size=config.group_max_size,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
        offsets_retention_minutes=config.offsets_retention_minutes,
        offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
        groups_memory_max_bytes=config.minikafka_groups_memory_max_bytes,
        offsets_memory_max_bytes=config.minikafka_offsets_memory_max_bytes,
    )


def _new_uuid(rng: Rng) -> str:
    """Return a random UUID of version 4 as text."""
    text = version_4_uuid(rng.bytes(16)).hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
