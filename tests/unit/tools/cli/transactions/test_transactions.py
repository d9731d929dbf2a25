"""`minikafka transactions` against scripted brokers: output, JSON, exit codes and refused arguments."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner
from support.clients.stub_transactions import OPEN, StubTransactions
from support.commands.stub_commands import serve_commands

from minikafka.base.errors import ErrorCode, KafkaError, MinikafkaError
from minikafka.base.model import TopicPartition
from minikafka.kafka.wire import versions
from minikafka.runtime.clock import SystemClock
from minikafka.simulation.transport import MemoryTransport
from minikafka.tools.cli.transactions import transactions

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> StubTransactions:
    cluster = serve_commands(StubTransactions(MemoryTransport()), monkeypatch)
    cluster.create("t", [1, 3])
    return cluster


class Done:
    """A command that has ended."""

    def __init__(self, *arguments: str) -> None:
        done = CliRunner().invoke(transactions, [*arguments, "-b", "any:1"])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        self.code = done.exit_code
        self.out = done.stdout
        self.err = done.stderr

    @property
    def words(self) -> list[list[str]]:
        """The words of each line, without the header."""
        return [line.split() for line in self.out.splitlines()[1:]]

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def test_fence_aborts_open_transactions_and_creates_no_id(stub: StubTransactions) -> None:
    stub.transact("pay-1", OPEN, T0)
    done = Done("fence", "pay-1", "pay-2")
    assert (done.code, stub.transactions["pay-1"]["transaction_state"]) == (1, "CompleteAbort")
    assert done.out == "pay-1 has no open transaction, and its producer is fenced.\n"
    assert done.err.startswith("minikafka: TRANSACTIONAL_ID_NOT_FOUND: pay-2: ")
    assert "did you mean pay-1?" in done.err
    again = Done("fence", "pay-1", "--json")
    assert (again.code, again.json) == (
        0,
        [{"transactional_id": "pay-1", "error": None, "message": None}],
    )


def test_list_prints_every_id_with_its_coordinator(stub: StubTransactions) -> None:
    stub.transact("pay-1", OPEN, T0)
    listed = {"coordinator": 2, "producer_id": 7, "state": "Ongoing"}
    stub.transact("pay-2", OPEN, T0)
    stub.transactions["pay-2"]["transaction_state"] = "CompleteCommit"
    started = stub.transactions["pay-1"]["transaction_start_time_ms"]
    stub.transactions["pay-1"]["transaction_start_time_ms"] = SystemClock().wall_ms() - 3_700_000
    assert Done("list").words == [
        ["pay-1", "2", "7", "Ongoing", "61m"],
        ["pay-2", "2", "7", "CompleteCommit", "-"],
    ]
    [row] = Done("list", "--json", "--state", "ongoing").json
    assert 3_700_000 <= row.pop("age_ms") < 3_800_000
    assert row == {"transactional_id": "pay-1", **listed}
    del stub.transactions["pay-2"]
    stub.transactions["pay-1"]["transaction_start_time_ms"] = started
    assert Done("list", "--state", "Empty,PrepareAbort", "--json").json == []
    assert Done("list", "--producer-id", "8").words == []


def test_describe_shows_known_ids_and_fails_for_unknown_ones(stub: StubTransactions) -> None:
    stub.transact("pay-1", OPEN, T1, T0)
    done = Done("describe", "pay-1", "--transactional-id", "pay-2")
    (words,) = done.words
    assert (words[:7], words[8]) == (["2", "pay-1", "7", "2", "Ongoing", "60000", "500"], "t-0,t-1")
    assert done.code == 1
    assert done.err == (
        "minikafka: TRANSACTIONAL_ID_NOT_FOUND: pay-2: there is no such transactional id; did you mean pay-1?\n"
    )
    found, missing = Done("describe", "pay-1", "pay-2", "--json").json
    assert found.pop("duration_ms") > 500
    assert found == {
        "transactional_id": "pay-1",
        "coordinator": 2,
        "producer_id": 7,
        "producer_epoch": 2,
        "state": "Ongoing",
        "timeout_ms": 60_000,
        "start_time_ms": 500,
        "partitions": [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 1}],
    }
    assert missing["error"] == "TRANSACTIONAL_ID_NOT_FOUND"


def test_describe_producers_prints_a_dash_for_missing_values(stub: StubTransactions) -> None:
    stub.producers[T0] = [OPEN, OPEN._replace(coordinator_epoch=None, start_offset=None)]
    assert Done("describe-producers", "t-0").words == [
        ["7", "2", "4", "5", "1000", "30"],
        ["7", "2", "-", "5", "1000", "-"],
    ]
    first, _ = Done("describe-producers", "-t", "t", "-p", "0", "--json").json
    assert first == OPEN._asdict()


def test_hanging_transaction_is_one_whose_coordinator_does_not_know_the_partition(
    stub: StubTransactions,
) -> None:
    known, unknown = OPEN, OPEN._replace(producer_id=8)
    stub.producers[T0] = [known, unknown._replace(start_offset=None)]
    stub.producers[T1] = [known._replace(start_offset=41), unknown]
    stub.transact("pay-1", known, T0)
    done = Done("find-hanging")
    assert [words[:7] for words in done.words] == [
        ["t", "1", "7", "2", "4", "41", "1000"],
        ["t", "1", "8", "2", "4", "30", "1000"],
    ]
    assert done.code == 0
    assert Done("find-hanging", "t-0", "--json").json == []
    (found,) = Done("find-hanging", "t-1", "--broker-id", "3", "--json").json[1:]
    assert found == {
        "topic": "t",
        "partition": 1,
        "producer_id": 8,
        "producer_epoch": 2,
        "coordinator_epoch": 4,
        "start_offset": 30,
        "last_timestamp": 1_000,
    }


def test_young_transactions_are_not_searched(stub: StubTransactions) -> None:
    from minikafka.runtime.clock import SystemClock

    stub.producers[T0] = [OPEN._replace(last_timestamp=SystemClock().wall_ms() - 60_000)]
    assert Done("find-hanging", "--json").json == []
    assert len(Done("find-hanging", "--max-transaction-timeout", "0", "--json").json) == 1


def test_transaction_that_ends_during_the_search_is_not_shown(
    stub: StubTransactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.producers[T0] = [OPEN]
    described = stub.list_transactions

    def ends(broker: int, request: Any, error: int) -> Any:
        stub.producers[T0] = [OPEN._replace(start_offset=None)]
        return described(broker, request, error)

    monkeypatch.setitem(stub.answers, versions.LIST_TRANSACTIONS, ends)
    assert Done("find-hanging", "--json").json == []


def test_search_names_partitions_that_it_could_not_examine(stub: StubTransactions) -> None:
    stub.producers[T1] = [OPEN]
    stub.lead("t", 0, -1)
    done = Done("find-hanging")
    assert len(done.words) == 1
    assert (done.code, done.err) == (1, "minikafka: not examined: t-0: it has no leader\n")


def test_abort_by_start_offset_writes_the_marker_of_that_producer(stub: StubTransactions) -> None:
    stub.producers[T0] = [
        OPEN,
        OPEN._replace(producer_id=8, coordinator_epoch=None, start_offset=9),
    ]
    done = Done("abort", "t-0", "--start-offset", "9")
    assert done.out == "Aborted the transaction of producer 8, epoch 2, in t-0.\n"
    assert (done.code, done.err) == (0, "")
    row = Done("abort", "-t", "t", "-p", "0", "--start-offset", "30", "--json").json
    assert row == {
        "topic": "t",
        "partition": 0,
        "producer_id": 7,
        "producer_epoch": 2,
        "coordinator_epoch": 4,
        "start_offset": 30,
    }
    assert stub.aborted == [(T0, 8, 2, 0), (T0, 7, 2, 4)]


def test_abort_by_numbers_reads_no_producers(stub: StubTransactions) -> None:
    numbers = ("--producer-id", "5", "--producer-epoch", "1", "--coordinator-epoch", "3")
    assert Done("abort", "t-0", *numbers).code == 0
    assert stub.aborted == [(T0, 5, 1, 3)]
    assert stub.asked(versions.DESCRIBE_PRODUCERS) == []


def test_abort_warns_about_a_transaction_that_its_coordinator_knows(stub: StubTransactions) -> None:
    stub.producers[T0] = [OPEN]
    stub.transact("pay-1", OPEN, T0)
    done = Done("abort", "t-0", "--start-offset", "30")
    assert done.code == 0
    assert "not hanging: pay-1 (coordinator 2, Ongoing) can still end it" in done.err
    assert stub.aborted == [(T0, 7, 2, 4)]


def test_abort_without_such_a_transaction_names_those_that_are_open(stub: StubTransactions) -> None:
    with pytest.raises(MinikafkaError, match=r"at offset 3: no transaction is open there"):
        Done("abort", "t-0", "--start-offset", "3")
    stub.producers[T0] = [OPEN]
    with pytest.raises(MinikafkaError, match=r"at offset 3: the open transactions begin at 30"):
        Done("abort", "t-0", "--start-offset", "3")
    stub.failures[versions.WRITE_TXN_MARKERS].append(ErrorCode.INVALID_PRODUCER_EPOCH)
    with pytest.raises(KafkaError, match="INVALID_PRODUCER_EPOCH: t-0: a newer producer"):
        Done("abort", "t-0", "--start-offset", "30")
    assert stub.aborted == []


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            ("list", "--state", "Ongoing,Asleep"),
            "'Asleep' is not a state: give some of Empty, Ongoing",
        ),
        (("describe",), "name at least one TRANSACTIONAL-ID"),
        (("describe", "pay-1", ""), "name at least one TRANSACTIONAL-ID, and none that is empty"),
        (("describe-producers",), "name a partition, TOPIC-PARTITION or --topic T --partition N"),
        (("describe-producers", "t-0", "-p", "1"), "not both"),
        (("abort", "t-0"), "name the transaction: --start-offset N, or --producer-id"),
        (("abort", "t-0", "--producer-id", "3"), "name the transaction: --start-offset N"),
        (("abort", "t-0", "--start-offset", "3", "--producer-id", "3"), "name the transaction"),
        (("find-hanging", "-p", "1"), "--partition needs --topic"),
        (("find-hanging", "t-1", "-t", "t"), "name a partition as TOPIC-PARTITION or by options"),
        (("abor", "t-0"), "Did you mean abort?"),
    ],
)
def test_transactions_command_refuses_arguments_with_an_error_that_says_why(
    arguments: tuple[str, ...], problem: str
) -> None:
    done = CliRunner().invoke(transactions, [*arguments])
    assert done.exit_code == 2, done.output
    assert problem in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("find-hanging", "--broker-id", "9"), "there is no live broker 9"),
        (("find-hanging", "t-7"), "t-7: no such partition"),
        (("describe-producers", "t-7"), "t-7: no such partition"),
        (("describe-producers", "t-0", "--broker-id", "9"), "t-0: there is no live broker 9"),
    ],
)
def test_unknown_partition_or_broker_is_refused(
    stub: StubTransactions, arguments: tuple[str, ...], problem: str
) -> None:
    with pytest.raises(KafkaError, match=problem):
        Done(*arguments)
