"""The messages of the stream: a snapshot of the whole cluster, and frames with what has changed since."""

from __future__ import annotations

from itertools import islice
from typing import Any

from minikafka.tools.console.observation.watch import ClusterWatch, Viewer


def snapshot(watch: ClusterWatch, viewer: Viewer) -> dict[str, Any]:
    """Return the whole cluster for a viewer, who has received everything then."""
    viewer.partitions.clear()
    viewer.brokers.clear()
    viewer.has_cluster = viewer.has_problems = False
    viewer.unseen.clear()
    observed = watch.observed
    return {
        "live": True,
        "time_ms": watch.clock.wall_ms(),
        "user": observed.user,
        "command": observed.options.where.strip(),
        "can_stop_processes": observed.options.machine is not None,
        "controller": None,
        "controller_epoch": None,
        "mode": None,
        "zookeeper": {"address": "", "state": "unknown"},
        **watch.cluster,
        "brokers": [watch.brokers[id_].shown for id_ in sorted(watch.brokers)],
        "partitions": {name: row for name, row in watch.grid.rows.items() if viewer.wants(name)},
        "problems": watch.problems,
        "unseen": [{"what": what, "reason": reason} for what, reason in watch.unseen.items()],
    }


def frame(watch: ClusterWatch, viewer: Viewer) -> dict[str, Any]:
    """Return what has changed for a viewer; {} if nothing has."""
    found: dict[str, Any] = {}
    if names := viewer.partitions:
        rows = watch.grid.rows
        found["partitions"] = {name: rows[name] for name in names if name in rows}
        found["gone"] = [name for name in names if name not in rows]
        viewer.partitions = set()
    if viewer.brokers:
        known = watch.brokers
        found["brokers"] = [known[id_].shown for id_ in sorted(viewer.brokers) if id_ in known]
        if gone := [id_ for id_ in viewer.brokers if id_ not in known]:
            found["gone_brokers"] = gone
        viewer.brokers = set()
    if viewer.has_cluster:
        found["cluster"] = {**watch.cluster}
        viewer.has_cluster = False
    if viewer.has_problems:
        found["problems"] = watch.problems
        viewer.has_problems = False
    return {"time_ms": watch.clock.wall_ms(), **found} if found else {}


def seen_and_unseen(watch: ClusterWatch, viewer: Viewer) -> list[tuple[str, dict[str, str]]]:
    """Return the events `unseen` and `seen` that a viewer has not received yet."""
    names, viewer.unseen = viewer.unseen, set()
    return [
        ("unseen", {"what": what, "reason": watch.unseen[what]})
        if what in watch.unseen
        else ("seen", {"what": what})
        for what in sorted(names)
    ]


def ledger_records(watch: ClusterWatch, viewer: Viewer) -> list[tuple[int, dict[str, Any]]]:
    """Return the ledger records that a viewer has not received yet, with their numbers, as far as they are kept."""
    first = watch.ledger_end - len(watch.ledger)
    start = max(viewer.ledger_at, first)
    viewer.ledger_at = watch.ledger_end
    return [*enumerate(islice(watch.ledger, start - first, None), start)]
