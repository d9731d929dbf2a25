"""What a test does with a Kafka besides its own clients: topics, names, records, and waits for groups."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from minikafka.base.model import TopicPartition
from minikafka.client import ConsumedRecord, NewTopic, Produced
from minikafka.client.administration.group_admin import GroupDescription
from minikafka.client.log_offsets import EARLIEST, LATEST, READ_COMMITTED
from minikafka.testing.names import unique_name
from minikafka.testing.server import Server
from minikafka.testing.values import Headers, Text, Value, shown, to_records
from minikafka.tools.cluster import ClusterError, LocalCluster

if TYPE_CHECKING:
    _Verbs = LocalCluster
else:
    _Verbs = object

TIMEOUT_MS: Final = 15_000
"""How long the waits of the kit wait unless told otherwise."""
POLL_MS: Final = 20
COUNTED_MAX: Final = 10_000
"""Lag up to which `wait_for_lag` counts records instead of offsets."""


class WaitTimeout(ClusterError, TimeoutError):
    """A wait of the kit has ended without success; the text says what was found instead."""


class AsyncMinikafka(_Verbs):
    """A Kafka with what tests need, for coroutines: `await` each method that is not marked otherwise.

    It also has every method of LocalCluster, such as `kill`, unless it is another Kafka. Methods raise ClusterError and
    KafkaError. `label`: the beginning of names of topics, groups and transactional ids.
    """

    def __init__(self, server: Server, label: str) -> None:
        self._server = server
        self._label = label
        self.topics: list[str] = []
        """The topics that `topic` has created and not deleted."""
        self.groups: list[str] = []
        """The names that `group` has returned."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(LocalCluster, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._server.verbs(name), name)

    @property
    def bootstrap(self) -> str:
        """The bootstrap servers, host:port of every broker. No await."""
        return self._server.bootstrap

    def group(self, name: str = "") -> str:
        """Return the name of a consumer group that no other test uses. No await. `name`: how it begins."""
        self.groups.append(self._unique(name))
        return self.groups[-1]

    def transactional_id(self, name: str = "") -> str:
        """Return a transactional id that no other test uses. No await. `name`: how it begins."""
        return self._unique(name)

    def _unique(self, name: str) -> str:
        return unique_name(name or self._label, self._server.rng)

    async def topic(
        self,
        name: str = "",
        *,
        partitions: int = 1,
        replication: int | None = None,
        config: Mapping[str, object] | None = None,
    ) -> str:
        """Create a topic, and return its name, which no other test uses. Every broker knows the topic then.

        `name`: how the name begins. `replication`: the number of replicas (default: 3, or one per broker of a smaller
        cluster). `config`: Kafka's settings of the topic. The topic is deleted after the test.
        """
        topic = self._unique(name)
        count = self._server.replicas() if replication is None else replication
        settings = {key: _setting(value) for key, value in (config or {}).items()}
        await self._server.client().create_topics(NewTopic(topic, partitions, count, settings))
        self.topics.append(topic)
        await self._server.wait_until_known(topic)
        return topic

    async def produce(
        self,
        topic: str,
        *values: Value | list[Value],
        key: Text = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> list[Produced]:
        """Append records with acks=all, and return the partition and offset of each.

        Each of `values` is bytes, a str, None (a tombstone), a pair (key, value), or a `minikafka.client.Record`; or a
        list of these. `key`, `headers` and `timestamp` (Unix ms) are for values without their own. `partition`: None
        for the partition of the key.
        """
        records = to_records(values, key, headers, timestamp)
        return await self._server.client().produce(topic, records, partition=partition)

    async def records(
        self,
        topic: str,
        count: int | None = None,
        *,
        read_committed: bool = False,
        timeout_ms: int = TIMEOUT_MS,
    ) -> list[ConsumedRecord]:
        """Wait until the topic has `count` records, and return the first `count`, sorted by partition and offset.

        `count` None: return all records that the topic has now. `read_committed`: without records of open and aborted
        transactions. Raises WaitTimeout, which says what came.
        """
        found: list[ConsumedRecord] = []
        positions: dict[TopicPartition, int] = {}

        async def is_done() -> bool:
            await self._read(topic, positions, found, count, read_committed)
            return count is None or len(found) >= count

        def missing() -> str:
            if not positions:
                return f"topic {topic!r} does not exist"
            return f"topic {topic} had {len(found)} of {count} records{shown(found)}"

        await self._wait(is_done, missing, timeout_ms)
        return sorted(found, key=lambda record: (record.partition, record.offset))

    async def _read(
        self,
        topic: str,
        positions: dict[TopicPartition, int],
        found: list[ConsumedRecord],
        count: int | None,
        read_committed: bool,
    ) -> None:
        """Append records to `found` until there are `count`, or up to the ends of the logs; move `positions`."""
        client = self._server.client(read_committed=read_committed)
        for tp in await self._partitions(topic):
            positions.setdefault(tp, EARLIEST)
        if not positions:
            return
        ends = await client.log_offsets(dict.fromkeys(positions, LATEST))
        reader = client.partition_reader()
        async for record in reader.read(positions, ends):
            found.append(record)
            if len(found) == count:
                return
        positions.update(reader.positions)

    async def _partitions(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic; [] if it does not exist."""
        _, topics = await self._server.client().admin.describe([topic])
        return [
            TopicPartition(topic, number) for info in topics for number in sorted(info.partitions)
        ]

    async def leader(self, topic: str, partition: int = 0, *, timeout_ms: int = TIMEOUT_MS) -> int:
        """Return the id of the broker that leads the partition; wait while there is no leader."""
        if self._server.cluster is not None:
            return await self._server.cluster.leader_of(topic, partition, timeout_ms)
        found = -1

        async def is_led() -> bool:
            nonlocal found
            [info] = await self._server.client().describe_topics(topic)
            if partition not in info.partitions:
                raise ClusterError(f"there is no partition {TopicPartition(topic, partition)}")
            found = info.partitions[partition].leader
            return found >= 0

        await self._wait(is_led, lambda: f"{topic}-{partition} had no leader", timeout_ms)
        return found

    async def wait_for_group(
        self, group: str, members: int = 1, *, timeout_ms: int = TIMEOUT_MS
    ) -> GroupDescription:
        """Wait until the group is stable, with this number of members and their partitions assigned; return it.

        `members` 0: wait until the group has no members. Raises WaitTimeout, which says how the group was.
        """
        found: list[GroupDescription] = []

        async def is_so() -> bool:
            found[:] = (await self._server.client().groups.describe([group])).values()
            is_stable = found[0].state == "Stable" if members else True
            return is_stable and len(found[0].members) == members

        def how() -> str:
            if not found:
                return f"the coordinator of group {group} did not answer"
            names = ", ".join(member.id for member in found[0].members) or "none"
            text = f"group {group} was {found[0].state} with {len(found[0].members)}"
            return f"{text} of {members} members ({names})"

        await self._wait(is_so, how, timeout_ms)
        return found[0]

    async def wait_for_lag(
        self, group: str, topic: str, lag: int = 0, *, timeout_ms: int = TIMEOUT_MS
    ) -> None:
        """Wait until the group has committed all records of the topic except at most `lag` of them.

        Offsets without a record, such as the end of a transaction, do not count. Raises WaitTimeout, which says what
        the group has committed.
        """
        lags: dict[TopicPartition, tuple[int, int]] = {}

        async def is_low() -> bool:
            lags.clear()
            lags.update(await self._lags(group, topic))
            behind = {tp: span for tp, span in lags.items() if span[0] < span[1]}
            total = sum(end - at for at, end in behind.values())
            if lag < total <= COUNTED_MAX:
                total = await self._count(behind)
            return bool(lags) and total <= lag

        def how() -> str:
            if not lags:
                return f"topic {topic!r} does not exist"
            rows = [f"\n  {tp}: committed {at}, end {end}" for tp, (at, end) in lags.items()]
            return f"group {group} was behind{''.join(rows)}"

        await self._wait(is_low, how, timeout_ms)

    async def _lags(self, group: str, topic: str) -> dict[TopicPartition, tuple[int, int]]:
        """Return the committed offset (else the start) and the end of each partition."""
        client = self._server.client()
        partitions = await self._partitions(topic)
        starts = await client.log_offsets(dict.fromkeys(partitions, EARLIEST))
        ends = await client.log_offsets(dict.fromkeys(partitions, LATEST))
        committed = await client.groups.offsets(group, partitions) if partitions else {}
        return {
            tp: (max(committed[tp].offset, starts[tp]) if tp in committed else starts[tp], ends[tp])
            for tp in partitions
        }

    async def _count(self, spans: Mapping[TopicPartition, tuple[int, int]]) -> int:
        """Return the number of records between these offsets."""
        client = self._server.client(read_committed=True)
        stable = await client.log_offsets(dict.fromkeys(spans, LATEST))
        reader = client.partition_reader(isolation_level=READ_COMMITTED)
        ends = {tp: min(end, stable[tp]) for tp, (_, end) in spans.items()}
        starts = {tp: min(at, ends[tp]) for tp, (at, _) in spans.items()}
        open_ = sum(end - stable[tp] for tp, (_, end) in spans.items() if stable[tp] < end)
        return open_ + len([record async for record in reader.read(starts, ends)])

    async def _wait(
        self, condition: Callable[[], Awaitable[bool]], how: Callable[[], str], timeout_ms: int
    ) -> None:
        """Poll until `condition` is true. Raises WaitTimeout with the text of `how`."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while not await condition():
                    await self._server.clock.sleep(POLL_MS)
        except TimeoutError:
            head, _, rows = how().partition("\n")
            text = f"{head} after {timeout_ms / 1000:g} s"
            raise WaitTimeout(f"{text}:\n{rows}" if rows else text) from None


def _setting(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
