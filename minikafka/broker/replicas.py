"""The replicas hosted here: Kafka's ReplicaManager.

Takes the controller's three requests, fenced by controller, broker and leader epoch (R5–R8), turns
partitions into leaders and followers, and owns the purgatory of the per-batch path. Invariant: a request
with an epoch older than one already seen changes nothing (I10).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any, Final

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import CoordinationError, ErrorCode, StorageFailed
from minikafka.base.model import (
    NO_EPOCH,
    NO_LEADER,
    BrokerId,
    ControllerRequest,
    ControllerResponse,
    LeaderAndIsrRequest,
    PartitionState,
    StopReplicaPartition,
    StopReplicaRequest,
    TopicPartition,
    UpdateMetadataRequest,
)
from minikafka.base.ports import Clock, Coordination, Ledger, Tasks, Transport
from minikafka.broker.fetchers import Fetchers
from minikafka.broker.internal_appends import InternalAppends
from minikafka.broker.isr_changes import IsrChanges
from minikafka.broker.metadata import MetadataCache
from minikafka.broker.notifications import notify
from minikafka.broker.roles import Roles
from minikafka.broker.topic_configs import TopicConfigs
from minikafka.ledger.record import BROKER, EFFECT, NOTHING, by_topic, in_parts
from minikafka.ledger.requests import completed_lines, failed_line, received_lines
from minikafka.log.manager import Directory, LogManager
from minikafka.replication.partition import Partition, Progress
from minikafka.replication.purgatory import Purgatory
from minikafka.replication.sessions import Session, Topics
from minikafka.zk import layout

logger = logging.getLogger(__name__)
state_change_logger = logging.getLogger("state-change")

_DELETION_INTERVAL_MS: Final = 500
_NONE: Final = 0
_STALE_CONTROLLER: Final = int(ErrorCode.STALE_CONTROLLER_EPOCH)
_STALE_BROKER: Final = int(ErrorCode.STALE_BROKER_EPOCH)
_UNKNOWN: Final = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_NOT_LEADER: Final = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_STORAGE_ERROR: Final = int(ErrorCode.KAFKA_STORAGE_ERROR)
_FENCED: Final = int(ErrorCode.FENCED_LEADER_EPOCH)
_TURN_MS: Final = 50
"""How long a request of the controller may keep everybody else waiting."""


class ReplicaManager:
    """Every partition of this broker; see the module for what it promises."""

    def __init__(
        self,
        broker_id: BrokerId,
        config: BrokerConfig,
        logs: LogManager,
        metadata: MetadataCache,
        coordination: Coordination,
        transport: Transport,
        clock: Clock,
        tasks: Tasks,
        ledger: Ledger = NOTHING,
    ) -> None:
        self.broker_id = broker_id
        self.config = config
        self.logs = logs
        self.metadata = metadata
        self.coordination = coordination
        self.clock = clock
        self.tasks = tasks
        self.ledger = ledger
        self.configs = TopicConfigs(coordination, config)
        self.partitions: dict[TopicPartition, Partition] = {}
        self.purgatory = Purgatory(self._storage_failed, clock)
        self.fetchers = Fetchers(broker_id, config, transport, clock, tasks, self._storage_failed)
        self.isr_changes = IsrChanges(coordination, clock, tasks, self._isr_committed, ledger)
        self.roles = Roles()
        self._appends = InternalAppends(self.purgatory, clock, self.partition, self.error_for)
        self.controller_epoch = -1
        self.broker_epoch = -1
        self._reviewed = (NO_EPOCH, NO_EPOCH)
        """Epochs of the controller and the registration whose first metadata was looked through for strays."""
        self.sessions: dict[int, Session] = {}
        self._by_wire: dict[tuple[bytes, int], Partition] = {}
        self._last_session_id = 0
        self._checkpoints_started = False
        self.leaving = False
        """A broker in controlled shutdown follows no new leader, or it would be taken back into the ISR (R24, S24)."""

    def start(self) -> None:
        """Begin the periodic work: ISR writes, lag checks, expiry."""
        self.isr_changes.start()
        self.tasks.spawn(
            self._every(max(self.config.replica_lag_time_max_ms // 2, 1), self._check_lag),
            "isr-lag",
        )
        self.tasks.spawn(self._every(100, self._expire_sessions), "session-expiry")
        self.tasks.spawn(self._delete_renamed(), "log-deletion")

    async def _every(self, ms: int, action: Callable[[int], None]) -> None:
        while True:
            await self.clock.sleep(ms)
            action(self.clock.now())

    # ---- lookups

    def find(self, topic: bytes, number: int) -> Partition | None:
        """A hosted partition by its name on the wire."""
        return self._by_wire.get((topic, number))

    def partition(self, tp: TopicPartition) -> Partition | None:
        """A hosted partition."""
        return self.partitions.get(tp)

    def error_for(self, tp: TopicPartition) -> int:
        """0 if this broker leads the partition, else the code that tells a client where it stands."""
        partition = self.partitions.get(tp)
        if partition is not None:
            return partition.check_leader_epoch(-1)
        if tp in self.logs.offline:
            return _STORAGE_ERROR
        known = self.metadata.topics.get(tp.topic, {})
        return _NOT_LEADER if tp.partition in known else _UNKNOWN

    def error_for_wire(self, topic: bytes, number: int) -> int:
        """`error_for` a name on the wire, which may be no text at all."""
        return self.error_for(TopicPartition(topic.decode("utf-8", "replace"), number))

    def append(self, tp: TopicPartition, batch: bytes) -> Awaitable[int]:
        """Append one record batch of magic 2 as leader; await its base offset, known once it is committed.

        The batch is in the log when this returns, so that calls append in their order. May be called inside
        and outside of a tick. The awaitable raises KafkaError with a produce error code: NOT_LEADER_OR_FOLLOWER
        (also when leadership ends before the batch is committed), NOT_ENOUGH_REPLICAS,
        NOT_ENOUGH_REPLICAS_AFTER_APPEND, MESSAGE_TOO_LARGE, CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR. There is no
        timeout: the caller sets one with `asyncio.timeout`.
        """
        return self._appends.append(tp, batch)

    def log_directories(self) -> list[Directory]:
        """Every log directory and the replicas in it."""
        return self.logs.directories()

    def room(self, directory: str) -> tuple[int, int]:
        """(total, usable) bytes of its disk. Raises StorageFailed."""
        return self.logs.storage.room(directory)

    # ---- the controller's requests

    async def handle(self, request: ControllerRequest) -> ControllerResponse:
        """Carry out a request of the controller. Raises CoordinationError when topic settings cannot be read."""
        self._note(request, received_lines(request))
        try:
            response = await self._carry_out(request)
        except CoordinationError as error:
            self._note(request, [failed_line(request, f"{type(error).__name__} {error}")])
            raise
        self._note(request, completed_lines(self.broker_id, request, response))
        return response

    def _note(self, request: ControllerRequest, lines: Iterable[dict[str, Any]]) -> None:
        for fields in lines:
            self.ledger.record(EFFECT, request.cause, fields)

    async def _carry_out(self, request: ControllerRequest) -> ControllerResponse:
        error = self._fence(request)
        if error:
            return ControllerResponse(error)
        if isinstance(request, LeaderAndIsrRequest):
            await self._load_configs(request)
            error = self._fence(request)
            return ControllerResponse(error) if error else await self._leader_and_isr(request)
        if isinstance(request, StopReplicaRequest):
            return await self._stop_replicas(request)
        if self._update_metadata(request):
            await self._set_orphans_aside()
        return ControllerResponse(_NONE)

    async def _load_configs(self, request: LeaderAndIsrRequest) -> None:
        """Settings of the request's topics; read again for new partitions, whose topic may be a new one."""
        asked = {state.tp.topic for state in request.partitions}
        wanted = asked.difference(self.configs.topics)
        wanted.update(state.tp.topic for state in request.partitions if state.is_new)
        if wanted:  # this broker's ZooKeeper server may lag behind the controller's
            await self.coordination.sync(layout.TOPIC_CONFIGS)
            await self.configs.read(wanted)

    def _fence(self, request: ControllerRequest) -> int:
        if request.controller_epoch < self.controller_epoch:
            logger.warning(
                "refused %s of controller %d: epoch %d is older than %d",
                type(request).__name__, request.controller_id, request.controller_epoch, self.controller_epoch,
            )  # fmt: skip
            return _STALE_CONTROLLER
        if 0 <= request.broker_epoch < self.broker_epoch:
            return _STALE_BROKER
        self.controller_epoch = request.controller_epoch
        return _NONE

    def _update_metadata(self, request: UpdateMetadataRequest) -> bool:
        """Whether it is the first metadata of a controller, or of a registration: it names every partition."""
        sender = (request.controller_epoch, request.broker_epoch)
        is_first = sender > self._reviewed
        before = self.metadata.brokers.keys()
        self.metadata.update(request, is_whole=is_first)
        if self.metadata.brokers.keys() - before:
            self._expand_isrs(self.clock.now())
        if before - self.metadata.brokers.keys():
            self._advance_high_watermarks(self.clock.now())
        self.fetchers.brokers_changed(self.metadata.brokers)
        if is_first:
            self._reviewed = sender
            self._delete_strays(request)
        return is_first

    def _delete_strays(self, request: UpdateMetadataRequest) -> None:
        """Replicas that were moved away, and this broker was not told to delete them: it was down, or the
        controller died before it could.

        Judged by the first metadata of a controller, and of a registration, which names every partition
        (D5, R17). A stray goes only if it is of the topic the metadata means, and others lead and hold it, or
        are about to delete it.
        """
        told = {state.tp: state for state in request.partitions}
        topic_ids = dict(request.topic_ids)
        for tp, log in list(self.logs.logs.items()):
            state = told.get(tp)
            if state is None or self.broker_id in (*state.replicas, *state.isr):
                continue
            if state.leader == NO_LEADER or topic_ids.get(tp.topic) != log.topic_id:
                continue
            logger.warning(
                "replica of %s is a stray, its replicas are %s now: deleting it",
                tp, list(state.replicas),
            )  # fmt: skip
            self._stop(StopReplicaPartition(tp, NO_EPOCH, delete=True))
            self._sync_deletions()

    async def _set_orphans_aside(self) -> None:
        """Replicas that were moved away while this broker was down, and whose topic was deleted then too.

        Nobody waited for this broker, and nobody names them any more. That the topic is gone ZooKeeper itself
        must say: one whose node cannot be read is not in the metadata either.
        """
        hosted = {tp.topic for tp in self.logs.logs}
        unknown = sorted(hosted - self.metadata.topics.keys())
        paths = [layout.topic_path(topic) for topic in unknown]
        try:
            nodes = await self.coordination.get_many(paths) if paths else []
        except CoordinationError as error:
            logger.info("not looked for replicas of topics that are gone: %s", error)
            return
        gone = {topic for topic, node in zip(unknown, nodes, strict=True) if node is None}
        for tp in [tp for tp in self.logs.logs if tp.topic in gone]:
            self._stop(StopReplicaPartition(tp, NO_EPOCH, delete=False))
            partition = self.partitions.pop(tp, None)
            if partition is not None:
                del self._by_wire[partition.topic, tp.partition]
            try:
                path = self.logs.set_aside(tp)
            except StorageFailed as failure:
                self._directory_failed(failure)
            else:
                logger.warning("there is no topic %s: %s is kept as %s", tp.topic, tp, path)

    async def _leader_and_isr(self, request: LeaderAndIsrRequest) -> ControllerResponse:
        """Partition by partition, with room for clients and heartbeats in between when there are thousands."""
        begun = now = self.clock.now()
        self.purgatory.finish_tick(now)
        self.fetchers.brokers_changed({broker.id: broker for broker in request.live_leaders})
        topic_ids = dict(request.topic_ids)
        results = []
        for state in request.partitions:
            results.append((state.tp, self._apply(state, topic_ids.get(state.tp.topic), now)))
            if self.clock.now() - begun > _TURN_MS:
                self.purgatory.finish_tick(now)
                await self.clock.sleep(0)
                error = self._fence(request)
                if error:
                    return ControllerResponse(error)
                begun = now = self.clock.now()
        self.purgatory.finish_tick(now)
        if not self._checkpoints_started:
            self._start_checkpoints()
        return ControllerResponse(_NONE, tuple(results))

    def _apply(self, state: PartitionState, topic_id: bytes | None, now: int) -> int:
        if self.broker_id not in state.replicas:
            return _UNKNOWN
        partition = self.partitions.get(state.tp)
        try:
            if partition is None or self._is_of_a_namesake(partition, topic_id):
                partition = self._host(state, topic_id)
            elif partition.offline:
                return _STORAGE_ERROR
            elif state.leader_epoch <= partition.leader_epoch:
                return _STALE_CONTROLLER
            self._take_role(partition, state, now)
        except StorageFailed as failure:
            self._directory_failed(failure)
            return _STORAGE_ERROR
        return _NONE

    def _is_of_a_namesake(self, partition: Partition, topic_id: bytes | None) -> bool:
        """Whether the replica here is of a topic that somebody deleted and made again by hand (R69).

        It is out of service then; whoever hosts the new one moves its log aside.
        """
        if not topic_id or partition.offline or partition.log.topic_id in (None, topic_id):
            return False
        self._stop(StopReplicaPartition(partition.tp, NO_EPOCH, delete=False))
        return True

    def _host(self, state: PartitionState, topic_id: bytes | None) -> Partition:
        tp = state.tp
        config = self.configs.get(tp.topic)
        log = self.logs.create(tp, topic_id, config, state.is_new)
        partition = Partition(
            tp, self.broker_id, log, self.config.replica_lag_time_max_ms, self.metadata.is_alive
        )
        partition.configure(config)
        partition.restore_high_watermark(self.logs.high_watermarks.get(tp, log.log_start_offset))
        self.partitions[tp] = self._by_wire[partition.topic, tp.partition] = partition
        return partition

    def _take_role(self, partition: Partition, state: PartitionState, now: int) -> None:
        self.fetchers.remove(partition.tp)
        if state.leader == self.broker_id:
            partition.become_leader(state, now)
            self._high_watermark_moved(partition)
        else:
            partition.become_follower(state)
            self._wake_consumers(partition)
            if state.leader != NO_LEADER and not self.leaving:
                self.fetchers.add(partition)
        if partition.is_leader:
            self.roles.leads(partition.tp, state.leader_epoch)
        else:
            self.roles.follows(partition.tp, state.leader_epoch)
        state_change_logger.info(
            "[Broker id=%d] partition %s is %s leader=%d epoch=%d isr=%s",
            self.broker_id, state.tp, "leader" if partition.is_leader else "follower",
            state.leader, state.leader_epoch, list(state.isr),
        )  # fmt: skip

    async def _stop_replicas(self, request: StopReplicaRequest) -> ControllerResponse:
        """As with LeaderAndIsr; what was deleted is gone for good when the controller hears of it."""
        begun = self.clock.now()
        self.purgatory.finish_tick(begun)
        results = []
        for stop in request.partitions:
            results.append((stop.tp, self._stop(stop)))
            if self.clock.now() - begun > _TURN_MS:
                self.purgatory.finish_tick(self.clock.now())
                await self.clock.sleep(0)
                error = self._fence(request)
                if error:
                    return ControllerResponse(error)
                begun = self.clock.now()
        self.purgatory.finish_tick(self.clock.now())
        if any(stop.delete for stop in request.partitions):
            self._sync_deletions()
            self.configs.keep({tp.topic for tp in self.partitions})
        return ControllerResponse(_NONE, tuple(results))

    def _sync_deletions(self) -> None:
        try:
            self.logs.sync_directories()
        except StorageFailed as failure:
            self._directory_failed(failure)

    def _stop(self, stop: StopReplicaPartition) -> int:
        partition = self.partitions.get(stop.tp)
        if partition is not None and 0 <= stop.leader_epoch < partition.leader_epoch:
            return _FENCED
        if stop.tp in self.logs.offline:
            return _STORAGE_ERROR
        self.fetchers.remove(stop.tp)
        if partition is not None:
            partition.stop()
            self._wake_consumers(partition)
            self.roles.stopped(stop.tp)
            if stop.delete:
                del self.partitions[stop.tp]
                del self._by_wire[partition.topic, stop.tp.partition]
        if stop.delete:
            try:
                self.logs.rename_for_deletion(stop.tp)
            except StorageFailed as failure:
                self._directory_failed(failure)
                return _STORAGE_ERROR
        return _NONE

    # ---- settings

    async def topics_configured(self, topics: Collection[str] | None) -> None:
        """These topics' settings were written, None: perhaps any. Raises CoordinationError (R71)."""
        known = set(self.configs.topics)
        changed = known if topics is None else known.intersection(topics)
        if changed:
            await self.configs.read(changed)
            self._configure(changed)

    def inherit(self, config: BrokerConfig) -> None:
        """Topics inherit from these values from now on (KIP-226)."""
        self.configs.inherit(config)
        self.logs.config = config
        self._configure(set(self.configs.topics))

    def _configure(self, topics: Collection[str]) -> None:
        now = self.clock.now()
        self.purgatory.finish_tick(now)
        for tp, partition in self.partitions.items():
            if tp.topic in topics and not partition.offline:
                try:
                    partition.configure(self.configs.get(tp.topic))
                except StorageFailed as failure:
                    self._storage_failed(partition, failure)
                if partition.maybe_advance_high_watermark(now):  # min.insync.replicas was lowered
                    self._high_watermark_moved(partition)
        self.purgatory.finish_tick(now)

    # ---- consequences

    def _high_watermark_moved(self, partition: Partition) -> None:
        self.purgatory.high_watermark_moved(partition)
        if not self.purgatory.dirty:
            self.purgatory.finish_tick(self.clock.now())

    def _wake_consumers(self, partition: Partition) -> None:
        self.purgatory.fetches.update(partition.fetch_waiting)

    def _storage_failed(self, partition: Partition, failure: StorageFailed) -> None:
        self._directory_failed(failure, partition.log.directory)

    def _directory_failed(self, failure: StorageFailed, within: str = "") -> None:
        """Every replica in the directory is offline from now on; the controller is told (R67, S37)."""
        lost = self.logs.fail_directory(within or failure.path)
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
                self._wake_consumers(partition)
                self.roles.stopped(tp)
        event = layout.encode_log_dir_event(self.broker_id)
        self.tasks.spawn(
            notify(self.coordination, layout.LOG_DIR_EVENT_PREFIX, event), "log-dir-failure"
        )

    # ---- the ISR

    def propose_expansion(self, partition: Partition, progress: Progress) -> None:
        """A follower caught up: propose it for the ISR."""
        partition.expand_isr(progress.broker_id)
        self.isr_changes.propose(partition)

    def _check_lag(self, now: int) -> None:
        for partition in self.partitions.values():
            if partition.maybe_shrink_isr(now):
                self.isr_changes.propose(partition)
        self._advance_high_watermarks(now)

    def _advance_high_watermarks(self, now: int) -> None:
        """Where a follower that was about to join held it back, and died or fell behind since."""
        for partition in self.partitions.values():
            if partition.maybe_advance_high_watermark(now):
                self._high_watermark_moved(partition)

    def _expand_isrs(self, now: int) -> None:
        for partition in self.partitions.values():
            if partition.is_leader:
                self._maybe_expand_isr(partition, now)

    def _maybe_expand_isr(self, partition: Partition, now: int) -> None:
        progress = partition.next_to_join(now)
        if progress is not None:
            self.propose_expansion(partition, progress)

    def _isr_committed(self, partition: Partition, moved: bool) -> None:
        """The next follower may join now; and who waited for the high watermark may go on."""
        self._maybe_expand_isr(partition, self.clock.now())
        if moved:
            self._high_watermark_moved(partition)
        self.purgatory.finish_tick(self.clock.now())

    # ---- followers' fetch sessions

    def open_session(self, broker_id: BrokerId, respond: Callable[[int, Topics], None]) -> Session:
        """A session for one follower's connection."""
        self._last_session_id += 1
        session = Session(
            self._last_session_id,
            broker_id,
            self.purgatory,
            self.find,
            respond,
            self.propose_expansion,
        )
        self.sessions[session.id] = session
        return session

    def close_session(self, session: Session) -> None:
        """The follower is gone, or begins anew."""
        session.close()
        self.purgatory.sessions.pop(session, None)
        self.sessions.pop(session.id, None)

    def _expire_sessions(self, now: int) -> None:
        for session in tuple(self.sessions.values()):
            session.expire(now)
        self.fetchers.check(now)
        self.purgatory.finish_tick(now)

    # ---- files and checkpoints

    async def _delete_renamed(self) -> None:
        """Remove the files of deleted replicas when their delay is over (R66)."""
        while True:
            await self.clock.sleep(_DELETION_INTERVAL_MS)
            try:
                await self.logs.delete_renamed(self.clock.now())
            except StorageFailed as failure:
                self._directory_failed(failure)

    def _start_checkpoints(self) -> None:
        """High watermarks are checkpointed only once the replicas are known (R35)."""
        self._checkpoints_started = True
        config = self.config
        every_ms = config.replica_high_watermark_checkpoint_interval_ms
        self.tasks.spawn(
            self._every(every_ms, lambda _: self.checkpoint_high_watermarks()), "hw-checkpoint"
        )
        self.tasks.spawn(self._checkpoint_logs(), "log-checkpoint")

    def checkpoint_high_watermarks(self) -> None:
        """Write replication-offset-checkpoint in every live directory."""
        try:
            self.logs.checkpoint_high_watermarks(
                {tp: partition.high_watermark for tp, partition in self.partitions.items()}
            )
        except StorageFailed as failure:
            self._directory_failed(failure)

    async def _checkpoint_logs(self) -> None:
        """Sync what was sealed, so that a restart need not scan it, and write the recovery points (R25)."""
        while True:
            await self.clock.sleep(self.config.log_flush_offset_checkpoint_interval_ms)
            try:
                await self.logs.sync_rolled()
                self.logs.checkpoint()
            except StorageFailed as failure:
                self._directory_failed(failure)

    async def close(self) -> None:
        """Stop fetching, and note where every replica stands."""
        await self.fetchers.close()
        self.roles.stopped_all()
        self._appends.close()
        self.purgatory.finish_tick(self.clock.now())
        if self._checkpoints_started:
            self.checkpoint_high_watermarks()
