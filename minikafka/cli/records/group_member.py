"""`consume --group`: one member of a group that prints the records that it reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from minikafka.base.errors import MinikafkaError
from minikafka.base.model import TopicPartition
from minikafka.cli.terminal.echo import echo
from minikafka.cli.terminal.topic_errors import require_topics

if TYPE_CHECKING:
    from minikafka.client import Client, ConsumedRecord, GroupConsumer

END_CHECK_SECONDS: Final = 0.2
"""Time between two checks whether all partitions were read to their end, while no record arrives."""


@dataclass(frozen=True, slots=True)
class Session:
    """The arguments of `consume --group`. If `topics` is empty, the topics that the group has read before are read."""

    group: str
    topics: tuple[str, ...]
    start: Literal["earliest", "latest"]
    until_end: bool
    count: int | None
    quiet: bool

    async def run(self, client: Client, show: Callable[[ConsumedRecord], None]) -> None:
        """Call `show` for each record, until `count` records were shown or, if `until_end`, the end is reached.

        Then commit and leave the group. Raises MinikafkaError.
        """
        from minikafka.client import GroupSettings

        topics = await self._topics(client)
        settings = GroupSettings(auto_offset_reset=self.start)
        left = self.count
        async with client.group_consumer(
            self.group,
            topics,
            settings,
            on_assigned=lambda partitions: self._tell("assigned", partitions),
            on_revoked=lambda partitions: self._tell("gave up", partitions),
            on_lost=lambda partitions: self._tell("lost", partitions),
        ) as consumer:
            end = _End(client, consumer) if self.until_end else None
            while left != 0 and not (end and await end.is_reached()):
                record = await self._next(consumer)
                if record is not None:
                    show(record)
                    left = left and left - 1

    async def _next(self, consumer: GroupConsumer) -> ConsumedRecord | None:
        import asyncio

        if not self.until_end:
            return await anext(consumer)
        try:
            async with asyncio.timeout(END_CHECK_SECONDS):
                return await anext(consumer)
        except TimeoutError:
            return None

    async def _topics(self, client: Client) -> list[str]:
        """Return `topics`, or the topics that the group has read before if `topics` is empty.

        Raises MinikafkaError if a topic in `topics` does not exist, or if the group has read no topic before.
        """
        if self.topics:
            await require_topics(client.admin, self.topics)
            return list(self.topics)
        known = set(await client.groups.offsets(self.group))
        for member in (await client.groups.describe([self.group]))[self.group].members:
            known.update(member.partitions)
        if not known:
            raise MinikafkaError(f"group {self.group} has read no topic yet: name a TOPIC")
        return sorted({tp.topic for tp in known})

    def _tell(self, what: str, partitions: list[TopicPartition]) -> None:
        if partitions and not self.quiet:
            names = ", ".join(map(str, partitions))
            echo(f"% Group {self.group}: {what} {names}", err=True)


class _End:
    """The end offsets that the assigned partitions had when they were assigned."""

    def __init__(self, client: Client, consumer: GroupConsumer) -> None:
        self._client = client
        self._consumer = consumer
        self._ends: dict[TopicPartition, int] = {}

    async def is_reached(self) -> bool:
        """True if the consumer has its assignment, and has read each partition up to the recorded end offset."""
        from minikafka.client.log_offsets import LATEST

        assigned = self._consumer.assignment()
        new = {tp: LATEST for tp in assigned if tp not in self._ends}
        if new:
            self._ends |= await self._client.log_offsets(new)
        if not self._consumer.is_assigned:
            return False  # during a join, the generation is known before the partitions
        for tp in assigned:
            if await self._consumer.position(tp) < self._ends[tp]:
                return False
        return True
