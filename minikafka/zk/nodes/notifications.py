"""Notifications from brokers to the controller: changed ISRs (A14) and failed log directories (R67).

Each is a sequential node that the controller reads and deletes. A notification may be sent twice, which
does no harm.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final

from minikafka.base.model import BrokerId, TopicPartition
from minikafka.base.ports import Coordination
from minikafka.zk import layout
from minikafka.zk.nodes.reader import NodeReader

logger = logging.getLogger(__name__)

ISR_CHANGES: Final = layout.ISR_CHANGES
LOG_DIR_FAILURES: Final = layout.LOG_DIR_EVENTS


def paths(directory: str, names: Iterable[str]) -> list[str]:
    """Return the paths of notifications in `ISR_CHANGES` or `LOG_DIR_FAILURES`."""
    return [f"{directory}/{name}" for name in names]


async def announce_isrs(coordination: Coordination, partitions: Iterable[TopicPartition]) -> None:
    """Tell the controller that a leader wrote the ISRs of these partitions. Raises CoordinationError."""
    data = layout.encode_isr_change(sorted(partitions))
    await coordination.create(layout.ISR_CHANGE_PREFIX, data, sequential=True)


async def announce_log_dir_failure(coordination: Coordination, broker_id: BrokerId) -> None:
    """Tell the controller that a broker lost a log directory. Raises CoordinationError."""
    data = layout.encode_log_dir_event(broker_id)
    await coordination.create(layout.LOG_DIR_EVENT_PREFIX, data, sequential=True)


async def read_isr_changes(nodes: NodeReader, names: Sequence[str]) -> list[TopicPartition]:
    """Return the partitions named by these notifications, each once. Raises CoordinationError."""
    changed: dict[TopicPartition, None] = {}
    for node in await nodes.get_many(paths(ISR_CHANGES, names)):
        try:
            changed.update(dict.fromkeys(layout.decode_isr_change(node[0]) if node else ()))
        except ValueError as error:
            logger.error("ISR change notification is not readable: %s", error)
    return list(changed)


async def read_log_dir_failures(nodes: NodeReader, names: Sequence[str]) -> list[BrokerId]:
    """Return the brokers named by these notifications, each once. Raises CoordinationError."""
    brokers: dict[BrokerId, None] = {}
    for node in await nodes.get_many(paths(LOG_DIR_FAILURES, names)):
        try:
            if node is not None:
                brokers[layout.decode_log_dir_event(node[0])] = None
        except ValueError as error:
            logger.error("log directory notification is not readable: %s", error)
    return list(brokers)
