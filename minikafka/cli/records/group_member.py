"""`consume --group`: one member of a group that prints the records that it reads.

aiokafka's consumer reads the records and shares the partitions with the other members. This module tells the user
which partitions the member has, commits, and decides when the command ends. The topics are subscribed as a
pattern, because aiokafka's requests for named topics create missing topics. aiokafka's own commits are off, because
they are retried forever after a topic is deleted, and no rebalance ends in that time.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal

from aiokafka import AIOKafkaConsumer
from aiokafka.abc import ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import BrokerResponseError, IllegalStateError
from aiokafka.errors import KafkaError as AiokafkaError
from aiokafka.structs import TopicPartition as AiokafkaPartition

from minikafka.base.errors import ErrorCode, KafkaError, MinikafkaError
from minikafka.base.meanings import AnsweredError
from minikafka.base.model import TopicPartition
from minikafka.cli.terminal.echo import echo
from minikafka.cli.terminal.topic_errors import require_topics
from minikafka.client import Client, ConsumedRecord
from minikafka.client.log_offsets import LATEST
from minikafka.client.metadata import error_code
from minikafka.runtime.clock import SystemClock

logger = logging.getLogger(__name__)

END_CHECK_SECONDS: Final = 0.2
"""Time between two checks whether all partitions were read to their end, while no record arrives."""
COMMIT_INTERVAL_MS: Final = 5_000
COMMIT_SECONDS: Final = 5
"""Time for one commit."""
CLOSE_SECONDS: Final = 10
"""Time for leaving the group."""
LOG_APPEND_TIME: Final = 1
"""The type of a timestamp that the broker has set."""
SETTINGS: Final[dict[str, Any]] = {
    "session_timeout_ms": 45_000,
    "metadata_max_age_ms": 5_000,  # a topic that is created again is read after this time at the latest
    "exclude_internal_topics": False,
    "enable_auto_commit": False,
    "partition_assignment_strategy": (RangePartitionAssignor, RoundRobinPartitionAssignor),
}


@dataclass(frozen=True, slots=True)
class Session:
    """The arguments of `consume --group`. If `topics` is empty, the topics that the group has read before are read."""

    group: str
    topics: tuple[str, ...]
    start: Literal["earliest", "latest"]
    until_end: bool
    count: int | None
    quiet: bool

    async def run(
        self, client: Client, servers: str, show: Callable[[ConsumedRecord], None]
    ) -> None:
        """Call `show` for each record, until `count` records were shown or, if `until_end`, the end is reached.

        Then commit and leave the group. `servers`: the addresses of the brokers. Raises MinikafkaError.
        """
        # The command tells by itself what it waits for.
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
        topics = await self._topics(client)
        consumer = AIOKafkaConsumer(
            bootstrap_servers=servers,
            client_id="minikafka",
            group_id=self.group,
            auto_offset_reset=self.start,
            **SETTINGS,
        )
        share = Share(client, consumer, self.group, self.quiet)
        try:
            await consumer.start()
            pattern = rf"(?:{'|'.join(map(re.escape, topics))})\Z"
            consumer.subscribe(pattern=pattern, listener=share)
            await self._read(client, consumer, share, show)
        except AiokafkaError as error:
            raise _translated(error, f"group {self.group}") from error
        except UnicodeDecodeError as error:
            raise MinikafkaError(
                f"a record has a header whose name is not UTF-8: {error}"
            ) from error
        finally:
            await self._leave(consumer, share)

    async def _read(
        self,
        client: Client,
        consumer: AIOKafkaConsumer,
        share: Share,
        show: Callable[[ConsumedRecord], None],
    ) -> None:
        left = self.count
        end = End(client, consumer, share) if self.until_end else None
        while left != 0:
            if end and await end.is_reached():
                return
            await share.commit_if_due()
            try:
                async with asyncio.timeout(END_CHECK_SECONDS):
                    record = await consumer.getone()
            except TimeoutError:
                continue
            tp = TopicPartition(record.topic, record.partition)
            share.printed.setdefault(tp, record.offset)  # the offset to commit if `show` fails
            show(_consumed(record))
            share.printed[tp] = record.offset + 1
            left = left and left - 1

    async def _leave(self, consumer: AIOKafkaConsumer, share: Share) -> None:
        """Commit the printed records and leave the group. A failure is only logged."""
        await share.commit()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await _stop(consumer)
        except TimeoutError:
            logger.warning("group %s: the coordinator does not answer", self.group)
        share.close()

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


class Share(ConsumerRebalanceListener):  # type: ignore[misc]
    """The partitions that the member has; a line on standard error tells each change, unless `quiet` is set.

    From the start of a rebalance until its end, the client has a wait, so that the command tells what it waits for.
    """

    def __init__(self, client: Client, consumer: AIOKafkaConsumer, group: str, quiet: bool) -> None:
        self.partitions: list[TopicPartition] = []
        self.is_assigned = False
        self.printed: dict[TopicPartition, int] = {}
        """The offsets to commit: after the printed records, or where the member began."""
        self._unnoted: list[TopicPartition] = []
        """The partitions whose start is not in `printed` yet."""
        self._waits = client.waits
        self._consumer = consumer
        self._group = group
        self._quiet = quiet
        self._clock = SystemClock()
        self._commit_due = self._clock.now() + COMMIT_INTERVAL_MS
        self._begin_wait()

    async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        """Handle the end of a rebalance; read on after printed records that could not be committed before it."""
        self._waits.end(self._wait)
        self.is_assigned = True
        self.partitions = sorted(TopicPartition(*tp) for tp in assigned)
        for tp, offset in self.printed.items():
            if tp in self.partitions:
                self._consumer.seek(AiokafkaPartition(*tp), offset)
        self.printed = {tp: at for tp, at in self.printed.items() if tp in self.partitions}
        self._unnoted = list(self.partitions)
        self._tell("assigned")

    async def _note_positions(self) -> None:
        """Add where the member began in partitions without a printed record to the offsets to commit.

        With `-o end`, the next member continues there. aiokafka may have to ask a leader for the position.
        """
        with suppress(IllegalStateError, TimeoutError):
            async with asyncio.timeout(COMMIT_SECONDS):
                while self._unnoted:
                    tp = self._unnoted[-1]
                    if tp not in self.printed:
                        self.printed[tp] = await self._consumer.position(AiokafkaPartition(*tp))
                    self._unnoted.pop()

    async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        """Handle the start of a rebalance."""
        await self.commit()
        self.close()
        self._begin_wait()

    async def commit_if_due(self) -> None:
        """Commit the printed records every COMMIT_INTERVAL_MS."""
        if self._clock.now() >= self._commit_due:
            await self.commit()

    async def commit(self) -> None:
        """Commit the printed records. A failure is only logged.

        The records stay uncommitted if the subscribed topics have just changed: aiokafka then refuses commits.
        """
        self._commit_due = self._clock.now() + COMMIT_INTERVAL_MS
        await self._note_positions()
        offsets = dict(self.printed)
        if not offsets:
            return
        try:
            async with asyncio.timeout(COMMIT_SECONDS):
                await self._consumer.commit(
                    {AiokafkaPartition(*tp): at for tp, at in offsets.items()}
                )
        except IllegalStateError:
            return
        except (AiokafkaError, TimeoutError) as error:
            logger.warning("group %s: commit failed: %s", self._group, error or "no answer")
        self.printed = {tp: at for tp, at in self.printed.items() if offsets.get(tp) != at}

    def close(self) -> None:
        """Give up all partitions."""
        self._waits.end(self._wait)
        self._tell("gave up")
        self.is_assigned = False
        self.partitions = []
        self._unnoted = []

    def _begin_wait(self) -> None:
        about = f"the rebalance of group {self._group}"
        self._wait = self._waits.begin(about, self._clock.now())

    def _tell(self, what: str) -> None:
        if self.partitions and not self._quiet:
            echo(f"% Group {self._group}: {what} {', '.join(map(str, self.partitions))}", err=True)


class End:
    """The end offsets that the assigned partitions had when they were assigned."""

    def __init__(self, client: Client, consumer: AIOKafkaConsumer, share: Share) -> None:
        self._client = client
        self._consumer = consumer
        self._share = share
        self._ends: dict[TopicPartition, int] = {}

    async def is_reached(self) -> bool:
        """True if the member has its assignment, and has read each partition up to the recorded end offset."""
        if not self._share.is_assigned:
            return False
        assigned = self._share.partitions
        new = {tp: LATEST for tp in assigned if tp not in self._ends}
        if new:
            self._ends |= await self._client.log_offsets(new)
        try:
            async with asyncio.timeout(END_CHECK_SECONDS):
                for tp in assigned:
                    if await self._consumer.position(tp) < self._ends[tp]:
                        return False
        except (
            IllegalStateError,
            TimeoutError,
        ):  # a rebalance has begun, or a position needs a leader
            return False
        return self._share.is_assigned


async def _stop(consumer: AIOKafkaConsumer) -> None:
    """Leave the group and close all connections.

    If aiokafka is about to retry a fetch from a dead broker, its `stop` leaves the group, but then raises
    CancelledError instead of closing the connections.
    """
    task = asyncio.current_task()
    assert task is not None
    cancelled = task.cancelling()
    try:
        await consumer.stop()
    except asyncio.CancelledError:
        if task.cancelling() > cancelled:
            raise
        await consumer._client.close()


def _consumed(record: Any) -> ConsumedRecord:
    return ConsumedRecord(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp,
        record.key,
        record.value,
        record.headers,
        record.timestamp_type == LOG_APPEND_TIME,
    )


def _translated(error: AiokafkaError, about: str) -> MinikafkaError:
    """Return a MinikafkaError with the code or text of an error of aiokafka."""
    if isinstance(error, BrokerResponseError):
        return AnsweredError(error_code(error.errno), about)
    if error.retriable:
        return KafkaError(ErrorCode.NETWORK_EXCEPTION, f"{about}: {error}")
    return MinikafkaError(f"{about}: {error}")
