"""`consume` without a group: one reader of one topic, and its line about an open transaction that it waits for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import minikafka.client as clients
from minikafka.base.errors import MinikafkaError
from minikafka.base.model import TopicPartition
from minikafka.runtime.tasks import TaskRegistry
from minikafka.tools.cli.records.offsets import Range, resolve
from minikafka.tools.cli.terminal.echo import echo
from minikafka.tools.cli.terminal.topic_errors import require_partitions, require_topics


@dataclass(frozen=True, slots=True)
class Reading:
    """The arguments of `consume` without a group. `partition`: None for all partitions."""

    topic: str
    partition: int | None
    where: Range
    until_end: bool
    count: int | None
    quiet: bool
    is_committed: bool = False
    """Read only records of committed transactions."""

    async def run(
        self, client: clients.Client, show: Callable[[clients.ConsumedRecord], None]
    ) -> None:
        """Call `show` for each record, until `count` records were shown or the end of the range is reached.

        Raises MinikafkaError.
        """
        if self.partition is None:
            await require_topics(client.admin, [self.topic])
        else:
            await require_partitions(client.admin, [TopicPartition(self.topic, self.partition)])
        partitions = None if self.partition is None else [self.partition]
        start, ends = await resolve(client, self.topic, partitions, self.where, self.until_end)
        left = self.count
        held = HeldBack(client, quiet=self.quiet)
        records = client.consume(
            self.topic,
            start=start,
            until_end=ends or False,
            on_end=self._report_end,
            on_held=held.report,
        )
        async for record in records:
            show(record)
            left = left and left - 1
            if left == 0:
                break
        await records.aclose()
        if self.is_committed and ends and left != 0 and self.where.stop is None:
            await held.report_all({TopicPartition(self.topic, one): at for one, at in ends.items()})

    def _report_end(self, partition: int, offset: int) -> None:
        if self.quiet:
            return
        place = f"topic {self.topic} [{partition}]"
        if self.where.stop is None:
            echo(f"% Reached end of {place} at offset {offset}", err=True)
        else:
            echo(f"% Stopped in {place} before offset {offset}", err=True)


class HeldBack:
    """Prints which transaction holds back a partition, and how to end it. It prints nothing if `quiet`."""

    def __init__(self, client: clients.Client, *, quiet: bool) -> None:
        self._client = client
        self._quiet = quiet
        self._tasks = TaskRegistry()

    def report(self, tp: TopicPartition, stable: int) -> None:
        """Look up the open transaction in a task, and print it. Records are read in the meantime."""
        if not self._quiet:
            self._tasks.spawn(self._tell(tp, stable), "held back")

    async def report_all(self, ends: Mapping[TopicPartition, int]) -> None:
        """Print the open transactions of partitions that were read to these ends."""
        for tp, stable in ends.items():
            if not self._quiet:
                await self._tell(tp, stable)

    async def _tell(self, tp: TopicPartition, stable: int) -> None:
        with suppress(MinikafkaError):  # the records matter more than the reason
            if text := await self._client.transactions.reason_for_waiting(tp, stable):
                echo(f"% {text}", err=True)
