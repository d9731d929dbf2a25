"""`status`: show the processes, the controller, and the state of each partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import click
import rich.text as rich_text

import minikafka.tools.cli.diagnosis.status_view as status_views
import minikafka.tools.cli.terminal.console as consoles
import minikafka.tools.cluster.local as clusters
import minikafka.tools.cluster.observation.causes as root_causes
import minikafka.tools.cluster.observation.sights as sight
import minikafka.tools.cluster.observation.state as cluster_state
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.tools.cli.arguments.find_cluster import find_cluster, where_option
from minikafka.tools.cli.arguments.options import local_options, topics_argument
from minikafka.tools.cli.execution.running import run
from minikafka.tools.cli.processes.up import describe
from minikafka.tools.cli.terminal.echo import show
from minikafka.tools.cli.terminal.topic_errors import unknown_topics
from minikafka.tools.cli.terminal.watch import watch_lines, watch_options


@click.command()
@topics_argument(required=False)
@watch_options
@local_options
def status(topics: tuple[str, ...], watch: float | None, data: str | None) -> None:
    """Show processes, controller and partitions, as reported by the brokers that answer, and all problems.

    With TOPICS, show only their partitions. Partitions of internal topics have a line each only if their topic is
    named.
    """
    found = find_cluster(data)
    where = where_option(data)
    if watch is not None:
        run(_watch(found, topics, where, watch))
    view = run(_read(found, topics, where))
    show(status_views.as_json(view), lambda: _print(view, topics))


async def _watch(
    found: clusters.LocalCluster, topics: Sequence[str], where: str, interval: float
) -> NoReturn:
    console = consoles.plain_console()

    async def read() -> tuple[Any, list[rich_text.Text]]:
        view = await _read(found, topics, where)
        width = console.width if console.is_terminal else None
        return status_views.as_json(view), status_views.status_lines(view, topics, width)

    await watch_lines(read, interval)


def _print(view: status_views.StatusView, topics: Sequence[str]) -> None:
    console = consoles.plain_console()
    width = console.width if console.is_terminal else None
    consoles.print_lines(console, status_views.status_lines(view, topics, width))


async def _read(
    found: clusters.LocalCluster, topics: Sequence[str], where: str
) -> status_views.StatusView:
    """Return what `status` shows. Raises KafkaError if no broker that answers knows one of the topics."""
    seen = await sight.look(found.directory, SystemClock(), SystemRng())
    states = {id_: root_causes.state_of(broker, seen) for id_, broker in seen.brokers.items()}
    state = cluster_state.combine(seen.answers)
    known = {tp.topic for tp in state.partitions}
    if seen.answers and (missing := [topic for topic in topics if topic not in known]):
        raise unknown_topics(missing)
    view = combined(
        describe(found), state, states, root_causes.causes_of(seen, where), seen.elected
    )
    if topics:
        view = view._replace(partitions=[row for row in view.partitions if row.tp.topic in topics])
    return view


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
