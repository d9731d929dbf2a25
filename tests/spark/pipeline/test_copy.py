"""The pipeline `copy` copies topics to a topic on a real cluster, unchanged or through a query."""

from __future__ import annotations

import json
import os
import re
import threading
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from minikafka.base.errors import ConfigError
from minikafka.base.model import TopicPartition
from minikafka.client import NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.spark.pipelines.copy import CopySettings, definition_of, run
from minikafka.spark.pipelines.session.failures import explain
from minikafka.spark.pipelines.session.metrics_page import metrics_of, metrics_page
from minikafka.spark.pipelines.session.report import Report
from minikafka.spark.pipelines.streams.streams import CONTINUOUS
from minikafka.tools.cluster import LocalCluster


def settings_of(
    cluster: LocalCluster, directory: Path, source: str, target: str, **more: Any
) -> CopySettings:
    """Return the settings of a copy from one topic to another. The checkpoint is in `directory`."""
    servers = cluster.bootstrap
    checkpoint = str(directory / "checkpoint")
    return CopySettings((source,), target, servers, servers, checkpoint, **more)


async def test_copy_continues_from_its_checkpoint(spark, cluster, client, contents, tmp_path):
    await client.create_topics(NewTopic("copy-from", 2, 3), NewTopic("copy-to", 1, 3))
    await client.produce("copy-from", [Record(key=b"k", value=b"1")], partition=0)
    await client.produce("copy-from", [Record(key=None, value=None)], partition=1)
    settings = settings_of(cluster, tmp_path, "copy-from", "copy-to")
    first = run(spark, settings, Report())
    assert first.facts == {"batches": 1, "records_read": 2, "rows_written": 2}
    await client.produce("copy-from", [Record(key=b"k", value=b"2")], partition=0)
    again = run(spark, settings, Report())
    assert again.facts == {"batches": 1, "records_read": 1, "rows_written": 1}
    copied = sorted((one.key or b"", one.value or b"") for one in await contents("copy-to"))
    assert copied == [(b"", b""), (b"k", b"1"), (b"k", b"2")]


async def test_copy_continues_a_checkpoint_that_was_used_without_transactions(
    spark, cluster, client, contents, tmp_path
):
    await client.create_topics(NewTopic("copy-old", 1, 3), NewTopic("copy-new", 1, 3))
    settings = settings_of(cluster, tmp_path, "copy-old", "copy-new")
    commits = tmp_path / "checkpoint" / "commits"
    for number, exactly_once in enumerate([False, False, None, None]):
        if number == 2:  # as if the last driver without transactions had died
            kept = (commits / "1").read_bytes()
            (commits / "1").unlink()
            with pytest.raises(
                Exception, match="has begun micro-batch 1, and wrote without"
            ) as caught:
                run(spark, settings, Report())
            assert "--at-least-once writes it" in str(explain(caught.value))
            (commits / "1").write_bytes(kept)
        await client.produce("copy-old", [Record(value=b"%d" % number)], partition=0)
        run(spark, replace(settings, exactly_once=exactly_once), Report())
    assert [one.value for one in await contents("copy-new")] == [b"0", b"1", b"2", b"3"]
    for name in ("3", ".3.crc"):
        (commits / name).unlink()
    assert run(spark, settings, Report()).facts["rows_written"] == 0
    assert [one.value for one in await contents("copy-new")] == [b"0", b"1", b"2", b"3"]


async def test_copy_with_a_query_changes_records_and_writes_the_origin_header(
    spark, cluster, client, contents, tmp_path
):
    await client.create_topics(NewTopic("copy-words", 2, 3), NewTopic("copy-long", 2, 3))
    words = [Record(key=b"k", value=value) for value in (b"a", b"ante", b"anterior")]
    await client.produce("copy-words", words, partition=1)
    settings = settings_of(
        cluster,
        tmp_path,
        "copy-words",
        "copy-long",
        sql="select upper(string(value)) value, partition from source where length(value) > 1",
        origin_header="origin",
        compression="lz4",
    )
    assert run(spark, settings, Report()).facts["rows_written"] == 2
    copied = await contents("copy-long")
    assert [(one.key, one.value) for one in copied] == [(None, b"ANTE"), (None, b"ANTERIOR")]
    assert [json.loads(one.headers[0][1])["sequence"] for one in copied] == [0, 1]


async def test_page_shows_rows_bytes_and_waits_of_a_copy_that_runs(
    spark, cluster, client, tmp_path
):
    await client.create_topics(NewTopic("copy-seen", 2, 3), NewTopic("copy-shown", 1, 3))
    for partition in range(2):
        records = [Record(value=os.urandom(1_000)) for _ in range(50)]
        await client.produce("copy-seen", records, partition=partition)
    settings = settings_of(
        cluster,
        tmp_path,
        "copy-seen",
        "copy-shown",
        trigger=CONTINUOUS,
    )
    report = Report()
    report.is_scraped = True
    found: dict[str, float] = {}
    pause = threading.Event()

    def scrape(port: int) -> None:
        """Read the page until it shows that all records are read, then stop the copy."""
        while found.get("rows_read_total") != 100 or found["bytes_read_total"] < 100_000:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as page:
                text = page.read().decode()
            rows = re.findall(r"minikafka_pipeline_(\w+)\{[^}]*\} (\S+)", text)
            found.update((name, float(value)) for name, value in rows)
            pause.wait(0.1)
        for query in spark.streams.active:
            query.stop()

    with metrics_page(("127.0.0.1", 0), metrics_of("seen", report.counts)) as port:
        scraper = threading.Thread(target=scrape, args=(port,), daemon=True)
        scraper.start()
        run(spark, settings, report)
        scraper.join()
    assert found["rows_read_total"] == 100
    assert 100_000 < found["bytes_read_total"] < 103_000
    assert found["broker_wait_seconds_total"] > 0
    assert found["offsets_behind"] == 0


async def test_copy_fails_at_deleted_records_unless_lost_records_are_skipped(
    spark, cluster, client, contents, tmp_path
):
    await client.create_topics(NewTopic("copy-gone", 1, 3), NewTopic("copy-left", 1, 3))
    settings = settings_of(cluster, tmp_path, "copy-gone", "copy-left")
    await client.produce("copy-gone", [Record(value=b"1")], partition=0)
    run(spark, settings, Report())
    await client.produce("copy-gone", [Record(value=b"2"), Record(value=b"3")], partition=0)
    await client.admin.delete_records({TopicPartition("copy-gone", 0): 2})
    with pytest.raises(Exception, match="copy-gone-0") as caught:
        run(spark, settings, Report())
    assert "which holds 2 to 3: --skip-lost reads the rest" in str(explain(caught.value))
    assert run(spark, replace(settings, skip_lost=True), Report()).facts["records_read"] == 1
    assert [one.value for one in await contents("copy-left")] == [b"1", b"3"]


def test_copy_of_a_topic_to_itself_is_refused():
    settings = CopySettings(("a", "b"), "b", "h:1", "h:1", "checkpoint")
    with pytest.raises(ConfigError, match="b would be copied to itself: name another topic"):
        definition_of(settings)
    assert definition_of(replace(settings, to_servers="h:2")).name == "copy a, b to b"


def test_copy_that_skips_lost_records_sets_fail_on_data_loss_to_false():
    settings = CopySettings(("a",), "b", "h:1", "h:1", "checkpoint", skip_lost=True)
    skipping = definition_of(settings)
    assert skipping.sources[0].options["failOnDataLoss"] == "false"
