"""`copy`: topics to a topic on a real cluster, unchanged or through a query."""

from __future__ import annotations

from minikafka.client import NewTopic
from minikafka.pipeline.copy import CopySettings, run
from minikafka.pipeline.report import Report
from minikafka.record.batch import Record


async def test_copy_continues_from_its_checkpoint(spark, cluster, client, contents, tmp_path):
    await client.create_topics(NewTopic("copy-from", 2, 3), NewTopic("copy-to", 1, 3))
    await client.produce("copy-from", [Record(key=b"k", value=b"1")], partition=0)
    await client.produce("copy-from", [Record(key=None, value=None)], partition=1)
    settings = CopySettings(
        topics=("copy-from",),
        to="copy-to",
        from_servers=cluster.bootstrap,
        to_servers=cluster.bootstrap,
        checkpoint=str(tmp_path / "checkpoint"),
    )
    first = run(spark, settings, Report())
    assert first.facts["records_written"] == 2
    await client.produce("copy-from", [Record(key=b"k", value=b"2")], partition=0)
    again = run(spark, settings, Report())
    assert (again.facts["records_read"], again.facts["records_written"]) == (1, 1)
    copied = sorted((one.key or b"", one.value or b"") for one in await contents("copy-to"))
    assert copied == [(b"", b""), (b"k", b"1"), (b"k", b"2")]
