"""Notes on standard error about what a command waits for, printed when a wait lasts.

Invariant: a line is printed only while the command still waits, and only if it differs from the line before. A reason
is a sentence of `why`. A cluster that is not on this machine gives no reasons.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import click

import minikafka.client as clients
import minikafka.client.waits as client_waits
import minikafka.tools.cluster.local as clusters
import minikafka.tools.explain.blockers as blockers
from minikafka.base.errors import ErrorCode, KafkaError, MinikafkaError
from minikafka.base.model import TopicPartition
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.tools.cli.arguments.find_cluster import data_directory, where_option
from minikafka.tools.cli.terminal.echo import echo

FIRST_MS: Final = 400
"""A wait that lasts this long is examined, so that its reason is printed within about 2 s."""
SURE_MS: Final = 2_000
"""A wait is mentioned after this time even if nothing wrong is found."""
WORK_MS: Final = 1_200
"""Work on processes that has lasted this long is examined; starting one broker may take a second."""
AGAIN_MS: Final = 2_000
"""Interval between two examinations of a wait that goes on."""
_TICK_MS: Final = 100
_FROM_CLUSTER: Final = (
    ErrorCode.INVALID_REPLICATION_FACTOR,
    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)
"""Errors about one topic, partition or group that may come from the condition of the cluster."""
_PARTITION: Final = re.compile(r"([A-Za-z0-9._-]+)-([0-9]+)\b.*", re.DOTALL)

Reason = Callable[[], Awaitable[str]]
"""Returns the sentence to print while a command waits, without the words "waiting for"; "" for none."""


class CommandWatch:
    """The watch over one command. `reason`: examines what the command waits for; called while the command runs.

    `after_ms`: the time before the first examination.
    """

    def __init__(self, reason: Reason, after_ms: int = 0) -> None:
        self._reason = reason
        self._after_ms = after_ms
        self.last = ""
        """The last text that was printed, without the words "waiting for"."""

    async def tell(self) -> None:
        """Print what the command waits for, again and again, until this task is cancelled."""
        clock = SystemClock()
        await clock.sleep(self._after_ms)
        while True:
            text = await self._reason()
            if text and text != self.last:
                echo(f"waiting for {text}", err=True)
                self.last = text
            await clock.sleep(AGAIN_MS if text else _TICK_MS)


class ClientWaits:
    """The reasons why the calls of a client wait. `servers`: its bootstrap servers, None for the command's cluster."""

    def __init__(self, servers: str | None) -> None:
        self.client: clients.Client | None = None
        self._servers = servers
        self._known = ""
        """The root causes that the last examination found, if the wait that it examined had ended by then; else ""."""

    async def reason(self) -> str:
        """Return what the oldest call waits for and why; "" if no call has waited for FIRST_MS.

        If the wait ends during the examination, the next wait uses the result at once: a command often waits for one
        broker several times, first for metadata and then for the leader.
        """
        wait = self._lasting()
        if wait is None:
            return ""
        why = self._known or await self.causes(wait.tp, wait.error)
        goes_on = self._lasting() is wait
        self._known = "" if goes_on or wait.tp is not None else why
        if not goes_on:
            return ""
        if not why and SystemClock().now() - wait.since < SURE_MS:
            return ""
        error = "there is no answer yet" if wait.error is None else str(wait.error)
        return f"{wait.about}: {why or error}"

    def _lasting(self) -> client_waits.PendingCall | None:
        waits = getattr(self.client, "waits", None)
        wait: client_waits.PendingCall | None = waits.oldest() if waits is not None else None
        limit = FIRST_MS // 2 if self._known else FIRST_MS
        if wait is None or SystemClock().now() - wait.since < limit:
            return None
        return wait

    async def causes(self, tp: TopicPartition | None, error: KafkaError | None) -> str:
        """Return the causes found on this machine; "" if there is none, or if the cluster is elsewhere.

        `tp`: the partition that the call concerns; None: the partition that `error` names, if it names one.
        """
        local, where = local_cluster(self._servers)
        if local is None:
            return ""
        clock, rng = SystemClock(), SystemRng()
        named = tp or (partition_in(error) if error is not None else None)
        found = ""
        with suppress(MinikafkaError, OSError):
            if named is not None:
                found = await blockers.why_partition_waits(local, named, clock, rng, where)
            found = found or await blockers.why_cluster_waits(local, clock, rng, where)
        return found


async def tell_causes(codes: Iterable[ErrorCode]) -> None:
    """Print the root causes on standard error, if an error comes from the condition of the cluster."""
    if not any(code in _FROM_CLUSTER for code in codes):
        return
    if causes := await ClientWaits(None).causes(None, None):
        echo(f"cause: {causes}", err=True)


def partition_in(error: KafkaError) -> TopicPartition | None:
    """Return the partition that the detail of an error begins with; None if there is none."""
    match = _PARTITION.fullmatch(error.detail)
    return TopicPartition(match[1], int(match[2])) if match else None


def local_cluster(servers: str | None) -> tuple[clusters.LocalCluster | None, str]:
    """Return the cluster on this machine that the running command uses, and the option that names it.

    `servers`: the addresses that the command's client uses; None if it has no client. The cluster is None if these
    addresses belong to another cluster.
    """
    context = click.get_current_context(silent=True)
    data = context.params.get("data") if context is not None else None
    with suppress(MinikafkaError, OSError):
        given = context.params.get("bootstrap") if context is not None else None
        servers = servers or given
        path = data_directory(data)
        if (Path(path) / "cluster.json").exists():
            found = clusters.LocalCluster(data=path, attached=False)
            known = set(found.bootstrap.split(","))
            if servers is None or set(servers.split(",")) <= known:
                return found, where_option(data)
    return None, ""


EXAMINED_MAX: Final = 3
"""Maximum number of partitions that one call examines, because each takes a quarter of a second."""


class Blocked:
    """The reasons of several partitions; a reason is used for AGAIN_MS before the partition is examined again."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._began = self._clock.now()
        self._found: dict[TopicPartition, tuple[int, str]] = {}
        self._told: dict[str, str] = {}

    async def reasons(self, partitions: Iterable[TopicPartition]) -> dict[str, str]:
        """Return by name why each partition makes no progress, for at most EXAMINED_MAX partitions."""
        local, where = local_cluster(None)
        if local is None:
            return {}

        chosen = list(partitions)[:EXAMINED_MAX]
        for tp in chosen:
            found_at, _ = self._found.get(tp, (-AGAIN_MS, ""))
            began = self._clock.now()
            if began - found_at >= AGAIN_MS:
                text = ""
                with suppress(MinikafkaError, OSError):
                    text = await blockers.why_partition_waits(
                        local, tp, self._clock, SystemRng(), where
                    )
                self._found[tp] = began, text
        return {str(tp): self._found[tp][1] for tp in chosen if self._found[tp][1]}

    async def tell(self, partitions: Iterable[TopicPartition]) -> None:
        """Print on standard error why these partitions make no progress, if that has changed since the last call.

        Nothing is printed in the first WORK_MS after the creation of this object.
        """
        if self._clock.now() - self._began < WORK_MS:
            return
        for name, why in (await self.reasons(partitions)).items():
            if self._told.get(name) != why:
                self._told[name] = why
                echo(f"waiting for {name}: {why}", err=True)

    def reason(self, partitions: Iterable[TopicPartition]) -> Reason:
        """Return a Reason for `execution.run`: the first of these partitions with a known reason."""
        wanted = list(partitions)

        async def first() -> str:
            found = await self.reasons(wanted)
            return next((f"{name}: {why}" for name, why in found.items()), "")

        return first
