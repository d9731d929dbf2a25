"""What `up`, `start`, `stop`, `restart` and `down` wait for, and how long.

Each function `until_…` returns a `Reason` for `execution.run`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import minikafka.tools.cluster.lifecycle as lifecycle
import minikafka.tools.cluster.local as clusters
import minikafka.tools.cluster.observation.causes as root_causes
import minikafka.tools.cluster.observation.sights as sight
import minikafka.tools.explain.blockers as blockers
from minikafka.base.coordination import LEADERS
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.tools.cli.arguments.find_cluster import where_option
from minikafka.tools.cli.arguments.options import time_limit
from minikafka.tools.cli.execution.waiting import Reason

LATE: Final = "the brokers did not serve clients"
"""The error when the time limit expires before the started brokers serve clients."""
_NORMAL: Final = (
    "cluster-down",
    "broker-down",
    "broker-silent",
    "control-plane-silent",
    "no-session",
    "not-registered",
    "no-controller",
)
"""Causes that are normal while a broker starts or stops: its log then says more."""


def start_timeout_ms() -> int:
    """Return the time within which brokers must serve clients: `--timeout`, else one minute."""
    limit = time_limit()
    return lifecycle.START_TIMEOUT_MS if limit is None else round(limit * 1000)


def until_serving(
    found: clusters.LocalCluster, data: str | None, brokers: Collection[int] | None = None
) -> Reason:
    """Return a Reason for commands that start brokers. `brokers`: their ids, None for all brokers."""

    async def reason() -> str:
        if holder := found.directory.lock_holder:
            return _lock(found, holder)
        seen = await _seen(found)
        if seen is None:
            return "the ports and files of the new cluster"
        if brokers is None and (waits := _until_zookeeper_started(seen)):
            return waits

        late = [
            broker
            for broker in seen.brokers.values()
            if (brokers is None or broker.id in brokers)
            and root_causes.state_of(broker, seen) != "up"
        ]
        if seen.zookeeper.failure:
            return (
                f"ZooKeeper at {seen.zookeeper.address} to serve clients: {seen.zookeeper.failure}"
            )
        if not late:
            is_leaders = seen.coordination == LEADERS
            others = "the other brokers" if is_leaders else "the other brokers and the controller"
            return f"every broker to know {others}"
        return (
            f"{_names([broker.id for broker in late])} to serve clients: {_why(late, seen, data)}"
        )

    return reason


def until_zookeeper_serves(found: clusters.LocalCluster) -> Reason:
    """Return a Reason for commands that start ZooKeeper."""

    async def reason() -> str:
        if holder := found.directory.lock_holder:
            return _lock(found, holder)
        seen = await _seen(found)
        if seen is not None and (waits := _until_zookeeper_started(seen)):
            return waits
        failure = seen.zookeeper.failure if seen is not None else ""
        return f"ZooKeeper at {found.zookeeper} to serve clients: {failure or 'it starts'}"

    return reason


def until_zookeeper_ended() -> Reason:
    """Return a Reason for commands that stop ZooKeeper."""

    async def reason() -> str:
        return "ZooKeeper to close its files"

    return reason


def until_ended(
    found: clusters.LocalCluster, data: str | None, brokers: Collection[int], what: str
) -> Reason:
    """Return a Reason for commands that stop brokers. `what`: what the brokers must do."""

    async def reason() -> str:
        if holder := found.directory.lock_holder:
            return _lock(found, holder)
        seen = await _seen(found)
        left = [] if seen is None else [seen.brokers[id_] for id_ in brokers if id_ in seen.brokers]
        left = [broker for broker in left if broker.process.pid is not None]
        if seen is None or not left:
            return "the processes to end"
        return f"{_names([broker.id for broker in left])} to {what}: {_why(left, seen, data)}"

    return reason


def until_restarted(
    found: clusters.LocalCluster, data: str | None, brokers: Collection[int]
) -> Reason:
    """Return a Reason for `restart`: brokers that do not serve yet, else partitions that are not in sync."""
    serving = until_serving(found, data, brokers)

    async def reason() -> str:
        seen = await _seen(found)
        if seen is None or any(
            root_causes.state_of(seen.brokers[id_], seen) != "up"
            for id_ in brokers
            if id_ in seen.brokers
        ):
            return await serving()
        running = [broker.id for broker in seen.brokers.values() if broker.process.pid]
        behind = (await found.state()).not_in_sync(running)
        if not behind:
            return ""
        why = await blockers.why_partition_waits(
            found, behind[0], SystemClock(), SystemRng(), where_option(data)
        )
        return (
            f"{len(behind)} partitions to get in sync, such as {behind[0]}: {why or 'it follows'}"
        )

    return reason


def _lock(found: clusters.LocalCluster, holder: str) -> str:
    return f"the lock of {found.directory.path}: {holder} holds it"


async def _seen(found: clusters.LocalCluster) -> sight.Sights | None:
    """Return the condition of the cluster; None before `cluster.json` exists."""
    if found.directory.read() is None:
        return None
    return await sight.look(found.directory, SystemClock(), SystemRng())


def _why(late: Sequence[sight.BrokerSight], seen: sight.Sights, data: str | None) -> str:
    """Return the root causes, else the last line of the log of the first of these brokers."""
    ids = [broker.id for broker in late]
    causes = [
        cause for cause in root_causes.causes_of(seen, where_option(data)) if _concerns(cause, ids)
    ]
    if causes:
        return blockers.joined(cause.sentence for cause in causes)
    name, process = f"broker {late[0].id}", late[0].process
    if process.pid is None:
        return f"{name} has no process yet"
    if not process.last_line:
        return f"{name} starts, and has not written to its log yet ({process.log})"
    return f"the log of {name} ends: {process.last_line} ({process.log})"


def _until_zookeeper_started(seen: sight.Sights) -> str:
    """Return what `up` waits for while ZooKeeper has no process: it starts ZooKeeper itself; else ""."""
    zookeeper = seen.zookeeper.process
    return "ZooKeeper to start" if zookeeper is not None and zookeeper.pid is None else ""


def _concerns(cause: root_causes.Cause, brokers: Collection[int]) -> bool:
    return cause.name not in _NORMAL and (cause.broker is None or cause.broker in brokers)


def _names(brokers: Sequence[int]) -> str:
    return f"broker{'s' if len(brokers) > 1 else ''} {', '.join(map(str, brokers))}"
