"""The fork server and its launchers: Spark's Python processes start as forks, or else as new processes."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.spark.processes import fork_server

PROGRAM = """
import json, os, sys
print(json.dumps({
    "server": os.environ.get("SERVER"), "parent": os.getppid(), "arguments": sys.argv[1:], "here": os.getcwd(),
    "name": __name__, "path": sys.path[:2], "imported": "pyspark.worker" in sys.modules, "own": os.environ["OWN"],
    "input": sys.stdin.read(), "executable": sys.executable,
}))
print("warning", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""
WAITS = """
import sys
print("ready", flush=True)
sys.stdin.read()
"""

pytestmark = pytest.mark.skipif(fork_server.script() is None, reason="this system has no pidfd")


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, str]]:
    """The variables that name a running fork server. The server has a variable of its own."""
    running = fork_server.ForkServer()
    running.start({"SERVER": "yes"})
    yield {fork_server.ADDRESS: running.address}
    running.end()
    assert not Path(running.address).parent.exists()


@pytest.fixture
def python(tmp_path) -> Path:
    """The program that stands for this Python, in a directory with a blank and the modules `program` and `waits`."""
    folder = tmp_path / "with blank"
    folder.mkdir()
    (folder / "program.py").write_text(PROGRAM)
    (folder / "waits.py").write_text(WAITS)
    path = folder / "python"
    path.write_text(fork_server.script() or "")
    path.chmod(0o700)
    return path


def run(python: Path, variables: dict[str, str], *arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [python, *arguments],
        env={"PATH": os.defpath, "OWN": "1", "PYTHONPATH": "first"} | variables,
        cwd=python.parent,
        input="from Spark",
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def found(ran: subprocess.CompletedProcess) -> dict:
    return json.loads(ran.stdout)


def test_forked_module_has_the_streams_variables_and_arguments_of_its_launcher(server, python):
    for status in ("0", "3"):
        ran = run(python, server, "-m", "program", status, "b c")
        told = found(ran)
        assert (ran.returncode, ran.stderr) == (int(status), "warning\n")
        assert told["imported"]
        assert told["server"] is None
        assert (told["own"], told["input"], told["name"]) == ("1", "from Spark", "__main__")
        assert told["arguments"] == [status, "b c"]
        assert told["here"] == str(python.parent)
        assert told["path"] == [str(python.parent), "first"]
        assert told["executable"] == sys.executable


@pytest.mark.parametrize("address", ["", "/no/such/socket"])
def test_module_runs_in_a_new_process_without_a_server(python, address):
    ran = run(python, {fork_server.ADDRESS: address}, "-m", "program", "4")
    assert (ran.returncode, found(ran)["imported"]) == (4, False)


def test_module_runs_in_a_new_process_after_the_server_was_killed(python):
    running = fork_server.ForkServer()
    running.start({})
    assert running.process is not None
    running.process.kill()
    ran = run(python, {fork_server.ADDRESS: running.address}, "-m", "program", "0")
    assert not found(ran)["imported"]
    before = running.process.pid
    running.start({})
    assert running.process.pid != before
    running.end()


def test_program_that_is_not_a_module_runs_in_a_new_process(server, python):
    ran = run(python, server, "-c", "import sys; print('pyspark' in sys.modules)")
    assert ran.stdout == "False\n"


def test_missing_module_is_an_error_of_the_forked_process(server, python):
    ran = run(python, server, "-m", "no_such_module")
    assert ran.returncode == 1
    assert "no_such_module" in ran.stderr


def test_worker_that_makes_plans_ends_quietly_when_spark_closes_its_socket(server, python):
    with tempfile.TemporaryDirectory() as place:  # the path of a socket has at most 107 bytes
        variables = {
            "PYTHON_UNIX_DOMAIN_ENABLED": "true",
            "PYTHON_WORKER_FACTORY_SOCK_DIR": place,
            "SPARK_REUSE_WORKER": "1",
        }
        daemon = subprocess.Popen(
            [python, "-m", "pyspark.daemon", "pyspark.sql.worker.create_data_source"],
            env=server | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        with daemon, socket.socket(socket.AF_UNIX) as spark:
            assert daemon.stdout is not None
            spark.connect(daemon.stdout.read(int.from_bytes(daemon.stdout.read(4), "big")))
            worker = os.pidfd_open(int.from_bytes(spark.recv(4), "big"))
            spark.close()
            select.select([worker], [], [])  # the worker has ended
            os.close(worker)
            _, printed = daemon.communicate()
    assert printed == b""


def waiting(python: Path, server: dict[str, str]) -> subprocess.Popen:
    """Start the module `waits` by a launcher, and wait until it runs."""
    started = subprocess.Popen(
        [python, "-m", "waits"],
        env={"OWN": "1"} | server,
        cwd=python.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "ready\n"
    return started


def test_forked_process_ends_when_spark_kills_its_launcher(server, python):
    for kind in (signal.SIGTERM, signal.SIGKILL):
        launcher = waiting(python, server)
        launcher.send_signal(kind)
        assert launcher.stdout is not None
        assert launcher.stdout.read() == ""  # the forked process has closed its end
        launcher.communicate()


def test_forked_process_goes_on_when_the_server_is_told_to_end(python):
    running = fork_server.ForkServer()
    running.start({})
    launcher = waiting(python, {fork_server.ADDRESS: running.address})
    running.end()
    assert launcher.stdin is not None
    assert launcher.stdout is not None
    launcher.stdin.close()
    assert launcher.stdout.read() == ""
    assert launcher.wait() == 1
    launcher.stdout.close()
