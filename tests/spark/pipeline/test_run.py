"""Pipelines defined in TOML files run on a real cluster: decoding, queries, sinks, and one-line errors."""

from __future__ import annotations

import json

import pytest

from minikafka.base.errors import MinikafkaError
from minikafka.client import NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.spark.pipelines.run.definition import Overrides, parse
from minikafka.spark.pipelines.run.pipeline import run
from minikafka.spark.pipelines.session.failures import PipelineError, explain
from minikafka.spark.pipelines.session.report import Report, Silent, Summary, Table

CLICKS = [
    b'{"user":"ann","ms":1}',
    b'{"user":"bob","ms":"slow"}',
    b"no json",
    None,
    b'{"user":"ann","ms":4}',
]


class Printed(Silent):
    """A display that records the tables that a pipeline prints."""

    def __init__(self) -> None:
        self.tables: list[Table] = []

    def table(self, table: Table) -> None:
        self.tables.append(table)


@pytest.fixture
def pipeline(spark, cluster, tmp_path):
    """Return a function that runs the pipeline defined by a TOML text; `{}` stands for the test's directory."""

    def start(text: str, display: Silent | None = None) -> Summary:
        given = Overrides(lambda: cluster.bootstrap)
        definition = parse(text.replace("{}", str(tmp_path)), "f.toml", given)
        return run(spark, definition, Report(display))

    return start


async def test_stream_of_json_is_grouped_and_written_as_json(client, contents, pipeline):
    await client.create_topics(NewTopic("run-clicks", 2, 3), NewTopic("run-counts", 1, 3))
    await client.produce("run-clicks", [Record(value=value) for value in CLICKS], partition=1)
    text = """
        [pipeline]
        name = "counts"
        checkpoint = "{}/checkpoint"
        [source.clicks]
        topic = "run-clicks"
        decode = { format = "json", schema = "user string, ms int" }
        [[step]]
        name = "known"
        sql = "select * from clicks where user is not null"
        [[step]]
        name = "counts"
        sql = "select user, count(*) n, sum(ms) ms, count(_malformed) bad from known group by user"
        [sink]
        kind = "topic"
        topic = "run-counts"
        mode = "update"
        encode = { format = "json", key = "user" }
    """
    summary = pipeline(text)
    facts = {"batches": 1, "records_read": 5, "malformed": 2, "rows_written": 2}
    assert summary.facts == facts
    steps, malformed = summary.tables
    assert steps.rows == (("known", 3), ("counts", 2))
    assert len(malformed.rows) == 2
    found = {one.key: json.loads(one.value) for one in await contents("run-counts")}
    assert found == {
        b"ann": {"user": "ann", "n": 2, "ms": 5, "bad": 0},
        b"bob": {"user": "bob", "n": 1, "bad": 1},
    }
    await client.produce("run-clicks", [Record(value=b'{"user":"ann","ms":5}')], partition=0)
    assert pipeline(text).facts["records_read"] == 1
    last = (await contents("run-counts"))[-1]
    assert json.loads(last.value) == {"user": "ann", "n": 3, "ms": 10, "bad": 0}
    with pytest.raises(PipelineError, match="another query: step counts has changed; name a new"):
        pipeline(text.replace("sum(ms) ms", "max(ms) ms"))


def visit(number: int, second: int) -> Record:
    """Return a record of a visit with an id, at a second of 2026-03-01."""
    ts = f"2026-03-01T10:{second // 60:02}:{second % 60:02}Z"
    return Record(value=json.dumps({"id": number, "ts": ts}).encode())


async def test_stream_drops_duplicates_and_late_rows_and_sends_dead_letters(
    client, contents, pipeline
):
    names = ("run-visits", "run-visits-once", "run-visits-dead")
    await client.create_topics(*(NewTopic(name, 1, 3) for name in names))
    dead = [
        Record(key=b"k", value=b'{"id": "many", "ts": "2026-03-01T10:00:00Z"}'),
        Record(value=b"\xff", headers=(("h", b"1"),), timestamp=-1),
    ]
    visits = [visit(1, 0), visit(2, 10), visit(1, 20), visit(3, 300)]
    await client.produce("run-visits", visits + dead, partition=0)
    text = """
        [pipeline]
        name = "once"
        checkpoint = "{}/checkpoint"
        [source.visits]
        topic = "run-visits"
        decode = { format = "json", schema = "id int, ts timestamp" }
        dead_letter = "run-visits-dead"
        [[step]]
        name = "unique"
        sql = "select id, ts from visits"
        watermark = { column = "ts", delay = "1 minute" }
        drop_duplicates = "id"
        [sink]
        kind = "topic"
        topic = "run-visits-once"
        encode = { format = "json" }
    """
    reasons = ("duplicates_dropped", "late_dropped", "late_groups_dropped")
    summary = pipeline(text)
    assert summary.ok
    assert [summary.facts[name] for name in reasons] == [1, 0, 0]
    names = ("records_read", "malformed", "dead_letters", "rows_written")
    assert [summary.facts[name] for name in names] == [6, 2, 2, 3]
    await client.produce("run-visits", [visit(4, 1), visit(3, 301), visit(1, 302)], partition=0)
    summary = pipeline(text)
    assert [summary.facts[name] for name in reasons] == [1, 1, 0]
    assert [summary.facts[name] for name in names] == [3, 0, 0, 1]
    assert summary.ok
    found = await contents("run-visits-once")
    assert sorted(json.loads(one.value)["id"] for one in found) == [1, 1, 2, 3]
    letters = await contents("run-visits-dead")
    assert [(one.key, one.value, one.timestamp) for one in letters[1:]] == [(None, b"\xff", -1)]
    assert [one.headers[-1][1].decode() for one in letters] == [
        "id is not of the type int: many",
        "the value does not match the schema id int, ts timestamp",
    ]
    assert letters[1].headers[:2] == (("h", b"1"), ("minikafka.errors.topic", b"run-visits"))
    with pytest.raises(PipelineError, match="drop_duplicates of unique was id and is id, ts now"):
        pipeline(text.replace('"id"', '["id", "ts"]'))


async def test_error_of_duplicates_by_an_unknown_column_lists_the_columns(client, pipeline):
    await client.create_topics(NewTopic("run-unique", 1, 3))
    text = """
        [pipeline]
        name = "once"
        [source.lines]
        topic = "run-unique"
        [[step]]
        name = "unique"
        sql = "select key, value, timestamp from {source}"
        drop_duplicates = ["id", "key"]
        [source.marked]
        topic = "run-unique"
        watermark = { column = "timestamp", delay = "1 minute" }
        [sink]
        kind = "console"
    """
    message = (
        "unique: drop_duplicates: there is no column id: the columns are key, value, timestamp"
    )
    with pytest.raises(MinikafkaError, match=message):
        pipeline(text.replace("{source}", "marked"))
    with pytest.raises(Exception, match="without watermark") as caught:
        pipeline(text.replace("{source}", "lines").replace('"id", ', ""))
    assert str(explain(caught.value)) == (
        "drop_duplicates needs a watermark: the rows of this step have no watermark: add"
        " watermark = { column, delay } to the step"
    )


async def test_batch_of_csv_is_written_as_parquet(spark, client, contents, pipeline, tmp_path):
    await client.create_topics(NewTopic("run-csv", 1, 3), NewTopic("run-csv-dead", 1, 3))
    await client.produce("run-csv", [Record(value=b"ann;1"), Record(value=b"bob;x")], partition=0)
    text = """
        [pipeline]
        name = "to files"
        trigger = "batch"
        [source.rows]
        topic = "run-csv"
        decode = { format = "csv", schema = "user string, ms int", options = { sep = ";" } }
        [sink]
        kind = "parquet"
        path = "{}/out"
        partition_by = "user"
        mode = "error"
    """
    facts = {"records_read": 2, "malformed": 1, "rows_written": 2}
    malformed = Table("first_malformed", ("topic", "partition", "offset"), (("run-csv", 0, 1),))
    assert pipeline(text) == Summary("to files", facts, (malformed,))
    assert (tmp_path / "out" / "user=ann").is_dir()
    rows = spark.read.parquet(str(tmp_path / "out")).orderBy("_offset").collect()
    assert [(row.ms, row._offset, row._malformed) for row in rows] == [
        (1, 0, None),
        (None, 1, "bob;x"),
    ]
    dead = text.replace("decode", 'dead_letter = "run-csv-dead"\ndecode')
    summary = pipeline(dead.replace("{}/out", "{}/valid"))
    names = ("records_read", "malformed", "dead_letters", "rows_written")
    assert [summary.facts[name] for name in names] == [2, 1, 1, 1]
    assert [one.value for one in await contents("run-csv-dead")] == [b"bob;x"]
    with pytest.raises(PipelineError) as caught:
        pipeline(text)
    assert str(caught.value).endswith(
        'already exists: name another directory, or set mode = "append" or "overwrite" in the file'
    )


async def test_records_of_sources_that_a_query_drops_or_does_not_use_are_counted(client, pipeline):
    topics = ("run-left", "run-none", "run-unused")
    await client.create_topics(*(NewTopic(topic, 1, 3) for topic in topics))
    deep = b'{"id":1,"d":' + b"[" * 1500 + b"]" * 1500 + b"}"
    records = [Record(value=value) for value in (b'{"id":1}', deep, b"[" * 100_000)]
    await client.produce("run-left", records, partition=0)
    await client.produce("run-unused", records, partition=0)
    sources = "".join(
        f"""
        [source.{topic.removeprefix("run-")}]
        topic = "{topic}"
        decode = {{ format = "json", schema = "id int" }}
        """
        for topic in topics
    )
    summary = pipeline(
        """
        [pipeline]
        name = "joined"
        trigger = "batch"
        """
        + sources
        + """
        [[step]]
        name = "both"
        sql = "select `left`.id from `left` join none on `left`.id = none.id"
        [sink]
        kind = "parquet"
        path = "{}/joined"
        """
    )
    assert summary.tables[0].rows == (("left", 3, 2), ("none", 0, 0), ("unused", 0, None))
    names = ("records_read", "malformed", "rows_written")
    assert [summary.facts[name] for name in names] == [3, 2, 0]


async def test_rows_of_each_micro_batch_are_printed(client, pipeline):
    await client.create_topics(NewTopic("run-printed", 1, 3))
    await client.produce("run-printed", [Record(value=b"a"), Record(value=b"b")], partition=0)
    display = Printed()
    text = """
        [pipeline]
        name = "printed"
        [source.lines]
        topic = "run-printed"
        decode = { format = "string" }
        maxOffsetsPerTrigger = 1
        [[step]]
        name = "values"
        sql = "select value from lines"
        [sink]
        kind = "console"
    """
    assert pipeline(text, display) == Summary("printed", {"batches": 2})
    assert display.tables == [
        Table("batch 0", ("value",), (("a",),)),
        Table("batch 1", ("value",), (("b",),)),
    ]


BATCH = """
[pipeline]
name = "wrong"
trigger = "batch"
[source.lines]
topic = "run-wrong"
{}
[[step]]
name = "result"
sql = "{}"
[sink]
kind = "topic"
topic = "run-out"
"""
WRONG = {
    ("", "select nothing from lines"): "nothing",
    ("", "selec value from lines"): "Syntax error at or near 'selec'",
    ("", "select value from line"): "the SQL of a step reads from sources and earlier",
    ("", "select key from lines"): "a column value is needed; the table has key",
    ("", "select string(int(string(value))) value from lines"): "try_cast",
    (
        "decode = { format = 'json', schema = 'a strin' }",
        "select 1",
    ): """[source.lines] decode: schema 'a strin' is not valid: Unsupported data type "STRIN\"""",
    (
        "decode = { format = 'csv', schema = 'a int', options = { separator = ';' } }",
        "select 1",
    ): "[source.lines] decode: options: unknown key separator: see Spark's from_csv",
    (
        "decode = { format = 'json', schema = 'a int', options = { multiLin = true } }",
        "select 1",
    ): "[source.lines] decode: options: unknown key multiLin: did you mean multiLine?",
}


@pytest.mark.parametrize("wrong", WRONG, ids=WRONG.values())
async def test_error_of_an_invalid_query_is_one_line(client, pipeline, wrong):
    if "run-wrong" not in await client.list_topics():
        await client.create_topics(NewTopic("run-wrong", 1, 3), NewTopic("run-out", 1, 3))
        await client.produce("run-wrong", [Record(value=b"a")], partition=0)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of Spark or ours; the line is checked
        pipeline(BATCH.format(*wrong))
    line = str(explain(caught.value))
    assert WRONG[wrong] in line
    assert "\n" not in line
    assert "org.apache" not in line
    assert "SQLSTATE" not in line


async def test_error_of_a_missing_topic_suggests_the_topics_list_command(pipeline):
    text = BATCH.format("", "select * from lines").replace("run-wrong", "run-missing")
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of Spark; the line is checked
        pipeline(text)
    assert str(explain(caught.value)).endswith(
        ": no such topic: minikafka topics list shows the topics"
    )


async def test_error_of_parquet_partitioned_by_an_unknown_column_lists_the_columns(
    client, pipeline
):
    await client.create_topics(NewTopic("run-divided", 1, 3))
    with pytest.raises(
        MinikafkaError, match="partition_by: there is no column user: the columns are"
    ):
        pipeline("""
            [pipeline]
            name = "divided"
            trigger = "batch"
            [source.lines]
            topic = "run-divided"
            [sink]
            kind = "parquet"
            path = "{}/divided"
            partition_by = ["Topic", "user"]
        """)


async def test_error_of_a_watermark_on_an_unknown_column_names_that_column(client, pipeline):
    await client.create_topics(NewTopic("run-marked", 1, 3))
    with pytest.raises(MinikafkaError, match="lines: the watermark's column ts is not among"):
        pipeline("""
            [pipeline]
            name = "marked"
            [source.lines]
            topic = "run-marked"
            watermark = { column = "ts", delay = "1 minute" }
            [sink]
            kind = "console"
        """)
