"""`status`: show the processes, the controller, and the state of each partition."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from minikafka.base.model import TopicPartition
from minikafka.base.names import INTERNAL_TOPICS
from minikafka.cli.execution import run
from minikafka.cli.find_cluster import find_cluster, where_option
from minikafka.cli.options import data_option, json_option, timeout_option
from minikafka.cli.processes import describe

if TYPE_CHECKING:
    from rich.table import Table

    from minikafka.cluster.causes import Cause
    from minikafka.cluster.state import ClusterState, PartitionView


@click.command()
@data_option
@timeout_option
@json_option
def status(data: str | None, as_json: bool) -> None:
    """Show processes, controller and partitions, as reported by the brokers that answer, and what is wrong."""
    from minikafka.cluster.causes import causes_of, state_of
    from minikafka.cluster.sights import look
    from minikafka.cluster.state import combine
    from minikafka.runtime.clock import SystemClock, SystemRng

    found = find_cluster(data)
    seen = run(look(found.directory, SystemClock(), SystemRng()))
    states = {id_: state_of(broker, seen) for id_, broker in seen.brokers.items()}
    causes = causes_of(seen, where_option(data))
    shown = combined(describe(found), combine(seen.answers), states, causes)
    if as_json:
        click.echo(json.dumps(shown))
    else:
        _print(shown)


def combined(
    processes: dict[str, Any],
    state: ClusterState,
    states: Mapping[int, str],
    causes: Sequence[Cause] = (),
) -> dict[str, Any]:
    """Return the JSON object of `status`: the object of `up --json` plus controller, brokers, partitions and causes.

    `states`: see `cluster.causes.state_of`. `backlog`: number of controller requests that the broker has not answered
    yet (C39), null without a channel to the broker. `metrics`: the broker's gauges under Kafka's names. A partition is
    `available` when its leader answers (J7). Otherwise leader, offsets, `size` (bytes) and `earliest_timestamp` (Unix
    ms of the first batch) are null. `compaction`: the dirty ratio of a compacted log, whether it is being cleaned, and
    why it is uncleanable. `controller` and `controller_state`: the id of the broker that is the active controller, and
    the state that it reports; null if no active controller answers. `controller_epoch`: the last known epoch.
    """
    answers = state.answers.values()
    backlog: dict[str, int] = next((a["backlog"] for a in answers if a.get("backlog")), {})
    active = next((a for a in answers if a.get("is_controller")), None)
    return processes | {
        "brokers": [
            broker
            | _reported(broker, state.answers.get(broker["id"]), backlog)
            | {"state": states[broker["id"]]}
            for broker in processes["brokers"]
        ],
        "controller": active and active["controller_id"],
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


def _partition(tp: TopicPartition, view: PartitionView) -> dict[str, Any]:
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "leader": view.leader,
        "leader_epoch": view.leader_epoch,
        "replicas": list(view.replicas),
        "isr": list(view.isr),
        "available": view.leader is not None,
        "log_start_offset": view.log_start_offset,
        "log_end_offset": view.log_end_offset,
        "high_watermark": view.high_watermark,
        "size": view.size,
        "earliest_timestamp": view.earliest_timestamp,
        "compaction": view.compaction,
    }


def _print(shown: dict[str, Any]) -> None:
    from minikafka.cli.console import plain_console

    console = plain_console()
    pid = shown["zookeeper_pid"]
    console.print(f"bootstrap   {shown['bootstrap']}")
    console.print(f"zookeeper   {shown['zookeeper']}" + (f"  pid {pid}" if pid else ""))
    console.print(
        f"controller  {_or_none(shown['controller'])}  epoch {_or_none(shown['controller_epoch'])}"
    )
    for cause in shown["causes"]:
        remedy = f"; {cause['remedy']}" if cause["remedy"] else ""
        console.print(f"problem     {cause['text']}{remedy}", soft_wrap=True)
    console.print(_brokers(shown["brokers"]))
    if shown["partitions"]:
        console.print(_partitions(shown["partitions"]))


def _brokers(rows: list[dict[str, Any]]) -> Table:
    from rich.table import Table

    columns = ("broker", "address", "state", "pid", "epoch", "queued", "log directory")
    table = Table(*columns, box=None)
    for broker in rows:
        table.add_row(
            str(broker["id"]),
            f"{broker['host']}:{broker['port']}",
            broker["state"],
            _or_none(broker["pid"]),
            _or_none(broker["broker_epoch"]),
            _or_none(broker["backlog"]),
            broker["log_dir"],
        )
    return table


def _partitions(rows: list[dict[str, Any]]) -> Table:
    from rich.table import Table

    columns = (
        "partition",
        "leader",
        "epoch",
        "replicas",
        "ISR",
        "LEO",
        "HW",
        "bytes",
        "from (UTC)",
    )
    has_compacted = any(row["compaction"] for row in rows)
    table = Table(*columns, *["dirty"] * has_compacted, box=None)
    counted: Counter[str] = Counter()
    for row in rows:
        if _is_in_sync_internal(row):
            counted[row["topic"]] += 1
        else:
            table.add_row(*_partition_cells(row), *[_dirt(row["compaction"])] * has_compacted)
    for topic, count in counted.items():
        table.add_row(f"{topic}: {count} partitions in sync")
    return table


def _partition_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        f"{row['topic']}-{row['partition']}",
        _or_none(row["leader"]),
        str(row["leader_epoch"]),
        ",".join(map(str, row["replicas"])),
        ",".join(map(str, row["isr"])),
        _or_none(row["log_end_offset"]),
        _or_none(row["high_watermark"]),
        _or_none(row["size"]),
        _utc(row["earliest_timestamp"]),
    )


def _is_in_sync_internal(row: Mapping[str, Any]) -> bool:
    """True if a partition of an internal topic is in sync, and its log is not marked as uncleanable.

    The table shows only the number of these partitions, without a row for each.
    """
    is_uncleanable = row["compaction"] and row["compaction"]["uncleanable"]
    is_in_sync = set(row["isr"]) == set(row["replicas"])
    return row["topic"] in INTERNAL_TOPICS and is_in_sync and not is_uncleanable


def _dirt(compaction: Mapping[str, Any] | None) -> str:
    """Return the dirty ratio of a compacted log in percent; "" for other logs."""
    if compaction is None:
        return ""
    ratio = compaction["dirty_ratio"]
    shown = "none" if ratio is None else f"{ratio:.0%}"
    return f"{shown}, uncleanable" if compaction["uncleanable"] else shown


def _utc(timestamp: int | None) -> str:
    """Return a time in Unix ms as text: date and time in UTC."""
    if timestamp is None:
        return "none"
    try:
        return f"{datetime.fromtimestamp(timestamp / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, OSError, ValueError):  # a producer may send any number as a timestamp
        return str(timestamp)


def _or_none(value: object) -> str:
    return "none" if value is None else str(value)
