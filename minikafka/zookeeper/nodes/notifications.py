"""Notifications from brokers to the controller: changed ISRs (A14) and failed log directories (R67).

Each notification is a sequential node that the controller reads and deletes. A notification may be sent twice
without harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from minikafka.base.model import BrokerId, TopicPartition
from minikafka.base.ports import ZooKeeper
from minikafka.zookeeper.nodes import layout
from minikafka.zookeeper.nodes.faults import Faults
from minikafka.zookeeper.nodes.reader import NodeReader

T = TypeVar("T")


def paths(directory: str, names: Iterable[str]) -> list[str]:
    """Return the paths of the notifications with these names.

    `directory`: `layout.ISR_CHANGES` or `layout.LOG_DIR_EVENTS`.
    """
    return [f"{directory}/{name}" for name in names]


async def announce_isrs(zookeeper: ZooKeeper, partitions: Iterable[TopicPartition]) -> None:
    """Notify the controller that a leader wrote the ISRs of these partitions. Raises CoordinationError."""
    data = layout.encode_isr_change(sorted(partitions))
    await zookeeper.create(layout.ISR_CHANGE_PREFIX, data, sequential=True)


async def announce_log_dir_failure(zookeeper: ZooKeeper, broker_id: BrokerId) -> None:
    """Notify the controller that a log directory of a broker has failed. Raises CoordinationError."""
    data = layout.encode_log_dir_event(broker_id)
    await zookeeper.create(layout.LOG_DIR_EVENT_PREFIX, data, sequential=True)


async def read_isr_changes(
    nodes: NodeReader, names: Sequence[str], faults: Faults
) -> list[TopicPartition]:
    """Return the distinct partitions in these notifications. Report unreadable parts to `faults`.

    Raises CoordinationError.
    """

    def decode(path: str, data: bytes) -> list[TopicPartition]:
        return layout.decode_isr_change(data, partial(faults.report, path))

    return await _read(nodes, paths(layout.ISR_CHANGES, names), decode, faults)


async def read_log_dir_failures(
    nodes: NodeReader, names: Sequence[str], faults: Faults
) -> list[BrokerId]:
    """Return the distinct broker ids in these notifications. Report unreadable nodes to `faults`.

    Raises CoordinationError.
    """

    def decode(path: str, data: bytes) -> list[BrokerId]:
        return [layout.decode_log_dir_event(data)]

    return await _read(nodes, paths(layout.LOG_DIR_EVENTS, names), decode, faults)


async def _read(
    nodes: NodeReader,
    wanted: Sequence[str],
    decode: Callable[[str, bytes], list[T]],
    faults: Faults,
) -> list[T]:
    """Return what is in the notifications with these paths, each item once."""
    found: dict[T, None] = {}
    for path, node in zip(wanted, await nodes.get_many(wanted), strict=True):
        if node is None:
            continue
        try:
            found.update(dict.fromkeys(decode(path, node.data)))
        except ValueError as fault:
            faults.report(path, fault)
    return list(found)
