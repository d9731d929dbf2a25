"""The transaction of a micro-batch: its rows are visible once, wherever the driver dies and whatever brokers answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace

import pyarrow as pa
import pytest
from support.spark.transaction_brokers import TransactionBrokers

from minikafka.base.errors import ConfigError, KafkaError
from minikafka.runtime.clock import SystemClock
from minikafka.spark.records.batches import whole
from minikafka.spark.records.decode import decode
from minikafka.spark.sink.once.commit import OtherContent, Superseded, commit_staged, rows_of_run
from minikafka.spark.sink.once.staged import SinkWrite, StagedRows, stage_rows
from minikafka.spark.sink.options import parse
from minikafka.spark.sink.producer import WriteFailed
from minikafka.spark.wire import deadline
from minikafka.spark.wire.connection import BlockingConnection
from minikafka.spark.wire.leaders import Unreachable

PARTITIONS = 2
REQUESTS_OF_A_COMMIT = 13
"""Requests for the coordinators, for metadata, for rows and for the transaction, and one to a closed connection."""


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(deadline, "_FIRST_PAUSE_MS", 1)
    monkeypatch.setattr(deadline, "_LONGEST_PAUSE_MS", 1)


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
) -> list[StagedRows]:
    """Return what the tasks of a run of a micro-batch pass to the driver, the last task first."""
    found = []
    for task in reversed(range(tasks)):
        values = rows(batch or 0, task)
        targets = pa.array([number % PARTITIONS for number in range(len(values))], pa.int32())
        table = pa.RecordBatch.from_pydict({"value": values, "partition": targets})
        query = None if batch is None else "query"
        told = SinkWrite(write, query, batch, None if batch is None else run, task)
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
        self._send = BlockingConnection.send
        monkeypatch.setattr(
            BlockingConnection, "send", lambda *arguments: self._counted(*arguments)
        )

    def plan(self, requests: int, *, after: bool) -> None:
        self.left, self.is_after, self.is_dead = requests, after, False

    def revive(self) -> None:
        self.left, self.is_dead = -1, False

    def _counted(self, connection: BlockingConnection, api: tuple[int, int], body: bytes) -> None:
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


def other(brokers: TransactionBrokers, staged: list[StagedRows]) -> None:
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


NOW_MS = SystemClock().wall_ms()
DAY_MS = 24 * 60 * 60 * 1000


@pytest.fixture
def plan(tmp_path):
    """Return a function that plans a micro-batch in a checkpoint, as Spark does, and returns the option."""

    def write(batch: int, end: int, planned_ms: int = NOW_MS) -> dict[str, str]:
        (tmp_path / "offsets").mkdir(exist_ok=True)
        metadata = f'{{"batchWatermarkMs":0,"batchTimestampMs":{planned_ms},"conf":{{}}}}'
        text = f'v1\n{metadata}\n{{"lines":{{"0":{{"offset":{end}}}}}}}'
        (tmp_path / "offsets" / str(batch)).write_text(text)
        return {"checkpointLocation": f"file:{tmp_path}"}

    return write


def commit(brokers: TransactionBrokers, batch: int, *, run: str, tasks: int = 2, **given: str):
    staged = stage(brokers, batch, write=f"{run} {batch}", run=run, tasks=tasks, **given)
    commit_staged(options(brokers, **given), staged)


def test_micro_batch_that_is_planned_with_other_offsets_is_refused(brokers, plan):
    commit(brokers, 0, run="first", **plan(0, 10))
    commit(brokers, 0, run="again", tasks=1, **plan(0, 10))
    assert committed(brokers) == expected(0)
    for batch in (1, 2):
        commit(brokers, batch, run="again", **plan(batch, 20))
    message = "micro-batch 2 now has other offsets, .* restore the newest checkpoint"
    for run in ("restored", "restored again"):
        with pytest.raises(OtherContent, match=message):
            commit(brokers, 2, run=run, **plan(2, 40))
    with pytest.raises(OtherContent, match=r"to micro-batch 2, and micro-batch 1 runs again from"):
        commit(brokers, 1, run="restored", **plan(1, 20))
    assert committed(brokers) == expected(0, 1, 2)
    commit(brokers, 2, run="wanted", **plan(2, 40), transactionalIdPrefix="other")
    assert committed(brokers) == expected(0, 1, 2, 2)


def test_micro_batch_of_an_unknown_checkpoint_is_recognized_by_its_rows(brokers):
    commit(brokers, 0, run="first", tasks=2)
    one = stage(brokers, 0, write="again", run="second")
    commit_staged(
        options(brokers), [replace(one[0], digest=0), replace(one[1], digest=sum_of(one))]
    )
    assert committed(brokers) == expected(0)
    with pytest.raises(OtherContent, match="micro-batch 0 now has other rows"):
        commit(brokers, 0, run="restored", tasks=3)
    assert committed(brokers) == expected(0)


def sum_of(staged: list[StagedRows]) -> int:
    """Return the digest of one task that has all these rows."""
    return sum(one.digest for one in staged)


def test_micro_batch_is_not_compared_if_only_one_of_its_runs_knew_the_checkpoint(brokers, plan):
    commit(brokers, 0, run="first")
    with pytest.raises(OtherContent, match="only one of its runs had the option checkpointLoc"):
        commit(brokers, 0, run="second", **plan(0, 10))


def test_marker_of_an_older_version_is_compared_by_its_number(brokers, plan):
    commit(brokers, 3, run="first", **plan(3, 10), exactlyOnceFrom="3")
    name = "minikafka-spark-query"
    brokers.offsets[name] = 3, '{"query": "query", "run": "first", "write": "first 3"}'
    commit(brokers, 3, run="second", **plan(3, 20))
    with pytest.raises(OtherContent, match="micro-batch 2 runs again from an older copy"):
        commit(brokers, 2, run="second", **plan(2, 10))
    commit(brokers, 4, run="second", **plan(4, 30))
    assert committed(brokers) == expected(3, 4)
    brokers.offsets[name] = 4, "an offset of something else"
    with pytest.raises(ConfigError, match="this sink did not write: set another transactionalId"):
        commit(brokers, 5, run="second", **plan(5, 40))


@pytest.mark.parametrize("knows_checkpoint", [False, True])
def test_first_write_of_a_query_may_be_any_micro_batch(brokers, plan, knows_checkpoint):
    given = plan(7, 10) if knows_checkpoint else {}
    commit(brokers, 7, run="first", **given)
    commit(brokers, 7, run="again", **given)
    assert committed(brokers) == expected(7)


def test_missing_marker_of_an_id_that_was_used_is_an_error_that_names_the_option(brokers, plan):
    commit(brokers, 6, run="first", **plan(6, 10))
    brokers.offsets.clear()
    for run in ("second", "third"):
        with pytest.raises(ConfigError, match=r"has expired or was deleted.* exactlyOnceFrom to 7"):
            commit(brokers, 7, run=run, **plan(7, 20))
    assert committed(brokers) == expected(6)
    commit(brokers, 7, run="wanted", **plan(7, 20), exactlyOnceFrom="7")
    assert committed(brokers) == expected(6, 7)


@pytest.mark.parametrize("batch", [0, 7])
def test_micro_batch_that_was_planned_before_markers_expire_needs_the_option(brokers, plan, batch):
    old = plan(batch, 10, NOW_MS - 7 * DAY_MS)
    with pytest.raises(ConfigError, match="was planned 7 days ago, and a marker expires after 7"):
        commit(brokers, batch, run="late", **old)
    assert committed(brokers) == [[], []]
    commit(brokers, batch, run="wanted", **old, exactlyOnceFrom=str(batch))
    assert committed(brokers) == expected(batch)


def test_micro_batch_that_a_run_without_exactly_once_has_begun_needs_the_option(brokers):
    with pytest.raises(ConfigError, match="has begun micro-batch 7, and wrote without exactlyOnce"):
        commit(brokers, 7, run="second", exactlyOnceFrom="8")
    assert committed(brokers) == [[], []]


@pytest.mark.parametrize("requests", range(20))
def test_first_rows_of_a_later_micro_batch_are_not_written_twice(brokers, monkeypatch, requests):
    staged = stage(brokers, 7, write="first", run="first")
    deaths = Deaths(monkeypatch)
    deaths.plan(requests, after=True)
    with suppress(Died):
        commit_staged(options(brokers), staged)
    deaths.revive()
    with suppress(ConfigError):
        commit(brokers, 7, run="second")
    begins = requests in range(1, 6)  # the coordinator knows the id, but has no marker yet
    assert committed(brokers) == ([[], []] if begins else expected(7))


def test_rows_of_a_run_are_those_that_it_has_committed(brokers):
    def rows_of(run: str) -> int:
        return rows_of_run(options(brokers), "query", run)

    assert rows_of("first") == 0
    commit(brokers, 0, run="first")
    commit(brokers, 1, run="first", tasks=1)
    assert rows_of("first") == 60
    commit(brokers, 1, run="second", tasks=1)
    assert rows_of("second") == 0
    commit(brokers, 2, run="second", tasks=1)
    assert (rows_of("first"), rows_of("second")) == (0, 20)


def test_second_write_of_one_micro_batch_needs_an_id_of_its_own(brokers):
    commit_staged(options(brokers), stage(brokers, 0, write="first"))
    again = stage(brokers, 0, write="second")
    with pytest.raises(
        ConfigError, match="give each write of a foreachBatch its own transactional"
    ):
        commit_staged(options(brokers), again)
    commit_staged(options(brokers, transactionalIdPrefix="second"), again)
    assert committed(brokers) == expected(0, 0)


def test_second_write_without_an_id_of_its_own_is_refused_also_in_a_run_that_repeats(brokers):
    for run in ("first", "second", "third"):
        for write in ("one", "two"):
            staged = stage(brokers, 0, write=f"{run} {write}", run=run)
            is_refused = write == "two"
            with pytest.raises(ConfigError) if is_refused else nullcontext():
                commit_staged(options(brokers), staged)
    assert committed(brokers) == expected(0)


def test_micro_batch_that_was_written_to_another_topic_is_refused(brokers):
    brokers.create("others", PARTITIONS)
    commit(brokers, 0, run="first")
    for run in ("second", "third"):
        message = (
            "micro-batch 0 to topic lines, not to topic others: give .* to others another transact"
        )
        with pytest.raises(ConfigError, match=message):
            commit(brokers, 0, run=run, topic="others")
    commit(brokers, 0, run="fourth")
    commit(brokers, 1, run="fourth", topic="others")
    assert committed(brokers) == expected(0)
    assert len(brokers.visible("others", 0)) == 2, "one batch of each task"


def test_each_table_is_a_transaction_of_its_own(brokers):
    for write in ("first", "second"):
        commit_staged(options(brokers), stage(brokers, None, write=write))
    assert committed(brokers) == expected(0, 0)
    assert sorted(brokers.ids) == ["minikafka-spark-first", "minikafka-spark-second"]


def test_micro_batch_without_rows_moves_the_marker(brokers):
    empty = pa.RecordBatch.from_pydict({"value": pa.array([], pa.binary())})
    told = SinkWrite("w", "query", 0, "run", 0)
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


@pytest.mark.parametrize(
    ("codes", "right"),
    [
        ([53], "Write on transactional id minikafka-spark-query"),
        ([0, 30], "Describe on group minikafka-spark-query"),
        ([0, 29], "Describe on topic __consumer_offsets"),
        ([0, 0, 29], "Write on topic lines"),
        ([0, 0, 0, 30], "Read on group minikafka-spark-query"),
        ([0, 0, 0, 0, 29], "Read on topic __consumer_offsets"),
        ([0, 0, 0, 0, 30], "Read on group minikafka-spark-query"),
    ],
)
def test_commit_that_lacks_a_right_names_the_right_and_the_resource(brokers, codes, right):
    staged = stage(brokers, 0, write="w")
    brokers.coordinator_errors = codes
    with pytest.raises(KafkaError, match=f"no ACL gives the user the right {right}$"):
        commit_staged(options(brokers), staged)
    assert committed(brokers) == [[], []]
