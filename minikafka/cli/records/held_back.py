"""The line of `consume` about an open transaction that a reader of committed records waits for."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from minikafka.base.errors import MinikafkaError
from minikafka.base.model import TopicPartition
from minikafka.cli.terminal.echo import echo

if TYPE_CHECKING:
    from minikafka.client import Client


class HeldBack:
    """Prints which transaction holds back a partition, and how to end it. It prints nothing if `quiet`."""

    def __init__(self, client: Client, *, quiet: bool) -> None:
        from minikafka.runtime.tasks import TaskRegistry

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
