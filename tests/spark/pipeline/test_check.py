"""The pipeline `check` reports exactly the faults that a test puts into replica logs, and none in correct logs."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.storage.replica_logs import ReplicaLogs, batch, marked, marker, with_invalid_record

from minikafka.base.model import TopicPartition
from minikafka.checks.delivery import History
from minikafka.checks.histories import Recorder
from minikafka.checks.replicas import history_tables, matching, pipeline
from minikafka.checks.replicas.anomalies import KINDS
from minikafka.checks.replicas.pipeline import CheckSettings, run
from minikafka.client import NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.spark.frames import kept
from minikafka.spark.pipelines.session.failures import PipelineError
from minikafka.spark.pipelines.session.report import Report, Summary
from minikafka.spark.records.encode import Producer
from minikafka.storage.log.checkpoints import HIGH_WATERMARKS

TP = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
SIZE = 20
"""Number of records per batch."""


def value(number: int) -> bytes:
    return b"value %d" % number


def write_history(path: Path, rows: Iterable[Mapping[str, Any]]) -> str:
    path.write_text("".join(json.dumps(dict(row)) + "\n" for row in rows))
    return str(path)


def send(
    number: int, offset: int | None, outcome: str = "ok", partition: int = 0
) -> dict[str, Any]:
    place = {} if offset is None else {"partition": partition, "offset": offset}
    content = value(number).decode()
    sent = {"producer": "p", "sequence": number, "topic": "t", "outcome": outcome}
    return {**sent, **place, "value": content}


def check(spark: Any, logs: ReplicaLogs, *histories: str, **more: Any) -> Any:
    settings = CheckSettings(replicas=(str(logs.path),), histories=histories, **more)
    return run(spark, settings, Report())


def anomalies(summary: Any) -> dict[str, int]:
    return {kind: summary.facts[kind] for kind in KINDS if summary.facts[kind]}


def rows(summary: Any, kind: str) -> list[dict[str, Any]]:
    [table] = summary.tables
    found = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    return [row for row in found if row["kind"] == kind]


def first(summary: Any, kind: str) -> dict[str, Any]:
    return rows(summary, kind)[0]


def test_check_counts_every_kind_of_planted_fault_exactly(spark, tmp_path):
    logs = ReplicaLogs(tmp_path / "data")
    history = []
    for number in range(10):
        base = number * SIZE
        values = [value(base + index) for index in range(SIZE)]
        history += [send(base + index, base + index) for index in range(SIZE)]
        other = None
        if number == 1:  # two records swapped, on every replica
            values[3], values[4] = values[4], values[3]
        if number == 2:  # one record replaced on broker 3
            other = batch([*values[:7], b"different", *values[8:]], base, epoch=1)
        if number == 4:  # one record replaced on every replica by a copy of another record
            values[5] = value(base + 6)
        if number == 5:  # an acknowledged record that no replica holds
            values[9] = b"of a producer without history"
        epoch = 0 if number == 7 else 1 + number // 5  # the leader epoch falls back once
        logs.append(TP, batch(values, base, epoch=epoch, codec="lz4"), on=[1, 2])
        logs.append(TP, other or batch(values, base, epoch=epoch, codec="lz4"), on=[3])
    base = 10 * SIZE
    logs.append(TP, batch([value(base)], base, epoch=2), on=[1])  # on one replica only
    history += [send(base, base), send(900, None, "failed"), send(901, None, "unknown")]
    logs.append(OTHER, batch([value(900), value(901)], 0))
    logs.append(OTHER, batch([value(901)], 4))  # offsets 2 and 3 are missing
    for broker in logs.brokers:
        logs.checkpoint(broker, HIGH_WATERMARKS, {TP: base + 1 if broker == 1 else base, OTHER: 5})
    summary = check(
        spark, logs, write_history(tmp_path / "h.jsonl", history), output=str(tmp_path / "o")
    )
    assert not summary.ok
    assert anomalies(summary) == {
        "lost": 2,
        "missing": 1,
        "moved": 2,
        "duplicated": 2,
        "reordered": 1,
        "diverging": 1,
        "failed_present": 1,
        "gaps": 2,
        "epochs_decreasing": 1,
    }
    diverging = first(summary, "diverging")
    assert (diverging["offset"], diverging["brokers"]) == (2 * SIZE + 7, "3")
    assert first(summary, "lost")["sequence"] == 4 * SIZE + 5
    assert first(summary, "epochs_decreasing")["epochs"] == "2 from 100, 0 from 140"
    assert summary.facts["of_other_producers"] == 1
    written = spark.read.parquet(str(tmp_path / "o")).groupBy("kind").sum("count").collect()
    assert dict(written) == anomalies(summary)


def test_check_without_client_histories_finds_duplicates_overlaps_and_damage(spark, tmp_path):
    logs = ReplicaLogs(tmp_path / "data")
    producer = Producer(7, 0)
    logs.append(TP, batch([b"a", b"b"], 0, producer=producer, sequence=0))
    logs.append(TP, batch([b"a", b"b"], 2, producer=producer, sequence=0))  # written twice
    logs.append(TP, batch([b"c", b"d"], 3))  # begins below the end of the batch before
    damaged = bytearray(batch([b"e", b"f"], 5))
    damaged[-3] ^= 1
    logs.append(TP, bytes(damaged), on=[2])
    logs.append(TP, batch([b"e", b"f"], 5), on=[1, 3])
    logs.append(TP, batch([b"g"], 7))
    logs.append(OTHER, batch([b"h"], 0))
    logs.append(OTHER, with_invalid_record(batch([b"i"], 1)))
    logs.append(OTHER, batch([b"j"], 2), on=[1, 3])
    logs.append(OTHER, with_invalid_record(batch([b"j"], 2)), on=[2])
    summary = check(spark, logs)
    kinds = {"sequence_back": 1, "overlapping": 1, "corrupt": 3, "diverging": 3}
    assert anomalies(summary) == kinds
    assert first(summary, "diverging")["detail"] == "absent on 2"
    places = [(row["partition"], row["offset"], row["brokers"]) for row in rows(summary, "corrupt")]
    assert places == [(0, 5, "2"), (1, 1, "1 2 3"), (1, 2, "2")]
    detail = (
        "the records do not decode: record lengths do not add up to the batch header's record count"
    )
    assert rows(summary, "corrupt")[1]["detail"] == detail


def test_check_compares_the_reads_of_consumers_with_the_logs(spark, tmp_path):
    logs = ReplicaLogs(tmp_path / "data")
    logs.append(TP, batch([value(0), value(1), value(2)], 0))
    place = {"consumer": "c", "topic": "t", "partition": 0}
    contents = [(0, value(0)), (1, b"other"), (1, value(1)), (9, value(9))]
    history = [
        {**place, "position": position, "offset": offset, "value": content.decode()}
        for position, (offset, content) in enumerate(contents)
    ]
    summary = check(spark, logs, reads=(write_history(tmp_path / "reads.jsonl", history),))
    assert anomalies(summary) == {"read_differs": 2, "read_back": 1}


class Checked(NamedTuple):
    """A check of the logs and histories of two transactional clients, of which one has swapped commits and aborts."""

    summary: Summary
    stages: list[str]
    """The stages of the progress report in which Spark computed a table."""


@pytest.fixture(scope="module")
def checked_clients(spark, tmp_path_factory) -> Checked:
    directory = tmp_path_factory.mktemp("clients")
    logs = ReplicaLogs(directory / "data")
    right, swapped = directory / "right.jsonl", directory / "swapped.jsonl"
    right.write_text("".join(transactions(logs, "t")))
    words = {"commit": "abort", "abort": "commit"}
    lines = "".join(transactions(logs, "u"))
    swapped.write_text(re.sub("commit|abort", lambda word: words[word[0]], lines))
    report = Report()
    stages: list[str] = []

    def computed(table: Any) -> Any:
        stages.append(report._stages[-1] if report._stages else "")
        return kept(table)

    histories = str(right), str(swapped)
    settings = CheckSettings((str(logs.path),), histories, reads=histories[:1])
    with pytest.MonkeyPatch.context() as patch:
        for module in (pipeline, matching, history_tables):
            patch.setattr(module, "kept", computed)
        return Checked(run(spark, settings, report), stages)


def transactions(logs: ReplicaLogs, topic: str) -> list[str]:
    """Write a log with two committed transactions and an aborted one; return the history of their client."""
    lines: list[str] = []
    client = Recorder(f"client of {topic}", "id", lines.append, lambda: 0.0)
    for number, commit in ((0, True), (1, False), (2, True)):
        producer = Producer(7, 0)
        sent = batch([value(number)], 2 * number, sequence=number, producer=producer)
        logs.append(TopicPartition(topic, 0), marked(sent, 0x10))
        logs.append(TopicPartition(topic, 0), marker(2 * number + 1, producer, commit=commit))
        client.ended(client.begin())
        client.ended(client.write(topic, value(number), 0), offset=2 * number)
        client.ended(client.commit() if commit else client.abort())
    for offset, number in ((0, 0), (4, 2)):
        client.read(topic, 0, offset, value(number))
    client.seek(topic, 0, 0)
    client.read(topic, 0, 0, value(0))
    return lines


def test_check_takes_the_histories_of_transactional_clients(checked_clients):
    summary = checked_clients.summary
    assert anomalies(summary) == {"lost": 1, "aborted_visible": 2}
    assert {
        row["topic"] for kind in ("lost", "aborted_visible") for row in rows(summary, kind)
    } == {"u"}
    names = ("sends_ok", "sends_aborted", "reads", "acknowledged_and_there")
    assert [summary.facts[name] for name in names] == [2 + 1, 1 + 2, 3, 2]


def test_progress_report_of_the_check_names_every_step_that_spark_computes(checked_clients):
    assert list(dict.fromkeys(checked_clients.stages)) == [
        "read histories",
        "read batch headers",
        "compare replicas",
        "join histories with logs",
        "collect anomalies",
    ]


def test_check_handles_transactions_torn_tails_and_codecs_by_kafkas_rules(spark, tmp_path):
    logs = ReplicaLogs(tmp_path / "data")
    transaction = {"producer": Producer(7, 0), "codec": "zstd"}
    for tp in (TP, TopicPartition("wrong", 0)):
        logs.append(tp, marked(batch([value(0)], 0, sequence=0, **transaction), 0x10))
        logs.append(tp, marker(1, Producer(7, 0), commit=False))
        logs.append(tp, marked(batch([value(1)], 2, sequence=1, **transaction), 0x10))
        logs.append(tp, marker(3, Producer(7, 0), commit=True))
        logs.append(tp, batch([value(2)], 4, codec="gzip"))
        logs.append(tp, batch([value(3)], 5, codec="snappy")[:-5], on=[2])
    (logs.directory(2) / ".kafka_cleanshutdown").unlink()
    history = [send(0, 0, "aborted"), send(1, 2), send(2, 4), send(3, None, "unknown")]
    wrong = [send(0, 0), send(1, 2, "aborted"), send(2, 4)]
    history += [{**one, "producer": "q", "topic": "wrong"} for one in wrong]
    summary = check(spark, logs, write_history(tmp_path / "h.jsonl", history))
    assert anomalies(summary) == {"lost": 1, "aborted_visible": 1}
    assert first(summary, "lost")["topic"] == "wrong"
    assert first(summary, "aborted_visible")["topic"] == "wrong"


async def test_check_with_client_history_finds_no_anomaly_until_a_replica_is_damaged(
    spark, cluster, client, tmp_path
):
    await client.create_topics(NewTopic("checked", 2, 3), NewTopic("history", 1, 3))
    history = History()
    for number in range(20):
        sent = Record(key=None, value=value(number))
        ticket = history.sent(sent.value)
        [produced] = await client.produce("checked", [sent], partition=number % 2)
        history.acked(ticket, produced.partition, produced.offset)
    lines = [json.dumps(row).encode() for row in history.rows("p", "checked")]
    await client.produce("history", [Record(key=None, value=line) for line in lines], partition=0)
    settings = CheckSettings(
        replicas=(str(cluster.directory.path),),
        histories=("topic:history",),
        topics=("checked",),
        servers=cluster.bootstrap,
    )
    summary = run(spark, settings, Report())
    assert (summary.ok, anomalies(summary)) == (True, {})
    assert summary.facts["acknowledged_and_there"] == 20
    copy = tmp_path / "copy"
    for broker in (1, 2, 3):
        source = cluster.directory.broker_data(broker)
        shutil.copytree(source / "checked-0", copy / f"broker-{broker}" / "checked-0")
        shutil.copy(source / "meta.properties", copy / f"broker-{broker}")
    [segment] = (copy / "broker-2" / "checked-0").glob("*.log")
    data = bytearray(segment.read_bytes())
    data[70] ^= 1
    segment.write_bytes(data)
    path = tmp_path / "history.jsonl"
    path.write_bytes(b"\n".join(line for line in lines if b'"partition": 0' in line))
    damaged = run(spark, CheckSettings(replicas=(str(copy),), histories=(str(path),)), Report())
    assert anomalies(damaged) == {"missing": 1, "diverging": 1, "corrupt": 1}


def test_check_refuses_unusable_input_and_names_it(spark, tmp_path):
    logs = ReplicaLogs(tmp_path / "data")
    with pytest.raises(PipelineError, match="hold no segment of any topic"):
        check(spark, logs)
    logs.append(TP, batch([value(0)], 0))
    with pytest.raises(PipelineError, match="hold no segment of u, v"):
        check(spark, logs, topics=("u", "v"))
    with pytest.raises(PipelineError, match="is no log directory of a broker"):
        run(spark, CheckSettings(replicas=(str(tmp_path),)), Report())
    path = tmp_path / "h 1.jsonl"
    wrong = write_history(path, [send(0, 0), send(1, 1, "fine")])
    text = r"h 1\.jsonl, line 2: .*outcome 'fine'.*an outcome of ok, failed"
    with pytest.raises(PipelineError, match=text):
        check(spark, logs, wrong)
    whole = write_history(tmp_path / "whole.jsonl", [send(0, 0)])
    path.write_text(f"{json.dumps(send(0, 0))}\n[1]\n{json.dumps(send(1, 1))}\n")
    text = r"h 1\.jsonl, line 2 is not a JSON object with the required columns: \[1\]: a send needs"
    with pytest.raises(PipelineError, match=text):
        check(spark, logs, whole, str(path))
    path.write_text(json.dumps(send(0, 0)) + '\n{"producer": "p", "sequ')
    text = (
        r'h 1\.jsonl, line 2 is cut off: \{"producer": "p", "sequ: let its writer finish, or remove'
    )
    with pytest.raises(PipelineError, match=text):
        check(spark, logs, whole, str(path))
