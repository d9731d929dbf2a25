"""The daemon from which Spark forks workers: it has imported the modules of a task, and workers answer at once."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys

import pytest

from minikafka.spark import daemon
from minikafka.spark.daemon import answering_at_once, ending_quietly


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


@pytest.fixture
def tcp():
    """Return both ends of a TCP connection. The first end is the worker's."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    with ours, theirs:
        yield ours, theirs


def set_options(connection: socket.socket) -> list[int]:
    names = ("TCP_NODELAY", "TCP_QUICKACK")
    return [connection.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in names]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has TCP_QUICKACK")
def test_worker_answers_spark_at_once_in_each_task(tcp):
    ours, theirs = tcp
    found = []
    run = answering_at_once(lambda infile, outfile: found.append(set_options(ours)))
    with os.fdopen(os.dup(ours.fileno()), "wb") as file:
        for _ in range(2):
            ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)  # as after a task
            run(None, file)
        file.write(b"rows")
    assert found == [[1, 1], [1, 1]]
    assert theirs.recv(4) == b"rows"


def test_worker_runs_tasks_through_a_unix_domain_socket(stream):
    found = []
    answering_at_once(lambda *files: found.append(files))(None, stream[0])
    assert found == [(None, stream[0])]


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
    monkeypatch.setattr(daemon, "keep_freed_memory", lambda: None)
    monkeypatch.setattr(daemon.gc, "freeze", lambda: None)
    monkeypatch.setattr(sys, "argv", ["daemon"])
    worker = __import__("pyspark.worker").worker
    monkeypatch.setattr(worker, "main", worker.main)
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    daemon.serve()
    assert started == [True]


_NEW_PAGES = """
import resource
import numpy as np
from minikafka.spark.daemon import keep_freed_memory
keep_freed_memory()
np.ones(8 << 20, np.uint8)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
np.ones(8 << 20, np.uint8)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
"""Prints how many new pages a second array of 2,048 pages takes."""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has mallopt")
def test_workers_use_freed_memory_again_without_new_pages():
    assert int(subprocess.check_output([sys.executable, "-c", _NEW_PAGES], timeout=60)) < 20


_IMPORTED_BY_A_TASK = """
import sys
from minikafka.spark.daemon import import_modules
import_modules()
from support.kafka.encoders import Sample, by_aiokafka
from minikafka.spark.records import checksum
from minikafka.spark.records.batches import sections
from minikafka.spark.records.decode import decode
own = {*sys.modules}
found = sections(memoryview(by_aiokafka([Sample(1, b"k", b"v")])), 0, 1, checksum.find())
assert decode([*found], "topic", 0, 0, 1, with_headers=False).num_rows == 1
"www.example.org".encode("idna")
print(*sorted({*sys.modules} - own))
"""
"""Prints the modules that are imported when a record is decoded and the name of a broker is encoded."""


def test_worker_imports_nothing_when_it_reads_its_first_records():
    found = subprocess.check_output(
        [sys.executable, "-c", _IMPORTED_BY_A_TASK],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        timeout=60,
    )
    assert found.split() == []
