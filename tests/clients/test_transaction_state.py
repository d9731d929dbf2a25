"""Compatibility of `__transaction_state` with Apache Kafka 3.9.

Kafka's formatters print minikafka's records, and minikafka reads and loads Kafka's records.

Runs only where MINIKAFKA_KAFKA_JARS names a directory with the jars of Kafka 3.9 and a `java` is on the path.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from support.clusters.apache_kafka import apache_kafka, needs_kafka
from support.clusters.formatters import printed_by_kafka

from minikafka.base.coordinators import (
    KeyValue,
    LeadershipBegun,
    LoadedRecord,
    LoadFinished,
    LoadPartition,
    RecordsRead,
)
from minikafka.base.model import TopicPartition
from minikafka.base.names import TRANSACTION_TOPIC
from minikafka.broker.coordinators.loading import read_chunk
from minikafka.deciders.decider import Answer
from minikafka.deciders.transactions.commands import SendMarkers
from minikafka.deciders.transactions.context import TransactionSettings
from minikafka.deciders.transactions.coordinator import TransactionCoordinator
from minikafka.deciders.transactions.events import DescribeTransactionsRequest
from minikafka.deciders.transactions.records import (
    read_transaction_key,
    read_transaction_value,
    transaction_key,
    transaction_value,
)
from minikafka.deciders.transactions.states import TransactionMetadata, TransactionState
from minikafka.kafka.records.batch import records

pytestmark = [pytest.mark.clients, needs_kafka]

CORE: Final = "kafka.coordinator.transaction.TransactionLog$TransactionLogMessageFormatter"
TOOLS: Final = "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter"
T0: Final = TopicPartition("t", 0)
T1: Final = TopicPartition("t", 1)
U5: Final = TopicPartition("u", 5)
SMALL: Final = {
    "offsets_topic_num_partitions": 1,
    "offsets_topic_replication_factor": 1,
    "transaction_state_log_num_partitions": 1,
    "transaction_state_log_replication_factor": 1,
    "transaction_state_log_min_isr": 1,
}


async def test_kafkas_formatters_print_our_transaction_records(tmp_path: Path) -> None:
    states = [
        state
        for state in TransactionState
        if state not in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)
    ]
    written: list[KeyValue] = [
        (
            transaction_key("käse"),
            transaction_value(
                TransactionMetadata(
                    2**40,
                    32_766,
                    60_000,
                    state,
                    1_700_000_000_001,
                    -1 if state is TransactionState.EMPTY else 1_700_000_000_000,
                    frozenset() if state is TransactionState.EMPTY else frozenset((T0, T1, U5)),
                )
            ),
        )
        for state in states
    ]
    written.append((transaction_key("käse"), None))

    lines = await printed_by_kafka(written, tmp_path, TRANSACTION_TOPIC, CORE, TOOLS)

    by_core = [line for line in lines if not line.startswith("{")]
    assert by_core[-1] == "käse::NULL"
    for state, line in zip(states, by_core[:-1], strict=True):
        started = "-1" if state is TransactionState.EMPTY else "1700000000000"
        partitions = "" if state is TransactionState.EMPTY else "t-0, t-1, u-5"
        name, fields = line.split("::")
        assert name == "käse"
        assert f"producerId={2**40}, producerEpoch=32766, txnTimeoutMs=60000" in fields
        assert f"state={state.value}," in fields
        assert f"txnStartTimestamp={started}, txnLastUpdateTimestamp=1700000000001" in fields
        assert ", ".join(sorted(_between(fields, "Set(", ")").split(", "))) == partitions
    by_tools = [json.loads(line) for line in lines if line.startswith("{")]
    assert [each["value"] and each["value"]["version"] for each in by_tools] == [0] * 6 + [None]
    assert [each["value"]["data"]["transactionStatus"] for each in by_tools[:-1]] == [
        0,
        1,
        2,
        3,
        4,
        5,
    ]


def _between(text: str, begin: str, end: str) -> str:
    return text.split(begin)[1].split(end)[0]


def use_transactions(bootstrap: str) -> None:
    """Commit, abort, and leave open a transaction, each with its own id."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("t", 2)])["t"].result()
    for name in ("committed", "aborted", "idle", "open"):
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": name,
                "transaction.timeout.ms": 54_321,
            }
        )
        producer.init_transactions()
        if name == "idle":
            continue
        producer.begin_transaction()
        producer.produce("t", b"1", partition=0)
        producer.produce("t", b"2", partition=1)
        producer.flush()
        if name == "committed":
            producer.commit_transaction()
        elif name == "aborted":
            producer.abort_transaction()


async def kafkas_log(directory: Path) -> bytes:
    """Return the log of `__transaction_state` of a broker of Apache Kafka after a few transactions."""
    async with apache_kafka(directory, **SMALL) as kafka:
        await asyncio.to_thread(use_transactions, kafka.bootstrap)
        [file] = (kafka.log_dir / f"{TRANSACTION_TOPIC}-0").glob("*.log")
        return file.read_bytes()


def load(read: list[LoadedRecord]) -> tuple[TransactionCoordinator, list[Any]]:
    """Return a coordinator that has loaded these records, and its commands."""
    core = TransactionCoordinator(TransactionSettings(), lambda: 0, 1)
    assert core.handle(LeadershipBegun(0, 9), 0) == [LoadPartition(0, 9)]
    core.handle(RecordsRead(0, 9, read), 0)
    return core, core.handle(LoadFinished(0, 9, 1), 0)


async def test_coordinator_loads_the_transactions_that_kafka_wrote(tmp_path: Path) -> None:
    log = await kafkas_log(tmp_path)
    theirs = [(each.key or b"", each.value or b"") for each in records(log)]
    lines = await printed_by_kafka(theirs, tmp_path, TRANSACTION_TOPIC, CORE)
    for line, record in zip(lines, theirs, strict=True):
        check_that_both_read(record, line)
    check_what_is_loaded(
        [each for each in read_chunk(log, pytest.fail) if isinstance(each, LoadedRecord)]
    )


def check_that_both_read(record: tuple[bytes, bytes], line: str) -> None:
    """Compare what Kafka's formatter prints for a record with what we read, and write the record again."""
    key, value = record
    name, found = read_transaction_key(key), read_transaction_value(value)
    assert line.startswith(f"{name}::TransactionMetadata(")
    assert f"producerId={found.producer_id}, producerEpoch={found.producer_epoch}," in line
    assert f"state={found.state.value}," in line
    assert f"txnLastUpdateTimestamp={found.updated_ms}" in line
    assert read_transaction_value(transaction_value(found)) == found
    if len(found.partitions) < 2:  # Kafka writes several in any order
        assert (transaction_key(name), transaction_value(found)) == record


def check_what_is_loaded(read: list[LoadedRecord]) -> None:
    """Load all records, and those up to the decision to commit."""
    core, _ = load(read)
    (answer,) = core.handle(
        DescribeTransactionsRequest(["aborted", "committed", "idle", "open"], ""), 0
    )
    assert isinstance(answer, Answer)
    aborted, committed, idle, still_open = answer.response.transactions
    assert aborted.state in ("PrepareAbort", "CompleteAbort")
    assert committed.state in ("PrepareCommit", "CompleteCommit")
    assert idle.state == "Empty"
    assert (still_open.state, still_open.partitions) == ("Ongoing", [T0, T1])
    assert {each.timeout_ms for each in answer.response.transactions} == {54_321}

    states = [read_transaction_value(each.value or b"").state for each in read]
    decided = states.index(TransactionState.PREPARE_COMMIT)
    _, (markers,) = load(read[: decided + 1])
    assert isinstance(markers, SendMarkers)
    assert markers.partitions == [T0, T1]
    assert markers.ended.transactional_id == "committed"
    assert markers.ended.committed
    assert markers.ended.coordinator_epoch == 9
