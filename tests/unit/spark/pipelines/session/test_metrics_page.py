"""The page with the metrics of a pipeline's streams."""

from __future__ import annotations

import shutil
import socket
import struct
import subprocess
import threading
import urllib.error
import urllib.request
from queue import Queue

import pytest

from minikafka.base.errors import ConfigError
from minikafka.spark.pipelines.session.metrics_page import StreamCounts, metrics_of, metrics_page


def get(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
        return str(answer.read().decode())


def test_page_has_the_current_counts_of_each_query():
    counts = {"copy": StreamCounts(2, 30, None, 7, 0.12)}
    with metrics_page(("127.0.0.1", 0), metrics_of("p", lambda: counts)) as port:
        first = get(port, "/metrics")
        counts["copy"] = StreamCounts(3, 40, 40, 0, 0.09)
        second = get(port, "/metrics?x=1")
        with pytest.raises(urllib.error.HTTPError, match="404") as missing:
            get(port, "/")
        missing.value.close()
    labels = '{pipeline="p",query="copy"}'
    assert f"minikafka_pipeline_rows_read_total{labels} 30\n" in first
    assert f"rows_written_total{labels}" not in first
    assert f"minikafka_pipeline_offsets_behind{labels} 7\n" in first
    assert f"minikafka_pipeline_rows_written_total{labels} 40\n" in second
    with pytest.raises(urllib.error.URLError, match="refused"):
        get(port, "/metrics")
    if shutil.which("promtool"):
        check = ["promtool", "check", "metrics"]
        subprocess.run(check, input=second, text=True, check=True, timeout=60)


def test_client_that_closes_its_connection_early_causes_no_output(capfd):
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handlers: Queue[threading.Thread] = Queue()

    def counts() -> dict[str, StreamCounts]:
        client.close()
        handlers.put(threading.current_thread())
        return {}

    with metrics_page(("127.0.0.1", 0), metrics_of("p", counts)) as port:
        client.connect(("127.0.0.1", port))
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        handlers.get(timeout=30).join(30)
    assert capfd.readouterr().err == ""


def test_address_in_use_is_an_error_that_names_the_option():
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = other.getsockname()
        with (
            pytest.raises(ConfigError, match=f"--metrics: cannot serve on 127.0.0.1:{address[1]}"),
            metrics_page(address, metrics_of("p", dict)),
        ):
            pass
