"""The replicas hosted by this broker: Kafka's ReplicaManager.

This module makes replicas leaders or followers when `orders.py` calls it. It owns the purgatory, in
which produce and fetch requests wait. Invariant: a request with a leader epoch below the highest one received so far
changes nothing (R7).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from typing import Final

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import (
    ConfigError,
    ErrorCode,
    KafkaError,
    StorageFailed,
)
from minikafka.base.model import (
    NO_EPOCH,
    NO_LEADER,
    BrokerId,
    MetadataUpdate,
    PartitionState,
    StopReplicaPartition,
    TopicPartition,
)
from minikafka.base.ports import Ledger
from minikafka.base.traffic import TopicTraffic
from minikafka.broker.capabilities import Capabilities
from minikafka.broker.ledger.record import BROKER, by_topic, in_parts
from minikafka.broker.metadata import MetadataCache
from minikafka.broker.ports import BrokerPorts
from minikafka.broker.replicas.checkpoints import Checkpoints
from minikafka.broker.replicas.fetch_sessions import FetchSessions
from minikafka.broker.replicas.fetchers import Fetchers
from minikafka.broker.replicas.internal_appends import InternalAppends
from minikafka.broker.replicas.isr_changes import IsrChanges
from minikafka.broker.replicas.moves import Moves
from minikafka.broker.replicas.record_walks import RecordWalks
from minikafka.broker.replicas.refusals import Refusals
from minikafka.broker.replicas.roles import Roles
from minikafka.broker.replicas.throttles import ReplicationThrottles
from minikafka.broker.replicas.upkeep import Upkeep
from minikafka.broker.settings.topic_configs import TopicConfigs
from minikafka.broker.turns import Scheduler
from minikafka.client.login import Connector
from minikafka.storage.log.manager import Directory, LogManager
from minikafka.storage.replication.hosted import HostedPartitions
from minikafka.storage.replication.partition import Partition
from minikafka.storage.replication.purgatory import Purgatory
from minikafka.storage.replication.reader import PartitionReader
from minikafka.storage.replication.sessions import FollowerSession
from minikafka.storage.replication.throttle import RETRY_MS

logger = logging.getLogger(__name__)
state_change_logger = logging.getLogger("state-change")

_HOST_RETRY_MS: Final = 500
_EPISODE_MS: Final = 60_000
"""An operation that finds no free file descriptor gets a log line if none has failed for this time."""
_NONE: Final = 0
_STALE_CONTROLLER: Final = int(ErrorCode.STALE_CONTROLLER_EPOCH)
_UNKNOWN: Final = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_NOT_LEADER: Final = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_STORAGE_ERROR: Final = int(ErrorCode.KAFKA_STORAGE_ERROR)
_FENCED: Final = int(ErrorCode.FENCED_LEADER_EPOCH)


class ReplicaManager:
    """All partitions of this broker: their roles, appends, reads, fetch sessions and log directories."""

    def __init__(
        self,
        config: BrokerConfig,
        ports: BrokerPorts,
        logs: LogManager,
        metadata: MetadataCache,
        capabilities: Capabilities,
        ledger: Ledger,
        connector: Connector,
    ) -> None:
        clock, tasks = ports.clock, ports.tasks
        broker_id = self.broker_id = config.broker_id
        self.config = config
        self.logs = logs
        self.metadata = metadata
        self._lifecycle = capabilities.lifecycle
        self.clock, self.tasks = clock, tasks
        self.ledger = ledger
        self.configs = TopicConfigs(capabilities.configs, config)
        self.hosted = HostedPartitions()
        self.partitions, self.find = self.hosted.partitions, self.hosted.find
        self.traffic = TopicTraffic()
        self.refusals = Refusals(
            self.partitions, metadata, clock, lambda: self._lifecycle.session_state
        )
        self.turns = Scheduler(clock, lambda now: self.purgatory.finish_tick(now))  # noqa: PLW0108  made below
        self.purgatory = Purgatory(self._storage_failed, clock, self.turns.finish_soon)
        self.walks = RecordWalks(clock, self.turns.checks)
        self.fetchers = self._new_fetchers(connector)
        self.isr_changes = IsrChanges(
            capabilities.isrs, self.partitions, metadata, self.purgatory, clock, tasks, ledger
        )
        self.throttles = ReplicationThrottles(broker_id, config, clock)
        self.roles = Roles()
        self.appends = InternalAppends(self.purgatory, clock, self.partition, self.error_for)
        self.fetch_sessions = FetchSessions(
            self.purgatory, self.find, self.isr_changes.expand, config, ports.rng
        )
        self.checkpoints = Checkpoints(
            logs, self.partitions, config, clock, tasks, self._directory_failed
        )
        self.upkeep = self._new_upkeep()
        self.moves = self._new_moves()
        self.on_shortage: Callable[[], None] = lambda: None
        """Called when an operation found no free file descriptor, to free some."""
        self._short_at = -_EPISODE_MS
        self.unhosted: dict[TopicPartition, tuple[PartitionState, bytes | None, bool]] = {}
        """Partitions whose replica could not be created or given its role for lack of a file descriptor."""
        self.leaving = False
        """True in a controlled shutdown. The broker then follows no new leader, because the leader would add this
        broker to the ISR (R24, S24)."""

    def _new_fetchers(self, connector: Connector) -> Fetchers:
        return Fetchers(
            self.broker_id,
            self.config,
            connector,
            self.clock,
            self.tasks,
            self._storage_failed,
            self.purgatory.high_watermark_followed,
            self._connection_lost,
            self._lifecycle.report_lost_connection,
        )

    def _new_upkeep(self) -> Upkeep:
        return Upkeep(
            self.logs,
            self.partitions,
            self.config,
            self.clock,
            self.tasks,
            self.turns.slices(),
            self.delete_records,
            self._directory_failed,
        )

    def _new_moves(self) -> Moves:
        return Moves(
            self.logs,
            self.partitions,
            self.metadata,
            self.purgatory,
            self.throttles.moves,
            self.turns.slices(),
            self.clock,
            self.tasks,
            self._directory_failed,
        )

    def start(self) -> None:
        """Start the periodic work: ISR writes, lag checks, expiry of fetches, retention."""
        self.isr_changes.start()
        self.tasks.spawn(
            self._every(max(self.config.replica_lag_time_max_ms // 2, 1), self.isr_changes.check),
            "isr-lag",
        )
        self.tasks.spawn(self._every(RETRY_MS, self._expire_sessions), "session-expiry")
        self.tasks.spawn(self._every(_HOST_RETRY_MS, self._host_again), "replica-retry")
        self.upkeep.start()

    async def _every(self, ms: int, action: Callable[[int], None]) -> None:
        while True:
            await self.clock.sleep(ms)
            action(self.clock.now())

    # ---- lookups

    def partition(self, tp: TopicPartition) -> Partition | None:
        """Return this broker's replica of a partition, None if the broker does not host the partition."""
        return self.partitions.get(tp)

    def error_for(self, tp: TopicPartition) -> int:
        """Return 0 if this broker leads the partition, else the error code for a client."""
        partition = self.partitions.get(tp)
        if partition is not None:
            return partition.check_leader_epoch(-1)
        if tp in self.logs.offline:
            return _STORAGE_ERROR
        known = self.metadata.topics.get(tp.topic, {})
        return _NOT_LEADER if tp.partition in known else _UNKNOWN

    def error_for_wire(self, topic: bytes, number: int) -> int:
        """Return the result of `error_for` for a topic name as bytes, which may be invalid UTF-8."""
        return self.error_for(TopicPartition(topic.decode("utf-8", "replace"), number))

    def reader(self, tp: TopicPartition) -> PartitionReader:
        """Return a reader of the records from log start offset to high watermark in the current leader epoch.

        Raises KafkaError with NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION or KAFKA_STORAGE_ERROR.
        """
        partition = self.partitions.get(tp)
        error = self.error_for(tp)
        if error or partition is None:
            raise KafkaError(ErrorCode(error), f"read of {tp}")
        return PartitionReader(partition, self.purgatory.read_failed)

    def log_directories(self) -> list[Directory]:
        """Return every log directory with its replicas."""
        return self.logs.directories()

    def room(self, directory: str) -> tuple[int, int]:
        """Return (total, usable) bytes of the disk that holds this log directory. Raises StorageFailed."""
        return self.logs.storage.room(directory)

    # ---- roles

    def update_metadata(self, update: MetadataUpdate, *, is_whole: bool) -> None:
        """Update the metadata. `is_whole`: the update names every partition."""
        before = self.metadata.brokers.keys() - self.metadata.suspects
        self.metadata.update(update, is_whole=is_whole)
        alive = self.metadata.brokers.keys() - self.metadata.suspects
        if alive - before:
            self.isr_changes.expand_all(self.clock.now())
        if before - alive:
            self.isr_changes.check(self.clock.now())
        self.fetchers.brokers_changed(self.metadata.brokers)

    def become_leader_or_follower(
        self,
        state: PartitionState,
        topic_id: bytes | None,
        now: int,
        *,
        opens_later: bool = False,
    ) -> int:
        """Make this broker leader or follower of the partition, after creating the replica if necessary.

        Return the error code, 0 on success. If only a file descriptor was missing, also return 0 and try again later.
        `opens_later`: as leader, refuse clients until `open` is called.
        """
        self.unhosted.pop(state.tp, None)
        if self.broker_id not in state.replicas:
            return _UNKNOWN
        partition = self.partitions.get(state.tp)
        try:
            if partition is None or self._stop_if_recreated(partition, topic_id):
                partition = self._host(state, topic_id)
            elif partition.offline:
                return _STORAGE_ERROR
            elif not _may_take(partition, state):
                return _STALE_CONTROLLER
            self._apply_role(partition, state, now, opens_later=opens_later)
        except StorageFailed as failure:
            self._directory_failed(failure)
            if not failure.lacks_descriptors:
                return _STORAGE_ERROR
            self.unhosted[state.tp] = state, topic_id, opens_later
        except ConfigError as refused:
            logger.error("%s is not hosted: %s", state.tp, refused)
            self.logs.offline.add(state.tp)
            return _STORAGE_ERROR
        return _NONE

    def _host_again(self, now: int) -> None:
        """Create the replicas for which a file descriptor was missing."""
        for state, topic_id, opens_later in tuple(self.unhosted.values()):
            self.become_leader_or_follower(state, topic_id, now, opens_later=opens_later)

    def _stop_if_recreated(self, partition: Partition, topic_id: bytes | None) -> bool:
        """If the topic was deleted and created again by hand, stop the replica and return True (R69).

        When the new topic's replica is created, the log of the old topic is set aside.
        """
        if not topic_id or partition.offline or partition.log.topic_id in (None, topic_id):
            return False
        self.stop_replica(StopReplicaPartition(partition.tp, NO_EPOCH, delete=False))
        return True

    def _host(self, state: PartitionState, topic_id: bytes | None) -> Partition:
        tp = state.tp
        config = self.configs.get(tp.topic)
        log = self.logs.create(tp, topic_id, config, state.is_new)
        log.traffic = self.traffic.of(tp.topic)
        partition = Partition(
            tp, self.broker_id, log, self.config.replica_lag_time_max_ms, self.metadata.is_alive
        )
        partition.configure(config)
        self.throttles.apply(partition, config)
        partition.restore_high_watermark(self.logs.high_watermarks.get(tp, log.log_start_offset))
        self.hosted.add(partition)
        self.moves.resume(tp)
        return partition

    def _apply_role(
        self, partition: Partition, state: PartitionState, now: int, *, opens_later: bool
    ) -> None:
        self.fetchers.remove(partition.tp)
        if state.leader == self.broker_id:
            partition.become_leader(state, now, opens_later=opens_later)
            self.isr_changes.maybe_shrink(partition, now)
            self.purgatory.high_watermark_moved(partition)
        else:
            partition.become_follower(state)
            self._wake(partition)
            if state.leader != NO_LEADER and not self.leaving:
                self.fetchers.add(partition)
        if partition.is_open:
            self.roles.leads(partition.tp, state.leader_epoch)
        else:
            self.roles.follows(partition.tp, state.leader_epoch)
        state_change_logger.info(
            "[Broker id=%d] partition %s is %s leader=%d epoch=%d isr=%s",
            self.broker_id,
            state.tp,
            partition.role,
            state.leader,
            state.leader_epoch,
            list(state.isr),
        )

    def open(self, tp: TopicPartition, leader_epoch: int, in_sync: Collection[BrokerId]) -> bool:
        """Open a partition that this broker leads in this epoch to clients; return False if it does not lead it.

        `in_sync`: the members that stay in the ISR; empty: all.
        """
        partition = self.partitions.get(tp)
        if partition is None or not partition.leads_in(leader_epoch):
            return False
        if not partition.is_open:
            now = self.clock.now()
            partition.open(now)
            self.isr_changes.maybe_shrink(
                partition, now, {*partition.isr}.difference(in_sync or partition.isr)
            )
            self.isr_changes.maybe_expand(partition, now)
            self.roles.leads(tp, leader_epoch)
            state_change_logger.info(
                "[Broker id=%d] partition %s is open to clients, epoch=%d",
                self.broker_id,
                tp,
                leader_epoch,
            )
        return True

    def end_roles(self, tps: Iterable[TopicPartition]) -> None:
        """Stop leading, following and serving these partitions at once; keep their files."""
        self.purgatory.finish_tick(self.clock.now())
        for tp in tps:
            self.unhosted.pop(tp, None)
            self.fetchers.remove(tp)
            partition = self.partitions.get(tp)
            if partition is not None:
                partition.end_role()
                self._wake(partition)
                self.roles.stopped(tp)
        self.purgatory.finish_soon()

    def sync_deletions(self) -> None:
        """Make deletions durable, so that a deleted replica does not exist again after a crash."""
        try:
            self.logs.sync_directories()
        except StorageFailed as failure:
            self._directory_failed(failure)

    def stop_replica(self, stop: StopReplicaPartition) -> int:
        """Stop the replica; delete its files if `stop.delete` is true. Return the error code, 0 on success."""
        self.unhosted.pop(stop.tp, None)
        partition = self.partitions.get(stop.tp)
        if partition is not None and 0 <= stop.leader_epoch < partition.leader_epoch:
            return _FENCED
        if stop.tp in self.logs.offline:
            return _STORAGE_ERROR
        self.fetchers.remove(stop.tp)
        if partition is not None:
            partition.stop()
            self._wake(partition)
            self.roles.stopped(stop.tp)
            if stop.delete:
                self.hosted.remove(stop.tp)
        if stop.delete:
            try:
                self.logs.rename_for_deletion(stop.tp)
            except StorageFailed as failure:
                self._directory_failed(failure)
                return _STORAGE_ERROR
        return _NONE

    def set_aside(self, tp: TopicPartition) -> None:
        """Stop the replica of a topic that does not exist, and keep the files under another name."""
        self.stop_replica(StopReplicaPartition(tp, NO_EPOCH, delete=False))
        self.hosted.remove(tp)
        try:
            path = self.logs.set_aside(tp)
        except StorageFailed as failure:
            self._directory_failed(failure)
        else:
            logger.warning(
                "topic %s does not exist: the files of its replica %s are kept in %s",
                tp.topic,
                tp,
                path,
            )

    def delete_records(self, partition: Partition, offset: int) -> None:
        """Delete the records below `offset`, which must not exceed the high watermark."""
        partition.advance_log_start_offset(offset)
        self.purgatory.finish_soon()

    # ---- settings

    async def topics_configured(self, topics: Collection[str] | None) -> None:
        """Read and apply the settings of the hosted topics in `topics` (None: all). Raises CoordinationError (R71)."""
        known = set(self.configs.topics)
        changed = known if topics is None else known.intersection(topics)
        if changed:
            await self.configs.read(changed)
            self._configure(changed)

    def set_broker_defaults(self, config: BrokerConfig) -> None:
        self.configs.set_broker_defaults(config)
        self.logs.config = config
        self._configure(set(self.configs.topics))

    def set_replication_rates(self, leader: int, follower: int, moves: int) -> None:
        self.throttles.set_rates(leader, follower, moves)

    def _configure(self, topics: Collection[str]) -> None:
        now = self.clock.now()
        for tp, partition in self.partitions.items():
            if tp.topic in topics and not partition.offline:
                config = self.configs.get(tp.topic)
                self.throttles.apply(partition, config)
                try:
                    partition.configure(config)
                except StorageFailed as failure:
                    self._storage_failed(partition, failure)
                # A lower min.insync.replicas may let the high watermark advance.
                if partition.maybe_advance_high_watermark(now):
                    self.purgatory.high_watermark_moved(partition)
        self.purgatory.finish_soon()

    # ---- wake-ups and failures

    def _wake(self, partition: Partition) -> None:
        self.purgatory.waiting.update(partition.waiting)

    def _connection_lost(self, leader: BrokerId) -> None:
        """Report that the connection to a leader was lost. The leader's session may expire much later."""
        self.ledger.record(BROKER, "", {"fact": "connection lost", "to": leader})
        self._lifecycle.report_lost_connection(leader)

    def _storage_failed(self, partition: Partition, failure: StorageFailed) -> None:
        # A response may still read from the directory that the replica was moved away from.
        is_known = self.logs.has_path(failure.path)
        self._directory_failed(failure, "" if is_known else partition.log.directory)

    def _directory_failed(self, failure: StorageFailed, within: str = "") -> None:
        """Take every replica in the failed log directory offline and announce the failure (R67, S37).

        If only a file descriptor was missing, the directory stays online.
        """
        if failure.lacks_descriptors:
            self._descriptor_missing(failure)
            return
        lost = self.logs.fail_directory(within or failure.path, failure.reason)
        if not lost:
            return
        logger.error(
            "log directory of %s failed, %d replicas go offline: %s",
            failure.path,
            len(lost),
            failure,
        )
        fact = {"fact": "log directory failed", "error": str(failure)}
        for run, part in in_parts(list(lost)):
            self.ledger.record(BROKER, "", {**fact, "partitions": by_topic(run), **part})
        for tp in lost:
            partition = self.partitions.get(tp)
            if partition is not None and not partition.offline:
                self.fetchers.remove(tp)
                partition.offline = True
                partition.fail_produces(_STORAGE_ERROR)
                partition.wake_readers()
                self._wake(partition)
                self.roles.stopped(tp)
        self._lifecycle.report_log_dir_failure()

    def _descriptor_missing(self, failure: StorageFailed) -> None:
        """Free file descriptors. Write one log line for operations that fail in quick succession."""
        now = self.clock.now()
        if now - self._short_at >= _EPISODE_MS:
            logger.error(
                "%s: log files and other descriptors have reached the limit (ulimit -n), raise it; what failed is "
                "tried again",
                failure,
            )
        self._short_at = now
        self.on_shortage()

    # ---- followers

    def follower_disconnected(self, session: FollowerSession) -> None:
        """Close the session of a follower whose connection has ended, and report the end."""
        self.fetch_sessions.close(session)
        self._lifecycle.report_lost_connection(session.broker_id)

    def _expire_sessions(self, now: int) -> None:
        self.fetch_sessions.expire(now)
        self.fetchers.check(now)
        self.purgatory.finish_soon()

    async def close(self) -> None:
        """Stop fetching, report every role as stopped, and write the high watermarks."""
        await self.fetchers.close()
        self.roles.stopped_all()
        self.appends.close()
        self.purgatory.finish_tick(self.clock.now())
        self.checkpoints.close()


def _may_take(partition: Partition, state: PartitionState) -> bool:
    """True if a role is newer than the replica's role, or resumes the role of a follower that `end_roles` has ended."""
    if state.leader_epoch == partition.leader_epoch:
        return partition.followed_before == state.leader != NO_LEADER
    return state.leader_epoch > partition.leader_epoch
