"""Metrics: counters, gauges and histograms, their names and their Prometheus text."""

from __future__ import annotations

import math
import re

import pytest

from minikafka.base.metrics import (
    QUANTILES,
    Histogram,
    MetricKind,
    Metrics,
    Sample,
    prometheus_name,
    prometheus_text,
)

BEAN = "kafka.server:type=ReplicaManager,name="


def text(metrics: Metrics) -> str:
    return "".join(prometheus_text(metrics))


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        (
            "kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec",
            MetricKind.COUNTER,
            "kafka_server_brokertopicmetrics_bytesin_total",
        ),
        (
            "kafka.controller:type=KafkaController,name=ActiveControllerCount",
            MetricKind.GAUGE,
            "kafka_controller_kafkacontroller_activecontrollercount",
        ),
        (
            "kafka.network:type=RequestMetrics,name=TotalTimeMs",
            MetricKind.SUMMARY,
            "kafka_network_requestmetrics_totaltimems",
        ),
        (
            "kafka.coordinator.group:type=GroupMetadataManager,name=NumGroups",
            MetricKind.GAUGE,
            "kafka_coordinator_group_groupmetadatamanager_numgroups",
        ),
        ("process_open_fds", MetricKind.GAUGE, "process_open_fds"),
    ],
)
def test_prometheus_name_equals_the_name_in_the_jmx_exporter(
    name: str, kind: MetricKind, expected: str
) -> None:
    assert prometheus_name(name, kind) == expected


def test_prometheus_text_shows_help_type_and_value_of_each_metric() -> None:
    metrics = Metrics()
    shrinks = metrics.counter(BEAN + "IsrShrinksPerSec", "ISRs cut.")
    metrics.gauge(BEAN + "LeaderCount", "Partitions led.", lambda: 3)
    shrinks.value += 2
    assert text(metrics) == (
        "# HELP kafka_server_replicamanager_isrshrinks_total ISRs cut.\n"
        "# TYPE kafka_server_replicamanager_isrshrinks_total counter\n"
        "kafka_server_replicamanager_isrshrinks_total 2\n"
        "# HELP kafka_server_replicamanager_leadercount Partitions led.\n"
        "# TYPE kafka_server_replicamanager_leadercount gauge\n"
        "kafka_server_replicamanager_leadercount 3\n"
    )


def test_prometheus_text_shows_help_and_type_once_for_all_labels_of_a_metric() -> None:
    metrics = Metrics()
    for request in ("Metadata", "ListOffsets"):
        metrics.counter(
            "kafka.network:type=RequestMetrics,name=RequestsPerSec", "R.", request=request
        )
    lines = text(metrics).splitlines()
    assert sum(line.startswith("#") for line in lines) == 2
    assert lines[2:] == [
        'kafka_network_requestmetrics_requests_total{request="Metadata"} 0',
        'kafka_network_requestmetrics_requests_total{request="ListOffsets"} 0',
    ]


def test_prometheus_text_escapes_label_values_and_help() -> None:
    metrics = Metrics()
    metrics.collect(
        "up", MetricKind.GAUGE, 'a\\b\n"c"', lambda: [Sample({"topic": 'a\\b\n"c"'}, 1)]
    )
    assert text(metrics) == (
        '# HELP up a\\\\b\\n"c"\n# TYPE up gauge\nup{topic="a\\\\b\\n\\"c\\""} 1\n'
    )


def test_histogram_is_shown_as_a_summary_in_the_prometheus_text() -> None:
    metrics = Metrics()
    times = metrics.histogram(
        "kafka.network:type=RequestMetrics,name=TotalTimeMs", "T.", request="R"
    )
    name = "kafka_network_requestmetrics_totaltimems"
    assert f'{name}{{request="R",quantile="0.99"}} NaN' in text(metrics)
    for value in range(1, 11):
        times.record(value)
    lines = text(metrics).splitlines()
    assert lines[1] == f"# TYPE {name} summary"
    assert f'{name}{{request="R",quantile="0.5"}} 5.0' in lines
    assert f'{name}_sum{{request="R"}} 55' in lines
    assert f'{name}_count{{request="R"}} 10' in lines
    assert len(lines) == 2 + len(QUANTILES) + 2


def test_metric_is_registered_once_for_each_set_of_labels() -> None:
    metrics = Metrics()
    metrics.counter("requests", "R.", request="A")
    metrics.counter("requests", "R.", request="B")
    with pytest.raises(ValueError, match="is registered already"):
        metrics.counter("requests", "R.", request="A")
    with pytest.raises(ValueError, match="is registered already"):
        metrics.gauge("requests", "R.", lambda: 0, request="C")


def test_metric_totals_have_short_names_and_omit_metrics_with_labels() -> None:
    metrics = Metrics()
    metrics.gauge(BEAN + "LeaderCount", "L.", lambda: 3)
    metrics.computed_counter(BEAN + "IsrShrinksPerSec", "I.", lambda: 1)
    metrics.counter("requests", "R.", request="A")
    metrics.collect(
        BEAN + "IsrShrinksPerSec", MetricKind.COUNTER, "I.", lambda: [Sample({"a": "b"}, 7)]
    )
    assert metrics.totals() == {"LeaderCount": 3, "IsrShrinksPerSec": 1}


def test_metrics_are_refreshed_before_they_are_read() -> None:
    metrics = Metrics()
    seen: list[int] = []
    metrics.before_read(lambda: seen.append(1))
    metrics.gauge("reads", "R.", lambda: len(seen))
    assert metrics.totals() == {"reads": 1}
    assert re.search("^reads 2$", text(metrics), re.MULTILINE)


@pytest.mark.parametrize("value", [0, 1, 15, 16, 17, 100, 1000, 12345, 2**31 - 1])
def test_quantile_is_at_most_an_eighth_above_the_value(value: int) -> None:
    histogram = Histogram()
    histogram.record(value)
    assert value <= histogram.quantile(0.5) <= value * 1.125


def test_histogram_counts_values_out_of_range_at_its_bounds() -> None:
    histogram = Histogram()
    histogram.record(-5)
    histogram.record(2**40)
    assert (histogram.count, histogram.quantile(0.5)) == (2, 0)
    assert histogram.quantile(1.0) == 2**31 - 1


def test_histogram_quantiles_forget_a_value_after_two_rotations() -> None:
    metrics = Metrics()
    histogram = metrics.histogram("times", "T.")
    histogram.record(8)
    metrics.rotate()
    histogram.record(1)
    assert histogram.quantile(1.0) == 8
    metrics.rotate()
    assert histogram.quantile(1.0) == 1
    metrics.rotate()
    assert math.isnan(histogram.quantile(1.0))
    assert (histogram.count, histogram.total) == (2, 9)
