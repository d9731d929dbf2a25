"""The triggers of streams, and the counts of a stream from Spark's progress events."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from minikafka.base.errors import ConfigError
from minikafka.spark.pipelines.session.report import Bar, Report
from minikafka.spark.pipelines.streams.streams import (
    AVAILABLE_NOW,
    StreamTotals,
    Trigger,
    _Counter,
    offsets_of,
    parse_trigger,
)

NO_REASONS = ("duplicates", "late", "late_groups")


class Bars(Report):
    """A report that keeps the bars of streams."""

    def __init__(self) -> None:
        super().__init__()
        self.bars: list[Bar] = []

    def stream(self, bar: Bar) -> None:
        self.bars.append(bar)


def source(read: int, latest: int) -> SimpleNamespace:
    def offsets(offset: int) -> str:
        return json.dumps({"t": {"0": {"offset": offset, "leaderEpoch": 0}}})

    return SimpleNamespace(endOffset=offsets(read), latestOffset=offsets(latest))


def progress(
    batch: int,
    read: int,
    written: int,
    *sources: SimpleNamespace,
    operators: Sequence[SimpleNamespace] = (),
    **observed: dict[str, int],
) -> SimpleNamespace:
    rows = {name: SimpleNamespace(asDict=lambda row=row: row) for name, row in observed.items()}
    return SimpleNamespace(
        runId="run",
        name=None,
        batchId=batch,
        batchDuration=250,
        stateOperators=operators,
        numInputRows=read,
        sink=SimpleNamespace(numOutputRows=written),
        sources=sources,
        observedMetrics=rows,
    )


def count(*events: SimpleNamespace) -> tuple[StreamTotals, list[Bar]]:
    report = Bars()
    counter = _Counter(report, "copy")
    for event in events:
        counter.onQueryProgress(SimpleNamespace(progress=event))
    counter.onQueryTerminated(SimpleNamespace(runId="run"))
    totals = counter.totals("run")
    assert report.counts()["copy"][:3] == (
        totals.batches,
        totals.rows_read,
        totals.rows_written,
    )
    return totals, report.bars


def test_counts_of_micro_batches_are_added_up():
    totals, bars = count(
        progress(0, 7, 6, source(7, 10), out={"records": 6, "bad": 1}),
        progress(1, 3, 3, source(10, 10), out={"records": 3, "bad": 0}),
    )
    assert totals == StreamTotals(
        2, 10, 9, 0, {"out": {"records": 9, "bad": 1}}, dict.fromkeys(NO_REASONS, 0)
    )
    assert bars == [
        Bar("copy", 7, 10, "batch 0: 7 rows, 3 offsets behind"),
        Bar("copy", 10, 10, "batch 1: 3 rows"),
    ]


def operator(late: int, **metrics: int) -> SimpleNamespace:
    return SimpleNamespace(numRowsDroppedByWatermark=late, customMetrics=metrics)


def test_dropped_rows_are_added_up_by_reason():
    totals, _ = count(
        progress(0, 7, 6, operators=[operator(2, numDroppedDuplicateRows=3), operator(1, other=9)]),
        progress(1, 3, 3, operators=[operator(0, numDroppedDuplicateRows=1), operator(4)]),
    )
    assert totals.dropped == {"duplicates": 4, "late": 2, "late_groups": 5}


def test_progress_without_rows_is_no_micro_batch_but_its_output_counts():
    totals, _ = count(progress(0, 5, 0, source(5, 5)), progress(1, 0, 2, source(5, 5)))
    assert (totals.batches, totals.rows_read, totals.rows_written) == (1, 5, 2)


def test_sink_that_reports_no_rows_has_no_number_of_rows():
    totals, _ = count(progress(0, 5, -1, source(5, 5)))
    assert totals.rows_written is None


def test_lag_is_the_sum_over_the_sources_of_topics():
    other = SimpleNamespace(endOffset="3", latestOffset="9")
    assert offsets_of(progress(0, 1, 1, source(1, 4), other, source(0, 2))) == 5
    assert offsets_of(progress(0, 1, 1, other)) is None


@pytest.mark.parametrize(
    ("text", "trigger"),
    [
        ("batch", None),
        ("available-now", AVAILABLE_NOW),
        ("processing-time 10 seconds", Trigger("10 seconds")),
        ("processing-time 500 milliseconds", Trigger("500 milliseconds")),
    ],
)
def test_trigger_is_read_from_its_name(text, trigger):
    assert parse_trigger(text) == trigger


@pytest.mark.parametrize("text", ["", "once", "processing-time", "processing-time 10 second s"])
def test_unknown_trigger_is_refused(text):
    with pytest.raises(ConfigError, match="trigger must be"):
        parse_trigger(text)


def test_arguments_of_a_trigger_are_those_of_spark():
    assert AVAILABLE_NOW.arguments() == {"availableNow": True}
    assert Trigger("1 second").arguments() == {"processingTime": "1 second"}
