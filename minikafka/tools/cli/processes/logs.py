"""`logs`: print what the brokers and the ZooKeeper of the cluster have logged, and follow it.

The logs are the files `DIR/logs/NAME.log`. Each process appends its output to its own file.
"""

from __future__ import annotations

import heapq
import os
import re
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import click

import minikafka.tools.cluster.directory as directories
from minikafka.runtime.clock import SystemClock
from minikafka.tools.cli.arguments.completion import ZOOKEEPER
from minikafka.tools.cli.arguments.find_cluster import data_directory
from minikafka.tools.cli.arguments.options import needs_machine
from minikafka.tools.cli.execution.running import run
from minikafka.tools.cli.processes.process_argument import ProcessName, ProcessType, shown
from minikafka.tools.cli.terminal.echo import echo

POLL_MS: Final = 100
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}")
"""The time at the beginning of a line that Python's logging writes."""
_AGO: Final = re.compile(r"([0-9]{1,9})([smhd])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class Line(NamedTuple):
    """One line of a log. `time`: the time in the line; if there is none, the time of the previous line."""

    time: str
    name: str
    text: str


def _since(context: click.Context, option: click.Parameter, text: str | None) -> str:
    """Return the time of `--since` in the format of the logs, "" without the option; a click callback."""
    if text is None:
        return ""
    if (ago := _AGO.fullmatch(text)) is not None:
        at = SystemClock().wall_ms() / 1000 - int(ago[1]) * _SECONDS[ago[2]]
        return _as_logged(datetime.fromtimestamp(max(at, 0), UTC))
    try:
        return _as_logged(datetime.fromisoformat(text))
    except (ValueError, OverflowError) as error:
        wanted = "write 30s, 10m, 2h or 1d, or a time such as 2026-11-28T22:31:05"
        raise click.BadParameter(f"{text!r} is not a time: {wanted}", context, option) from error


def _as_logged(at: datetime) -> str:
    """Return a time as the logs write it. A time without a zone is local."""
    local = at.astimezone()
    return f"{local:%Y-%m-%d %H:%M:%S},{local.microsecond // 1000:03}"


@click.command()
@click.argument("process", type=ProcessType(), metavar="[ID|zookeeper]", required=False)
@click.option("-f", "--follow", is_flag=True, help="Print new lines as they are written.")
@click.option(
    "--tail",
    type=click.IntRange(0),
    metavar="N",
    help="Only the last N lines of those written so far.",
)
@click.option(
    "--since",
    callback=_since,
    metavar="TIME",
    help="Only lines from this time on: 30s, 10m, 2h or 1d ago, or a local time such as 2026-11-28T22:31:05.",
)
@needs_machine("reads files")
def logs(
    process: ProcessName | None, follow: bool, tail: int | None, since: str, data: str | None
) -> None:
    """Print the log of the broker ID or of ZooKeeper, or the logs of all processes in order of time."""
    directory = directories.ClusterDirectory(Path(data_directory(data)))
    reader = LogReader(directory, process)
    merged = heapq.merge(*(log.new_lines() for log in reader.logs()), key=lambda line: line.time)
    for line in deque((line for line in merged if line.time >= since), tail):
        echo(reader.shown(line))
    if follow:
        run(_follow(reader))
    elif not any(log.offset for log in reader.logs()):
        nothing = "there is no log" if process is None else f"{shown(process)} has logged nothing"
        raise click.ClickException(f"{nothing} in {directory.logs}")


async def _follow(reader: LogReader) -> None:
    clock = SystemClock()
    while True:
        for log in reader.logs():
            for line in log.new_lines():
                echo(reader.shown(line))
        await clock.sleep(POLL_MS)


class ProcessLog:
    """The log of one process, read from the beginning. `offset`: number of bytes read so far."""

    def __init__(self, name: str, file: Path) -> None:
        self.name = name
        self.offset = 0
        self._file = file
        self._time = ""

    def new_lines(self) -> Iterator[Line]:
        """Yield the whole lines that were written since the last call."""
        try:
            stream = self._file.open("rb")
        except FileNotFoundError:
            return
        with stream:
            if stream.seek(0, os.SEEK_END) < self.offset:  # logrotate has emptied the file
                self.offset = 0
            stream.seek(self.offset)
            for data in stream:
                if not data.endswith(b"\n"):
                    return
                self.offset += len(data)
                text = data.decode(errors="replace").rstrip("\r\n")
                found = _TIME.match(text)
                self._time = found[0] if found else self._time
                yield Line(self._time, self.name, text)


class LogReader:
    """The log of one process, or the logs of all brokers and ZooKeeper, including brokers that are added later."""

    def __init__(
        self, directory: directories.ClusterDirectory, process: ProcessName | None
    ) -> None:
        self._directory = directory
        self._process = process
        self._logs: dict[str, ProcessLog] = {}

    def logs(self) -> Sequence[ProcessLog]:
        """Return the logs to show. Raises ClusterError if the cluster or the broker does not exist."""
        record = self._directory.read_existing()
        if self._process == ZOOKEEPER:
            names = [ZOOKEEPER]
        elif self._process is not None:
            names = [f"broker-{record.broker(int(self._process)).id}"]
        else:
            names = [*(f"broker-{broker.id}" for broker in record.brokers), "zookeeper"]
        for name in names:
            self._logs.setdefault(name, ProcessLog(name, self._directory.logs / f"{name}.log"))
        return [self._logs[name] for name in names]

    def shown(self, line: Line) -> str:
        """Return the text to print for a line; it begins with the process name if several logs are shown."""
        return line.text if self._process is not None else f"{line.name} | {line.text}"
