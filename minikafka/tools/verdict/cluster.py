"""The verdict on histories with the logs of a running cluster, and with its ledgers where they are at hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from minikafka.base.model import TopicPartition
from minikafka.checks.histories import Event
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.tools.cluster import LocalCluster
from minikafka.tools.cluster.observation.access import BrokerAccess
from minikafka.tools.explain.gather import LocalSources
from minikafka.tools.explain.summary import Story
from minikafka.tools.explain.trace import chains
from minikafka.tools.verdict import logs
from minikafka.tools.verdict.judge import groups_of, judge, topics_of
from minikafka.tools.verdict.report import ClientFinding, ClientVerdict, moment_of

_BEFORE_SECONDS: Final = 15.0
_AFTER_SECONDS: Final = 5.0
"""How long before and after a finding the events of a ledger are shown with it."""
_EVENTS_MAX: Final = 5
_EXPLAINED_MAX: Final = 50
"""Number of findings with the ledger's events."""

T = TypeVar("T")


class Place(NamedTuple):
    """Where the logs are: brokers, or the data directory of a cluster on this machine."""

    servers: str = ""
    sources: LocalSources | None = None
    connector: Any = None


def cluster_in(directory: Path) -> Place:
    """Return the cluster in a data directory."""
    found = LocalCluster(data=directory, attached=False)
    return Place(sources=LocalSources(found, SystemClock(), SystemRng()))


def verdict_on(
    events: Sequence[Event], place: Place, seconds: float, now: float | None = None
) -> ClientVerdict:
    """Return the verdict. Raises VerdictError if the logs cannot be read."""
    return run_blocking(lambda: _verdict(events, place, seconds, now))


async def _verdict(
    events: Sequence[Event], place: Place, seconds: float, now: float | None
) -> ClientVerdict:
    access = (
        place.sources.access()
        if place.sources is not None
        else BrokerAccess(place.servers, place.connector)
    )
    found = await logs.read(access, topics_of(events), groups_of(events))
    result = judge(events, found, seconds, now)
    if place.sources is None or result.ok:
        return result
    return replace(result, findings=await explained(result.findings, place.sources))


async def explained(
    findings: Sequence[ClientFinding], sources: LocalSources
) -> list[ClientFinding]:
    """Return the findings with what the ledgers tell about their partitions around their times."""
    known: dict[TopicPartition, list[tuple[float, str]]] = {}
    for finding in findings[:_EXPLAINED_MAX]:
        if (tp := _partition_of(finding)) is not None and tp not in known:
            known[tp] = await _events_of(sources, tp)
    return [_with_ledger(finding, known) for finding in findings]


def _partition_of(finding: ClientFinding) -> TopicPartition | None:
    if finding.topic is None or finding.partition is None:
        return None
    return TopicPartition(finding.topic, finding.partition)


def _with_ledger(
    finding: ClientFinding, known: Mapping[TopicPartition, Sequence[tuple[float, str]]]
) -> ClientFinding:
    tp = _partition_of(finding)
    if tp is None or finding.time is None:
        return finding
    return replace(finding, ledger=tuple(_around(known.get(tp, ()), finding.time)))


async def _events_of(sources: LocalSources, tp: TopicPartition) -> list[tuple[float, str]]:
    """Return the time and the summary of each event of a partition."""
    lines = await sources.partition_lines(tp.topic)
    history = chains(lines, tp)
    Story(lines, tp).summarize(history)
    return [(chain.time / 1000, chain.summary) for chain in history if chain.summary]


def _around(events: Iterable[tuple[float, str]], time: float) -> list[str]:
    near = [
        f"{moment_of(at)} {summary}"
        for at, summary in events
        if time - _BEFORE_SECONDS <= at <= time + _AFTER_SECONDS
    ]
    return near[-_EVENTS_MAX:]


def run_blocking(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end, in another thread if an event loop runs in this one."""

    def run() -> T:
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            return runner.run(work())

    if asyncio._get_running_loop() is None:
        return run()
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run).result()
