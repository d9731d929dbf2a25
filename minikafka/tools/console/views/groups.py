"""Consumer groups: their members and lag, their rebalances with the causes, and what `why --group` says."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

from minikafka.base.errors import KafkaError, MinikafkaError
from minikafka.base.model import TopicPartition
from minikafka.client.administration.group_admin import GroupDescription, GroupListing
from minikafka.client.administration.group_offsets import OffsetAndMetadata
from minikafka.tools.console.context import Asked, Console
from minikafka.tools.console.errors import unknown
from minikafka.tools.console.observation.grid import HIGH_WATERMARK, LEADER
from minikafka.tools.console.views.partition import explanation
from minikafka.tools.explain.groups.gather import gather_group
from minikafka.tools.explain.groups.history import HistoryEntry, history
from minikafka.tools.explain.groups.why import explain_group

READ_S: Final = 3
"""Time for the coordinator of a group to describe it."""
LAGS_MAX: Final = 200
"""Maximum number of groups whose lag is read for the list; each takes a request."""
REBALANCES_MAX: Final = 200
_DEAD: Final = "Dead"


async def list_groups(console: Console, asked: Asked) -> list[dict[str, Any]]:
    """Return all groups whose coordinators answer, sorted by name."""
    await console.watch.ready()
    listed = await console.client.groups.list_by_coordinator()
    rows = await asyncio.gather(*(_of_coordinator(console, *item) for item in listed.items()))
    return sorted((row for some in rows for row in some), key=lambda row: str(row["group"]))


async def _of_coordinator(
    console: Console, coordinator: int, groups: list[GroupListing]
) -> list[dict[str, Any]]:
    described: Mapping[str, GroupDescription] = {}
    lags: list[int | None] = [None] * len(groups)
    names = [group.group for group in groups]
    try:
        async with asyncio.timeout(READ_S):
            described = await console.client.groups.describe(names)
            found = await asyncio.gather(*(_lag(console, name) for name in names[:LAGS_MAX]))
            lags = [*found, *lags[len(found) :]]
    except (KafkaError, TimeoutError):
        pass  # the rows show what is known
    return [
        {
            "group": group.group,
            "state": described[group.group].state if group.group in described else group.state,
            "coordinator": coordinator,
            "members": len(described[group.group].members) if group.group in described else None,
            "protocol": described[group.group].assignor if group.group in described else None,
            "lag": lag,
        }
        for group, lag in zip(groups, lags, strict=True)
    ]


async def _lag(console: Console, group: str) -> int | None:
    """Return the number of records that a group has not read; None if no offset of it is known."""
    try:
        rows = _offsets(console, await console.client.groups.offsets(group))
    except KafkaError:
        return None
    lags = [row["lag"] for row in rows if row["lag"] is not None]
    return sum(lags) if lags else None


def _offsets(
    console: Console, committed: Mapping[TopicPartition, OffsetAndMetadata]
) -> list[dict[str, Any]]:
    """Return the committed offsets of a group, with the ends of the partitions that have a leader."""
    found = []
    for tp, offset in sorted(committed.items()):
        row = console.watch.grid.rows.get(str(tp))
        end = row[HIGH_WATERMARK] if row is not None and row[LEADER] is not None else None
        found.append(
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "committed": offset.offset,
                "end": end,
                "lag": None if end is None else max(0, end - offset.offset),
            }
        )
    return found


async def show_group(console: Console, asked: Asked) -> dict[str, Any]:
    """Return the members, offsets and rebalances of a group. What its coordinator does not tell is missing."""
    await console.watch.ready()
    name = asked.path["group"]
    (group, offsets, error), past = await asyncio.gather(
        _described(console, name), _past(console, name)
    )
    if not error and (group is None or group.state == _DEAD) and not offsets and not past:
        raise unknown(f"group {name}")
    assigned = {tp: one.id for one in (group.members if group else ()) for tp in one.partitions}
    known = {(row["topic"], row["partition"]) for row in offsets}
    uncommitted = {tp: OffsetAndMetadata(-1) for tp in assigned if tp not in known}
    rows = [
        *offsets,
        *({**row, "committed": None, "lag": None} for row in _offsets(console, uncommitted)),
    ]
    for row in rows:
        row["member"] = assigned.get(TopicPartition(row["topic"], row["partition"]))
    return {
        "group": name,
        "state": group.state if group else None,
        "coordinator": group.coordinator.id if group else None,
        "protocol": group.assignor if group else None,
        "members": [
            {
                "id": one.id,
                "instance_id": one.instance_id,
                "client_id": one.client_id,
                "host": one.host,
                "partitions": list(map(str, one.partitions)),
            }
            for one in (group.members if group else ())
        ],
        "offsets": rows,
        "rebalances": [*rebalances(past)],
        "unseen": [error] if error else [],
    }


async def _described(
    console: Console, name: str
) -> tuple[GroupDescription | None, list[dict[str, Any]], str]:
    """Return a group, its offsets, and why they cannot be read, "" if they can."""
    groups = console.client.groups
    try:
        async with asyncio.timeout(READ_S):
            described, committed = await asyncio.gather(
                groups.describe([name]), groups.offsets(name)
            )
    except TimeoutError:
        return None, [], f"the coordinator of group {name} does not answer"
    except KafkaError as error:
        return None, [], str(error)
    return described.get(name), _offsets(console, committed), ""


async def _past(console: Console, name: str) -> list[HistoryEntry]:
    try:
        async with console.observed.sources() as sources:
            return history(await sources.group_lines(name))
    except (MinikafkaError, OSError):
        return []


def rebalances(past: Iterable[HistoryEntry]) -> Iterable[dict[str, Any]]:
    """Yield the newest entries of a group's history, oldest first."""
    for entry in [*past][-REBALANCES_MAX:]:
        yield {
            "time_ms": entry.time,
            "is_rebalance": entry.is_rebalance,
            "generation": entry.generation,
            "cause": entry.start["trigger"] if entry.start is not None else None,
            "text": entry.summary(),
            "is_open": entry.is_open,
        }


async def why_group(console: Console, asked: Asked) -> dict[str, Any]:
    """Return what `minikafka why --group` prints."""
    name = asked.path["group"]
    async with console.observed.sources() as sources:
        evidence = await gather_group(sources, name)
        if not evidence.is_known:
            raise unknown(f"group {name}")
        found, unseen = explain_group(evidence), await sources.unseen()
    lines = explanation(evidence.headline(), found, f"group {name} has no problem", unseen)
    return {**lines, "command": console.command("why", "--group", name)}
