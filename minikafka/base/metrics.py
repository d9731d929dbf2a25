"""The metrics of one broker under the names of Kafka's JMX beans, and their Prometheus text.

A component registers its metrics once and keeps the returned objects. To count, the component adds to `Counter.value`
or calls `Histogram.record`. Both allocate nothing, call no callbacks and read no clock. Gauges are computed when they
are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""Content type of `prometheus_text`."""
QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
"""The quantiles that Kafka's histograms report."""
_BEAN: Final = re.compile(r"(kafka(?:\.[a-z]+)+):type=([A-Za-z-]+),name=([A-Za-z-]+)")
_RATE: Final = "PerSec"
_TOTAL: Final = "-total"
_EXACT_BITS: Final = 4
_VALUE_MAX: Final = 2**31 - 1

Labels: TypeAlias = Mapping[str, str]
Number: TypeAlias = int | float


class MetricKind(Enum):
    """Types of metrics, as Prometheus names them."""

    COUNTER = "counter"
    GAUGE = "gauge"
    SUMMARY = "summary"


class Counter:
    """A number that only grows. Components add to `value` directly."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Histogram:
    """A distribution of whole numbers from 0; its quantiles are at most an eighth too high.

    `rotate` begins a new period. Quantiles cover the values of the current and of the previous period;
    `count` and `total` cover all values.
    """

    __slots__ = ("_previous", "_recent", "count", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self._recent = _no_values()
        self._previous = _no_values()

    def record(self, value: int) -> None:
        """Count one value; a negative value counts as 0."""
        value = min(max(value, 0), _VALUE_MAX)
        self.count += 1
        self.total += value
        self._recent[_bucket(value)] += 1

    def rotate(self) -> None:
        """Begin a new period; quantiles then cover the new period and the period that has just ended."""
        self._previous, self._recent = self._recent, _no_values()

    def quantile(self, share: float) -> float:
        """Return the quantile `share` (0 to 1) of the recent values, rounded up; NaN without values."""
        counts = [a + b for a, b in zip(self._recent, self._previous, strict=True)]
        left = share * sum(counts)
        if not left:
            return float("nan")
        for bucket, count in enumerate(counts):
            left -= count
            if left <= 0:
                return float(_largest_in(bucket))
        return float(_VALUE_MAX)


class Sample(NamedTuple):
    """One value of a metric with its labels."""

    labels: Labels
    value: Number | Histogram


Read: TypeAlias = Callable[[], Iterable[Sample]]


class Metric(NamedTuple):
    """A metric: its name, type and help text, and the functions that return its samples."""

    name: str
    kind: MetricKind
    help: str
    reads: dict[tuple[tuple[str, str], ...] | None, Read]
    """Functions that return the samples, by labels. The function under the key None returns samples of all labels."""

    def samples(self) -> list[Sample]:
        """Return the current samples."""
        return [sample for read in tuple(self.reads.values()) for sample in read()]


class Metrics:
    """The metrics of one broker, by bean name as in Kafka: `kafka.server:type=ReplicaManager,name=LeaderCount`.

    A name that is not a bean name, such as `process_open_fds`, is used unchanged as the Prometheus name.
    """

    def __init__(self) -> None:
        self._metrics: dict[str, Metric] = {}
        self._histograms: list[Histogram] = []
        self._refreshes: list[Callable[[], None]] = []

    def counter(self, name: str, help: str, **labels: str) -> Counter:
        """Register a counter and return it. Raises ValueError if name and labels are in use."""
        counter = Counter()
        self._add(name, MetricKind.COUNTER, help, labels, lambda: (Sample(labels, counter.value),))
        return counter

    def gauge(self, name: str, help: str, read: Callable[[], Number], **labels: str) -> None:
        """Register a gauge whose value `read` returns. Raises ValueError if name and labels are in use."""
        self._add(name, MetricKind.GAUGE, help, labels, lambda: (Sample(labels, read()),))

    def computed_counter(
        self, name: str, help: str, read: Callable[[], Number], **labels: str
    ) -> None:
        """Register a counter whose value `read` returns. Raises ValueError if name and labels are in use."""
        self._add(name, MetricKind.COUNTER, help, labels, lambda: (Sample(labels, read()),))

    def histogram(
        self, name: str, help: str, existing: Histogram | None = None, **labels: str
    ) -> Histogram:
        """Register a histogram, by default a new one, and return it.

        Raises ValueError if name and labels are in use.
        """
        histogram = existing or Histogram()
        self._add(name, MetricKind.SUMMARY, help, labels, lambda: (Sample(labels, histogram),))
        self._histograms.append(histogram)
        return histogram

    def collect(self, name: str, kind: MetricKind, help: str, read: Read) -> None:
        """Register a metric with changing labels; `read` returns all samples. Raises ValueError if `name` is in use."""
        self._add(name, kind, help, None, read)

    def before_read(self, refresh: Callable[[], None]) -> None:
        """Call `refresh` before every reading of the metrics, so that several gauges can share one costly lookup."""
        self._refreshes.append(refresh)

    def rotate(self) -> None:
        """Begin a new period for the quantiles of every histogram."""
        for histogram in self._histograms:
            histogram.rotate()

    def all(self) -> tuple[Metric, ...]:
        """Call the functions registered with `before_read`. Return every metric, in the order of registration."""
        for refresh in self._refreshes:
            refresh()
        return tuple(self._metrics.values())

    def totals(self) -> dict[str, Number]:
        """Return the values of counters and gauges that have no labels, by `name` of the bean: `{"LeaderCount": 3}`."""
        return _totals(self.all())

    def counts(self) -> dict[str, Number]:
        """Return the part of `totals` that are counters; gauges may be computed from thousands of partitions."""
        return _totals(one for one in self.all() if one.kind is MetricKind.COUNTER)

    def _add(
        self, name: str, kind: MetricKind, help: str, labels: Labels | None, read: Read
    ) -> None:
        metric = self._metrics.setdefault(name, Metric(name, kind, help, {}))
        key = None if labels is None else tuple(sorted(labels.items()))
        if metric.kind is not kind or key in metric.reads:
            raise ValueError(f"metric {name} {dict(labels or {})} is registered already")
        metric.reads[key] = read


def _totals(metrics: Iterable[Metric]) -> dict[str, Number]:
    return {
        _short_name(metric.name): value
        for metric in metrics
        if () in metric.reads
        for _, value in metric.reads[()]()
        if not isinstance(value, Histogram)
    }


def prometheus_name(name: str, kind: MetricKind) -> str:
    """Return the Prometheus name of a metric, formed by the usual rules of the JMX exporter."""
    bean = _BEAN.fullmatch(name)
    if bean is None:
        return name
    short = bean[3].removesuffix(_RATE)
    if kind is MetricKind.COUNTER:
        short = f"{short.removesuffix(_TOTAL)}_total"
    return f"{bean[1]}_{bean[2]}_{short}".replace(".", "_").replace("-", "_").lower()


def prometheus_text(metrics: Metrics) -> Iterator[str]:
    """Yield the metrics in Prometheus' text format, one metric at a time."""
    for metric in metrics.all():
        name = prometheus_name(metric.name, metric.kind)
        lines = [
            f"# HELP {name} {_escaped_help(metric.help)}",
            f"# TYPE {name} {metric.kind.value}",
        ]
        for labels, value in metric.samples():
            if isinstance(value, Histogram):
                lines += _summary(name, labels, value)
            else:
                lines.append(f"{name}{_labels(labels)} {_number(value)}")
        lines.append("")
        yield "\n".join(lines)


def _summary(name: str, labels: Labels, histogram: Histogram) -> Iterator[str]:
    for share in QUANTILES:
        value = _number(histogram.quantile(share))
        yield f"{name}{_labels({**labels, 'quantile': str(share)})} {value}"
    yield f"{name}_sum{_labels(labels)} {histogram.total}"
    yield f"{name}_count{_labels(labels)} {histogram.count}"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _escaped_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: Number) -> str:
    return "NaN" if value != value else repr(value)


def _short_name(name: str) -> str:
    bean = _BEAN.fullmatch(name)
    return bean[3] if bean else name


def _bucket(value: int) -> int:
    """Return the index of a value's bucket: one bucket per value below 16, then eight for each doubling."""
    shift = max(value.bit_length() - _EXACT_BITS, 0)
    return 8 * shift + (value >> shift)


def _largest_in(bucket: int) -> int:
    shift = max(bucket // 8 - 1, 0)
    return ((bucket - 8 * shift + 1) << shift) - 1


def _no_values() -> list[int]:
    return [0] * (_bucket(_VALUE_MAX) + 1)
