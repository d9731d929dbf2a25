"""The summary of a pipeline in a file: rows of steps, and rows that were dropped within the watermark."""

from __future__ import annotations

import pytest

from minikafka.spark.pipelines.run import pipeline
from minikafka.spark.pipelines.run.definition import (
    ConsoleSink,
    Decode,
    Definition,
    SourceView,
    Step,
    TopicSink,
    Watermark,
)
from minikafka.spark.pipelines.session.report import Table
from minikafka.spark.pipelines.streams.streams import Trigger

ONCE = Definition(
    name="once",
    sources=(SourceView("visits", {}, Decode("json", "id int"), dead_letter="dead"),),
    steps=(
        Step("known", "select * from visits"),
        Step("unique", "select * from known", Watermark("ts", "1 minute"), ("id",)),
    ),
    sink=TopicSink({}),
    trigger=Trigger(),
    checkpoint="c",
)
COUNTS = {
    "visits": {"records": 9, "malformed": 1},
    "rows of known": {"records": 8},
    "unique before duplicates were dropped": {"records": 8},
    "unique after duplicates were dropped": {"records": 5},
    "rows of unique": {"records": 5},
    "output": {"records": 5},
}
DROPPED = {"duplicates": 2, "late": 1, "late_groups": 0}


def test_summary_names_the_reason_for_each_dropped_row():
    found = pipeline._summary(ONCE, COUNTS, {"batches": 1}, 1, DROPPED)
    assert found.ok
    assert found.facts == {
        "batches": 1,
        "records_read": 9,
        "malformed": 1,
        "dead_letters": 1,
        "duplicates_dropped": 2,
        "late_dropped": 1,
        "late_groups_dropped": 0,
        "rows_written": 5,
    }
    assert found.tables == (Table("steps", ("step", "rows"), (("known", 8), ("unique", 5))),)


@pytest.mark.parametrize(("late", "rest"), [(0, 1), (3, -2)])
def test_summary_is_not_ok_if_dropped_rows_do_not_add_up(late, rest):
    found = pipeline._summary(ONCE, COUNTS, {}, 1, DROPPED | {"late": late})
    assert found.facts["rows_unaccounted"] == rest
    assert not found.ok


def test_run_without_micro_batches_has_dropped_no_rows():
    found = pipeline._summary(ONCE, {}, {"batches": 0}, 0, dict.fromkeys(DROPPED, 0))
    assert found.ok
    assert set(found.facts.values()) == {0}
    assert found.tables == ()


def test_summary_of_the_console_counts_only_dead_letters():
    sink = Definition(ONCE.name, ONCE.sources, (), ConsoleSink(), ONCE.trigger, None)
    assert pipeline._summary(sink, {}, {"batches": 1}, 3).facts == {"batches": 1, "dead_letters": 3}
