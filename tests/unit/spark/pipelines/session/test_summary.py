"""Summaries of pipelines as JSON documents."""

from __future__ import annotations

import pytest

from minikafka.spark.pipelines.session.report import Summary, Table


def test_summary_document_holds_facts_and_tables_in_order():
    table = Table("lost", ("partition", "offset"), ((0, 5), (1, None)))
    summary = Summary("check", {"records": 7, "seconds": 1.5}, (table,), ok=False)
    assert list(summary.document().items()) == [
        ("title", "check"),
        ("ok", False),
        ("records", 7),
        ("seconds", 1.5),
        ("lost", [{"partition": 0, "offset": 5}, {"partition": 1, "offset": None}]),
    ]


def test_summary_fact_with_the_name_of_a_table_is_refused():
    table = Table("partitions", ("partition",), ((0,),))
    with pytest.raises(ValueError, match="the same name: partitions"):
        Summary("restore", {"partitions": 1}, (table,))
