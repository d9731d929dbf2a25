"""`restart`: restart brokers with their changed configuration; one by one with `--rolling`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import click

import minikafka.tools.cli.arguments.config_files as config_files
import minikafka.tools.cluster.local as clusters
import minikafka.tools.cluster.observation.observed as observed
from minikafka.tools.cli.arguments.completion import ZOOKEEPER
from minikafka.tools.cli.arguments.find_cluster import find_cluster
from minikafka.tools.cli.arguments.options import (
    config_option,
    needs_machine,
    time_limit,
    timeout_option,
)
from minikafka.tools.cli.execution.running import run
from minikafka.tools.cli.processes.differences import Differences
from minikafka.tools.cli.processes.process_argument import ProcessName, ProcessType
from minikafka.tools.cli.processes.waits import until_restarted, until_zookeeper_serves
from minikafka.tools.cli.terminal.echo import echo

NAMING_MS: Final = 1_000
"""Part of --timeout that is reserved for an error that names the partitions that are not in sync."""


@click.command()
@click.argument("names", nargs=-1, type=ProcessType(), metavar="[ID|zookeeper]...")
@click.option(
    "--rolling",
    is_flag=True,
    help="One broker at a time, the controller last; wait until all replicas on running brokers are in sync "
    "in between.",
)
@config_option
@needs_machine("restarts processes")
@timeout_option
def restart(
    names: tuple[ProcessName, ...], rolling: bool, config: str | None, data: str | None
) -> None:
    """Restart the brokers ID (default: all) with the current keys of cluster.toml, or restart ZooKeeper.

    Without --rolling the brokers stop at the same time and hand over no leaderships. With
    --rolling each broker hands over its leaderships before it stops. The next broker is restarted when every
    replica on a running broker is in sync again. If that takes more than a minute (or --timeout), the command
    fails and restarts no other broker.
    """
    if names and set(names) == {ZOOKEEPER}:
        own = find_cluster(data)  # ZooKeeper needs no configuration
        run(_restart_zookeeper(own), reason=until_zookeeper_serves(own))
        return
    file = config_files.find_cluster_file(config)
    found = config_files.load_cluster_config(config)
    cluster = clusters.LocalCluster(data=data or found.data, config=found, attached=False)
    record = cluster.record
    ids = [int(name) for name in dict.fromkeys(names) if name != ZOOKEEPER]
    for broker_id in ids:
        record.broker(broker_id)
    if ZOOKEEPER in names:
        run(_restart_zookeeper(cluster), reason=until_zookeeper_serves(cluster))
    if not names:
        ids = [broker.id for broker in record.brokers]
    if file is not None:
        with config_files.errors_name_file(file):
            cluster.configure(ids)
            kept = cluster.kept_settings(file)
        for line in (*Differences.of(cluster.changes).lines(data), *kept):
            echo(line, err=True)
    work = _restart_rolling(cluster, ids) if rolling else _restart_together(cluster, ids)
    run(work, reason=until_restarted(cluster, data, ids))


async def _restart_zookeeper(cluster: clusters.LocalCluster) -> None:
    if cluster.zookeeper_process() is not None:
        await cluster.stop_zookeeper()
    await cluster.start_zookeeper()
    echo("restarted: ZooKeeper", err=True)


@contextmanager
def _left_stopped(cluster: clusters.LocalCluster, ids: Sequence[int]) -> Iterator[None]:
    """Run a `with` block that restarts these brokers. If the block fails, print which of them are down."""
    try:
        yield
    except BaseException:
        for broker_id in ids:
            if cluster.process(broker_id) is None:
                hint = f"minikafka start {broker_id}"
                echo(f"broker {broker_id} is stopped; to start it: {hint}", err=True)
        raise


async def _restart_together(cluster: clusters.LocalCluster, ids: Sequence[int]) -> None:
    with _left_stopped(cluster, ids):
        await cluster.restart_together(ids)
    echo(f"restarted: {', '.join(map(str, ids))}", err=True)


async def _restart_rolling(cluster: clusters.LocalCluster, ids: Sequence[int]) -> None:
    """Restart brokers one by one, the controller last.

    Before each restart and at the end, wait until replicas are in sync. Raises ClusterError if the replicas are not
    in sync within the time limit.
    """
    limit, now = time_limit(), asyncio.get_running_loop().time
    ends = None if limit is None else now() + limit
    controller = (await cluster.state()).controller
    for done, broker_id in enumerate(sorted(ids, key=lambda id_: id_ == controller), 1):
        await cluster.wait_until_in_sync(_wait_ms(ends, now()))
        with _left_stopped(cluster, [broker_id]):
            await cluster.restart(broker_id)
        echo(f"broker {broker_id} was restarted ({done} of {len(ids)})", err=True)
    await cluster.wait_until_in_sync(_wait_ms(ends, now()))
    echo(_in_sync(cluster), err=True)


def _wait_ms(ends: float | None, now: float) -> int:
    """Return the maximum time in ms to wait until replicas are in sync.

    `ends`: the time in seconds at which --timeout expires. The wait ends NAMING_MS before that time, so that
    the command can still name the out-of-sync partitions in an error.
    """
    return observed.WAIT_MS if ends is None else max(round((ends - now) * 1000) - NAMING_MS, 0)


def _in_sync(cluster: clusters.LocalCluster) -> str:
    """Return the line to print after `wait_until_in_sync`. The line names the brokers that are not running."""
    ids = [broker.id for broker in cluster.record.brokers]
    if away := [broker_id for broker_id in ids if cluster.process(broker_id) is None]:
        names = ", ".join(f"broker {broker_id}" for broker_id in away)
        return f"all replicas on running brokers are in sync; not running: {names}"
    return "all replicas are in sync"
