"""The transaction of a micro-batch: its rows are visible once, wherever the driver dies and whatever brokers answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa
import pytest
from support.transaction_brokers import TransactionBrokers

from minikafka.base.errors import ConfigError, KafkaError
from minikafka.spark.records.batches import whole
from minikafka.spark.records.decode import decode
from minikafka.spark.sink.once.commit import Superseded, commit_staged
from minikafka.spark.sink.once.staged import Staged, Write, stage_rows
from minikafka.spark.sink.options import parse
from minikafka.spark.sink.producer import WriteFailed
from minikafka.spark.wire import deadline
from minikafka.spark.wire.connection import Connection
from minikafka.spark.wire.leaders import Unreachable

PARTITIONS = 2
REQUESTS_OF_A_COMMIT = 13
"""Requests for the coordinators, for metadata, for rows and for the transaction, and one to a closed connection."""


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(deadline, "_FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(deadline, "_LONGEST_PAUSE_S", 0.001)


@pytest.fixture
def brokers() -> Iterator[TransactionBrokers]:
    running = TransactionBrokers(2)
    running.create("lines", PARTITIONS)
    running.move("lines", 1, 1)
    yield running
    running.close()


def options(brokers: TransactionBrokers, **given: str):
    names = {name.replace("_", "."): text for name, text in given.items()}
    servers = {"kafka.bootstrap.servers": brokers.bootstrap, "topic": "lines"}
    return parse({**servers, "exactlyOnce": "true", "kafka.batch.size": "300"} | names)


def rows(batch: int, task: int) -> list[bytes]:
    return [b"%d %d %d" % (batch, task, number) for number in range(20)]


def stage(
    brokers: TransactionBrokers,
    batch: int | None,
    *,
    write: str,
    run: str = "run",
    tasks: int = 2,
    **given: str,
) -> list[Staged]:
    """Return what the tasks of a run of a micro-batch pass to the driver, the last task first."""
    found = []
    for task in reversed(range(tasks)):
        values = rows(batch or 0, task)
        targets = pa.array([number % PARTITIONS for number in range(len(values))], pa.int32())
        table = pa.RecordBatch.from_pydict({"value": values, "partition": targets})
        query = None if batch is None else "query"
        told = Write(write, query, batch, None if batch is None else run, task)
        found.append(stage_rows(options(brokers, **given), told, iter([table])))
    return found


def committed(brokers: TransactionBrokers) -> list[list[bytes]]:
    """Return the values that readers of committed records see in each partition."""
    return [
        [
            value
            for batch in brokers.visible("lines", number)
            for value in decoded(batch, number).column("value").to_pylist()
        ]
        for number in range(PARTITIONS)
    ]


def decoded(batch: bytes, partition: int) -> pa.RecordBatch:
    section = whole(memoryview(batch))
    return decode([section], "lines", partition, 0, 1 << 60, with_headers=False)


def expected(*batches: int, tasks: int = 2) -> list[list[bytes]]:
    return [
        [row for batch in batches for task in range(tasks) for row in rows(batch, task)[number::2]]
        for number in range(PARTITIONS)
    ]


class Died(BaseException):
    """The driver was killed."""


class Deaths:
    """Kills the driver at one of its requests: before the request is sent, or after its answer has arrived."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = -1
        self.is_after = False
        self.is_dead = False
        self._send = Connection.send
        monkeypatch.setattr(Connection, "send", lambda *arguments: self._counted(*arguments))

    def plan(self, requests: int, *, after: bool) -> None:
        self.left, self.is_after, self.is_dead = requests, after, False

    def revive(self) -> None:
        self.left, self.is_dead = -1, False

    def _counted(self, connection: Connection, api: tuple[int, int], body: bytes) -> None:
        self.is_dead = self.is_dead or (self.left == 0 and not self.is_after)
        if self.is_dead:
            raise Died
        self._send(connection, api, body)
        if self.left == 0:
            while connection.is_busy:
                connection.receive()
            self.is_dead = True
            raise Died
        self.left -= 1


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("requests", range(REQUESTS_OF_A_COMMIT + 1))
def test_rows_are_visible_once_wherever_the_driver_dies(brokers, monkeypatch, requests, after):
    commit_staged(options(brokers), stage(brokers, 0, write="first"))
    deaths = Deaths(monkeypatch)
    for run in ("second", "third"):
        staged = stage(brokers, 1, write=run, run=run)
        deaths.plan(requests, after=after)
        with suppress(Died):
            commit_staged(options(brokers), staged)
        deaths.revive()
        assert committed(brokers) in (expected(0), expected(0, 1))
    commit_staged(options(brokers), stage(brokers, 1, write="last", run="last"))
    assert committed(brokers) == expected(0, 1)
    commit_staged(options(brokers), stage(brokers, 2, write="next", run="last"))
    assert committed(brokers) == expected(0, 1, 2)


def test_deaths_reach_every_request_of_a_commit(brokers, monkeypatch):
    commit_staged(options(brokers), stage(brokers, 0, write="first"))
    staged = stage(brokers, 1, write="second")
    deaths = Deaths(monkeypatch)
    deaths.plan(1_000, after=False)
    commit_staged(options(brokers), staged)
    assert 1_000 - deaths.left == REQUESTS_OF_A_COMMIT


@pytest.mark.parametrize("api", [0, 9, 10, 22, 24, 25, 26, 28])
def test_request_whose_answer_was_lost_is_repeated_without_a_second_copy(brokers, api):
    staged = stage(brokers, 0, write="w")
    brokers.lost = {api}
    commit_staged(options(brokers), staged)
    assert not brokers.lost
    assert committed(brokers) == expected(0)


@pytest.mark.parametrize("code", [14, 15, 16, 51, 88])
def test_coordinator_that_is_not_ready_is_asked_again(brokers, code):
    staged = stage(brokers, 0, write="w")
    brokers.coordinator_errors = [code, code]
    commit_staged(options(brokers), staged)
    assert committed(brokers) == expected(0)


@pytest.mark.parametrize("api", [24, 0, 25, 28, 26])
def test_commit_goes_on_at_a_new_coordinator_after_the_old_one_died(brokers, api):
    staged = stage(brokers, 0, write="w")
    once(brokers, api, lambda: (setattr(brokers, "coordinator", 1), brokers.fail_over(0)))
    commit_staged(options(brokers), staged)
    assert committed(brokers) == expected(0)


def once(brokers: TransactionBrokers, api: int, action) -> None:
    """Run an action before the next request of this kind is handled."""
    handlers, done = brokers.handlers, []

    def changed():
        def handle(index, body, *, handler, key):
            if key[0] == api and not done:
                done.append(True)
                action()
            return handler(index, body)

        return {
            key: (lambda index, body, h=handler, k=key: handle(index, body, handler=h, key=k))
            for key, handler in handlers().items()
        }

    brokers.handlers = changed


@pytest.mark.parametrize("api", [24, 0, 25, 28, 26])
def test_transaction_that_timed_out_is_repeated_in_a_new_epoch(brokers, api, monkeypatch):
    staged = stage(brokers, 0, write="w")
    given = options(brokers, kafka_transaction_timeout_ms="1")
    once(brokers, api, brokers.time_out)
    commit_staged(given, staged)
    assert committed(brokers) == expected(0)
    assert len(brokers.ids["minikafka-spark-query"].outcomes) <= 2


def test_transaction_that_always_times_out_names_the_option(brokers):
    staged = stage(brokers, 0, write="w")
    handlers = brokers.handlers

    def expiring():
        served = handlers()
        end = served[26, 1]
        served[26, 1] = lambda index, body: (brokers.time_out(), end(index, body))[1]
        return served

    brokers.handlers = expiring
    with pytest.raises(ConfigError, match=r"kafka\.transaction\.timeout\.ms: set a larger value"):
        commit_staged(options(brokers, kafka_transaction_timeout_ms="1"), staged)
    assert committed(brokers) == [[], []]


@pytest.mark.parametrize("api", [9, 24, 0, 25, 28, 26])
def test_second_driver_of_a_query_leaves_one_copy_at_every_request(brokers, api):
    first = stage(brokers, 0, write="first", run="first")
    second = stage(brokers, 0, write="second", run="second")
    has_ended = threading.Event()
    once(brokers, api, lambda: (other(brokers, second), has_ended.set()))
    with suppress(Superseded):
        commit_staged(options(brokers), first)
    assert has_ended.wait(10)
    assert committed(brokers) == expected(0)


def other(brokers: TransactionBrokers, staged: list[Staged]) -> None:
    """Let another driver begin and commit a transaction, without its requests over the network."""
    (one,) = brokers.ids.values()
    brokers._close(one, committed=False)
    one.epoch += 1
    if "minikafka-spark-query" in brokers.offsets:
        return
    threadless = TransactionBrokers.handlers
    brokers.handlers = lambda: threadless(brokers)
    brokers.lock.release()
    try:
        commit_staged(options(brokers, kafka_client_id="other"), staged)
    finally:
        brokers.lock.acquire()


def test_driver_that_was_replaced_says_so(brokers):
    staged = stage(brokers, 0, write="w")

    def replace() -> None:
        brokers.ids["minikafka-spark-query"].epoch += 1

    once(brokers, 25, replace)
    with pytest.raises(Superseded, match="another process writes with the transactional id"):
        commit_staged(options(brokers), staged)


def test_missing_marker_of_a_later_micro_batch_is_an_error_that_names_the_option(brokers):
    staged = stage(brokers, 7, write="w")
    with pytest.raises(ConfigError, match="set option exactlyOnceFrom to 7"):
        commit_staged(options(brokers), staged)
    assert committed(brokers) == [[], []]
    commit_staged(options(brokers, exactlyOnceFrom="7"), staged)
    assert committed(brokers) == expected(7)


def test_second_write_of_one_micro_batch_needs_an_id_of_its_own(brokers):
    commit_staged(options(brokers), stage(brokers, 0, write="first"))
    again = stage(brokers, 0, write="second")
    with pytest.raises(
        ConfigError, match="give each write of a foreachBatch its own transactional"
    ):
        commit_staged(options(brokers), again)
    commit_staged(options(brokers, transactionalIdPrefix="second"), again)
    assert committed(brokers) == expected(0, 0)


def test_each_table_is_a_transaction_of_its_own(brokers):
    for write in ("first", "second"):
        commit_staged(options(brokers), stage(brokers, None, write=write))
    assert committed(brokers) == expected(0, 0)
    assert sorted(brokers.ids) == ["minikafka-spark-first", "minikafka-spark-second"]


def test_micro_batch_without_rows_moves_the_marker(brokers):
    empty = pa.RecordBatch.from_pydict({"value": pa.array([], pa.binary())})
    told = Write("w", "query", 0, "run", 0)
    commit_staged(options(brokers), [stage_rows(options(brokers), told, iter([empty]))])
    assert brokers.offsets["minikafka-spark-query"][0] == 0
    commit_staged(options(brokers), stage(brokers, 1, write="next"))
    assert committed(brokers) == expected(1)


def test_timeout_beyond_the_limit_of_the_brokers_names_the_option(brokers):
    staged = stage(brokers, 0, write="w")
    with pytest.raises(ConfigError, match=r"must be at most transaction\.max\.timeout\.ms"):
        commit_staged(options(brokers, kafka_transaction_timeout_ms="900001"), staged)


def test_refused_rows_are_named_and_none_of_the_micro_batch_is_visible(brokers):
    staged = stage(brokers, 0, write="w")
    brokers.refused = (1, "the value is not JSON")
    with pytest.raises(
        WriteFailed, match=r"rows [01] to 1\d of task 0 were refused by lines-.*JSON"
    ):
        commit_staged(options(brokers), staged)
    brokers.refused = None
    assert committed(brokers) == [[], []]
    assert brokers.ids["minikafka-spark-query"].outcomes == {0: False}


def test_commit_ends_with_an_error_if_no_coordinator_answers_in_time(brokers):
    staged = stage(brokers, 0, write="w")
    brokers.coordinator_errors = [14] * 10_000
    with pytest.raises(Unreachable, match="coordinator of transactional id"):
        commit_staged(options(brokers, kafka_delivery_timeout_ms="50"), staged)


def test_final_error_of_the_coordinator_ends_the_commit(brokers):
    staged = stage(brokers, 0, write="w")
    brokers.coordinator_errors = [53]
    with pytest.raises(KafkaError, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        commit_staged(options(brokers), staged)
