"""The recovery of a cluster in one data directory: read its log directories, write its nodes to ZooKeeper."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from minikafka.base.config.cluster import ClusterConfig
from minikafka.base.ports import Clock, Rng
from minikafka.broker.coordinators.group_host import offsets_topic
from minikafka.broker.coordinators.transaction_host import transactions_topic
from minikafka.tools.cluster.directory import ClusterDirectory, ClusterError, ClusterRecord
from minikafka.tools.cluster.launch.launcher import Launcher
from minikafka.tools.cluster.launch.plan import LaunchRequest
from minikafka.tools.cluster.processes import end, identify
from minikafka.tools.cluster.recovery.plan import (
    EPOCH_STEP,
    RecoveredTopic,
    next_producer_ids,
    recovered_topics,
)
from minikafka.tools.cluster.recovery.scan import Progress, scan
from minikafka.tools.cluster.running import RunningProcesses
from minikafka.tools.cluster.zookeeper.session import cluster_session
from minikafka.zookeeper.nodes import ids, recovery


class Rebuilt(NamedTuple):
    """What was written to ZooKeeper. `brokers`: the brokers whose log directories were read. `without`: the others."""

    cluster_id: str
    topics: Sequence[RecoveredTopic]
    brokers: Sequence[int]
    without: Sequence[int]
    controller_epoch: int
    producer_id: int


async def rebuild(
    directory: ClusterDirectory,
    without: Collection[int],
    clock: Clock,
    rng: Rng,
    on_progress: Progress,
) -> Rebuilt:
    """Write the nodes of the cluster to its ZooKeeper, which has lost them.

    `without`: brokers whose log directories are lost. Raises ClusterError, ConfigError and CoordinationError.
    """
    async with directory.locked(clock):
        record = directory.read_existing()
        running = RunningProcesses(directory, clock)
        if alive := running.running_ids(record):
            text = f"brokers {', '.join(map(str, alive))} are running: they would change their logs meanwhile"
            raise ClusterError(text, "minikafka down stops them")
        cluster_id, brokers = _cluster_of(directory, record, without)
        request = LaunchRequest(None, None, ClusterConfig(is_default=True), None, None)
        launcher = Launcher(directory, running, request, clock, rng)
        async with _zookeeper_of(launcher):
            await _check_lost(directory, record, cluster_id, clock, rng)
            found = await scan(directory, brokers, clock, on_progress)
            topics = recovered_topics(
                found.replicas,
                brokers,
                _internal_settings(directory, brokers[0]),
                rng.bytes(16),
                is_complete=not without,
            )
            epoch = max(found.controller_epoch, 0) + EPOCH_STEP
            producer_ids = next_producer_ids(found.producer_id)
            on_progress("writing to ZooKeeper", 0, 1)
            async with cluster_session(directory, record, clock, rng) as zookeeper:
                await recovery.write(
                    zookeeper, record.coordination, cluster_id, topics, epoch, producer_ids
                )
    return Rebuilt(cluster_id, topics, brokers, sorted(set(without)), epoch, producer_ids[1] + 1)


def _cluster_of(
    directory: ClusterDirectory, record: ClusterRecord, without: Collection[int]
) -> tuple[str, list[int]]:
    """Return the cluster id, and the brokers whose log directories exist. Raises ClusterError."""
    for broker_id in without:
        record.broker(broker_id)
    brokers = [broker.id for broker in (*record.brokers, *record.retired)]
    known = {id_: directory.cluster_id(id_) for id_ in brokers if id_ not in without}
    lost = [broker.id for broker in record.brokers if known.get(broker.id, "") is None]
    if lost:
        paths = ", ".join(str(directory.broker_data(id_)) for id_ in lost)
        raise ClusterError(
            f"{paths} has no readable meta.properties: restore it, or leave the broker out by --without "
            f"{lost[0]}; records that only this broker has are then lost"
        )
    by_id: dict[str, list[int]] = {}
    for broker_id, cluster_id in known.items():
        if cluster_id is not None:
            by_id.setdefault(cluster_id, []).append(broker_id)
    if len(by_id) != 1:
        sides = " and ".join(f"brokers {owners} have {name}" for name, owners in by_id.items())
        raise ClusterError(f"the log directories name {len(by_id)} clusters: {sides or 'none'}")
    ((cluster_id, owners),) = by_id.items()
    return cluster_id, owners


@asynccontextmanager
async def _zookeeper_of(launcher: Launcher) -> AsyncIterator[None]:
    """Run the cluster's own ZooKeeper in the `with` block, unless it runs already or is external.

    If the block fails, data that this server has created are removed.
    """
    directory = launcher.directory
    is_new = directory.zookeeper_is_new()
    server = await launcher.spawn_zookeeper()
    try:
        if server is not None:
            await server.wait_until_serving()
        yield
    except BaseException:
        if server is not None:
            await _end(launcher, server.pid)
            if is_new:
                shutil.rmtree(directory.zookeeper_data, ignore_errors=True)
        raise
    if server is not None:
        await _end(launcher, server.pid)


async def _end(launcher: Launcher, pid: int) -> None:
    if (process := identify(pid)) is not None:
        await end(process, launcher.clock)


async def _check_lost(
    directory: ClusterDirectory, record: ClusterRecord, cluster_id: str, clock: Clock, rng: Rng
) -> None:
    """Raise ClusterError if ZooKeeper has topics or brokers of a cluster, which the recovery would overwrite."""
    async with cluster_session(directory, record, clock, rng) as zookeeper:
        found = await ids.stored(zookeeper)
        has_brokers = await recovery.has_brokers(zookeeper)
        has_topics = await recovery.has_topics(zookeeper)
    where = f"ZooKeeper at {record.zookeeper}"
    if has_brokers:
        raise ClusterError(
            f"{where} has registered brokers: stop them, or wait for their session timeout"
        )
    if found is None:
        return
    if has_topics:
        owner = "this cluster" if cluster_id.encode() in found else "another cluster"
        raise ClusterError(
            f"{where} has the topics of {owner}: it has not lost its data, and nothing was changed"
        )
    if cluster_id.encode() not in found and not record.runs_zookeeper:
        raise ClusterError(
            f"{where} belongs to another cluster: name another chroot in zookeeper.connect"
        )


def _internal_settings(
    directory: ClusterDirectory, broker_id: int
) -> Mapping[str, Mapping[str, str]]:
    """Return the settings with which brokers create the internal topics, by topic. Raises ClusterError."""
    config = directory.broker_config(broker_id)
    if config is None:
        raise ClusterError(f"{directory.broker_file(broker_id)} is missing or invalid: restore it")
    return {
        topic.name: topic.configs for topic in (offsets_topic(config), transactions_topic(config))
    }
