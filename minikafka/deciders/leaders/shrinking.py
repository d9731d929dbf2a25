"""The requests that a full queue keeps (C12).

A broker that is down for long gets more requests than its queue may hold. When it returns it must delete the replicas
that it no longer hosts, so that the closes stay. It finds the replicas to start by reading the replica lists.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from minikafka.base.model import BrokerId, TopicPartition
from minikafka.deciders.leaders.model import FROM_ADMINISTRATOR, Operation, StateChange

NO_PARTITION = TopicPartition("", -1)
_Key: TypeAlias = tuple[TopicPartition, bytes | None]


class Shrinking(NamedTuple):
    """The changes that shrink a queue: the entries to remove, and the requests to append instead of them."""

    removed: tuple[str, ...]
    added: tuple[StateChange, ...]


def rescan(sender: BrokerId) -> StateChange:
    """Return the request that stands for dropped start requests."""
    return StateChange(Operation.RESCAN, NO_PARTITION, None, FROM_ADMINISTRATOR, sender)


def shrink(entries: Mapping[str, StateChange | None], sender: BrokerId) -> Shrinking:
    """Return how to shrink a queue. `entries`: its requests by name, the oldest first, None for an unreadable one.

    One close stays per topic id and partition, the one with the latest epoch. It is appended again if a close follows
    it: the broker may have decided about the earlier one already. All starts are replaced by one rescan at the end,
    even if there is a rescan, which the broker may be carrying out already. Unreadable requests are removed.
    """
    starts = [name for name, request in entries.items() if _is(request, Operation.START)]
    rescans = [name for name, request in entries.items() if _is(request, Operation.RESCAN)]
    removed = [name for name, request in entries.items() if request is None]
    added: list[StateChange] = []
    for names in _closes(entries).values():
        latest = max(names, key=lambda name: _epoch(entries[name]))
        kept = entries[latest]
        assert kept is not None
        if _epoch(entries[names[-1]]) == kept.epoch:
            removed += names[:-1]
        else:
            removed += names
            added.append(kept)
    if starts:
        removed += (*starts, *rescans)
        added.append(rescan(sender))
    else:
        removed += rescans[:-1]
    return Shrinking(tuple(removed), tuple(added))


def is_replaced_by(request: StateChange, other: StateChange | None) -> bool:
    """Return True if `other` may stand for `request`, which a shrinking may have removed.

    The broker has then not carried out `request` until it has consumed `other` too.
    """
    if other is None:
        return False
    if other.operation is Operation.CLOSE:
        return request.operation is Operation.CLOSE and _key(request) == _key(other)
    return other.operation is Operation.RESCAN and request.operation is not Operation.CLOSE


def _closes(entries: Mapping[str, StateChange | None]) -> dict[_Key, list[str]]:
    closes: dict[_Key, list[str]] = {}
    for name, request in entries.items():
        if request is not None and request.operation is Operation.CLOSE:
            closes.setdefault(_key(request), []).append(name)
    return closes


def _key(request: StateChange) -> _Key:
    return request.tp, request.topic_id


def _is(request: StateChange | None, operation: Operation) -> bool:
    return request is not None and request.operation is operation


def _epoch(request: StateChange | None) -> int:
    return FROM_ADMINISTRATOR if request is None else request.epoch
