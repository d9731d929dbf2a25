"""The state of all replicas of a running cluster, at the end of a test."""

from __future__ import annotations

from minikafka.base.errors import MinikafkaError
from minikafka.checks.isolation.verdict import check
from minikafka.tools.cluster import LocalCluster
from minikafka.tools.verdict.directories import read_logs
from minikafka.tools.verdict.report import VerdictError


async def differences(cluster: LocalCluster, timeout_ms: int) -> tuple[str, list[str]]:
    """Return a sentence about the replicas, and a line for each offset at which replicas in sync differ.

    Waits up to `timeout_ms` until the replicas on running brokers are in sync.
    """
    try:
        await cluster.wait_until_in_sync(timeout_ms)
        behind = ""
    except MinikafkaError as error:
        behind = f"; {error}"
    partitions = (await cluster.state()).partitions
    try:
        logs = read_logs([str(cluster.directory.path)], [])
    except (MinikafkaError, OSError) as error:
        raise VerdictError(f"the replicas cannot be read: {error}") from error
    compared = {
        tp: {broker: log for broker, log in copies.items() if broker in partitions[tp].isr}
        for tp, copies in logs.items()
        if tp in partitions
    }
    found = check([], compared).anomalies
    lines = [str(one) for one in found if one.kind == "diverging"]
    offline = sum(not view.is_available for view in partitions.values())
    short = sum(len(view.isr) < len(view.replicas) for view in partitions.values())
    state = f"{len(partitions)} partitions, {short} under-replicated, {offline} without leader"
    equal = f"{len(lines)} offsets differ" if lines else "replicas in sync are equal"
    return f"{state}, {equal}{behind}", lines
