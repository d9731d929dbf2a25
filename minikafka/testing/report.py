"""The report of a failed test: its topics, what is wrong with the cluster, what happened, and the ends of the logs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from minikafka.base.errors import MinikafkaError
from minikafka.base.model import TopicPartition
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.testing.background import BackgroundLoop
from minikafka.testing.past import moments
from minikafka.tools.cluster import ClusterError, LocalCluster
from minikafka.tools.cluster.directory import ClusterDirectory
from minikafka.tools.cluster.lifecycle import started_clusters
from minikafka.tools.cluster.observation.state import ObservedPartition
from minikafka.tools.explain.finding import Finding
from minikafka.tools.explain.gather import LocalSources, gather
from minikafka.tools.explain.why import explain

if TYPE_CHECKING:
    from minikafka.testing.blocking import Minikafka

LINES_MAX: Final = 200
"""Maximum number of lines of one log in a report."""
EXPLAINED_MAX: Final = 5
"""Maximum number of partitions that are explained."""
EXPLAIN_SECONDS: Final = 10
"""Maximum time for an explanation of a cluster that does not answer."""
Section = tuple[str, str]


@dataclass
class Before:
    """The moment before a test. `shown`: by log file, the bytes at its start that no report needs to show."""

    wall_ms: int
    shown: dict[Path, int] = field(default_factory=dict)

    @classmethod
    def now(cls) -> Before:
        """Return this moment."""
        sizes = {
            file: file.stat().st_size
            for cluster in started_clusters()
            for file in _log_files(cluster.directory).values()
        }
        return cls(SystemClock().wall_ms(), sizes)


def sections_of(before: Before, kits: Sequence[Minikafka]) -> tuple[list[Section], list[str]]:
    """Return sections with what the clusters of this process did since `before`, and the directories of kept logs.

    `kits`: the objects of the test's fixtures.
    """
    clusters = [one for one in started_clusters() if isinstance(one, LocalCluster)]
    topics = [topic for kit in kits for topic in kit.topics]
    groups = [group for kit in kits for group in kit.groups]
    found: list[Section] = []
    if topics or groups:
        found.append(("names of the test", _names(topics, groups)))
    loop = BackgroundLoop()  # the hook may run in a thread with an event loop
    for cluster in clusters:
        cluster.keep_logs()
        with suppress(
            MinikafkaError, OSError, TimeoutError
        ):  # an error here would end the whole run
            found += loop.wait(_explained(cluster, topics, groups, before.wall_ms))
        found += _logs(cluster.directory, before.shown)
    loop.close()
    return found, [str(cluster.directory.logs) for cluster in clusters]


def _names(topics: list[str], groups: list[str]) -> str:
    rows = [f"topics: {', '.join(topics)}"] if topics else []
    return "\n".join([*rows, *([f"groups: {', '.join(groups)}"] if groups else [])])


async def _explained(
    cluster: LocalCluster, topics: list[str], groups: list[str], since_ms: int
) -> list[Section]:
    """Return a section with what is wrong, and one with what the ledgers say about the time of the test."""
    if cluster.directory.read() is None:
        return []
    sources = LocalSources(cluster, SystemClock(), SystemRng())
    known = [TopicPartition(topic, 0) for topic in topics]
    runs = any(cluster.process(broker.id) for broker in cluster.record.brokers)
    lines: list[str] = [] if runs else ["no broker runs"]
    with suppress(TimeoutError):
        async with asyncio.timeout(EXPLAIN_SECONDS):
            lines += [cause.sentence for cause in await sources.causes()] if runs else []
            views = (await cluster.state()).partitions
            known = [tp for tp in views if tp.topic in topics] or known
            unwell = [tp for tp in known if tp not in views or _is_unwell(views[tp])]
            for tp in unwell[:EXPLAINED_MAX] if runs else ():
                evidence = await gather(sources, tp)
                lines.append(evidence.headline())
                for finding in explain(evidence):
                    lines += _indented(finding, 1)
    ledgers = [cluster.directory.broker_ledger(broker.id) for broker in cluster.record.brokers]
    happened = moments(ledgers, known, groups, since_ms)
    return [
        ("what is wrong with the cluster", "\n".join(dict.fromkeys(lines)) or "nothing"),
        ("what happened during the test", "\n".join(happened) or "the ledgers have no line"),
    ]


def _is_unwell(view: ObservedPartition) -> bool:
    return not view.is_available or set(view.isr) != set(view.replicas)


def _indented(finding: Finding, depth: int) -> Iterator[str]:
    yield f"{'  ' * depth}- {finding.text}"
    for reason in finding.because:
        yield from _indented(reason, depth + 1)


# Logs


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


def _logs(directory: ClusterDirectory, shown: dict[Path, int]) -> Iterator[Section]:
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
