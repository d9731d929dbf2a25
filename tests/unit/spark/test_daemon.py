"""The daemon from which Spark forks workers: it imports the modules of a task, and workers end without tracebacks."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from minikafka.spark import daemon
from minikafka.spark.daemon import ending_quietly


@pytest.fixture
def stream():
    """Return the worker's file of a socket, and a function that closes Spark's end."""
    ours, theirs = socket.socketpair()
    file = os.fdopen(os.dup(ours.fileno()), "wb", 1 << 16)
    yield file, theirs.close
    try:
        file.close()
    except BrokenPipeError:
        file.raw.close()
    ours.close()
    theirs.close()


@pytest.fixture
def exits(monkeypatch):
    """Return the exit codes of the worker."""
    found: list[int] = []
    monkeypatch.setattr(os, "_exit", found.append)
    return found


def write(_, outfile) -> None:
    outfile.write(b"rows")


def test_worker_whose_socket_spark_has_closed_ends_quietly(stream, exits):
    file, close = stream
    close()
    ending_quietly(write)(None, file)
    assert exits == [0]


def test_worker_goes_on_while_spark_reads_its_rows(stream, exits):
    file, _ = stream
    ending_quietly(write)(None, file)
    assert exits == []


def test_error_of_a_worker_is_not_hidden(stream, exits):
    def fail(*_) -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        ending_quietly(fail)(None, stream[0])
    assert exits == []


def test_daemon_names_its_port_and_ends_when_spark_closes_its_input():
    command = [sys.executable, "-m", "minikafka.spark.daemon", "pyspark.worker"]
    ran = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False
    )
    assert (ran.stderr, len(ran.stdout)) == (b"", 4)


def test_missing_module_does_not_stop_the_daemon(monkeypatch):
    started = []
    monkeypatch.setattr(daemon, "_IMPORTED", ["no.such.module", "minikafka.spark.datasource"])
    monkeypatch.setattr(daemon.daemon, "manager", lambda: started.append(True))
    monkeypatch.setattr(daemon.gc, "freeze", lambda: None)
    monkeypatch.setattr(sys, "argv", ["daemon"])
    worker = __import__("pyspark.worker").worker
    monkeypatch.setattr(worker, "main", worker.main)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    daemon.serve()
    assert started == [True]
