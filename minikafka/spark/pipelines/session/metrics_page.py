"""A page with the metrics of the streams of a running pipeline, in Prometheus' text format."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, NamedTuple

from minikafka.base.errors import ConfigError
from minikafka.base.metrics import CONTENT_TYPE, MetricKind, Metrics, Read, Sample, prometheus_text

PATH: Final = "/metrics"
_PREFIX: Final = "minikafka_pipeline"


class StreamCounts(NamedTuple):
    """What one run of a query has done. None: the query does not report the number."""

    batches: int
    rows_read: int
    rows_written: int | None
    offsets_behind: int | None
    batch_s: float
    """Duration of the last micro-batch in seconds."""
    bytes_read: int | None = None
    """Bytes that the finished tasks have received from brokers."""
    wait_s: float | None = None
    """Time for which the finished tasks have waited for brokers, summed over the tasks, in seconds."""


Counts = Callable[[], Mapping[str, StreamCounts]]
_METRICS: Final = (
    ("batches", "batches_total", MetricKind.COUNTER, "Micro-batches that had rows."),
    ("rows_read", "rows_read_total", MetricKind.COUNTER, "Records that were read."),
    ("rows_written", "rows_written_total", MetricKind.COUNTER, "Rows that the sink has written."),
    ("offsets_behind", "offsets_behind", MetricKind.GAUGE, "Offsets that were not read yet."),
    ("batch_s", "last_batch_seconds", MetricKind.GAUGE, "Duration of the last micro-batch."),
    ("bytes_read", "bytes_read_total", MetricKind.COUNTER, "Bytes of batches read from brokers."),
    ("wait_s", "broker_wait_seconds_total", MetricKind.COUNTER, "Time that tasks waited to read."),
)


def metrics_of(pipeline: str, counts: Counts) -> Metrics:
    """Return the metrics of a pipeline. `counts` returns the counts of each of its queries by name."""

    def reading(field: str) -> Read:
        def read() -> Iterator[Sample]:
            for query, found in counts().items():
                if (value := getattr(found, field)) is not None:
                    yield Sample({"pipeline": pipeline, "query": query}, value)

        return read

    metrics = Metrics()
    for field, name, kind, text in _METRICS:
        metrics.collect(f"{_PREFIX}_{name}", kind, text, reading(field))
    return metrics


class _Server(ThreadingHTTPServer):
    """A server that prints no traceback if a client has closed its connection."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print an error, except that of a closed connection."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def metrics_page(address: tuple[str, int], metrics: Metrics) -> Iterator[int]:
    """Serve the metrics while the `with` body runs. Yield the port; `address` may have port 0 for any free port.

    Raises `ConfigError` if the address cannot be used.
    """

    class _Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.partition("?")[0] != PATH:
                self.send_error(404)
                return
            body = "".join(prometheus_text(metrics)).encode()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    try:
        server = _Server(address, _Handler)
    except OSError as error:
        host, port = address
        reason = error.strerror or str(error)
        raise ConfigError(f"--metrics: cannot serve on {host}:{port}: {reason}") from error
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
