"""The group coordinator of a broker: the core in `minikafka.groups`, its host, and the topic `__consumer_offsets`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, TypeAlias

from minikafka.base.config import BrokerConfig
from minikafka.base.coordinators import (
    LeadershipBegun,
    LeadershipEnded,
    LoadFinished,
    LoadPartition,
    RecordsRead,
    TransactionEnded,
    partition_of,
)
from minikafka.base.deciders import Outcome
from minikafka.base.metrics import Metrics
from minikafka.base.model import TopicPartition, version_4_uuid
from minikafka.base.names import GROUP_TOPIC
from minikafka.base.ports import Clock, Ledger, Rng, Tasks
from minikafka.broker.coordinators.groups.gauges import GroupGauges
from minikafka.broker.coordinators.host import CoordinatorHost
from minikafka.broker.coordinators.internal_topic import InternalTopic, TopicSettings
from minikafka.broker.replicas.manager import ReplicaManager
from minikafka.groups.coordinator import GroupCoordinator
from minikafka.groups.messages.append_errors import offsets_error
from minikafka.groups.messages.commands import Note
from minikafka.groups.messages.requests import (
    CommitRequest,
    DeleteGroupsRequest,
    DeleteOffsetsRequest,
    DescribeRequest,
    FetchOffsetsRequest,
    HeartbeatRequest,
    JoinRequest,
    LeaveRequest,
    ListRequest,
    SyncRequest,
)
from minikafka.groups.messages.responses import CommitResponse
from minikafka.groups.settings import GroupSettings
from minikafka.groups.state.group import Group
from minikafka.ledger.record import GROUP
from minikafka.replication.verification import NO_GUARD

Respond: TypeAlias = Callable[[Any], None]
"""A callback that sends a response from `minikafka.groups.messages.responses`. It is called exactly once."""


Verify: TypeAlias = Callable[[TopicPartition, str, int, int, Callable[[int], None]], None]
"""Function (partition, transactional id, producer id, epoch, done): ask the transaction coordinator whether the
producer's transaction contains the partition. Call `done(error)` once, now or later."""


class GroupService:
    """The group coordinator of one broker. Each method handles one kind of request.

    `verify` is called for the first offsets that a producer commits in a transaction.
    """

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
        verify: Verify,
    ) -> None:
        self.topic = topic
        self._replicas = replicas
        self._verify = verify
        self._clock = clock
        self._ledger = ledger
        self._core = GroupCoordinator(
            settings_of(config), partial(_new_uuid, rng), clock.wall_ms, topic.partition_count
        )
        decider = _AsDecider(self._core)
        self._host = CoordinatorHost(decider, topic, replicas, clock, tasks, {Note: self._note})
        GroupGauges(metrics, self._core)

    def skipped(self, partition: int | None = None) -> list[dict[str, Any]]:
        """Return the corrupt batches that this coordinator has skipped (`CoordinatorHost.skipped`)."""
        return self._host.skipped(partition)

    # ---- requests

    def join(self, request: JoinRequest, respond: Respond) -> None:
        """Handle JoinGroup."""
        self._host.carry_out(self._core.join(request, respond, self._clock.now()))

    def sync(self, request: SyncRequest, respond: Respond) -> None:
        """Handle SyncGroup."""
        self._host.carry_out(self._core.sync(request, respond, self._clock.now()))

    def heartbeat(self, request: HeartbeatRequest, respond: Respond) -> None:
        """Handle Heartbeat."""
        self._host.carry_out(self._core.heartbeat(request, respond, self._clock.now()))

    def leave(self, request: LeaveRequest, respond: Respond) -> None:
        """Handle LeaveGroup."""
        self._host.carry_out(self._core.leave(request, respond, self._clock.now()))

    def commit(self, request: CommitRequest, respond: Respond) -> None:
        """Handle OffsetCommit."""
        self._host.carry_out(self._core.commit(request, respond, self._clock.now()))

    def commit_in_transaction(
        self, transactional_id: str, request: CommitRequest, respond: Respond
    ) -> None:
        """Handle TxnOffsetCommit: verify that the group's partition is in the transaction of the request's producer.

        Without this, no marker would ever complete offsets that an ended or unknown transaction commits.
        """
        producer = request.producer
        assert producer is not None
        tp = TopicPartition(GROUP_TOPIC, partition_of(request.group_id, self._core.partition_count))
        partition = self._replicas.partition(tp)
        guard = NO_GUARD
        if partition is not None and not self._core.refusal(request.group_id):
            guard = partition.verification_for(producer.producer_id, producer.producer_epoch)
        if guard == NO_GUARD:
            self.commit(request, respond)
            return
        guarded = request._replace(producer=producer._replace(guard=guard))
        self._verify(
            tp,
            transactional_id,
            producer.producer_id,
            producer.producer_epoch,
            partial(self._verified, guarded, respond),
        )

    def _verified(self, request: CommitRequest, respond: Respond, error: int) -> None:
        if not error:
            self.commit(request, respond)
            return
        code = offsets_error(error)
        topics = [
            (topic, [(row.partition, code) for row in rows]) for topic, rows in request.topics
        ]
        respond(CommitResponse(topics))

    def fetch_offsets(self, request: FetchOffsetsRequest, respond: Respond) -> None:
        """Handle OffsetFetch."""
        self._host.carry_out(self._core.fetch_offsets(request, respond))

    def delete_offsets(self, request: DeleteOffsetsRequest, respond: Respond) -> None:
        """Handle OffsetDelete."""
        self._host.carry_out(self._core.delete_offsets(request, respond))

    def describe(self, request: DescribeRequest, respond: Respond) -> None:
        """Handle DescribeGroups."""
        self._host.carry_out(self._core.describe(request, respond))

    def list_groups(self, request: ListRequest, respond: Respond) -> None:
        """Handle ListGroups."""
        self._host.carry_out(self._core.list_groups(request, respond))

    def delete_groups(self, request: DeleteGroupsRequest, respond: Respond) -> None:
        """Handle DeleteGroups."""
        self._host.carry_out(self._core.delete_groups(request, respond))

    def explain(self, group_id: str) -> dict[str, Any]:
        """Return the state of a group for diagnosis, in the format of `GroupCoordinator.explain`."""
        return self._core.explain(group_id, self._clock.now())

    def group(self, group_id: str) -> Group | None:
        """Return a group that this broker coordinates, or None. The caller must not change the group."""
        return self._core.groups.get(group_id)

    @property
    def all_groups(self) -> Mapping[str, Group]:
        """The groups that this broker coordinates, by id. The caller must not change them."""
        return self._core.groups

    # ---- topics

    def topics_deleted(self, topics: Collection[str]) -> None:
        """Remove the committed offsets of deleted topics."""
        self._host.carry_out(self._core.delete_topics(topics))

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


class _AsDecider:
    """The group coordinator in the shape of a decider, until it has this shape itself."""

    def __init__(self, core: GroupCoordinator) -> None:
        self._core = core

    def next_deadline(self) -> int | None:
        return self._core.next_deadline()

    def handle(self, event: Any, now: int) -> list[Any]:
        core = self._core
        match event:
            case LeadershipBegun(partition, epoch):
                needs_load = core.begin_load(partition, epoch)
                return [LoadPartition(partition, epoch)] if needs_load else []
            case RecordsRead(partition, epoch, records):
                core.load(partition, epoch, records)
                return []
            case LoadFinished(partition, epoch, count):
                core.partition_count = count
                return core.loaded(partition, epoch, now)
            case TransactionEnded():
                return core.transaction_ended(*event)
            case LeadershipEnded(partition):
                return core.unload(partition)
            case Outcome(token, value):
                return core.appended(token, value, now)
            case _:
                return core.handle_timer(now)


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
