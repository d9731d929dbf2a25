"""The service that runs the group coordinator of a broker.

The service passes requests to the logic in `minikafka.groups` and carries out the commands that the logic returns.
Invariants: all commands of one event (a request, a timer or a finished append) are carried out in order before the
next event is handled. Every append is reported back exactly once: committed, failed, or timed out. The groups of a
partition are dropped in the same call that ends this broker's leadership, so that no request is answered from the
state of an earlier epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

from minikafka.base.config import BrokerConfig
from minikafka.base.metrics import Metrics
from minikafka.base.model import TopicPartition, version_4_uuid
from minikafka.base.names import GROUP_TOPIC
from minikafka.base.ports import Clock, Ledger, Rng, Tasks, Timer
from minikafka.broker.coordinators.groups.appends import Appends, Log
from minikafka.broker.coordinators.groups.gauges import GroupGauges
from minikafka.broker.coordinators.groups.loading import Loader
from minikafka.broker.coordinators.groups.offsets_topic import OffsetsTopic
from minikafka.groups.commands import Answer, Append, Command, Note
from minikafka.groups.coordinator import GroupCoordinator
from minikafka.groups.group import Group
from minikafka.groups.requests import (
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
from minikafka.groups.settings import GroupSettings
from minikafka.ledger.record import GROUP
from minikafka.replication.reader import PartitionReader

logger = logging.getLogger(__name__)

_LATE_MS: Final = 1_000
_GRACE_MS: Final = 500
"""Extra wait (ms) after a timer that fires more than `_LATE_MS` late: pending heartbeats are handled first."""

Respond: TypeAlias = Callable[[Any], None]
"""A callback that sends a response from `minikafka.groups.responses`. It is called exactly once."""


class Partitions(Log, Protocol):
    """The methods of the replica manager that the group coordinator uses."""

    def reader(self, tp: TopicPartition) -> PartitionReader:
        """Return a reader of a partition that this broker leads. Raises KafkaError."""


class GroupService:
    """The group coordinator of one broker, and a RoleListener for the partitions of `__consumer_offsets`."""

    def __init__(
        self,
        config: BrokerConfig,
        partitions: Partitions,
        topic: OffsetsTopic,
        clock: Clock,
        rng: Rng,
        tasks: Tasks,
        ledger: Ledger,
        metrics: Metrics,
    ) -> None:
        self.topic = topic
        self._clock = clock
        self._ledger = ledger
        self._core = GroupCoordinator(
            settings_of(config), partial(_new_uuid, rng), clock.wall_ms, topic.partition_count
        )
        self._loader = Loader(
            self._core,
            partitions.reader,
            config.offsets_load_buffer_size,
            clock,
            tasks,
            lambda: topic.exists,
            self._loaded,
        )
        self._appends = Appends(
            partitions,
            clock,
            config.offsets_topic_compression_codec,
            config.offsets_commit_timeout_ms,
            self._appended,
        )
        self._timer: Timer | None = None
        self._wakes_at = 0
        GroupGauges(metrics, self._core)

    # ---- requests

    def join(self, request: JoinRequest, respond: Respond) -> None:
        """Handle JoinGroup."""
        self._carry_out(self._core.join(request, respond, self._clock.now()))

    def sync(self, request: SyncRequest, respond: Respond) -> None:
        """Handle SyncGroup."""
        self._carry_out(self._core.sync(request, respond, self._clock.now()))

    def heartbeat(self, request: HeartbeatRequest, respond: Respond) -> None:
        """Handle Heartbeat."""
        self._carry_out(self._core.heartbeat(request, respond, self._clock.now()))

    def leave(self, request: LeaveRequest, respond: Respond) -> None:
        """Handle LeaveGroup."""
        self._carry_out(self._core.leave(request, respond, self._clock.now()))

    def commit(self, request: CommitRequest, respond: Respond) -> None:
        """Handle OffsetCommit."""
        self._carry_out(self._core.commit(request, respond, self._clock.now()))

    def fetch_offsets(self, request: FetchOffsetsRequest, respond: Respond) -> None:
        """Handle OffsetFetch."""
        self._carry_out(self._core.fetch_offsets(request, respond))

    def delete_offsets(self, request: DeleteOffsetsRequest, respond: Respond) -> None:
        """Handle OffsetDelete."""
        self._carry_out(self._core.delete_offsets(request, respond))

    def describe(self, request: DescribeRequest, respond: Respond) -> None:
        """Handle DescribeGroups."""
        self._carry_out(self._core.describe(request, respond))

    def list_groups(self, request: ListRequest, respond: Respond) -> None:
        """Handle ListGroups."""
        self._carry_out(self._core.list_groups(request, respond))

    def delete_groups(self, request: DeleteGroupsRequest, respond: Respond) -> None:
        """Handle DeleteGroups."""
        self._carry_out(self._core.delete_groups(request, respond))

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

    # ---- roles and topics

    def became_leader(self, tp: TopicPartition, leader_epoch: int) -> None:
        """Start loading the groups of a partition that this broker has begun to lead."""
        if tp.topic == GROUP_TOPIC and self._core.begin_load(tp.partition, leader_epoch):
            self._loader.start(tp.partition, leader_epoch)

    def became_follower(self, tp: TopicPartition, leader_epoch: int) -> None:
        """Drop the groups of a partition that this broker no longer leads."""
        if tp.topic == GROUP_TOPIC:
            self._loader.cancel(tp.partition)
            self._carry_out(self._core.unload(tp.partition))
            self._appends.drop(tp.partition)

    stopped = became_follower

    def topics_deleted(self, topics: Collection[str]) -> None:
        """Remove the committed offsets of deleted topics."""
        self._carry_out(self._core.delete_topics(topics))

    def _loaded(self, partition: int, epoch: int) -> None:
        self._core.partition_count = self.topic.partition_count
        self._carry_out(self._core.loaded(partition, epoch, self._clock.now()))

    # ---- commands

    def _carry_out(self, commands: Iterable[Command]) -> None:
        for command in commands:
            if isinstance(command, Answer):
                _answer(command)
            elif isinstance(command, Append):
                self._appends.add(command)
            else:
                self._note(command)
        self._set_timer()

    def _appended(self, token: int, error: int) -> None:
        self._carry_out(self._core.appended(token, error, self._clock.now()))

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

    # ---- time

    def _set_timer(self) -> None:
        """Set the timer for the next deadline. A timer that fires earlier is kept."""
        deadline = self._core.next_deadline()
        appended = self._appends.next_deadline()
        if appended is not None:
            deadline = appended if deadline is None else min(deadline, appended)
        if deadline is None or (self._timer is not None and self._wakes_at <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._wakes_at = deadline
        self._timer = self._clock.call_later(max(deadline - self._clock.now(), 0), self._wake)

    def _wake(self) -> None:
        self._timer = None
        now = self._clock.now()
        if now - self._wakes_at > _LATE_MS:
            # The process was paused. Handle the heartbeats that arrived during the pause before any session expires.
            self._wakes_at = now + _GRACE_MS
            self._timer = self._clock.call_later(_GRACE_MS, self._wake)
            return
        self._appends.give_up(now)
        deadline = self._core.next_deadline()
        if deadline is not None and deadline <= now:
            self._carry_out(self._core.handle_timer(now))
        else:
            self._set_timer()


def _answer(command: Answer) -> None:
    """Send a response. If that fails, only log the error, so that the next responses are still sent."""
    respond: Any = command.caller
    try:
        respond(command.response)
    except Exception:
        logger.exception("a response of the group coordinator could not be sent")


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
