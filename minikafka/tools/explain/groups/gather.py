"""Collection of a `GroupEvidence` from running brokers, the group's commits, and the ledgers of all brokers.

Invariant: the module writes nothing, and no step waits longer than the time limit of one call.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Final

from minikafka.base.errors import KafkaError
from minikafka.base.model import NO_LEADER, TopicPartition
from minikafka.base.names import GROUP_TOPIC
from minikafka.base.ports import Clock
from minikafka.broker.rpc.messages import EXPLAIN_GROUP, STATE
from minikafka.client import Client
from minikafka.client.log_offsets import LATEST, READ_COMMITTED
from minikafka.deciders.groups.records import OffsetKey, read_key, read_offset
from minikafka.tools.cluster.observation.state import ObservedPartition, combine
from minikafka.tools.explain.evidence import Answer
from minikafka.tools.explain.gather import Sources
from minikafka.tools.explain.groups.evidence import (
    QUIET_MS,
    SAMPLES,
    WINDOW_MS,
    Commit,
    GroupEvidence,
    Lag,
    end_at,
    past_lags,
    sample_times,
)
from minikafka.tools.explain.groups.history import HistoryEntry, history

TIMEOUT_MS: Final = 3_000
"""Maximum time for reading the lags, and delivery timeout of the client."""
_AWAY_MAX: Final = 20
"""Maximum number of partitions without an answering leader whose evidence are collected."""
_HELD_MAX: Final = 20
"""Maximum number of partitions with open transactions that are examined."""
_LAGS_MAX: Final = 100
"""Maximum number of partitions whose earlier lags are read. Those with the largest lags are chosen."""
_RECORDS_MAX: Final = 200_000
"""Maximum number of records, of any group, that are read from a partition of `__consumer_offsets`."""


async def gather_group(sources: Sources, group: str) -> GroupEvidence:
    """Collect and return all data about the group. Raises ClusterError if there is no cluster."""
    servers, connector = sources.access()
    causes = await sources.causes()
    async with Client(servers, connector=connector, delivery_timeout_ms=TIMEOUT_MS) as client:
        return replace(await collect(sources, group, client, sources.clock), causes=causes)


async def collect(sources: Sources, group: str, client: Client, clock: Clock) -> GroupEvidence:
    """Collect and return all data about the group, except the causes."""
    began = clock.wall_ms()
    answers = await sources.ask(EXPLAIN_GROUP, {"group": group})
    past = history(await sources.group_lines(group))
    known = GroupEvidence(group, began, answers, past)
    if known.coordinator is not None:
        # The times in its report and in its ledger are of its own clock.
        known = replace(known, wall_ms=answers[known.coordinator]["time"])
    report = known.report
    number = known.partition if known.partition is not None else _last_partition(past)
    home = None
    if number is not None and (report is None or report["is_writing"] or report["unstable"]):
        home = await sources.partition(TopicPartition(GROUP_TOPIC, number))
    if report is None or known.coordinator is None or number is None:
        return replace(known, home=home)
    leaders = {
        TopicPartition(topic, p): leader
        for topic, p, leader in answers[known.coordinator]["leaders"]
    }
    away = [tp for tp, leader in leaders.items() if leader == NO_LEADER or leader not in answers]
    evidence = {tp: await sources.partition(tp) for tp in away[:_AWAY_MAX]}
    offsets = OffsetsReader(client, group, number, known.wall_ms)
    lags = await offsets.lags(report, leaders.keys() - set(away))
    views = combine(await sources.ask(STATE, {})).partitions
    reads = {tp: views[tp] for tp in leaders if tp in views and tp not in away}
    known = replace(known, home=home, away=evidence, lags=lags)
    done = await offsets.without_records(known, reads)
    held = [tp for tp in done if is_held_back(reads[tp])]
    examined = {tp: await sources.partition(tp) for tp in held[:_HELD_MAX]}
    finished = [tp for tp in done if tp not in held]
    return replace(known, held={tp: examined.get(tp) for tp in held}, finished=finished)


def is_held_back(view: ObservedPartition) -> bool:
    """True if open transactions hold back the last stable offset of a partition."""
    stable, end = view.last_stable_offset, view.high_watermark
    return stable is not None and end is not None and stable < end


def _last_partition(past: Iterable[HistoryEntry]) -> int | None:
    """Return the group's partition of `__consumer_offsets`, from the newest ledger line with this field.

    Return None if no line has the field.
    """
    lines = [line for entry in past for line in entry.lines]
    return next((line["partition"] for line in reversed(lines) if "partition" in line), None)


def _commits_in(value: bytes | None) -> list[Commit]:
    """Return a list with the commit in a record's value; [] for a tombstone."""
    if value is None:
        return []
    found = read_offset(value)
    return [Commit(found.commit_timestamp, found.offset)]


class OffsetsReader:
    """A reader of the lags of one group, from the group's commits and the log end offsets of its partitions."""

    def __init__(self, client: Client, group: str, number: int, wall_ms: int) -> None:
        self._client = client
        self._group = group
        self._number = number
        """Number of the partition of `__consumer_offsets` that holds the group."""
        self._now = wall_ms

    async def lags(self, report: Answer, readable: Collection[TopicPartition]) -> list[Lag] | None:
        """Return the lag of each partition in `readable` for which the group has committed an offset.

        Return None after an error or timeout.
        """
        try:
            async with asyncio.timeout(TIMEOUT_MS / 1000):
                return await self._lags(report, readable)
        except (KafkaError, OSError, TimeoutError):
            return None

    async def _lags(self, report: Answer, readable: Collection[TopicPartition]) -> list[Lag]:
        committed = {
            tp: Commit(time, offset)
            for topic, number, offset, time in report["offsets"]
            if (tp := TopicPartition(topic, number)) in readable
        }
        ends = await self._offsets(committed, LATEST)
        behind = [tp for tp in ends if ends[tp] > committed[tp].offset]
        behind.sort(key=lambda tp: committed[tp].offset - ends[tp])
        behind = behind[:_LAGS_MAX]
        former = await self._offsets(behind, self._now - QUIET_MS)
        commits = await self._commits(set(behind)) if behind else {}
        past = await self._past_ends(commits)
        return [
            Lag(
                tp,
                offset,
                time,
                ends[tp],
                end_at(former[tp], ends[tp]) if tp in former else offset,
                self._now,
                past_lags(commits.get(tp, ()), past.get(tp, {}), ends[tp]),
            )
            for tp, (time, offset) in committed.items()
            if tp in ends
        ]

    async def without_records(
        self, known: GroupEvidence, reads: Mapping[TopicPartition, ObservedPartition]
    ) -> list[TopicPartition]:
        """Return the partitions that have no further record for members that read with read_committed.

        `reads`: the partitions that the group reads. Those without an open transaction are examined only if their lag
        is stuck. A partition without a committed offset counts if a transaction is open and a member is assigned to it.
        """
        stuck = {lag.tp for lag in known.lags or () if lag.is_stuck}
        found = []
        with suppress(TimeoutError):
            async with asyncio.timeout(TIMEOUT_MS / 1000):
                for tp, view in reads.items():
                    if is_held_back(view) or tp in stuck:
                        offset, stable = known.committed(tp), view.last_stable_offset or 0
                        if offset is None:
                            is_done = known.owner(tp) is not None
                        else:
                            is_done = offset >= stable or await self._is_empty(tp, offset, stable)
                        if is_done:
                            found.append(tp)
        return found

    async def _is_empty(self, tp: TopicPartition, start: int, end: int) -> bool:
        """True if a read_committed consumer gets no record in this range, which may hold markers and aborted records.

        False after an error.
        """
        reader = self._client.partition_reader(0, isolation_level=READ_COMMITTED)
        try:
            async with aclosing(reader.read({tp: start}, {tp: end})) as records:
                return await anext(records, None) is None
        except (KafkaError, OSError):
            return False

    async def _offsets(
        self, partitions: Iterable[TopicPartition], at: int
    ) -> dict[TopicPartition, int]:
        """Return the offset of each partition at a timestamp. `at`: Unix ms, or LATEST (see `LogOffsets`)."""
        wanted = dict.fromkeys(partitions, at)
        return await self._client.log_offsets(wanted) if wanted else {}

    async def _commits(
        self, wanted: Collection[TopicPartition]
    ) -> dict[TopicPartition, list[Commit]]:
        """Return the group's commits of the last WINDOW_MS by partition, oldest first.

        Only commits for the partitions in `wanted` are returned.
        """
        home = TopicPartition(GROUP_TOPIC, self._number)
        start = (await self._offsets([home], self._now - WINDOW_MS))[home]
        end = (await self._offsets([home], LATEST))[home]
        found: defaultdict[TopicPartition, list[Commit]] = defaultdict(list)
        if start < 0 or start >= end:
            return found
        first = max(start, end - _RECORDS_MAX)
        async for record in self._client.consume(
            GROUP_TOPIC, start={self._number: first}, until_end={self._number: end}
        ):
            with suppress(ValueError):  # skip records that are not readable
                key = read_key(record.key or b"")
                if isinstance(key, OffsetKey) and key.group == self._group and key.tp in wanted:
                    found[key.tp] += _commits_in(record.value)
        return found

    async def _past_ends(
        self, commits: Mapping[TopicPartition, list[Commit]]
    ) -> dict[TopicPartition, dict[int, int]]:
        """Return the offset of the first record at or after each sample time, by partition and sample time."""
        found: defaultdict[TopicPartition, dict[int, int]] = defaultdict(dict)
        times = sample_times(commits)
        for number in range(SAMPLES):
            wanted = {
                tp: times[tp.topic][number] for tp in commits if number < len(times[tp.topic])
            }
            if wanted:
                for tp, offset in (await self._client.log_offsets(wanted)).items():
                    found[tp][wanted[tp]] = offset
        return found
