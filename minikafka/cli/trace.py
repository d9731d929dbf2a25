"""`trace`: the causal chains of a partition, from the ledgers that the brokers keep. Read only.

Works on a cluster that is dead as on one that runs: the ledgers are files, and who runs says where the
partition stands now. Exit code 0 when there was something to tell, 1 when nobody knows the partition.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click

from minikafka.base.model import TopicPartition
from minikafka.cli.target import cluster, data_option, json_option, run
from minikafka.cluster.state import ClusterState
from minikafka.explain.gather import ledger_lines
from minikafka.explain.trace import Chain, chains, ids, only, tell
from minikafka.ledger.lifecycle import lifecycle
from minikafka.ledger.reader import Line


@click.command()
@click.option("-t", "--topic", required=True, help="The topic.")
@click.option("-p", "--partition", type=click.IntRange(0), required=True, help="Its partition.")
@click.option(
    "--last", type=click.IntRange(1), metavar="N", help="Only the last N chains (or stages)."
)
@click.option(
    "--lifecycle",
    "as_lifecycle",
    is_flag=True,
    help="State changes only: requested, received, completed.",
)
@data_option
@json_option
def trace(
    topic: str,
    partition: int,
    last: int | None,
    as_lifecycle: bool,
    data: str | None,
    as_json: bool,
) -> None:
    """Tell what happened to a partition: event, decisions, writes, requests and effects, with their ids.

    The ledger files of the brokers are read, whether they run or not.
    """
    found = cluster(data)
    tp = TopicPartition(topic, partition)
    lines = ledger_lines(found, topic)
    if as_lifecycle:
        _print_lifecycle(tp, lines, last, as_json)
        return
    told = chains(lines, tp)
    state = run(found.state())
    if not told and tp not in state.partitions:
        raise click.ClickException(f"no broker and no ledger in {found.directory.path} knows {tp}")
    if last is not None:
        told = told[-last:]
    if as_json:
        now = standing(state, tp)
        click.echo(json.dumps({**now, "chains": [chain.as_json() for chain in told]}))
    else:
        for chain in told:
            _print_chain(chain, tp)
        knows = "no broker that answers knows it" if state.answers else "no broker answers"
        click.echo(f"now: {_standing_in_words(standing(state, tp)) or knows}")


def standing(state: ClusterState, tp: TopicPartition) -> dict[str, Any]:
    """Where the partition stands now, by the words of the brokers that answer; null where none knows."""
    view = state.partitions.get(tp)
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "controller": state.controller,
        "leader": view.leader if view else None,
        "leader_epoch": view.leader_epoch if view else None,
        "isr": list(view.isr) if view else None,
        "backlog": next(
            (answer["backlog"] for answer in state.answers.values() if answer.get("backlog")), {}
        ),
    }


def _standing_in_words(now: dict[str, Any]) -> str:
    """Nothing where nobody knows."""
    if now["isr"] is None:
        return ""
    leader = "none" if now["leader"] is None else now["leader"]
    waiting = {broker: count for broker, count in now["backlog"].items() if count}
    backlog = "".join(f", {count} requests wait for broker {b}" for b, count in waiting.items())
    return f"leader {leader}, epoch {now['leader_epoch']}, ISR {ids(now['isr'])}{backlog}"


def _print_chain(chain: Chain, tp: TopicPartition) -> None:
    click.echo(f"{chain.cause}  {clock_time(chain.time)}  {chain.title}")
    for line in chain.lines:
        place = f"{line['broker']}#{line['n']}"
        click.echo(
            f"    {clock_time(line['time'])[11:]}  {place:<8} {line['kind']:<9} {tell(only(line, tp))}"
        )


def clock_time(wall_ms: int) -> str:
    """UTC, to the millisecond."""
    return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def _print_lifecycle(
    tp: TopicPartition, lines: list[Line], last: int | None, as_json: bool
) -> None:
    stages = list(lifecycle(lines, *tp))
    if not stages:
        raise click.ClickException(f"no ledger tells of a state change of {tp}")
    stages = stages[-last:] if last is not None else stages
    if as_json:
        click.echo(json.dumps([asdict(stage) for stage in stages]))
    else:
        for stage in stages:
            click.echo(f"{clock_time(stage.time)}  {stage.cause}  {stage}")
