"""`consume --group`: one member of a group that prints the records that it reads.

aiokafka makes the command a member: it joins, sends heartbeats, shares the partitions with the other members and
commits. The project's own client reads the records, as it does for `consume` without a group. All partitions are
therefore paused in aiokafka, which would not return a record with a header whose name is not UTF-8.
The topics are subscribed as a pattern, because aiokafka's requests for named topics create missing topics. aiokafka's
own commits are off, because they are retried forever after a topic is deleted, and no rebalance ends in that time.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from aiokafka import AIOKafkaConsumer
from aiokafka.abc import AbstractTokenProvider, ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import BrokerResponseError, IllegalStateError, InconsistentGroupProtocolError
from aiokafka.errors import KafkaError as AiokafkaError
from aiokafka.structs import TopicPartition as AiokafkaPartition

from minikafka.base.errors import ErrorCode, KafkaError, MinikafkaError
from minikafka.base.meanings import AnsweredError
from minikafka.base.model import TopicPartition
from minikafka.client import Client, ConsumedRecord
from minikafka.client.log_offsets import EARLIEST, LATEST
from minikafka.client.metadata import error_code
from minikafka.client.token_source import TokenSource
from minikafka.runtime.clock import SystemClock
from minikafka.runtime.tasks import TaskRegistry
from minikafka.tools.cli.records.topic_reader import HeldBack
from minikafka.tools.cli.terminal.echo import echo
from minikafka.tools.cli.terminal.topic_errors import require_topics

logger = logging.getLogger(__name__)
AbstractTokenProvider.register(TokenSource)

COMMIT_INTERVAL_SECONDS: Final = 5
COMMIT_SECONDS: Final = 5
"""Time for one commit."""
CLOSE_SECONDS: Final = 10
"""Time for leaving the group."""
SETTINGS: Final[dict[str, Any]] = {
    "session_timeout_ms": 45_000,
    "metadata_max_age_ms": 5_000,  # a topic that is created again is read after this time at the latest
    "exclude_internal_topics": False,
    "enable_auto_commit": False,
}


@dataclass(slots=True)
class GroupReading:
    """The arguments of `consume --group`. If `topics` is empty, the topics that the group has read before are read.

    `left`: the number of records that are still to be printed; None: no limit.
    """

    group: str
    topics: tuple[str, ...]
    start: Literal["earliest", "latest"]
    until_end: bool
    left: int | None
    quiet: bool
    security: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The arguments of aiokafka for TLS and the login."""
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    """If `until_end`: the end offset that each partition had when it was first assigned."""

    async def run(
        self, client: Client, servers: str, show: Callable[[ConsumedRecord], None]
    ) -> None:
        """Call `show` for each record, until `left` is 0 or, if `until_end`, the end is reached.

        Then commit and leave the group. `servers`: the addresses of the brokers. Raises MinikafkaError.
        A group refuses a member if no assignor is common to all members: then the member offers the other assignor.
        aiokafka is given one assignor only, because it sends one JoinGroup for each, and each causes a rebalance.
        """
        # The command tells by itself what it waits for.
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
        topics = await self._topics(client)
        try:
            try:
                await self._read(client, servers, topics, show, RangePartitionAssignor)
            except InconsistentGroupProtocolError:
                await self._read(client, servers, topics, show, RoundRobinPartitionAssignor)
        except AiokafkaError as error:
            raise _translated(error, f"group {self.group}") from error

    async def _read(
        self,
        client: Client,
        servers: str,
        topics: list[str],
        show: Callable[[ConsumedRecord], None],
        assignor: type[Any],
    ) -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=servers,
            client_id="minikafka",
            group_id=self.group,
            partition_assignment_strategy=(assignor,),
            **SETTINGS,
            **self.security,
        )
        member = MemberPartitions(self, client, consumer, show)
        async with _started(consumer, self.group):
            pattern = rf"(?:{'|'.join(map(re.escape, topics))})\Z"
            consumer.subscribe(pattern=pattern, listener=member)
            await member.run()

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


class MemberPartitions(ConsumerRebalanceListener):  # type: ignore[misc]
    """The member's partitions: from the end of a rebalance until the next one, a task prints their records.

    A line on standard error tells each change of the partitions, unless the session is quiet. From the start of a
    rebalance until its end, the client has a wait, so that the command tells what it waits for.
    """

    def __init__(
        self,
        session: GroupReading,
        client: Client,
        consumer: AIOKafkaConsumer,
        show: Callable[[ConsumedRecord], None],
    ) -> None:
        self.partitions: list[TopicPartition] = []
        self._session = session
        self._client = client
        self._consumer = consumer
        self._show = show
        self._reset = EARLIEST if session.start == "earliest" else LATEST
        held = HeldBack(client, quiet=session.quiet)
        self._reader = client.partition_reader(reset=self._reset, on_held=held.report)
        self._committed: dict[TopicPartition, int] = {}
        self._refused: dict[TopicPartition, int] = {}
        """Positions that could not be committed because the subscribed topics had just changed."""
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reading = TaskRegistry()
        self._waits = client.waits
        self._clock = SystemClock()
        self._begin_wait()

    async def run(self) -> None:
        """Wait until all records were printed, and commit every few seconds and at the end.

        Raises the error of the reader, of `show` or of aiokafka.
        """
        watching = TaskRegistry()
        watching.spawn(self._ending(self._watch), "group-watch")
        try:
            while not self._done.done():
                await asyncio.wait([self._done], timeout=COMMIT_INTERVAL_SECONDS)
                await self.commit()
            self._done.result()
        finally:
            self._done.cancel()
            await watching.close()
            await self._reading.close()
            await self.commit()
            self._give_up()

    async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        """Handle the end of a rebalance; do nothing if the command ends already."""
        self._waits.end(self._wait)
        if self._done.done():
            return
        for tp in assigned:  # aiokafka neither fetches nor looks up positions
            self._consumer.pause(tp)
            self._consumer.seek(tp, 0)
        self.partitions = sorted(TopicPartition(*tp) for tp in assigned)
        self._tell("assigned")
        self._reading = TaskRegistry()
        self._reading.spawn(self._ending(self._read), "group-read")

    async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        """Handle the start of a rebalance."""
        await self._reading.close()
        await self.commit()
        self._give_up()
        self._begin_wait()

    async def commit(self) -> None:
        """Commit the positions that have changed. A failure is only logged.

        aiokafka refuses commits if the subscribed topics have just changed: the member then reads on after the
        printed records.
        """
        offsets = {
            tp: at
            for tp, at in self._reader.positions.items()
            if at >= 0 and self._committed.get(tp) != at
        }
        if not offsets:
            return
        try:
            async with asyncio.timeout(COMMIT_SECONDS):
                await self._consumer.commit(
                    {AiokafkaPartition(*tp): at for tp, at in offsets.items()}
                )
            self._committed |= offsets
        except IllegalStateError:
            self._refused = offsets
        except (AiokafkaError, TimeoutError) as error:
            logger.warning("group %s: commit failed: %s", self._session.group, error or "no answer")

    async def _read(self) -> None:
        """Print the records of the partitions, until the session has printed all of its records."""
        session, partitions = self._session, self.partitions
        committed = await self._client.groups.offsets(session.group, partitions)
        self._committed = {tp: at.offset for tp, at in committed.items()}
        positions = dict.fromkeys(partitions, self._reset) | self._committed
        positions |= {tp: at for tp, at in self._refused.items() if tp in positions}
        self._refused = {}
        if session.until_end:
            new = {tp: LATEST for tp in partitions if tp not in session.ends}
            session.ends |= await self._client.log_offsets(new)
        elif not partitions:
            return
        async for record in self._reader.read(
            positions, session.ends if session.until_end else None
        ):
            self._print(record)
            if session.left == 0:
                break
        self._end(None)

    def _print(self, record: ConsumedRecord) -> None:
        """Call `show`. A record that it cannot print is not committed."""
        try:
            self._show(record)
        except BaseException:
            self._reader.positions[TopicPartition(record.topic, record.partition)] = record.offset
            raise
        self._session.left = self._session.left and self._session.left - 1

    async def _watch(self) -> None:
        """Raise the errors of aiokafka's tasks. No record is returned, because all partitions are paused."""
        while True:
            await self._consumer.getone()

    async def _ending(self, work: Callable[[], Awaitable[None]]) -> None:
        """End the session with the error of `work` if it fails."""
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - `run` raises it
            self._end(error)

    def _end(self, error: Exception | None) -> None:
        if self._done.done():
            return
        if error is None:
            self._done.set_result(None)
        else:
            self._done.set_exception(error)

    def _give_up(self) -> None:
        """Give up all partitions."""
        self._waits.end(self._wait)
        self._tell("gave up")
        self.partitions = []
        self._reader.positions = {}

    def _begin_wait(self) -> None:
        about = f"the rebalance of group {self._session.group}"
        self._wait = self._waits.begin(about, self._clock.now())

    def _tell(self, what: str) -> None:
        if self.partitions and not self._session.quiet:
            names = ", ".join(map(str, self.partitions))
            echo(f"% Group {self._session.group}: {what} {names}", err=True)


@asynccontextmanager
async def _started(consumer: AIOKafkaConsumer, group: str) -> AsyncIterator[None]:
    """Start a consumer; at the end, leave the group and close all connections. A failure to leave is only logged."""
    try:
        await consumer.start()
        yield
    finally:
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await consumer.stop()
        except TimeoutError:
            logger.warning("group %s: the coordinator does not answer", group)


def _translated(error: AiokafkaError, about: str) -> MinikafkaError:
    """Return a MinikafkaError with the code or text of an error of aiokafka."""
    if isinstance(error, BrokerResponseError):
        return AnsweredError(error_code(error.errno), about)
    if error.retriable:
        return KafkaError(ErrorCode.NETWORK_EXCEPTION, f"{about}: {error}")
    return MinikafkaError(f"{about}: {error}")
