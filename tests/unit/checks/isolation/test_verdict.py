"""Verdicts on small histories of transactions, most of them with one planted fault.

A `World` has transactional clients that write histories, and the logs of two replicas, which a test may spoil.
"""

from __future__ import annotations

from collections.abc import Sequence

from minikafka.base.model import TopicPartition
from minikafka.checks.histories import FAILED, OK, UNKNOWN, Recorder, digest_of, parse
from minikafka.checks.isolation.logs import ABORTED, COMMITTED, RECORD, Stored
from minikafka.checks.isolation.operations import OFFSETS_TOPIC, offset_digest
from minikafka.checks.isolation.verdict import Verdict, check

TP = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
OFFSETS = TopicPartition(OFFSETS_TOPIC, 0)


class World:
    """`logs`: the log of each partition. `second`: the log of the second replica where it differs."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.logs: dict[TopicPartition, list[Stored]] = {}
        self.second: dict[TopicPartition, Sequence[Stored]] = {}
        self._time = 0.0

    def now(self) -> float:
        """Return a time that is later than every time before."""
        self._time += 1
        return self._time

    def client(self, name: str) -> Client:
        return Client(self, name)

    def append(
        self, tp: TopicPartition, kind: str, digest: bytes = b"", producer: tuple[int, int] = (1, 0)
    ) -> int:
        """Append an entry to the log, and return its offset."""
        log = self.logs.setdefault(tp, [])
        offset = log[-1].offset + 1 if log else 0
        log.append(Stored(offset, kind, digest, *producer, producer[0] >= 0))
        return offset

    def verdict(self) -> Verdict:
        replicas = {tp: {1: log, 2: self.second.get(tp, log)} for tp, log in self.logs.items()}
        return check(parse(self.lines), replicas)

    def anomalies(self) -> dict[str, int]:
        return dict(self.verdict().counts)


class Client:
    """A client with a producer id of its own."""

    _last_id = 0

    def __init__(self, world: World, name: str) -> None:
        Client._last_id += 1
        self.producer = (Client._last_id, 0)
        self.history = Recorder(name, name, world.lines.append, world.now)
        self._world = world
        self._touched: set[TopicPartition] = set()

    def begin(self) -> None:
        self.history.ended(self.history.begin())

    def write(
        self,
        value: str,
        tp: TopicPartition = TP,
        *,
        outcome: str = OK,
        stored: bool = True,
        knows_offset: bool = True,
    ) -> int:
        """Write a record, and return its offset. `stored` is False if the log lacks the record."""
        number = self.history.write(tp.topic, value.encode(), tp.partition)
        offset = len(self._world.logs.get(tp, ()))
        if stored:
            offset = self._world.append(tp, RECORD, digest_of(value.encode()), self.producer)
            self._touched.add(tp)
        self.history.ended(number, outcome, offset=offset if knows_offset else -1)
        return offset

    def commit_offset(self, offset: int) -> None:
        """Commit an offset of the group g for `TP` as part of the transaction."""
        number = self.history.offsets("g", *TP, offset)
        digest = offset_digest("g", TP, offset)
        self._world.append(OFFSETS, RECORD, digest, self.producer)
        self._touched.add(OFFSETS)
        self.history.ended(number)

    def mark(self, kind: str, *partitions: TopicPartition) -> None:
        """Write the marker to these partitions, otherwise to all with records of the transaction."""
        for tp in partitions or sorted(self._touched):
            self._world.append(tp, kind, b"", self.producer)
            self._touched.discard(tp)

    def commit(self, outcome: str = OK, *, marker: str = COMMITTED) -> None:
        number = self.history.commit()
        self.mark(marker)
        self.history.ended(number, outcome)

    def abort(self, *, marker: str = ABORTED) -> None:
        number = self.history.abort()
        self.mark(marker)
        self.history.ended(number)

    def commit_all(self, *values: str) -> None:
        """Write these records in one transaction and commit it."""
        self.begin()
        for value in values:
            self.write(value)
        self.commit()

    def read(self, offset: int, value: str, tp: TopicPartition = TP) -> None:
        self.history.read(*tp, offset, value.encode())


A = digest_of(b"a")


def test_history_of_commits_aborts_and_reads_has_no_anomaly() -> None:
    world = World()
    writer, reader = world.client("writer"), world.client("reader")
    writer.commit_all("a", "b")
    writer.begin()
    writer.write("c")
    writer.abort()
    reader.history.seek(*TP, 0)
    reader.read(0, "a")
    reader.read(1, "b")
    reader.history.reached(*TP, 5)
    result = world.verdict()
    assert result.ok
    assert (result.facts["committed"], result.facts["aborted"]) == (1, 1)
    assert (result.facts["writes"], result.facts["visible"], result.facts["reads"]) == (3, 2, 2)
    assert str(result).endswith(": no anomaly")


def test_committed_record_that_no_log_has_is_lost() -> None:
    world = World()
    client = world.client("a")
    client.begin()
    client.write("a")
    client.write("b", stored=False)
    client.commit()
    assert world.anomalies() == {"lost": 1}


def test_committed_record_before_an_abort_marker_is_lost() -> None:
    world = World()
    client = world.client("a")
    client.begin()
    client.write("a")
    client.commit(marker=ABORTED)
    assert world.anomalies() == {"lost": 1}


def test_committed_record_without_a_known_offset_must_be_in_a_log() -> None:
    world = World()
    client = world.client("a")
    client.begin()
    client.write("a", knows_offset=False)
    client.write("b", knows_offset=False, stored=False)
    client.commit()
    assert world.anomalies() == {"lost": 1}


def test_record_that_the_cleaner_may_have_removed_is_not_lost() -> None:
    world = World()
    client = world.client("a")
    client.commit_all("a", "b")
    del world.logs[TP][0]
    assert world.anomalies() == {}


def test_committed_record_after_an_open_transaction_is_behind_the_lso() -> None:
    world = World()
    stuck, client = world.client("stuck"), world.client("a")
    stuck.begin()
    stuck.write("open")
    client.commit_all("a", "b")
    result = world.verdict()
    assert result.counts == {"behind_lso": 2}
    assert next(result.lines()) == "behind_lso at t-0 offset 1 of a/1: the last stable offset is 0"


def test_committed_record_without_a_marker_is_behind_the_lso() -> None:
    world = World()
    client = world.client("a")
    client.begin()
    client.write("a")
    client.write("b", OTHER)
    number = client.history.commit()
    client.mark(COMMITTED, TP)
    client.history.ended(number)
    assert world.anomalies() == {"behind_lso": 1}


def test_transaction_with_unknown_outcome_is_visible_as_a_whole_or_not_at_all() -> None:
    for marker in (COMMITTED, ABORTED):
        world = World()
        client = world.client("a")
        client.begin()
        client.write("a")
        client.write("b", OTHER)
        client.commit(UNKNOWN, marker=marker)
        assert world.anomalies() == {}
    world = World()
    client = world.client("a")
    client.begin()
    client.write("a")
    client.write("b", OTHER)
    number = client.history.commit()
    client.mark(COMMITTED, TP)
    client.mark(ABORTED, OTHER)
    client.history.ended(number, UNKNOWN)
    assert world.anomalies() == {"torn": 1}


def test_offset_that_is_visible_without_the_records_is_torn() -> None:
    world = World()
    client = world.client("a")
    client.begin()
    client.write("a")
    client.commit_offset(7)
    client.history.commit()
    client.mark(ABORTED, TP)
    client.mark(COMMITTED, OFFSETS)
    assert world.anomalies() == {"torn": 1}


def test_offset_of_an_aborted_transaction_that_is_visible_is_an_aborted_read() -> None:
    world = World()
    client = world.client("a")
    client.begin()
    client.commit_offset(7)
    client.abort(marker=COMMITTED)
    assert world.anomalies() == {"aborted_read": 1}


def test_record_in_the_log_twice_is_duplicated() -> None:
    world = World()
    client = world.client("a")
    client.begin()
    client.write("a")
    world.append(TP, RECORD, A, client.producer)
    client.commit()
    assert world.anomalies() == {"duplicated": 1}


def test_same_value_in_an_aborted_and_a_committed_try_is_no_duplicate() -> None:
    world = World()
    client = world.client("a")
    client.begin()
    client.write("a", knows_offset=False, outcome=UNKNOWN)
    client.abort()
    client.begin()
    client.write("a", knows_offset=False)
    client.commit()
    assert world.anomalies() == {}


def test_visible_record_of_an_aborted_transaction_is_an_aborted_read() -> None:
    world = World()
    client = world.client("a")
    client.begin()
    client.write("a")
    client.abort(marker=COMMITTED)
    assert world.anomalies() == {"aborted_read": 1}


def test_visible_record_whose_client_never_asked_for_a_commit_is_an_aborted_read() -> None:
    world = World()
    client = world.client("a")
    client.begin()
    client.write("a", outcome=UNKNOWN)
    client.mark(COMMITTED)
    assert world.anomalies() == {"aborted_read": 1}


def test_visible_record_whose_send_failed_is_an_aborted_read() -> None:
    world = World()
    client = world.client("a")
    client.begin()
    client.write("a", outcome=FAILED)
    client.commit()
    assert world.anomalies() == {"aborted_read": 1}


def test_read_of_an_aborted_record_is_an_aborted_read() -> None:
    world = World()
    writer, reader = world.client("writer"), world.client("reader")
    writer.begin()
    writer.write("a")
    writer.abort()
    reader.read(0, "a")
    assert world.anomalies() == {"aborted_read": 1}


def test_read_before_the_commit_is_an_intermediate_read() -> None:
    world = World()
    writer, reader = world.client("writer"), world.client("reader")
    writer.begin()
    writer.write("a")
    reader.read(0, "a")
    writer.commit()
    result = world.verdict()
    assert result.counts == {"intermediate_read": 1}
    assert "1.000 s before its client asked for the commit" in next(result.lines())


def test_read_of_a_transaction_that_is_open_in_the_log_is_an_intermediate_read() -> None:
    world = World()
    writer, reader = world.client("writer"), world.client("reader")
    writer.begin()
    writer.write("a")
    reader.read(0, "a")
    assert world.anomalies() == {"intermediate_read": 1}


def test_read_of_only_some_records_of_a_transaction_is_an_intermediate_read() -> None:
    world = World()
    writer, reader = world.client("writer"), world.client("reader")
    writer.commit_all("a", "b", "c")
    reader.read(0, "a")
    reader.read(2, "c")
    assert world.anomalies() == {"intermediate_read": 1}


def test_visible_record_that_a_reader_passes_over_is_a_skipped_read() -> None:
    world = World()
    writer, reader = world.client("writer"), world.client("reader")
    writer.commit_all("a")
    writer.commit_all("b")
    reader.history.seek(*TP, 0)
    reader.history.reached(*TP, 2)
    reader.read(2, "b")
    reader.history.seek(*TP, 4)  # a rebalance: another consumer read in between
    assert world.anomalies() == {"skipped_read": 1}


def test_second_read_of_an_offset_is_read_back_unless_the_reader_seeks() -> None:
    world = World()
    writer, reader = world.client("writer"), world.client("reader")
    writer.commit_all("a")
    reader.read(0, "a")
    reader.history.seek(*TP, 0)
    reader.read(0, "a")
    assert world.anomalies() == {}
    reader.read(0, "a")
    assert world.anomalies() == {"read_back": 1}


def test_read_of_another_value_than_the_log_has_is_reported() -> None:
    world = World()
    writer, reader = world.client("writer"), world.client("reader")
    writer.commit_all("a")
    reader.read(0, "x")
    assert world.anomalies() == {"read_differs": 1}


def test_record_before_those_of_an_ended_transaction_is_a_write_cycle() -> None:
    world = World()
    first, second = world.client("first"), world.client("second")
    first.begin()
    first.commit()
    second.begin()
    second.write("b")
    second.commit()
    late = world.append(TP, RECORD, A, first.producer)
    first.mark(COMMITTED, TP)
    line = '{"client":"first","number":9,"event":"write","transaction":1,"topic":"t",'
    world.lines.append(
        f'{line}"partition":0,"offset":{late},"value":"a","outcome":"ok","time":2.0}}\n'
    )
    assert world.anomalies() == {"write_cycle": 1}


def test_transactions_at_the_same_time_may_interleave_in_several_partitions() -> None:
    world = World()
    first, second = world.client("first"), world.client("second")
    for client in (first, second):
        client.begin()
    first.write("a", TP)
    second.write("b", TP)
    second.write("c", OTHER)
    first.write("d", OTHER)
    first.commit()
    second.commit()
    result = world.verdict()
    assert result.ok
    assert result.facts["interleaved"] == 2


def test_transactions_that_read_from_each_other_are_an_information_cycle() -> None:
    world = World()
    first, second = world.client("first"), world.client("second")
    for client in (first, second):
        client.begin()
    first.write("a", TP)
    second.write("b", OTHER)
    first.read(0, "b", OTHER)
    second.read(0, "a", TP)
    first.commit()
    second.commit()
    assert world.anomalies() == {"intermediate_read": 2, "information_cycle": 1}


def test_read_of_a_later_transaction_of_the_same_client_is_an_information_cycle() -> None:
    world = World()
    client = world.client("a")
    client.begin()
    client.read(0, "a")
    client.commit()
    client.commit_all("a")
    assert world.anomalies()["information_cycle"] == 1


def test_records_in_another_order_than_they_were_sent_are_reordered() -> None:
    world = World()
    client = world.client("a")
    client.begin()
    client.write("a")
    client.write("b")
    client.commit()
    world.lines[:] = [
        line.replace('"offset":0', '"offset":9')
        .replace('"offset":1', '"offset":0')
        .replace('"offset":9', '"offset":1')
        for line in world.lines
    ]
    log = world.logs[TP]
    log[0], log[1] = log[1]._replace(offset=0), log[0]._replace(offset=1)
    assert world.anomalies() == {"reordered": 1}


def test_offsets_of_one_call_may_lie_in_any_order() -> None:
    world = World()
    client = world.client("a")
    client.begin()
    client.commit_offset(1)
    client.commit_offset(2)
    client.commit()
    log = world.logs[OFFSETS]
    log[0], log[1] = log[1]._replace(offset=0), log[0]._replace(offset=1)
    assert world.anomalies() == {}


def test_batch_after_a_later_epoch_of_its_producer_is_a_zombie_write() -> None:
    world = World()
    client = world.client("a")
    client.commit_all("a")
    producer, _ = client.producer
    world.append(TP, ABORTED, b"", (producer, 1))
    client.begin()
    client.write("b")
    client.commit()
    assert world.anomalies() == {"zombie_write": 2}


def test_record_that_nobody_sent_is_invented() -> None:
    world = World()
    world.client("a").commit_all("a")
    world.append(TP, RECORD, digest_of(b"x"), (-1, -1))
    assert world.anomalies() == {"invented": 1}


def test_replicas_with_different_markers_are_diverging() -> None:
    world = World()
    world.client("a").commit_all("a")
    log = world.logs[TP]
    world.second[TP] = [log[0], log[1]._replace(kind=ABORTED)]
    assert world.anomalies() == {"diverging": 1}
    world.second[TP] = log[:1]
    assert world.anomalies() == {"diverging": 1}


def test_write_outside_transactions_is_lost_only_if_it_was_acknowledged() -> None:
    world = World()
    client = world.client("a")
    client.producer = (-1, -1)
    client.write("a")
    client.write("b", stored=False, outcome=UNKNOWN)
    assert world.anomalies() == {}
    client.write("c", stored=False)
    assert world.anomalies() == {"lost": 1}


def test_offset_of_an_aborted_try_may_be_committed_again() -> None:
    world = World()
    client = world.client("a")
    for marker in (ABORTED, COMMITTED):
        client.begin()
        client.commit_offset(7)
        client.abort() if marker == ABORTED else client.commit()
    assert world.anomalies() == {}
