"""`advance-clock`: move the wall time of all brokers ahead."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

import minikafka.tools.cluster.time_and_state.removals as removals
from minikafka.tools.cli.arguments.find_cluster import find_cluster
from minikafka.tools.cli.arguments.options import needs_machine, timeout_option
from minikafka.tools.cli.execution.running import run
from minikafka.tools.cli.terminal.echo import json_option, show


@click.command()
@click.argument("duration")
@needs_machine("asks every broker")
@timeout_option
@json_option
def advance_clock(duration: str, data: str | None) -> None:
    """Move the wall time of all brokers ahead by DURATION, such as 8d, 36h or 1h30m; print what became due.

    Retention and the expiry of offsets, ids and tokens follow. Sessions, leases and timeouts do not. Brokers that are
    started later follow too. The time does not go back, except by `minikafka restore`.
    """
    found = run(find_cluster(data).advance_clock(duration))
    show(_object(found), _lines(found))


def _object(found: removals.ClockAdvance) -> dict[str, Any]:
    """Return the result for JSON, whose keys are texts."""

    def logs(name: str) -> list[dict[str, Any]]:
        rows = getattr(found, name).items()
        return [{**tp._asdict(), **gone._asdict()} for tp, gone in sorted(rows)]

    offsets = [
        {"group": group, **tp._asdict()} for group, tps in found.offsets.items() for tp in tps
    ]
    rest = {
        key: value for key, value in asdict(found).items() if key not in ("retained", "compacted")
    }
    return {
        **rest,
        "retained": logs("retained"),
        "compacted": logs("compacted"),
        "offsets": offsets,
    }


def _lines(found: removals.ClockAdvance) -> list[str]:
    kinds = (("retention", found.retained), ("compaction", found.compacted))
    lines = [
        f"{tp}: {kind} removed {gone.records} records, {gone.bytes} bytes"
        for kind, logs in kinds
        for tp, gone in sorted(logs.items())
    ]
    for group, tps in found.offsets.items():
        lines.append(f"group {group}: the offsets of {', '.join(map(str, tps))} have expired")
    lines += [f"transactional id {name}: expired" for name in found.transactional_ids]
    lines += [f"delegation token {name}: expired" for name in found.tokens]
    if found.producers:
        lines.append(f"{found.producers} states of producers were forgotten")
    return lines or ["Nothing became due."]
