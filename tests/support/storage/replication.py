"""Replicas of one partition connected in memory: real logs, real leader and follower cores, no I/O.

`Replicas` acts as controller and ZooKeeper. A test calls each step, such as `elect`, `fetch` or `crash`, of a scenario
that could lose records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from minikafka.base.config import BrokerConfig, TopicConfig
from minikafka.base.model import PartitionState, TopicPartition
from minikafka.kafka.records.batch import Record, build, records
from minikafka.kafka.wire.fetch import finished
from minikafka.simulation.clocks import ManualClock
from minikafka.simulation.storage import MemoryStorage
from minikafka.storage.log.log import Log
from minikafka.storage.replication.follower import Follower
from minikafka.storage.replication.partition import Partition
from minikafka.storage.replication.purgatory import AnswerQueue, Purgatory
from minikafka.storage.replication.sessions import FollowerSession, Topics

TP = TopicPartition("t", 0)
KEY = (b"t", 0)
LAG_MS = 10_000


def topic_config(**overrides: str) -> TopicConfig:
    """Return settings of the topic, with Kafka's defaults."""
    config = BrokerConfig.from_mapping(
        {"broker.id": 0, "log.dirs": "/d", "listeners": "PLAINTEXT://127.0.0.1:0"}
    )
    return TopicConfig.from_broker(
        config, {key.replace("_", "."): value for key, value in overrides.items()}
    )


class Replica:
    """One broker's replica with its log, storage and fetch state machine."""

    def __init__(self, broker_id: int, config: TopicConfig, alive: set[int]) -> None:
        self.id = broker_id
        self.config = config
        self.alive = alive
        self.storage = MemoryStorage()
        self.high_watermark_checkpoint = self.recovery_point = 0
        self.start(clean=True)

    def start(self, *, clean: bool) -> None:
        """Start the replica, for the first time or again, on the existing files."""
        self.storage.make_directories("/d/t-0")
        self.log = Log.open(
            self.storage,
            "/d/t-0",
            TP,
            self.config,
            clean=clean,
            recovery_point=self.recovery_point,
            log_start_offset=0,
        )
        self.partition = Partition(
            TP, self.id, self.log, LAG_MS, lambda broker: broker in self.alive
        )
        self.partition.configure(self.config)
        self.partition.restore_high_watermark(self.high_watermark_checkpoint)
        self.purgatory = Purgatory(
            lambda partition, failure: None, ManualClock(), lambda: self.finish_soon()
        )
        self.finish_soon: Callable[[], None] = lambda: None
        """Called when the purgatory asks for the end of a tick."""
        self.follower = self.new_follower()
        self.sent: list[bytes] = []
        self.answers = AnswerQueue(
            self.purgatory, lambda slices: self.sent.extend(bytes(part) for part in slices)
        )
        self.sessions: dict[int, FollowerSession] = {}
        self.responses: dict[int, Topics] = {}

    def new_follower(self) -> Follower:
        """Return a fetch state machine without partitions."""
        return Follower(
            1 << 20, 1000, lambda partition, failure: None, self.purgatory.high_watermark_moved
        )

    def values(self) -> list[bytes]:
        """Return every record value in the log, in offset order."""
        data, _, _ = self.log.read(
            self.log.locate(self.log.log_start_offset), self.log.written_position, 1 << 30
        )
        return [record.value or b"" for record in records(data)]

    def entries_of_every_segment(self) -> list[tuple[int, bytes]]:
        """Return (offset, value) of every record in the segment files, records below the log start offset included."""
        return [
            (record.offset, record.value or b"")
            for segment in self.log.segments
            for record in records(segment.file.pread(segment.file.size(), 0))
        ]

    def entries(self) -> list[tuple[int, bytes]]:
        """Return (offset, value) of every record from the log start offset on."""
        data, _, _ = self.log.read(
            self.log.locate(self.log.log_start_offset), self.log.written_position, 1 << 30
        )
        return [(record.offset, record.value or b"") for record in records(data)]

    @property
    def hw(self) -> int:
        """The high watermark."""
        return self.partition.high_watermark


class Responses:
    """Stores the last response to a follower in `responses` of the leader, under the follower's id."""

    def __init__(self, leader: Replica, follower: int) -> None:
        self.leader = leader
        self.follower = follower

    def respond(self, error: int, topics: Topics) -> None:
        self.leader.responses[self.follower] = topics


class Replicas:
    """Replicas by broker id, with the leader, leader epoch and ISR that ZooKeeper would hold."""

    def __init__(
        self, ids: Iterable[int] = (0, 1, 2), *, isr: Iterable[int] | None = None, **config: str
    ) -> None:
        self.ids = tuple(ids)
        self.now = 1_000_000
        self.alive = set(self.ids)
        self.config = topic_config(**config)
        self.replicas = {broker: Replica(broker, self.config, self.alive) for broker in self.ids}
        self.isr = tuple(self.ids if isr is None else isr)
        self.epoch = -1
        self.leader = -1
        self.version = 0

    def __getitem__(self, broker: int) -> Replica:
        return self.replicas[broker]

    def elect(
        self,
        leader: int,
        *,
        isr: Iterable[int] | None = None,
        to: Iterable[int] | None = None,
        opens_later: bool = False,
    ) -> None:
        """Elect a leader in a new leader epoch. Send LeaderAndIsr only to the brokers `to` (default: all alive).

        `opens_later`: the leader serves no clients until the test opens it.
        """
        self.epoch += 1
        self.version += 1
        self.leader = leader
        if isr is not None:
            self.isr = tuple(isr)
        for broker in sorted(self.alive) if to is None else to:
            self.send_leader_and_isr(broker, opens_later=opens_later)

    def state(self) -> PartitionState:
        """Return the current partition state, as in a LeaderAndIsr request."""
        return PartitionState(TP, self.leader, self.epoch, self.isr, self.version, 1, self.ids)

    def send_leader_and_isr(self, broker: int, *, opens_later: bool = False) -> None:
        """Deliver the current LeaderAndIsr request to one broker."""
        replica, state = self[broker], self.state()
        if state.leader_epoch <= replica.partition.leader_epoch:
            return
        replica.purgatory.finish_tick(self.now)
        replica.follower.remove(TP)
        if state.leader == broker:
            replica.partition.become_leader(state, self.now, opens_later=opens_later)
        else:
            replica.partition.become_follower(state)
            replica.follower.add(replica.partition)
        replica.purgatory.finish_tick(self.now)

    def produce(
        self,
        broker: int,
        *values: bytes,
        acks: int = -1,
        producer: tuple[int, int, int] | None = None,
    ) -> int:
        """Append one batch at the leader; return the high watermark to wait for, or minus the error code."""
        replica = self[broker]
        pid, epoch, sequence = producer or (-1, -1, -1)
        rows = [Record(0, 1000, None, value, ()) for value in values]
        batch = bytearray(
            build(rows, producer_id=pid, producer_epoch=epoch, base_sequence=sequence)
        )
        if not replica.log.pending:
            replica.purgatory.dirty.append(replica.partition)
        return self._append(replica, batch, acks)

    def _append(self, replica: Replica, batch: bytearray, acks: int) -> int:
        partition = replica.partition
        required = partition.append_as_leader(memoryview(batch), acks, self.now, 0)
        if required > 0 and acks < 0:
            entry = (
                partition,
                required,
                self.now + 30_000,
                required,
                partition.appended_base,
                _pack,
            )
            replica.answers.entries.append(entry)
            partition.produce_waits(replica.answers)
        replica.purgatory.finish_tick(self.now)
        return required

    def ask(self, follower: int, leader: int) -> None:
        """Send the follower's OffsetForLeaderEpoch requests to the leader, and the answers back."""
        machine, partition = self[follower].follower, self[leader].partition
        for topic, number, current, asked in machine.epoch_questions():
            error = partition.check_follower(current)
            epoch, end = (-1, -1) if error else partition.epoch_end_offset(asked)
            machine.on_epoch_answer((topic.encode(), number), error, epoch, end)

    def fetch(self, follower: int, leader: int, *, lose_answer: bool = False) -> None:
        """Do one fetch round trip, after any OffsetForLeaderEpoch requests."""
        self.ask(follower, leader)
        self.ask(follower, leader)
        machine, target = self[follower].follower, self[leader]
        if not machine.has_fetch():
            return
        session = self._session(follower, target, machine)
        topics, forgotten = machine.next_fetch()
        target.responses.pop(follower, None)
        deadline = self.now + 500
        finished(session.fetch(topics.items(), forgotten.items(), 1 << 20, deadline, self.now))
        target.purgatory.finish_tick(self.now)
        if session.parked:
            self.now += 1000
            session.expire(self.now)
            target.purgatory.finish_tick(self.now)
        if not lose_answer:
            self._deliver(follower, session.id, target.responses.pop(follower))

    def _session(self, follower: int, target: Replica, machine: Follower) -> FollowerSession:
        session = target.sessions.get(follower)
        if session is None or machine.session_id == 0:
            lookup = {KEY: target.partition}
            session = FollowerSession(
                1,
                follower,
                target.purgatory,
                lambda topic, number: lookup.get((topic, number)),
                Responses(target, follower),
                lambda partition, progress: partition.expand_isr(progress.broker_id),
            )
            target.sessions[follower] = session
        return session

    def _deliver(self, follower: int, session_id: int, topics: Topics) -> None:
        machine = self[follower].follower
        machine.on_session(0, session_id)
        for topic, answers in topics:
            for number, error, hw, _, start, slices, _, diverging, _, _ in answers:
                buf = bytearray(b"".join(slices))
                machine.on_partition(
                    (topic, number),
                    error,
                    hw,
                    start,
                    (buf, memoryview(buf), 0, len(buf)),
                    diverging,
                )

    def retry(self, follower: int) -> None:
        """Advance the time past the retry delay of the follower's partition."""
        machine = self[follower].follower
        machine.get_timer(self.now)
        self.now += 2000
        machine.handle_timer(self.now)

    def sync(self, leader: int, *followers: int, rounds: int = 4) -> None:
        """Let the followers catch up and learn the high watermark."""
        for _ in range(rounds):
            for follower in followers:
                self.fetch(follower, leader)

    def commit_isr(self, leader: int) -> None:
        """Accept the leader's pending ISR, as ZooKeeper does."""
        partition = self[leader].partition
        self.isr = partition.isr_state.proposed
        self.version += 1
        partition.isr_committed(self.version, self.now)
        self[leader].purgatory.high_watermark_moved(partition)
        self[leader].purgatory.finish_tick(self.now)

    def crash(self, broker: int) -> None:
        """Kill a broker as by SIGKILL: only the data in its files remains."""
        self.alive.discard(broker)
        for replica in self.replicas.values():
            replica.sessions.pop(broker, None)
            replica.follower.disconnected()

    def restart(self, broker: int, *, checkpoint: int) -> None:
        """Start a broker again on the same files, with `checkpoint` as the checkpointed high watermark."""
        self.alive.add(broker)
        self[broker].high_watermark_checkpoint = checkpoint
        self[broker].start(clean=False)


def _pack(correlation: int, error: int, base_offset: int, log_start_offset: int) -> bytes:
    return b"%d:%d:%d" % (correlation, error, base_offset)
