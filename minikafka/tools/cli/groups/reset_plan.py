"""`groups reset-offsets`: compute the new offsets from logs and committed offsets, and commit them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.client import Client
from minikafka.client.log_offsets import EARLIEST, LATEST
from minikafka.runtime.clock import SystemClock
from minikafka.tools.cli.groups.offset_resets import (
    Plan,
    Scenario,
    TopicScope,
    clamped,
    read_csv,
    unknown_partitions,
)
from minikafka.tools.cli.terminal.topic_errors import unknown_topics

INACTIVE = ("Empty", "Dead")
"""States in which a group has no members; a group that does not exist is Dead."""


class Reset:
    """The computation of the new offsets of groups.

    `warn`: called with a text for each group that is left out, and for each offset that is outside of the log.
    """

    def __init__(
        self,
        client: Client,
        scenario: Scenario,
        scopes: Sequence[TopicScope],
        groups: Sequence[str],
        warn: Callable[[str], None],
    ) -> None:
        """`scopes`: the partitions to reset; () for all partitions with a committed offset."""
        self._client = client
        self._scenario = scenario
        self._scopes = scopes
        self._groups = groups
        self._warn = warn

    async def plan(self) -> tuple[Plan, bool]:
        """Return the new offsets, and False if a group is left out because it has members. Raises KafkaError."""
        described = await self._client.groups.describe(self._groups)
        active = {
            name: found.state for name, found in described.items() if found.state not in INACTIVE
        }
        for name, state in active.items():
            self._warn(
                f"offsets can only be reset if group '{name}' is inactive, but its state is {state}: "
                "stop its consumers first"
            )
        names = [name for name in self._groups if name not in active]
        if self._scenario.name == "from-file":
            data = self._scenario.value.read_bytes()
            given = read_csv(data, names)
            await _require(self._client, {tp for offsets in given.values() for tp in offsets})
            plan = {name: await self._clamp(offsets) for name, offsets in given.items()}
        else:
            scoped = await find_partitions(self._client, self._scopes) if self._scopes else None
            plan = {name: await self._new_offsets(name, scoped) for name in names}
        return {name: dict(sorted(offsets.items())) for name, offsets in plan.items()}, not active

    async def _new_offsets(
        self, group: str, scoped: Sequence[TopicPartition] | None
    ) -> dict[TopicPartition, int]:
        kind, value = self._scenario
        committed: dict[TopicPartition, int] = {}
        if scoped is None or kind in ("to-current", "shift-by"):
            found = await self._client.groups.offsets(group)
            committed = {tp: at.offset for tp, at in found.items()}
        partitions = sorted(committed) if scoped is None else scoped
        match kind:
            case "to-earliest":
                return await self._look_up(partitions, EARLIEST)
            case "to-latest":
                return await self._look_up(partitions, LATEST)
            case "to-offset":
                return await self._clamp(dict.fromkeys(partitions, value))
            case "to-datetime":
                return await self._at_time(partitions, value)
            case "by-duration":
                return await self._at_time(partitions, SystemClock().wall_ms() - value)
            case "shift-by":
                return await self._shift(partitions, committed, value)
        ends = await self._look_up([tp for tp in partitions if tp not in committed], LATEST)
        return {tp: committed.get(tp, ends.get(tp, 0)) for tp in partitions}

    async def _shift(
        self, partitions: Iterable[TopicPartition], committed: Mapping[TopicPartition, int], by: int
    ) -> dict[TopicPartition, int]:
        for tp in partitions:
            if tp not in committed:
                detail = f"{tp} has no committed offset that could be shifted"
                raise KafkaError(ErrorCode.INVALID_REQUEST, detail)
        return await self._clamp({tp: committed[tp] + by for tp in partitions})

    async def _at_time(
        self, partitions: Sequence[TopicPartition], wall_ms: int
    ) -> dict[TopicPartition, int]:
        """Return by partition the offset of the first record at or after a time.

        If all records of a partition are older, the offset is the end of its log.
        """
        found = await self._look_up(partitions, max(0, wall_ms))
        older = [tp for tp, offset in found.items() if offset < 0]
        return found | await self._look_up(older, LATEST)

    async def _look_up(
        self, partitions: Iterable[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, int]:
        wanted = dict.fromkeys(partitions, timestamp)
        return await self._client.log_offsets(wanted) if wanted else {}

    async def _clamp(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        first = await self._look_up(wanted, EARLIEST)
        end = await self._look_up(wanted, LATEST)
        return clamped(wanted, first, end, self._warn)


async def find_partitions(client: Client, scopes: Sequence[TopicScope]) -> list[TopicPartition]:
    """Return the partitions that `scopes` names: all partitions of a topic, or those with the given numbers.

    Raises KafkaError if a topic or partition does not exist.
    """
    existing = await _existing(client, {scope.topic for scope in scopes})
    found = []
    for scope in scopes:
        numbers = scope.numbers or [tp.partition for tp in existing if tp.topic == scope.topic]
        found += [TopicPartition(scope.topic, number) for number in numbers]
    _refuse_unknown(found, existing)
    return sorted(set(found))


async def _require(client: Client, partitions: set[TopicPartition]) -> None:
    existing = await _existing(client, {tp.topic for tp in partitions})
    _refuse_unknown(partitions, existing)


async def _existing(client: Client, topics: set[str]) -> list[TopicPartition]:
    """Return all partitions of these topics. Raises KafkaError if a topic does not exist."""
    _, found = await client.admin.describe(topics)
    missing = topics - {topic.name for topic in found}
    if missing:
        raise unknown_topics(sorted(missing))
    return [TopicPartition(topic.name, number) for topic in found for number in topic.partitions]


def _refuse_unknown(wanted: Iterable[TopicPartition], existing: Iterable[TopicPartition]) -> None:
    unknown = unknown_partitions(wanted, existing)
    if unknown:
        detail = f"{', '.join(map(str, unknown))}: no such partition"
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, detail)


async def apply_plan(client: Client, plan: Plan, warn: Callable[[str], None]) -> bool:
    """Commit the offsets of a plan. If an offset is refused, warn, and return False at the end."""
    succeeded = True
    for group, offsets in plan.items():
        for tp, outcome in (await client.groups.alter_offsets(group, offsets)).items():
            if not outcome.ok:
                warn(
                    f"{outcome.code.name}: offset of {tp} in group {group} was not committed: {outcome.reason}"
                )
                succeeded = False
    return succeeded
