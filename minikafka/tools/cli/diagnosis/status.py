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
from minikafka.base.model import TopicPartition
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

    With TOPICs, show only their partitions. Partitions of internal topics have a line each only if their topic is
    named.
    """
    found = find_cluster(data)
    where = where_option(data)
    if watch is not None:
        run(_watch(found, topics, where, watch))
    shown = run(_read(found, topics, where))
    show(shown, lambda: _print(shown, topics))


async def _watch(
    found: clusters.LocalCluster, topics: Sequence[str], where: str, interval: float
) -> NoReturn:
    console = consoles.plain_console()

    async def read() -> tuple[Any, list[rich_text.Text]]:
        shown = await _read(found, topics, where)
        width = console.width if console.is_terminal else None
        return shown, status_views.status_lines(shown, topics, width)

    await watch_lines(read, interval)


def _print(shown: Mapping[str, Any], topics: Sequence[str]) -> None:
    console = consoles.plain_console()
    width = console.width if console.is_terminal else None
    consoles.print_lines(console, status_views.status_lines(shown, topics, width))


async def _read(found: clusters.LocalCluster, topics: Sequence[str], where: str) -> dict[str, Any]:
    """Return the JSON object of `status`. Raises KafkaError if no broker that answers knows one of the topics."""
    seen = await sight.look(found.directory, SystemClock(), SystemRng())
    states = {id_: root_causes.state_of(broker, seen) for id_, broker in seen.brokers.items()}
    state = cluster_state.combine(seen.answers)
    known = {tp.topic for tp in state.partitions}
    if seen.answers and (missing := [topic for topic in topics if topic not in known]):
        raise unknown_topics(missing)
    shown = combined(
        describe(found), state, states, root_causes.causes_of(seen, where), seen.elected
    )
    if topics:
        shown["partitions"] = [row for row in shown["partitions"] if row["topic"] in topics]
    return shown


def combined(
    processes: dict[str, Any],
    state: cluster_state.ClusterState,
    states: Mapping[int, str],
    causes: Sequence[root_causes.Cause] = (),
    elected: int | None = None,
) -> dict[str, Any]:
    """Return the JSON object of `status`: the object of `up --json` plus controller, brokers, partitions and causes.

    `states`: see `cluster.causes.state_of`. `elected`: see `Sights`. `backlog`: number of controller requests that
    the broker has not answered yet (C39), null without a channel to the broker; in the mode leaders, number of
    requests in the broker's queue. `metrics`: the broker's gauges under Kafka's names. A partition is `available`
    when its leader answers (J7) and serves clients; `opening` has the brokers for which an opening leader waits. If
    no leader answers, leader, offsets, `size` (bytes) and `earliest_timestamp` (Unix ms of the first batch) are null.
    `compaction`: the dirty ratio of a compacted log, whether it is being cleaned, and why it is uncleanable.
    `controller` and `controller_state`: the id of the broker that is the active controller, and the state that it
    reports; null if no active controller answers, and in the mode leaders. `controller_epoch`: the last known epoch.
    """
    answers = state.answers.values()
    backlog = cluster_state.backlog_of(answers)
    chosen = cluster_state.active_controller(state.answers, elected)
    active = None if chosen is None else state.answers[chosen]
    return processes | {
        "brokers": [
            broker
            | _reported(broker, state.answers.get(broker["id"]), backlog)
            | {"state": states[broker["id"]]}
            for broker in processes["brokers"]
        ],
        "controller": chosen,
        "controller_epoch": state.controller_epoch,
        "controller_state": active and active.get("controller"),
        "partitions": [_partition(tp, view) for tp, view in state.partitions.items()],
        "causes": [cause.as_json() for cause in causes],
    }


def _reported(
    process: Mapping[str, Any], answer: Mapping[str, Any] | None, backlog: Mapping[str, int]
) -> dict[str, Any]:
    return {
        "backlog": backlog.get(str(process["id"])),
        "broker_epoch": answer["broker_epoch"] if answer else None,
        "metrics": answer.get("metrics") if answer else None,
    }


def _partition(tp: TopicPartition, view: cluster_state.ObservedPartition) -> dict[str, Any]:
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "leader": view.leader,
        "leader_epoch": view.leader_epoch,
        "replicas": list(view.replicas),
        "isr": list(view.isr),
        "available": view.is_available,
        "opening": None if view.opening is None else list(view.opening),
        "log_start_offset": view.log_start_offset,
        "log_end_offset": view.log_end_offset,
        "high_watermark": view.high_watermark,
        "last_stable_offset": view.last_stable_offset,
        "size": view.size,
        "earliest_timestamp": view.earliest_timestamp,
        "compaction": view.compaction,
    }
