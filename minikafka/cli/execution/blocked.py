"""The reasons why partitions make no progress, for the notes of a progress display.

Invariant: a reason is a sentence of `why`. A cluster that is not on this machine gives no reasons.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from minikafka.base.errors import MinikafkaError
from minikafka.base.model import TopicPartition
from minikafka.cli.execution.waiting import AGAIN_MS, WORK_MS, Reason, local_cluster
from minikafka.cli.terminal.echo import echo
from minikafka.runtime.clock import SystemClock, SystemRng

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
        from minikafka.explain.blockers import why_partition_waits

        chosen = list(partitions)[:EXAMINED_MAX]
        for tp in chosen:
            found_at, _ = self._found.get(tp, (-AGAIN_MS, ""))
            began = self._clock.now()
            if began - found_at >= AGAIN_MS:
                text = ""
                with suppress(MinikafkaError, OSError):
                    text = await why_partition_waits(local, tp, self._clock, SystemRng(), where)
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
