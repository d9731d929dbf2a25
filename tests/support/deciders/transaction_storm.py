"""Random schedules for transaction coordinators: producers begin, write, end, crash and return while coordinators move.

One seed always gives the same schedule. Requests, responses, appends and markers take random times. Appends are
refused, fail, time out, or are committed after they have timed out. The partitions of `__transaction_state` move from
broker to broker, and a former coordinator may serve for a while without noticing. Topics are deleted, markers are
written twice or arrive late, and producers stay alive after another one with the same id has started.
`TransactionStorm.run` raises AssertionError when an invariant does not hold:

- every request is answered exactly once;
- a transaction ends once: its partitions get markers of one kind, of the kind that the producer was answered;
- every partition that it touched gets a marker, and only then is the transaction complete;
- a fenced producer changes nothing more, and no two producers get the same id and epoch;
- the context has only committed records, also after a load;
- after the last fault, every transaction ends.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, TypeAlias

from support.deciders.schedule import Schedule

from minikafka.base.coordinators import (
    Append,
    LeadershipBegun,
    LeadershipEnded,
    LoadedRecord,
    LoadFinished,
    LoadPartition,
    RecordsRead,
    partition_of,
)
from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.deciders.decider import Answer, Outcome
from minikafka.deciders.transactions.commands import (
    AllocateProducerId,
    DropMarkers,
    EndedTransaction,
    InitProducerIdResponse,
    SendMarkers,
)
from minikafka.deciders.transactions.context import TransactionSettings
from minikafka.deciders.transactions.coordinator import TransactionCoordinator
from minikafka.deciders.transactions.events import (
    AddPartitionsRequest,
    EndRequest,
    Event,
    InitProducerIdRequest,
    MarkersFenced,
    MarkersWritten,
    VerifyRequest,
)
from minikafka.deciders.transactions.records import (
    read_transaction_key,
    read_transaction_value,
    transaction_value,
)
from minikafka.deciders.transactions.states import TransactionMetadata, TransactionState

Request: TypeAlias = InitProducerIdRequest | AddPartitionsRequest | EndRequest
WALL_MS = 1_700_000_000_000
STATE_PARTITIONS = 2
NAMES = ("a", "b", "c", "d")
DATA = [TopicPartition(topic, number) for topic in ("t", "u") for number in range(3)]
COMPLETE = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
BETWEEN = (TransactionState.EMPTY, *COMPLETE)
RETRIABLE = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


class Broker:
    """One broker: its coordinator, the markers that it sends, and the appends that are not reported to it yet."""

    def __init__(self, storm: TransactionStorm) -> None:
        self.coordinator = TransactionCoordinator(
            storm.settings, lambda: WALL_MS + storm.now, STATE_PARTITIONS
        )
        self.epochs: dict[int, int] = {}
        """State partition → the epoch in which this broker believes to lead it."""
        self.unreported: dict[int, int] = {}
        """Token → state partition, for the appends whose result the coordinator does not know."""
        self.jobs: dict[int, tuple[int, EndedTransaction, set[TopicPartition]]] = {}
        """Number of an ended transaction → its state partition, itself, and the partitions without marker."""
        self.known: dict[str, bytes] = {}
        """Transactional id → the last value that the coordinator has loaded, or was told to be committed."""
        self.alarm: int | None = None


class Entry:
    """A record in the log of a state partition."""

    def __init__(self, broker: Broker, token: int, key: bytes, value: bytes | None) -> None:
        self.broker = broker
        self.token = token
        self.key = key
        self.value = value
        self.name = read_transaction_key(key)


class StateLog:
    """A partition of `__transaction_state`. The first `committed` entries are committed."""

    def __init__(self) -> None:
        self.leader: Broker | None = None
        self.epoch = 0
        self.entries: list[Entry] = []
        self.committed = 0


class DataLog:
    """A partition that transactions write: data, and markers."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int, int | bool]] = []
        """Producer id, epoch, and either the number of a transaction or, for a marker, True or False."""
        self.epochs: dict[int, int] = {}
        self.coordinator_epochs: dict[int, int] = {}
        self.open: set[int] = set()
        """The producer ids with an open transaction."""
        self.is_deleted = False


class Producer:
    """One incarnation of a transactional producer. Several with the same transactional id may be alive."""

    def __init__(self, storm: TransactionStorm, name: str) -> None:
        self.storm = storm
        self.name = name
        self.number = next(storm.producers)
        self.id = self.epoch = -1
        self.turn = 0
        """Rises with each request and each handled response, so that responses to earlier requests are ignored."""
        self.is_dead = False
        self.transaction = 0
        self.partitions: list[TopicPartition] = []
        self.added: list[TopicPartition] = []
        self.timeout_ms = storm.rng.choice((500, 3_000, 30_000))

    def die(self) -> None:
        """Stop. A new incarnation of the transactional id starts later."""
        self.is_dead = True
        self.storm.later(
            self.storm.rng.choice((1, 100, 2_000)), self.storm.start_producer, self.name
        )

    def init(self) -> None:
        request = InitProducerIdRequest(self.name, self.timeout_ms, self.id, self.epoch, None)
        self.ask(request, self.init, self.started)

    def started(self, response: Any) -> None:
        if response.error:
            self.fail(response.error, self.init)
            return
        self.id, self.epoch = response.producer_id, response.producer_epoch
        self.begin()

    def begin(self) -> None:
        rng = self.storm.rng
        self.transaction = next(self.storm.transactions)
        self.partitions = rng.sample(DATA, rng.randrange(1, 4))
        self.added = []
        self.add()

    def add(self) -> None:
        """Add the next partitions, or end the transaction after the last ones."""
        rest = [tp for tp in self.partitions if tp not in self.added]
        if not rest:
            self.storm.later(
                self.storm.rng.choice((0, 10, 600)), self.end, self.storm.rng.random() < 0.6
            )
            return
        added = rest[: self.storm.rng.randrange(1, 3)]
        request = AddPartitionsRequest(self.name, self.id, self.epoch, added, "", None)

        def done(response: Any) -> None:
            error = response.errors[added[0]]
            if error:
                self.fail(error, self.add)
                return
            self.added += added
            self.write(list(added))

        self.ask(request, self.add, done)

    def write(self, left: list[TopicPartition]) -> None:
        """Write to the partitions, after verification where the partition has no open transaction yet."""
        if self.is_dead:
            return
        if not left:
            self.add()
            return
        tp = left[0]
        log = self.storm.data[tp]
        if log.is_deleted or log.epochs.get(self.id, -1) > self.epoch:
            self.write(
                left[1:]
            )  # the producer does not notice, so that it goes on with a stale epoch
            return
        if self.id not in log.open and not self.storm.verified(self, tp):
            self.storm.later(50, self.retry_write, left, self.turn)
            return
        log.epochs[self.id] = self.epoch
        log.open.add(self.id)
        log.entries.append((self.id, self.epoch, self.transaction))
        self.write(left[1:])

    def retry_write(self, left: list[TopicPartition], turn: int) -> None:
        if self.storm.rng.random() < 0.3:
            left = left[1:]  # the send fails, and the application goes on
        if turn == self.turn:
            self.write(left)

    def end(self, committed: bool) -> None:
        request = EndRequest(self.name, self.id, self.epoch, committed, None)

        def done(response: Any) -> None:
            if response.error:
                self.fail(response.error, lambda: self.end(committed))
                return
            self.storm.outcomes[self.transaction] = committed
            if self.storm.rng.random() < 0.15:
                self.init()  # recovers as after an error: raises its epoch
            elif self.storm.rng.random() < 0.2:
                self.die()
            else:
                self.storm.later(self.storm.rng.choice((0, 20, 1_500)), self.begin_again)

        self.ask(request, lambda: self.end(committed), done)

    def begin_again(self) -> None:
        if not self.is_dead and not self.storm.is_over:
            self.begin()

    def fail(self, error: int, again: Callable[[], None]) -> None:
        if error in RETRIABLE:
            self.storm.later(self.storm.rng.choice((10, 80, 300)), self.again, again, self.turn)
        else:
            self.die()

    def again(self, call: Callable[[], None], turn: int) -> None:
        if turn == self.turn and not self.is_dead:
            call()

    def ask(self, request: Request, again: Callable[[], None], done: Callable[[Any], None]) -> None:
        """Send a request. Send it again if there is no response in time."""
        if self.is_dead or self.storm.is_over:
            return
        self.turn += 1
        self.storm.send(self, request, done)
        self.storm.later(2_000, self.again, again, self.turn)


class TransactionStorm(Schedule[Broker]):
    """One random schedule of producers, coordinators and faults; `seed` determines it."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.settings = TransactionSettings(
            60_000, self.rng.choice((4_000, 600_000)), self.rng.choice((200, 2_000)), 1_500
        )
        self.fault = self.rng.choice((0.0, 0.03, 0.15))
        """Probability that an append is refused, or times out."""
        self.peace = self.rng.choice((2_000, 8_000))
        """Maximum time (ms) between two moves of coordinators."""
        self.producer_ids, self.producers, self.transactions = count(1_000), count(), count(1)
        self.waiting: dict[int, tuple[Producer, int, Callable[[Any], None], Broker, bool]] = {}
        self.committed = self.aborted = 0
        self.outcomes: dict[int, bool] = {}
        """Number of a transaction → True or False, as its producer was answered."""
        self.current: dict[str, tuple[int, int]] = {}
        """Transactional id → the last id and epoch that a coordinator has answered."""
        self.owners: dict[tuple[int, int], int] = {}
        """Producer id and epoch → the number of the producer that got them."""
        self.decided: dict[str, tuple[int, int, bool]] = {}
        """Transactional id → the transaction whose markers are being sent: producer id, epoch, committed."""
        self.data = {tp: DataLog() for tp in DATA}
        self.logs = [StateLog() for _ in range(STATE_PARTITIONS)]
        self.brokers = [Broker(self) for _ in range(3)]
        for partition in range(STATE_PARTITIONS):
            self.elect(partition)
        for name in NAMES:
            self.start_producer(name)

    # Running the schedule.

    def run(self, ms: int = 40_000) -> None:
        end = self.now + ms
        self.later(self.rng.randrange(self.peace), self.disturb)
        self.step_until(end)
        self.is_over = True
        self.step_until(end + 100_000)
        self.check_contexts()
        for partition in range(STATE_PARTITIONS):
            # The last record of a log may be one that was reported as failed.
            self.move(partition, reloads=True)
        self.step_until(end + 200_000)
        assert not self.waiting, f"never answered: {sorted(self.waiting)}"
        self.check_contexts()
        self.check_ends()
        self.check_data()

    def disturb(self) -> None:
        """Move a coordinator, crash a broker, delete a partition, or start another producer of an id."""
        if self.is_over:
            return
        chance = self.rng.random()
        if chance < 0.5:
            self.move(self.rng.randrange(STATE_PARTITIONS))
        elif chance < 0.65:
            self.crash(self.rng.randrange(len(self.brokers)))
        elif chance < 0.7:
            self.data[self.rng.choice(DATA)].is_deleted = True
        else:
            self.start_producer(self.rng.choice(NAMES))
        self.later(self.rng.randrange(1, self.peace), self.disturb)

    def start_producer(self, name: str) -> None:
        if not self.is_over:
            Producer(self, name).init()

    # Requests and responses.

    def send(self, producer: Producer, request: Request, done: Callable[[Any], None]) -> None:
        """Send a request to the coordinator or, less often, to another broker."""
        log = self.logs[partition_of(producer.name, STATE_PARTITIONS)]
        known = [log.leader] * 4 if log.leader else []
        turn = producer.turn

        def arrive(broker: Broker) -> None:
            if broker not in self.brokers:
                return  # it has crashed
            caller = next(self.callers)
            current = self.current.get(producer.name, (-1, -1))
            is_fenced = (
                broker is log.leader
                and producer.id > -1
                and (producer.id, producer.epoch) < current
                and self.owners[current] != producer.number
            )
            self.waiting[caller] = (producer, turn, done, broker, is_fenced)
            self.handle(broker, request._replace(caller=caller))

        self.later(self.rng.choice((0, 1, 3, 50)), arrive, self.rng.choice([*known, *self.brokers]))

    def answer(self, broker: Broker, answer: Answer) -> None:
        assert answer.caller in self.waiting, f"answered twice or never asked: {answer}"
        producer, turn, done, asked, is_fenced = self.waiting.pop(answer.caller)  # type: ignore[arg-type]
        assert asked is broker
        self.answers += 1
        response = answer.response
        errors = set(response.errors.values()) if hasattr(response, "errors") else {response.error}
        assert not (is_fenced and 0 in errors), f"a fenced producer got {response}"
        if isinstance(response, InitProducerIdResponse) and not response.error:
            got = (response.producer_id, response.producer_epoch)
            assert self.owners.setdefault(got, producer.number) == producer.number
            self.current[producer.name] = max(self.current.get(producer.name, got), got)

        def read() -> None:
            if producer.turn == turn and not producer.is_dead:
                producer.turn += 1
                done(response)

        if self.rng.random() > 0.04 or self.is_over:  # else it is lost
            self.travel(read)

    def verified(self, producer: Producer, tp: TopicPartition) -> bool:
        """Ask a coordinator, as the partition's leader does."""
        log = self.logs[partition_of(producer.name, STATE_PARTITIONS)]
        broker = self.rng.choice([*[log.leader or self.brokers[0]] * 4, *self.brokers])
        request = VerifyRequest(producer.name, producer.id, producer.epoch, [tp], "leader")
        (answer,) = broker.coordinator.handle(request, self.now)
        assert isinstance(answer, Answer)
        return not answer.response.errors[tp]

    def handle(self, broker: Broker, event: Event) -> None:
        """Pass an event to a coordinator, and carry out its commands."""
        for command in broker.coordinator.handle(event, self.now):
            if isinstance(command, Answer):
                self.answer(broker, command)
            elif isinstance(command, Append):
                self.append(broker, command)
            elif isinstance(command, AllocateProducerId):
                self.later(self.rng.choice((0, 20)), self.allocate, broker, command.token)
            elif isinstance(command, SendMarkers):
                self.send_markers(broker, command)
            else:
                assert isinstance(command, DropMarkers)
                dropped = [n for n, job in broker.jobs.items() if job[0] == command.partition]
                for number in dropped:
                    del broker.jobs[number]
        self.check_known(broker)
        self.set_alarm(broker)

    def is_alive(self, broker: Broker) -> bool:
        return broker in self.brokers

    def allocate(self, broker: Broker, token: int) -> None:
        if broker not in self.brokers:
            return
        fails = self.rng.random() < self.fault and not self.is_over
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        self.handle(broker, Outcome(token, error if fails else next(self.producer_ids)))

    # The logs of the state.

    def append(self, broker: Broker, append: Append) -> None:
        """Append to the log of the leader. An append of a former leader gets into no log."""
        broker.unreported[append.token] = append.partition
        log = self.logs[append.partition]
        ((key, value),) = append.records
        if broker is not log.leader:
            self.later(900, self.report, broker, append.token, ErrorCode.REQUEST_TIMED_OUT)
            return
        if self.rng.random() < self.fault and not self.is_over:
            error = self.rng.choice((ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.MESSAGE_TOO_LARGE))
            self.later(1, self.report, broker, append.token, error)
            return
        entry = Entry(broker, append.token, key, value)
        self.check_record(entry)
        log.entries.append(entry)
        self.later(self.rng.choice((0, 2, 30, 400)), self.commit, append.partition, log.epoch)
        if self.rng.random() < self.fault and not self.is_over:
            error = self.rng.choice((ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER))
            self.later(1, self.report, broker, append.token, error)

    def commit(self, partition: int, epoch: int) -> None:
        """Commit all entries so far of the partition."""
        log = self.logs[partition]
        if log.epoch != epoch:
            return
        for entry in log.entries[log.committed :]:
            log.committed += 1
            self.entry_committed(entry)
            if entry.broker is log.leader:
                self.report(entry.broker, entry.token, ErrorCode.NONE, entry)

    def entry_committed(self, entry: Entry) -> None:
        value = None if entry.value is None else read_transaction_value(entry.value)
        if value is not None and value.state in COMPLETE:
            self.decided.pop(entry.name, None)

    def report(self, broker: Broker, token: int, error: int, entry: Entry | None = None) -> None:
        if broker not in self.brokers or broker.unreported.pop(token, None) is None:
            return
        if entry is not None and entry.value is not None:
            broker.known[entry.name] = entry.value
        self.handle(broker, Outcome(token, error))

    # Coordinators.

    def move(self, partition: int, *, reloads: bool = False) -> None:
        """Elect another leader, or the same again. A random number of entries that are not committed are lost.

        `reloads`: the next leader loads the partition.
        """
        log = self.logs[partition]
        former = log.leader
        if former is None:
            return
        log.epoch += 1
        if not reloads and self.rng.random() < 0.25:
            former.epochs[partition] = log.epoch
            if former.coordinator.handle(LeadershipBegun(partition, log.epoch), self.now):
                assert partition in former.coordinator.context.loads
                self.load(former, partition, log.epoch)
            self.later(5, self.commit, partition, log.epoch)
            return
        log.leader = None
        kept = self.rng.randrange(log.committed, len(log.entries) + 1)
        del log.entries[kept:]
        if self.rng.random() < 0.3:
            self.resign(former, partition)
        else:
            self.later(self.rng.randrange(5_000), self.resign, former, partition)
        self.later(self.rng.choice((0, 40, 500)), self.elect, partition)

    def resign(self, broker: Broker, partition: int) -> None:
        if broker not in self.brokers or self.logs[partition].leader is broker:
            return
        for token in [token for token, found in broker.unreported.items() if found == partition]:
            if self.rng.random() < 0.5:
                self.report(broker, token, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        broker.epochs.pop(partition, None)
        self.handle(broker, LeadershipEnded(partition))

    def elect(self, partition: int) -> None:
        """Elect a leader. It serves the partition after everything in its log is committed."""
        log = self.logs[partition]
        if log.leader is not None:
            return
        broker = self.rng.choice(self.brokers)
        if partition in broker.epochs:
            log.leader = None
            self.resign(broker, partition)
        log.leader = broker
        log.epoch += 1
        for entry in log.entries[log.committed :]:
            log.committed += 1
            self.entry_committed(entry)
        broker.epochs[partition] = log.epoch
        commands = broker.coordinator.handle(LeadershipBegun(partition, log.epoch), self.now)
        assert commands == [LoadPartition(partition, log.epoch)]
        self.load(broker, partition, log.epoch)

    def load(self, broker: Broker, partition: int, epoch: int) -> None:
        entries = list(self.logs[partition].entries)
        records = [LoadedRecord(entry.key, entry.value) for entry in entries]
        broker.coordinator.handle(RecordsRead(partition, epoch, records), self.now)
        self.later(self.rng.choice((0, 30, 200)), self.loaded, broker, partition, epoch, entries)

    def loaded(self, broker: Broker, partition: int, epoch: int, read: list[Entry]) -> None:
        if broker not in self.brokers or broker.epochs.get(partition) != epoch:
            return
        for entry in read:
            if entry.value is not None:
                broker.known[entry.name] = entry.value
        self.handle(broker, LoadFinished(partition, epoch, STATE_PARTITIONS))

    def crash(self, number: int) -> None:
        """Replace a broker by one that knows nothing. Its callers get no response."""
        former = self.brokers[number]
        self.brokers[number] = Broker(self)
        for caller in [caller for caller, found in self.waiting.items() if found[3] is former]:
            del self.waiting[caller]
        for partition, log in enumerate(self.logs):
            if log.leader is former:
                log.leader = None
                kept = self.rng.randrange(log.committed, len(log.entries) + 1)
                del log.entries[kept:]
                self.later(self.rng.choice((0, 40, 500)), self.elect, partition)

    # Markers.

    def send_markers(self, broker: Broker, command: SendMarkers) -> None:
        ended = command.ended
        decision = (ended.producer_id, ended.producer_epoch, ended.committed)
        if broker is self.logs[command.partition].leader:
            assert self.decided.setdefault(ended.transactional_id, decision) == decision
        broker.jobs[ended.number] = (command.partition, ended, set(command.partitions))
        for tp in command.partitions:
            self.later(self.rng.choice((0, 2, 40, 300)), self.deliver, broker, ended, tp)

    def deliver(self, broker: Broker, ended: EndedTransaction, tp: TopicPartition) -> None:
        """Write a marker to a partition, as its leader does, and report it to the coordinator."""
        is_reported = broker in self.brokers and ended.number in broker.jobs
        if not is_reported and self.rng.random() < 0.7:
            return  # else the marker was on its way when it was dropped
        log = self.data[tp]
        error = self.write_marker(log, ended)
        if not is_reported:
            return
        if error == ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            del broker.jobs[ended.number]
            self.handle(broker, MarkersFenced(ended))
        elif self.rng.random() < 0.1:
            self.later(self.rng.choice((0, 50)), self.deliver, broker, ended, tp)
        else:
            waiting = broker.jobs[ended.number][2]
            waiting.discard(tp)
            if not waiting:
                del broker.jobs[ended.number]
            self.report_marker(broker, ended, tp)
            if self.rng.random() < 0.05:
                self.later(self.rng.randrange(400), self.report_marker, broker, ended, tp)

    def report_marker(self, broker: Broker, ended: EndedTransaction, tp: TopicPartition) -> None:
        self.handle(broker, MarkersWritten(ended, [tp]))

    def write_marker(self, log: DataLog, ended: EndedTransaction) -> int:
        producer = ended.producer_id
        if log.is_deleted:
            return ErrorCode.NONE
        if log.coordinator_epochs.get(producer, -1) > ended.coordinator_epoch:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert log.epochs.get(producer, -1) <= ended.producer_epoch, "the marker has an old epoch"
        log.epochs[producer] = ended.producer_epoch
        log.coordinator_epochs[producer] = ended.coordinator_epoch
        log.open.discard(producer)
        log.entries.append((producer, ended.producer_epoch, ended.committed))
        return ErrorCode.NONE

    # Invariants.

    def check_record(self, entry: Entry) -> None:
        """While markers are being sent, the next record is the one that completes this transaction."""
        decision = self.decided.get(entry.name)
        if decision is None:
            return
        assert entry.value is not None, "removed while its markers are being sent"
        value = read_transaction_value(entry.value)
        found = (
            value.producer_id,
            value.producer_epoch,
            value.state is TransactionState.COMPLETE_COMMIT,
        )
        assert value.state in COMPLETE, f"{value.state} follows before the transaction is complete"
        assert found == decision
        for tp in self.partitions_of(entry.name):
            log = self.data[tp]
            assert log.is_deleted or decision in log.entries, f"{tp} has no marker"

    def partitions_of(self, name: str) -> set[TopicPartition]:
        """Return the partitions of the last decided transaction of an id, from its log."""
        log = self.logs[partition_of(name, STATE_PARTITIONS)]
        for entry in reversed(log.entries[: log.committed]):
            if entry.name == name and entry.value is not None:
                return set(read_transaction_value(entry.value).partitions)
        return set()

    def check_known(self, broker: Broker) -> None:
        """Every record in the context was loaded, or was reported as committed."""
        for name, txn in broker.coordinator.context.ids.items():
            if txn.stored is not None:
                assert transaction_value(txn.stored) == broker.known[name]

    def check_ends(self) -> None:
        """Every coordinator has the ids of its log, and no log ends with an open or ending transaction."""
        for partition, log in enumerate(self.logs):
            assert log.leader is not None
            last: dict[str, TransactionMetadata | None] = {}
            for entry in log.entries:
                value = None if entry.value is None else read_transaction_value(entry.value)
                last[entry.name] = value
            ids = log.leader.coordinator.context.ids
            for name, value in last.items():
                if value is None:
                    assert name not in ids
                else:
                    assert value.state in BETWEEN, (
                        f"{name} in partition {partition} is {value.state}"
                    )
                    assert ids[name].stored is not None

    def check_contexts(self) -> None:
        """No coordinator has an open or ending transaction, or markers to send."""
        for broker in self.brokers:
            assert not broker.jobs
            assert not broker.coordinator.context.open
            assert not any(txn.is_prepared for txn in broker.coordinator.context.ids.values())

    def check_data(self) -> None:
        """All data of a transaction have one outcome, which is the one that its producer was answered."""
        outcomes: dict[int, bool] = {}
        for tp, log in self.data.items():
            if log.is_deleted:
                continue
            for transaction, committed in self.ends_in(tp, log):
                assert outcomes.setdefault(transaction, committed) is committed, "two outcomes"
                answered = self.outcomes.get(transaction, committed)
                assert answered is committed, f"the producer was answered {answered}"
        self.committed = sum(outcomes.values())
        self.aborted = len(outcomes) - self.committed

    def ends_in(self, tp: TopicPartition, log: DataLog) -> list[tuple[int, bool]]:
        """Return the transactions with data in a partition, and whether their marker commits them."""
        ends: list[tuple[int, bool]] = []
        unended: dict[int, set[int]] = {}
        for producer, _, what in log.entries:
            if isinstance(what, bool):
                ends += [(transaction, what) for transaction in unended.pop(producer, ())]
            else:
                unended.setdefault(producer, set()).add(what)
        assert not unended, f"no marker in {tp} for {unended}"
        return ends
