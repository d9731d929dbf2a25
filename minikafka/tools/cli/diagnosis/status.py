"""`status`: show the processes, the controller, and the state of each partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import click
import rich.text as rich_text

import minikafka.tools.cli.diagnosis.status_view as status_views
import minikafka.tools.cli.terminal.console as consoles
import minikafka.tools.cluster.observation.causes as root_causes
import minikafka.tools.cluster.observation.sights as sight
import minikafka.tools.cluster.observation.state as cluster_state
import minikafka.tools.explain.gather as gathering
from minikafka.tools.cli.arguments.options import (
    connection_options,
    timeout_option,
    topics_argument,
)
from minikafka.tools.cli.execution.running import run
from minikafka.tools.cli.execution.sources import open_sources
from minikafka.tools.cli.processes.up import describe
from minikafka.tools.cli.terminal.echo import json_option, show
from minikafka.tools.cli.terminal.topic_errors import unknown_topics
from minikafka.tools.cli.terminal.watch import watch_lines, watch_options


@click.command()
@topics_argument(required=False)
@watch_options
@connection_options
@timeout_option
@json_option
def status(
    topics: tuple[str, ...], watch: float | None, bootstrap: str | None, data: str | None
) -> None:
    """Show processes, controller and partitions, as reported by the brokers that answer, and all problems.

    With TOPICS, show only their partitions. Partitions of internal topics have a line each only if their topic is
    named.
    """
    if watch is not None:
        run(_watch(topics, watch, bootstrap, data))
    view = run(_once(topics, bootstrap, data))
    show(status_views.as_json(view), lambda: _print(view, topics))


async def _once(
    topics: Sequence[str], bootstrap: str | None, data: str | None
) -> status_views.StatusView:
    async with open_sources(bootstrap, data) as sources:
        return await _read(sources, topics)


async def _watch(
    topics: Sequence[str], interval: float, bootstrap: str | None, data: str | None
) -> NoReturn:
    console = consoles.plain_console()

    async def read() -> tuple[Any, list[rich_text.Text]]:
        view = await _once(topics, bootstrap, data)
        width = console.width if console.is_terminal else None
        return status_views.as_json(view), status_views.status_lines(view, topics, width)

    await watch_lines(read, interval)


def _print(view: status_views.StatusView, topics: Sequence[str]) -> None:
    console = consoles.plain_console()
    width = console.width if console.is_terminal else None
    consoles.print_lines(console, status_views.status_lines(view, topics, width))


async def _read(sources: gathering.Sources, topics: Sequence[str]) -> status_views.StatusView:
    """Return what `status` shows. Raises KafkaError if no broker that answers knows one of the topics."""
    seen = await sources.sights()
    states = {id_: root_causes.state_of(broker, seen) for id_, broker in seen.brokers.items()}
    state = cluster_state.combine(seen.answers)
    known = {tp.topic for tp in state.partitions}
    if seen.answers and (missing := [topic for topic in topics if topic not in known]):
        raise unknown_topics(missing)
    if isinstance(sources, gathering.LocalSources):
        processes = describe(sources.found)
    else:
        processes = described_from_afar(seen, sources.access().servers)
    causes, unseen = await sources.causes(), await sources.unseen()
    view = combined(processes, state, states, causes, seen.elected)._replace(unseen=unseen)
    if topics:
        view = view._replace(partitions=[row for row in view.partitions if row.tp.topic in topics])
    return view


def described_from_afar(seen: sight.Sights, servers: str) -> dict[str, Any]:
    """Return the object of `up --json` for a cluster elsewhere. What its brokers do not tell is None."""
    unknown = dict.fromkeys(("listeners", "pid", "log_dir", "metrics_url"))
    brokers = [
        {"id": one.id, "host": one.host or None, "port": one.port or None, **unknown}
        for one in seen.brokers.values()
    ]
    return {
        "bootstrap": servers,
        "coordination": seen.coordination,
        "zookeeper": seen.zookeeper.address or None,
        "zookeeper_kind": None,
        "zookeeper_pid": None,
        "brokers": brokers,
    }


def combined(
    processes: Mapping[str, Any],
    state: cluster_state.ClusterState,
    states: Mapping[int, str],
    causes: Sequence[root_causes.Cause] = (),
    elected: int | None = None,
) -> status_views.StatusView:
    """Return what `status` shows.

    `processes`: the object of `up --json`. `states`: see `cluster.causes.state_of`. `elected`: see `Sights`.
    """
    backlog = cluster_state.backlog_of(state.answers.values())
    chosen = cluster_state.active_controller(state.answers, elected)
    brokers = []
    for process in processes["brokers"]:
        id_ = process["id"]
        answer, queued = state.answers.get(id_), backlog.get(str(id_))
        brokers.append(status_views.BrokerRow(process, states[id_], answer, queued))
    return status_views.StatusView(
        processes,
        chosen,
        state.controller_epoch,
        None if chosen is None else state.answers[chosen].get("controller"),
        brokers,
        [status_views.PartitionRow(tp, view) for tp, view in state.partitions.items()],
        causes,
    )
