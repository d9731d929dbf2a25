"""A pytest plugin that adds the logs of every LocalCluster to the report of a failed test, and keeps these logs.

The line `pytest_plugins = ["minikafka.pytest"]` in the uppermost `conftest.py` enables the plugin. The plugin is
for clusters in fixtures: the exception of a failed test does not pass through the `with` block of a fixture.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from minikafka.tools.cluster import ClusterError
from minikafka.tools.cluster.directory import ClusterDirectory
from minikafka.tools.cluster.lifecycle import started_clusters

LINES_MAX: Final = 200
"""Maximum number of lines of one log in a report."""
_KEPT: Final = "minikafka_logs"
"""The attribute of a report that names the directories of the kept logs. pytest-xdist transfers such attributes."""
_shown: Final = pytest.StashKey[dict[Path, int]]()
"""By log file, the number of bytes at its start that no report of the current test needs to show."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Store the sizes of the logs before a test and the setup of its fixtures."""
    item.stash[_shown] = {
        file: file.stat().st_size
        for cluster in started_clusters()
        for file in _log_files(cluster.directory).values()
    }


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add a section for each log to the report if the test has failed."""
    report = yield
    if report.failed:
        clusters = started_clusters()
        for cluster in clusters:
            cluster.keep_logs()
            report.sections.extend(_sections(cluster.directory, item.stash[_shown]))
        setattr(report, _KEPT, [str(cluster.directory.logs) for cluster in clusters])
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the directories of the kept logs."""
    reports = [r for kind in ("failed", "error") for r in terminalreporter.stats.get(kind, ())]
    for path in dict.fromkeys(path for report in reports for path in getattr(report, _KEPT, ())):
        terminalreporter.write_line(
            f"minikafka: the logs of the failed tests' cluster are in {path}"
        )


def _log_files(directory: ClusterDirectory) -> dict[str, Path]:
    """Return the log files that exist, by the name of the process."""
    with suppress(ClusterError):  # an error here would end the whole run
        files = {f"broker {id_}": f"broker-{id_}" for id_ in directory.logged_brokers()}
        found = {
            name: directory.logs / f"{file}.log"
            for name, file in {**files, "ZooKeeper": "zookeeper"}.items()
        }
        return {name: file for name, file in found.items() if file.is_file()}
    return {}


def _sections(directory: ClusterDirectory, shown: dict[Path, int]) -> Iterator[tuple[str, str]]:
    """Yield a title and the new lines of each log, and add these lines to `shown`.

    Broker logs without new lines are included.
    """
    for name, file in _log_files(directory).items():
        with file.open("rb") as log:
            log.seek(shown.get(file, 0))
            written = log.read()
        shown[file] = shown.get(file, 0) + len(written)
        lines = written.decode(errors="replace").splitlines()
        if lines or name != "ZooKeeper":  # ZooKeeper prints only errors
            yield f"log of {name} during the test ({file})", _text(lines)


def _text(lines: list[str]) -> str:
    if not lines:
        return "no new lines"
    more = len(lines) - LINES_MAX
    return "\n".join([f"… {more} more lines", *lines[-LINES_MAX:]] if more > 0 else lines)
