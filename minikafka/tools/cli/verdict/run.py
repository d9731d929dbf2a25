"""`run`: run a command, such as the tests of a program in any language, with a temporary cluster."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

import minikafka.runtime.spawning as spawning
import minikafka.tools.cli.arguments.config_files as config_files
import minikafka.tools.cli.verdict.guard as guard
import minikafka.tools.cluster.local as clusters
import minikafka.tools.verdict.cluster as verdicts
import minikafka.tools.verdict.files as history_files
import minikafka.tools.verdict.replicas as replicas
from minikafka.base.errors import MinikafkaError
from minikafka.tools.cli.arguments.options import DATA_VARIABLE, config_option, timeout_option
from minikafka.tools.cli.execution import running
from minikafka.tools.cli.processes.waits import LATE, start_timeout_ms, until_serving
from minikafka.tools.cli.terminal.echo import echo
from minikafka.tools.cli.verdict.verdict import stuck_option

BAD_VERDICT: Final = 120
"""The exit code if the command succeeded, but its clients or the replicas suffered something."""
NOT_RUN: Final = 121
"""The exit code if the cluster did not start, or if the command succeeded and the verdict could not be made."""
_SERVERS: Final = "KAFKA_BOOTSTRAP_SERVERS"
_HISTORY: Final = "MINIKAFKA_HISTORY"
_IN_SYNC_MS: Final = 10_000
_GUARD: Final = Path(__file__).with_name("guard.py")


class _RunError(MinikafkaError):
    exit_code = NOT_RUN


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@config_option
@click.option("--brokers", type=click.IntRange(1, 1000), metavar="N", help="Number of brokers.")
@stuck_option
@timeout_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.pass_context
def run(
    context: click.Context,
    config: str | None,
    brokers: int | None,
    stuck_after: float,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND with a temporary cluster, print the verdict on its clients, and end everything.

    COMMAND gets the bootstrap servers in KAFKA_BOOTSTRAP_SERVERS, a directory for the histories of its clients
    (docs/isolation.md) in MINIKAFKA_HISTORY, and the cluster's directory in MINIKAFKA_DATA, so that `minikafka kill 1`
    works in it. Standard error shows the verdict on the histories, if COMMAND wrote any, and the state of all replicas.

    The exit code is that of COMMAND (128 + N if signal N ended it). If COMMAND succeeded: 120 if the verdict is bad,
    121 if it could not be made. 121 also if the cluster did not start.
    """
    if shutil.which(command[0]) is None and not Path(command[0]).exists():
        echo(f"minikafka: {command[0]}: no such command", err=True)
        context.exit(guard.NOT_FOUND)
    try:
        context.exit(_run_with_cluster(config, brokers, stuck_after, command))
    except MinikafkaError as error:
        raise _RunError(str(error)) from error


def _run_with_cluster(
    config: str | None, brokers: int | None, stuck_after: float, command: tuple[str, ...]
) -> int:
    """Run the command, print the verdict, and return the exit code. Raises MinikafkaError."""
    cluster = _cluster(config, brokers)
    try:
        running.run(
            cluster.start(timeout_ms=start_timeout_ms()),
            late=LATE,
            reason=until_serving(cluster, str(cluster.directory.path)),
        )
        for number in (signal.SIGTERM, signal.SIGHUP):  # they end the verdict as Ctrl-C does
            signal.signal(number, signal.default_int_handler)
        code = _run(cluster, command)
        was_run = code not in (guard.NOT_FOUND, guard.NOT_EXECUTABLE)
        if was_run and not _verdict(cluster, stuck_after, code) and code == 0:
            code = BAD_VERDICT
        return code
    finally:
        verdicts.run_blocking(cluster.stop)


def _cluster(config: str | None, brokers: int | None) -> Any:
    if config is None:
        return clusters.LocalCluster(brokers)
    return clusters.LocalCluster(brokers, config=config_files.load_cluster_config(config), port=0)


def _run(cluster: Any, command: tuple[str, ...]) -> int:
    """Run the command until it ends, and return its exit code."""
    histories = _histories(cluster)
    histories.mkdir(parents=True)
    directory = str(cluster.directory.path)
    environment = {
        **os.environ,
        _SERVERS: cluster.bootstrap,
        _HISTORY: str(histories),
        DATA_VARIABLE: directory,
    }
    read, write = os.pipe()
    program = [sys.executable, "-I", str(_GUARD), str(read), directory, *command]
    try:
        with _forwarding() as group:
            child = spawning.start_child(program, env=environment, pass_fds=[read], process_group=0)
            os.close(read)
            group.append(child.pid)
            with _terminal_of(child.pid):
                return _wait(child)
    finally:
        os.close(write)


def _wait(child: subprocess.Popen[bytes]) -> int:
    """Return the exit code of the child. If it is stopped (Ctrl-Z), stop this process too until it continues."""
    while True:
        _, status = os.waitpid(child.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            child.returncode = os.waitstatus_to_exitcode(status)
            return child.returncode if child.returncode >= 0 else 128 - child.returncode
        with _terminal_of(os.getpgrp()):
            os.kill(os.getpid(), signal.SIGSTOP)
        os.killpg(child.pid, signal.SIGCONT)


@contextlib.contextmanager
def _forwarding() -> Iterator[list[int]]:
    """Send signals on to the process groups in the list."""
    groups: list[int] = []

    def forward(number: int, frame: object) -> None:
        for group in groups:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, number)

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    before = {number: signal.signal(number, forward) for number in numbers}
    try:
        yield groups
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _terminal_of(group: int) -> Iterator[None]:
    """Make a process group the foreground of the terminal, if standard input is one and this process has it."""
    try:
        owner = os.tcgetpgrp(0)
    except OSError:
        yield
        return
    if owner == group or owner not in (os.getpgrp(), group):
        yield
        return
    _give_terminal(group)
    try:
        yield
    finally:
        _give_terminal(owner)


def _give_terminal(group: int) -> None:
    # A process in the background may set the foreground only if it ignores SIGTTOU.
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        with contextlib.suppress(OSError):
            os.tcsetpgrp(0, group)
    finally:
        signal.signal(signal.SIGTTOU, before)


def _histories(cluster: Any) -> Path:
    return Path(cluster.directory.logs) / "histories"


def _verdict(cluster: Any, stuck_after: float, code: int) -> bool:
    """Print the verdict and the state of the replicas; return False if one of them is bad, and keep the logs then."""
    is_good = _judge_clients(cluster, stuck_after, code)
    sentence, lines = verdicts.run_blocking(lambda: replicas.differences(cluster, _IN_SYNC_MS))
    echo(*lines, f"replicas: {sentence}", err=True)
    if lines or not is_good:
        cluster.keep_logs()
        echo(f"the logs and histories are kept in {cluster.directory.logs}", err=True)
        return False
    return True


def _judge_clients(cluster: Any, stuck_after: float, code: int) -> bool:
    files = history_files.files_in([_histories(cluster)])
    if not any(file.stat().st_size for file in files):
        echo(f"verdict: no client wrote a history to {_HISTORY}", err=True)
        return True
    events = history_files.read_events(files)
    place = verdicts.cluster_in(cluster.directory.path)
    found = verdicts.verdict_on(
        history_files.ended(events, was_killed=code > 128), place, stuck_after
    )
    *lines, counts = found.lines()
    echo(*lines, f"verdict: {counts}", err=True)
    return found.ok
