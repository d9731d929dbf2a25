"""The command `minikafka pipeline run` on a real cluster: files, output and exit codes."""

from __future__ import annotations

import json
import signal

import pyarrow.dataset as ds
import pytest
from click.testing import CliRunner

from minikafka.base.errors import MinikafkaError
from minikafka.client import NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.spark.pipelines.session import context
from minikafka.spark.pipelines.session.failures import explain
from minikafka.tools.cli.pipeline import launch, pipeline

FILE = """
[pipeline]
name = "purchases"
trigger = "processing-time 1 second"
checkpoint = "{}/checkpoint"
[source.orders]
topic = "command-orders"
decode = { format = "json", schema = "item string, price double" }
includeHeaders = true
[[step]]
name = "dear"
sql = "select item, price, size(_headers) headers from orders where price > 1.5"
[sink]
"""
TO_TOPIC = 'kind = "topic"\ntopic = "command-dear"\nencode = { format = "json", key = "item" }'
TO_FILES = 'kind = "parquet"\npath = "{}/files"\npartition_by = "item"'


@pytest.fixture
def run(spark, cluster, tmp_path, monkeypatch):
    """Return a function that runs the command in the shared Spark session, with a TOML file of the given text."""

    def execute(_, work, __, report, **___):
        try:
            return work(spark, report)
        except Exception as error:
            raise explain(error) from error

    def invoke(text: str, *arguments: str):
        file = tmp_path / "pipeline.toml"
        file.write_text(text.replace("{}", str(tmp_path)))
        handler = signal.getsignal(signal.SIGTERM)
        try:
            return CliRunner().invoke(
                pipeline, ["run", str(file), "-b", cluster.bootstrap, *arguments]
            )
        finally:
            signal.signal(signal.SIGTERM, handler)

    monkeypatch.setattr(context, "execute", execute)
    # The command contacts the brokers in a new event loop, which is not possible inside the test's event loop.
    monkeypatch.setattr(launch, "run_with_client", lambda *_: None)
    return invoke


def order(item: str, price: float) -> Record:
    value = json.dumps({"item": item, "price": price}).encode()
    return Record(value=value, headers=(("h", b""), ("h", None)))


async def test_command_continues_from_its_checkpoint_and_prints_json(client, contents, run):
    await client.create_topics(NewTopic("command-orders", 2, 3), NewTopic("command-dear", 1, 3))
    await client.produce("command-orders", [order("tea", 1), order("jam", 2)], partition=1)
    first = run(FILE + TO_TOPIC, "--available-now", "--json")
    assert (first.exit_code, first.stderr) == (0, "")
    facts = {"batches": 1, "records_read": 2, "malformed": 0, "rows_written": 1}
    assert json.loads(first.stdout) == {"title": "purchases", "ok": True, **facts}
    more = [order("fig", 3), Record(value=b"{")]
    await client.produce("command-orders", more, partition=0)
    second = run(FILE + TO_TOPIC, "--available-now", "--json")
    facts = {"batches": 1, "records_read": 2, "malformed": 1, "rows_written": 1}
    places = {"first_malformed": [{"topic": "command-orders", "partition": 0, "offset": 1}]}
    assert json.loads(second.stdout) == {"title": "purchases", "ok": True, **facts, **places}
    [jam, fig] = await contents("command-dear")
    assert (jam.key, json.loads(jam.value)) == (b"jam", {"item": "jam", "price": 2, "headers": 2})
    assert fig.key == b"fig"


async def test_command_with_a_new_checkpoint_reads_all_records_into_files(client, run, tmp_path):
    if "command-orders" not in await client.list_topics():
        await client.create_topics(NewTopic("command-orders", 2, 3))
    await client.produce("command-orders", [order("nut", 9)], partition=0)
    given = ["--available-now", "--checkpoint", str(tmp_path / "other")]
    ended = run(FILE + TO_FILES, *given)
    assert ended.exit_code == 0
    assert ended.stdout.startswith("purchases\n")
    rows = ds.dataset(tmp_path / "files", partitioning="hive")
    assert "nut" in rows.to_table().column("item").to_pylist()


async def test_failed_command_prints_one_line_and_exits_with_code_1(run):
    text = (FILE + TO_TOPIC).replace("command-orders", "command-nowhere")
    ended = run(text, "--available-now")
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert isinstance(ended.exception, MinikafkaError)
    line = "command-nowhere: no such topic: minikafka topics list shows the topics"
    assert str(ended.exception) == line
