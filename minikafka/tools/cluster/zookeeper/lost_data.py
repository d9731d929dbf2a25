"""The comparison of the brokers' log directories with ZooKeeper, which shows that ZooKeeper's data were lost."""

from __future__ import annotations

import asyncio
from typing import Final

from minikafka.base.errors import ClusterLost, CoordinationError, MinikafkaError
from minikafka.base.ports import Clock, Rng
from minikafka.tools.cluster.directory import ClusterDirectory, ClusterRecord
from minikafka.zookeeper.nodes import ids

TIMEOUT_MS: Final = 3_000
_SHOWN: Final = 10
"""Number of topics that are named."""


def known_cluster_ids(directory: ClusterDirectory, record: ClusterRecord) -> dict[int, str]:
    """Return the cluster ids in the log directories, by id of the brokers that have one."""
    found = {broker.id: directory.cluster_id(broker.id) for broker in record.brokers}
    return {broker_id: known for broker_id, known in found.items() if known is not None}


async def why_lost(
    directory: ClusterDirectory,
    record: ClusterRecord,
    clock: Clock,
    rng: Rng,
    timeout_ms: int = TIMEOUT_MS,
) -> str:
    """Return why ZooKeeper does not have the cluster of the log directories.

    The result is "" if ZooKeeper has it, or does not answer within `timeout_ms`.
    """
    from minikafka.tools.cluster.zookeeper.session import cluster_session  # imports aiozk

    known = known_cluster_ids(directory, record)
    if not known:
        return ""
    try:
        async with (
            asyncio.timeout(timeout_ms / 1000),
            cluster_session(directory, record, clock, rng, timeout_ms) as zookeeper,
        ):
            data = await ids.stored(zookeeper)
    except (MinikafkaError, CoordinationError, TimeoutError):
        return ""  # the brokers say what is wrong with ZooKeeper
    return _mismatch(directory, record, known, data)


def why_empty(directory: ClusterDirectory, record: ClusterRecord) -> str:
    """Return why the cluster's own ZooKeeper, which is down, does not have the cluster; "" if it has data."""
    if not record.runs_zookeeper or not directory.zookeeper_is_empty():
        return ""
    return _mismatch(directory, record, known_cluster_ids(directory, record), None)


def _mismatch(
    directory: ClusterDirectory, record: ClusterRecord, known: dict[int, str], data: bytes | None
) -> str:
    """Compare the cluster ids of brokers with the data of `/cluster/id`; return the difference, "" if there is none."""
    for cluster_id in dict.fromkeys(known.values()):
        brokers = ", ".join(str(id_) for id_, one in known.items() if one == cluster_id)
        try:
            ids.check(cluster_id, data)
        except ClusterLost as lost:
            topics = sorted(directory.topics())
            shown = ", ".join(topics[:_SHOWN]) + (", …" if len(topics) > _SHOWN else "")
            here = f"The log directories have {len(topics)} topics{': ' if topics else ''}{shown}"
            text = f"brokers {brokers} and ZooKeeper at {record.zookeeper} do not match: {lost}"
            return f"{text}. {here}"
    return ""
