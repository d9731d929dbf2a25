"""Fetches of one connection: the end of a read, file positions kept between fetches, sessions, large requests."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.storage.logs import clean, end_marker, transactional_batch
from support.storage.replication import KEY, LAG_MS, TP, Replica, Replicas

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import ErrorCode, ProtocolViolation, StorageFailed
from minikafka.base.fetch_rows import RequestRow
from minikafka.base.metrics import Metrics
from minikafka.base.model import TopicPartition
from minikafka.broker import turns as scheduler
from minikafka.broker.clients.access import Access
from minikafka.broker.fetch import consumer_fetch
from minikafka.broker.fetch.consumer_fetch import ROWS_MAX
from minikafka.broker.fetch.consumer_fetches import LARGE_BYTES, POSITIONS_MIN, WAITING_MAX
from minikafka.broker.fetch.handler import REQUEST_BYTES_MAX, FetchApi
from minikafka.broker.metadata import MetadataCache
from minikafka.broker.replicas.fetch_sessions import FetchSessions
from minikafka.broker.replicas.refusals import Refusals
from minikafka.broker.reports.request_metrics import RequestMetrics
from minikafka.broker.turns import OneAtATime, Scheduler
from minikafka.kafka.records.batch import records
from minikafka.kafka.wire.codec import decode_response, encode_request, request
from minikafka.kafka.wire.fetch import FOLLOWER_VERSION, STEP_ROWS, decode_in_steps
from minikafka.kafka.wire.fetch import encode_request as encode_follower_request
from minikafka.kafka.wire.versions import FETCH
from minikafka.simulation.clocks import ManualClock
from minikafka.simulation.ports import SeededRng
from minikafka.storage.replication import consumer_sessions, sessions
from minikafka.storage.replication.partition import Partition
from minikafka.storage.replication.purgatory import AnswerQueue

VERSION = 11
READ_COMMITTED = 1


class Consumer:
    """A connection that fetches from one replica in memory."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.sent: list[bytes] = []
        self.refused: list[ProtocolViolation] = []
        self.answers = AnswerQueue(
            replica.purgatory, lambda slices: self.sent.append(b"".join(slices))
        )
        config = BrokerConfig()
        replicas = SimpleNamespace(
            find=self._find,
            hosted=SimpleNamespace(find_by_id=self._find),
            error_for_wire=lambda topic, number: int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            purgatory=replica.purgatory,
            refusals=Refusals({}, MetadataCache(ManualClock()), ManualClock(), lambda: "connected"),
            config=config,
            fetch_sessions=FetchSessions(
                replica.purgatory,
                self._find,
                lambda partition, progress: None,
                config,
                SeededRng(),
            ),
        )
        nobody = cast("Any", None)
        self.clock = ManualClock()
        turns = Scheduler(self.clock, replica.purgatory.finish_tick)
        replica.finish_soon = turns.finish_soon
        self.api = FetchApi(
            nobody,
            cast("Any", replicas),
            self.answers,
            self.clock,
            RequestMetrics(Metrics()),
            lambda: None,
            turns,
            self.refused.append,
            Access(None, Metrics()),
        )

    def _find(self, topic: bytes, number: int) -> Partition | None:
        return self.replica.partition if (topic, number) == KEY else None

    def fetch_in_session(
        self, session: tuple[int, int], offset: int, *, broker: int = 9
    ) -> list[int]:
        """Fetch partition 0 in a session; return the received error codes. `broker`: replica id, -1 for a consumer."""
        partition = self.replica.partition
        epochs = (partition.leader_epoch, partition.log.epochs.latest)
        row = (0, epochs[0], offset, epochs[1], 0, 1 << 20)
        self.send_in_session(broker, session, [row])
        self.replica.purgatory.finish_tick(0)
        sent, self.sent = self.sent, []
        answers = [decode_response(FETCH, FOLLOWER_VERSION, memoryview(data)[4:]) for data in sent]
        return [int(answer.error_code) for answer in answers]

    def send_in_session(
        self,
        broker: int,
        session: tuple[int, int],
        rows: list[RequestRow],
        forgotten: Sequence[tuple[bytes, Sequence[int]]] = (),
    ) -> None:
        """Send a fetch of topic t in a session; maximum wait 60 s. `broker`: replica id, -1 for a consumer."""
        topics, limits = [(b"t", rows)], (60_000, 1, 1 << 20)
        data = encode_follower_request(7, b"", broker, limits, session, topics, forgotten)
        frame, body = bytearray(data), 4 + 8 + 2
        self.api.on_request(frame, memoryview(frame), FOLLOWER_VERSION, 7, 0, body, len(frame))

    def fetch(
        self,
        offset: int,
        *,
        max_bytes: int = 1 << 20,
        isolation: int = 0,
        wait_ms: int = 0,
        broker: int = -1,
        leader_epoch: int = -1,
    ) -> Any:
        """Send a fetch that is answered without waiting; return the partition's part of the response."""
        row = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": max_bytes}
        row["current_leader_epoch"] = leader_epoch
        body = request(
            FETCH,
            VERSION,
            replica_id=broker,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=isolation,
            topics=[{"topic": "t", "partitions": [row]}],
        )
        frame = bytearray(encode_request(FETCH, VERSION, 7, "", body))
        self.api.on_request(frame, memoryview(frame), VERSION, 7, 0, 4 + 8 + 2, len(frame))
        self.replica.purgatory.finish_tick(0)
        response = decode_response(FETCH, VERSION, memoryview(self.sent.pop())[4:])
        return response.responses[0].partitions[0]

    def send_rows(
        self,
        rows: int,
        offset: int,
        *,
        wait_ms: int = 0,
        min_bytes: int = 1,
        is_new_tick: bool = True,
        wanting: int | None = None,
        isolation: int = 0,
        session: tuple[int, int] = (0, -1),
    ) -> bool:
        """Send a fetch that names the partition `rows` times. Return True if the next request must not be parsed yet.

        Only the first `wanting` of these entries allow more than 0 bytes of records; None means all entries.
        """
        row = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        count = rows if wanting is None else wanting
        full = {**row, "partition_max_bytes": 0}
        topics = [{"topic": "t", "partitions": [row] * count + [full] * (rows - count)}]
        body = request(
            FETCH,
            VERSION,
            replica_id=-1,
            max_wait_ms=wait_ms,
            min_bytes=min_bytes,
            max_bytes=1 << 20,
            isolation_level=isolation,
            session_id=session[0],
            session_epoch=session[1],
            topics=topics,
        )
        frame = bytearray(encode_request(FETCH, VERSION, 7, "", body))
        if is_new_tick:
            self.api.consumers.rows = 0
        self.api.now = self.clock.now()
        stop = self.api.on_request(frame, memoryview(frame), VERSION, 7, 0, 4 + 8 + 2, len(frame))
        self.replica.purgatory.finish_tick(0)
        return stop

    def received(self) -> list[list[int]]:
        """Return one list per response and topic: the offset of each partition's first record, -1 without a record."""
        data, self.sent = b"".join(self.sent), []
        answers = []
        while data:
            size = 4 + int.from_bytes(data[:4])
            answers.append(decode_response(FETCH, VERSION, memoryview(data)[4:size]))
            data = data[size:]
        return [
            [next((r.offset for r in records(row.records or b"")), -1) for row in topic.partitions]
            for answer in answers
            for topic in answer.responses
        ]

    def offsets(self, offset: int, *, max_bytes: int = 1 << 20) -> list[int]:
        data = self.fetch(offset, max_bytes=max_bytes).records
        return [record.offset for record in records(data or b"")]


def aborted_in(row: Any) -> list[tuple[int, int]]:
    """Return (producer id, first offset) of each aborted transaction in a partition of a response."""
    return [(one.producer_id, one.first_offset) for one in row.aborted_transactions]


@pytest.fixture
def replicas() -> Replicas:
    """Return one replica with five committed records in segments of two records."""
    replicas = Replicas((0,), segment_bytes="200")
    replicas.elect(0)
    for number in range(5):
        replicas.produce(0, b"%03d" % number)
    return replicas


def test_consecutive_fetches_do_not_search_for_their_file_position(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = Consumer(replicas[0])
    assert consumer.offsets(0, max_bytes=1) == [0]
    monkeypatch.setattr(type(replicas[0].log), "locate", None)
    assert consumer.offsets(1, max_bytes=1) == [1]
    assert consumer.offsets(2, max_bytes=1) == [2]


def test_file_position_from_before_a_compaction_is_not_used(replicas: Replicas) -> None:
    consumer = Consumer(replicas[0])
    assert consumer.offsets(0, max_bytes=1) == [0]
    clean(replicas[0].log, 0, lambda offset: offset == 0)
    assert consumer.offsets(1, max_bytes=1) == [2]


def test_file_position_from_before_a_truncation_is_not_used(replicas: Replicas) -> None:
    consumer = Consumer(replicas[0])
    assert consumer.offsets(4) == [4]
    replicas[0].partition.truncate_to(4)
    replicas.produce(0, b"a longer record than the one before")
    replicas.produce(0, b"005")
    assert consumer.offsets(5) == [5]


def test_file_positions_of_partitions_that_are_no_longer_hosted_are_dropped(
    replicas: Replicas,
) -> None:
    consumers, log = Consumer(replicas[0]).api.consumers, replicas[0].log
    for _ in range(POSITIONS_MIN + 1):
        hosted = replicas[0].partition = Partition(TP, 0, log, LAG_MS, lambda _: True)
        consumers.position(hosted, 1)
    assert set(consumers.positions) == {hosted}


def test_file_positions_of_all_hosted_partitions_are_kept(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition, numbers = replicas[0].partition, range(4 * POSITIONS_MIN)
    hosted = {
        number: Partition(TopicPartition("t", number), 0, partition.log, LAG_MS, lambda _: True)
        for number in numbers
    }
    consumers = Consumer(replicas[0]).api.consumers
    find = cast("Any", lambda _, number: hosted[number])
    monkeypatch.setattr(consumers.replicas, "find", find)
    for other in hosted.values():
        consumers.position(other, 1)
    assert set(consumers.positions) == set(hosted.values())


def test_fetch_from_an_offset_in_a_gap_returns_the_next_records(replicas: Replicas) -> None:
    clean(replicas[0].log, 0, lambda offset: False)
    assert Consumer(replicas[0]).offsets(0) == [2, 3]


def test_replica_fetch_below_version_12_ends_at_the_high_watermark() -> None:
    replicas = Replicas((0, 1))
    replicas.elect(0)
    for number in range(3):
        replicas.produce(0, b"%03d" % number)
    partition = replicas[0].partition
    partition.record_follower_fetch(partition.followers[1], 1, replicas.now)
    consumer = Consumer(replicas[0])
    row = consumer.fetch(0, broker=1)
    assert [record.offset for record in records(row.records)] == [0]
    row = consumer.fetch(1, broker=1)
    assert (row.error_code, row.high_watermark, row.records or b"") == (0, 1, b"")
    assert partition.high_watermark == 1


@pytest.mark.row("R41")
@pytest.mark.parametrize(
    ("difference", "error"),
    [(-1, ErrorCode.FENCED_LEADER_EPOCH), (0, 0), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_fetch_that_names_another_leader_epoch_is_refused(
    replicas: Replicas, difference: int, error: int
) -> None:
    replicas.elect(0)
    epoch = replicas[0].partition.leader_epoch + difference
    row = Consumer(replicas[0]).fetch(0, leader_epoch=epoch)
    assert (row.error_code, bool(row.records)) == (error, not error)


class TestReadCommitted:
    @pytest.fixture
    def consumer(self, replicas: Replicas) -> Consumer:
        """Return a consumer of a log where offset 5 is in an open transaction and offset 6 is in none."""
        batch = transactional_batch(0)
        replica = replicas[0]
        guard = replica.partition.verification_of(memoryview(batch))
        replica.purgatory.append(replica.partition, memoryview(batch), -1, 0, 0, guard=guard)
        replicas.produce(0, b"006")
        return Consumer(replica)

    @pytest.mark.row("R48")
    def test_read_committed_fetch_returns_records_below_the_last_stable_offset(
        self, consumer: Consumer
    ) -> None:
        row = consumer.fetch(4, isolation=READ_COMMITTED)
        assert [record.offset for record in records(row.records)] == [4]
        assert (row.last_stable_offset, row.high_watermark) == (5, 7)
        assert row.aborted_transactions == ()
        assert not consumer.fetch(5, isolation=READ_COMMITTED).records

    def test_read_uncommitted_fetch_ends_at_the_high_watermark(self, consumer: Consumer) -> None:
        row = consumer.fetch(4)
        assert [record.offset for record in records(row.records)] == [4, 5]
        assert (row.last_stable_offset, row.high_watermark) == (5, 7)
        assert row.aborted_transactions is None

    @staticmethod
    def end(replica: Replica, *, commit: bool) -> None:
        marker = memoryview(end_marker(commit=commit))
        replica.purgatory.append(replica.partition, marker, -1, 0, 0, internal=True)
        replica.purgatory.finish_tick(0)

    @pytest.mark.parametrize(("commit", "aborted"), [(False, [(7, 5)]), (True, [])])
    def test_read_committed_fetch_names_the_aborted_transactions_of_its_records(
        self, consumer: Consumer, commit: bool, aborted: list[tuple[int, int]]
    ) -> None:
        self.end(consumer.replica, commit=commit)
        row = consumer.fetch(4, isolation=READ_COMMITTED)
        assert [record.offset for record in records(row.records)] == [4, 5]
        assert aborted_in(row) == aborted
        assert consumer.fetch(4).aborted_transactions is None

    def test_aborted_transactions_outside_of_the_records_are_not_named(
        self, consumer: Consumer
    ) -> None:
        self.end(consumer.replica, commit=False)
        assert aborted_in(consumer.fetch(4, isolation=READ_COMMITTED, max_bytes=1)) == []
        assert aborted_in(consumer.fetch(7, isolation=READ_COMMITTED)) == [(7, 5)]
        assert aborted_in(consumer.fetch(8, isolation=READ_COMMITTED)) == []

    def test_large_read_committed_fetch_names_the_aborted_transactions(
        self, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(consumer_fetch, "EAGER_BYTES", 1 << 20)  # every record is deferred
        self.end(consumer.replica, commit=False)
        assert consumer.api.consumers.max_bytes > 0
        assert aborted_in(consumer.fetch(5, isolation=READ_COMMITTED)) == [(7, 5)]

    def test_waiting_read_committed_fetch_is_answered_when_the_transaction_ends(
        self, consumer: Consumer, replicas: Replicas
    ) -> None:
        assert not consumer.send_rows(1, 5, wait_ms=60_000, isolation=READ_COMMITTED)
        replicas.produce(0, b"007")
        assert consumer.received() == []
        self.end(consumer.replica, commit=True)
        assert consumer.received() == [[5]]

    def test_waiting_fetch_of_a_session_is_answered_when_the_transaction_ends(
        self, consumer: Consumer, replicas: Replicas
    ) -> None:
        consumer.send_rows(1, 5, isolation=READ_COMMITTED, session=(0, 0))
        first = decode_response(FETCH, VERSION, memoryview(consumer.sent.pop())[4:])
        session_id = int(first.session_id)
        consumer.send_rows(0, 5, wait_ms=60_000, isolation=READ_COMMITTED, session=(session_id, 1))
        replicas.produce(0, b"007")
        assert consumer.received() == []
        self.end(consumer.replica, commit=False)
        assert consumer.received() == [[5]]

    def test_error_response_has_no_list_of_aborted_transactions(self, consumer: Consumer) -> None:
        row = consumer.fetch(99, isolation=READ_COMMITTED)
        assert row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert row.aborted_transactions is None


@pytest.mark.row("R50")
def test_follower_fetch_of_an_unknown_session_or_wrong_session_epoch_is_refused(
    replicas: Replicas,
) -> None:
    replicas.ids = (0, 9)
    replicas.elect(0, isr=(0,), to=(0,))
    follower = Consumer(replicas[0])
    assert follower.fetch_in_session((5, 1), 0) == [ErrorCode.FETCH_SESSION_ID_NOT_FOUND]
    assert follower.fetch_in_session((0, 0), 0) == [ErrorCode.NONE]
    assert follower.fetch_in_session((1, 7), 0) == [ErrorCode.INVALID_FETCH_SESSION_EPOCH]
    assert follower.fetch_in_session((1, 1), 0) == [ErrorCode.NONE]


def test_session_starts_again_after_a_late_fetch_of_the_followers_earlier_connection(
    replicas: Replicas,
) -> None:
    """After a cut, the kernel still delivers what was sent before the follower connected again."""
    replicas.ids = (0, 9)
    replicas.elect(0, isr=(0,), to=(0,))
    earlier, follower = Consumer(replicas[0]), Consumer(replicas[0])
    assert follower.fetch_in_session((0, 0), 3) == [ErrorCode.NONE]
    assert earlier.fetch_in_session((0, 0), 2) == [ErrorCode.NONE]
    assert earlier.api.session is not None
    earlier.api.session.close()
    assert follower.fetch_in_session((1, 1), 3) == [ErrorCode.INVALID_FETCH_SESSION_EPOCH]
    assert follower.fetch_in_session((0, 0), 3) == [ErrorCode.NONE]
    progress = replicas[0].partition.followers[9]
    assert progress.item is not None
    assert progress.offset == 3


def test_consumer_fetch_of_an_unknown_session_is_refused(replicas: Replicas) -> None:
    refused = Consumer(replicas[0]).fetch_in_session((5, 1), 0, broker=-1)
    assert refused == [ErrorCode.FETCH_SESSION_ID_NOT_FOUND]


@pytest.mark.row("R49")
def test_waiting_follower_fetch_is_answered_when_the_next_fetch_arrives(replicas: Replicas) -> None:
    """The connection's queue has only one entry for responses to a follower, but both responses must be sent."""
    replicas.ids = (0, 9)
    replicas.elect(0, isr=(0,), to=(0,))
    follower = Consumer(replicas[0])
    assert follower.fetch_in_session((0, 0), 0) == [ErrorCode.NONE]
    assert follower.fetch_in_session((1, 1), 5) == []
    assert follower.fetch_in_session((1, 2), 0) == [ErrorCode.NONE, ErrorCode.NONE]


@pytest.mark.row("R48")
def test_waiting_fetch_is_answered_at_once_when_the_disk_fails(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise StorageFailed("/d", OSError("unreadable"))

    monkeypatch.setattr(type(replicas[0].log), "locate", fail)
    row = Consumer(replicas[0]).fetch(0, wait_ms=60_000)
    assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_fetch_of_many_partitions_is_handled_in_a_later_event_loop_turn(replicas: Replicas) -> None:
    consumer = Consumer(replicas[0])
    assert consumer.send_rows(ROWS_MAX + 1, 3)
    assert (consumer.received(), consumer.api.is_full()) == ([], True)
    consumer.clock.advance(0)
    assert consumer.received() == [[3] * (ROWS_MAX + 1)]
    assert not consumer.api.is_full()
    assert not consumer.send_rows(ROWS_MAX, 3)
    assert consumer.received() == [[3] * ROWS_MAX]


def test_small_fetches_parsed_together_share_a_limit_of_partitions(
    replicas: Replicas,
) -> None:
    consumer = Consumer(replicas[0])
    assert not consumer.send_rows(ROWS_MAX, 3)
    assert consumer.send_rows(1, 3, is_new_tick=False)
    assert not consumer.send_rows(1, 3)
    assert len(consumer.received()) == 3


def test_large_fetch_request_is_decoded_in_many_event_loop_turns(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = Consumer(replicas[0])
    monkeypatch.setattr(scheduler, "TURN_MS", 0)
    assert consumer.send_rows(2_000, 5)
    turns = 0
    while not replicas[0].log.traffic.fetch_requests:
        turns += 1
        consumer.api.consumers.work(0)
    assert turns > 2_000 // STEP_ROWS
    consumer.clock.advance(0)
    assert consumer.received() == [[-1] * 2_000]


def test_large_request_that_is_malformed_is_refused_when_it_is_decoded(
    replicas: Replicas,
) -> None:
    consumer = Consumer(replicas[0])
    frame = bytearray(14 + LARGE_BYTES)
    frame[-LARGE_BYTES:] = b"\x7f" * LARGE_BYTES
    assert consumer.api.on_request(frame, memoryview(frame), VERSION, 7, 0, 14, len(frame))
    assert consumer.refused == []
    consumer.clock.advance(0)
    assert len(consumer.refused) == 1
    assert not consumer.api.is_full()


def test_request_of_more_than_1_mib_is_refused(replicas: Replicas) -> None:
    frame = bytearray(14 + REQUEST_BYTES_MAX + 1)
    with pytest.raises(ProtocolViolation, match="1048576"):
        Consumer(replicas[0]).api.on_request(
            frame, memoryview(frame), VERSION, 7, 0, 14, len(frame)
        )


def test_large_request_is_dropped_when_its_connection_closes(replicas: Replicas) -> None:
    consumer = Consumer(replicas[0])
    consumer.send_rows(2_000, 5)
    consumer.api.close()
    consumer.clock.advance(60_000)
    assert (consumer.sent, consumer.clock.waiting()) == ([], 0)


def test_large_fetch_is_handled_in_many_event_loop_turns(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = Consumer(replicas[0])
    monkeypatch.setattr(scheduler, "TURN_MS", 0)
    consumer.send_rows(10 * ROWS_MAX, 5)
    turns = 0
    while not consumer.sent:
        turns += 1
        consumer.api.consumers.work(0)
        replicas[0].purgatory.finish_tick(0)
    assert turns > 10
    consumer.clock.advance(0)
    assert len(consumer.received()) == 1


def test_large_fetch_waits_for_records_and_is_answered_in_a_later_event_loop_turn(
    replicas: Replicas,
) -> None:
    consumer = Consumer(replicas[0])
    consumer.send_rows(2 * ROWS_MAX, 5, wait_ms=60_000)
    consumer.clock.advance(10)
    assert consumer.received() == []
    replicas.produce(0, b"005")
    assert consumer.received() == []
    consumer.clock.advance(0)
    assert consumer.received() == [[5] * (2 * ROWS_MAX)]
    assert not replicas[0].partition.waiting


def test_fetch_is_answered_after_its_maximum_wait_time(replicas: Replicas) -> None:
    consumer = Consumer(replicas[0])
    consumer.send_rows(1, 5, wait_ms=500)
    consumer.clock.advance(499)
    assert consumer.received() == []
    consumer.clock.advance(1)
    assert len(consumer.sent) == 1


def test_large_fetch_is_answered_after_its_maximum_wait_time(replicas: Replicas) -> None:
    consumer = Consumer(replicas[0])
    consumer.send_rows(2 * ROWS_MAX, 5, wait_ms=500)
    consumer.clock.advance(499)
    assert consumer.received() == []
    consumer.clock.advance(1)
    assert consumer.received() == [[-1] * (2 * ROWS_MAX)]


@pytest.mark.row("R49")
def test_large_fetch_is_answered_when_a_record_is_appended_while_it_is_handled(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = Consumer(replicas[0])
    monkeypatch.setattr(scheduler, "TURN_MS", 0)
    consumer.send_rows(2 * ROWS_MAX, 5, wait_ms=60_000, wanting=1)
    consumer.api.consumers.work(0)
    replicas.produce(0, b"005")
    consumer.clock.advance(0)
    assert len(consumer.received()) == 1


def absent(count: int) -> list[RequestRow]:
    """Return `count` entries of a Fetch request, each for a partition that does not exist."""
    return [(1 + number, 0, 0, -1, 0, 1000) for number in range(count)]


def turns(consumer: Consumer) -> list[int]:
    """Handle a large fetch in many event loop turns; return the number of partitions in sessions after each turn."""
    cache, counts = consumer.api.replicas.fetch_sessions, []
    while not consumer.sent:
        consumer.api.consumers.work(0)
        consumer.replica.purgatory.finish_tick(0)
        counts.append(cache.partition_count())
    return counts


def test_large_fetch_session_is_created_and_updated_in_many_event_loop_turns(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "TURN_MS", 0)
    consumer = Consumer(replicas[0])
    consumer.send_in_session(-1, (0, 0), absent(640))
    counts = turns(consumer)
    assert counts[-1] == 640
    assert max(after - before for before, after in itertools.pairwise(counts)) <= 32
    answer = decode_response(FETCH, FOLLOWER_VERSION, memoryview(consumer.sent.pop())[4:])
    consumer.send_in_session(-1, (answer.session_id, 1), [], [(b"t", range(1, 601))])
    counts = turns(consumer)
    assert counts[-1] == 40
    assert max(before - after for before, after in itertools.pairwise(counts)) <= 32


def test_consumer_session_is_closed_when_a_fetch_adds_too_many_partitions(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_sessions, "PARTITIONS_MAX", 10)
    consumer = Consumer(replicas[0])
    consumer.send_in_session(-1, (0, 0), absent(10))
    replicas[0].purgatory.finish_tick(0)
    answer = decode_response(FETCH, FOLLOWER_VERSION, memoryview(consumer.sent.pop())[4:])
    consumer.send_in_session(-1, (answer.session_id, 1), absent(11))
    replicas[0].purgatory.finish_tick(0)
    answer = decode_response(FETCH, FOLLOWER_VERSION, memoryview(consumer.sent.pop())[4:])
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(consumer.api.replicas.fetch_sessions.consumers) == 0


def test_very_large_fetch_without_a_session_is_answered_without_waiting(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_fetch, "WAIT_ROWS_MAX", 2 * ROWS_MAX)
    consumer = Consumer(replicas[0])
    consumer.send_rows(2 * ROWS_MAX + 1, 5, wait_ms=60_000)
    consumer.clock.advance(0)
    assert consumer.received() == [[-1] * (2 * ROWS_MAX + 1)]


def test_large_requests_are_handled_one_after_the_other(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Consumer(replicas[0]), Consumer(replicas[0])
    turns = second.api.consumers.turns = first.api.consumers.turns
    asked: list[object] = []
    monkeypatch.setattr(turns, "large", OneAtATime(first.api.consumers.clock, asked.append))
    for consumer in (first, second):
        consumer.send_rows(2_000, 5)
    while first.api.is_full():
        assert second.api.consumers not in asked
        first.api.consumers.work(0)
    assert asked[-1] is second.api.consumers


class TestLargeFetchesOfFollowers:
    def test_partitions_of_a_new_follower_session_are_added_in_many_event_loop_turns(
        self, replicas: Replicas, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(scheduler, "TURN_MS", 0)
        follower = Consumer(replicas[0])
        follower.send_in_session(9, (0, 0), absent(2_000))
        counts = turns(follower)
        assert counts[-1] == 2_000
        assert max(after - before for before, after in itertools.pairwise(counts)) <= 64

    def test_partitions_that_do_not_fit_into_a_response_are_in_the_next_response(
        self, replicas: Replicas, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sessions, "ANSWER_ROWS_MAX", 30)
        follower = Consumer(replicas[0])
        numbers = []
        follower.send_in_session(9, (0, 0), absent(50))
        for epoch in (1, 2):
            replicas[0].purgatory.finish_tick(0)
            data = memoryview(follower.sent.pop())[4:]
            answer = decode_response(FETCH, FOLLOWER_VERSION, data)
            numbers += [row.partition_index for row in answer.responses[0].partitions]
            follower.send_in_session(9, (answer.session_id, epoch), [])
        assert numbers == list(range(1, 51))

    def test_forgotten_partitions_are_not_in_the_next_response(
        self, replicas: Replicas, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sessions, "ANSWER_ROWS_MAX", 1)
        follower = Consumer(replicas[0])
        follower.send_in_session(9, (0, 0), absent(5))
        replicas[0].purgatory.finish_tick(0)
        follower.sent.clear()
        follower.send_in_session(9, (1, 1), [], [(b"t", [1, 2, 3, 4])])
        replicas[0].purgatory.finish_tick(0)
        answer = decode_response(FETCH, FOLLOWER_VERSION, memoryview(follower.sent.pop())[4:])
        assert [row.partition_index for row in answer.responses[0].partitions] == [5]
        assert follower.api.replicas.fetch_sessions.partition_count() == 1

    def test_follower_fetch_above_the_session_partition_limit_violates_the_protocol(
        self, replicas: Replicas, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sessions, "PARTITIONS_MAX", 5)
        follower = Consumer(replicas[0])
        follower.send_in_session(9, (0, 0), absent(5))
        with pytest.raises(ProtocolViolation, match="at most 5 partitions"):
            follower.send_in_session(9, (1, 1), absent(6))


def test_decoding_of_many_forgotten_partitions_yields_to_the_event_loop() -> None:
    data = bytearray(
        encode_follower_request(7, b"", 9, (0, 1, 1), (0, 0), (), [(b"t", range(4 * STEP_ROWS))])
    )
    steps = decode_in_steps(data, memoryview(data), 14, len(data), FOLLOWER_VERSION)
    assert len(list(steps)) >= 4


def test_large_fetch_that_waits_is_dropped_when_its_connection_closes(replicas: Replicas) -> None:
    consumer = Consumer(replicas[0])
    consumer.send_rows(2 * ROWS_MAX, 5, wait_ms=60_000)
    consumer.api.close()
    consumer.clock.advance(60_000)
    assert (consumer.sent, consumer.clock.waiting()) == ([], 0)


def test_connection_parses_no_further_request_while_too_many_of_its_fetches_wait(
    replicas: Replicas,
) -> None:
    consumer = Consumer(replicas[0])
    stops = [consumer.send_rows(1, 5, wait_ms=60_000) for _ in range(WAITING_MAX)]
    assert stops == [False] * (WAITING_MAX - 1) + [True]
    replicas.produce(0, b"005")
    assert (len(consumer.received()), consumer.api.is_full()) == (WAITING_MAX, False)
