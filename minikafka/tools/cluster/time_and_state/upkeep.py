"""What only time would do, at once: compaction, retention, the expiry of offsets, and a later wall clock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.base.names import GROUP_TOPIC
from minikafka.broker.rpc import time_calls
from minikafka.broker.rpc.time_calls import ADVANCED_MAX_MS, Demand, Due, PartitionGone
from minikafka.tools.cluster.directory import ClusterError, ClusterRecord
from minikafka.tools.cluster.launch.launcher import POLL_MS
from minikafka.tools.cluster.lifecycle import OwnedCluster
from minikafka.tools.cluster.observation.observed import SHOWN_MAX, WAIT_MS
from minikafka.tools.cluster.observation.state import ClusterState, ObservedPartition
from minikafka.tools.cluster.time_and_state.durations import milliseconds
from minikafka.tools.cluster.time_and_state.removals import (
    ClockAdvance,
    GroupExpiry,
    Removed,
    TopicRemoval,
)

_MORE_MS: Final = 5_000
"""Time for a broker to answer after the time limit of its work."""
_NOT_COORDINATOR: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
_GROUP_ERRORS: Final = {
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no group {}",
    ErrorCode.NON_EMPTY_GROUP: "group {} has members, so its offsets do not expire: stop its consumers first",
}


class MaintainedCluster(OwnedCluster):
    """The methods of LocalCluster that do at once what only time would do."""

    async def compact(self, topic: str, timeout_ms: int = WAIT_MS) -> TopicRemoval:
        """Compact every log of a topic up to a new active segment; return what went.

        Of the records acknowledged before the call, only the latest value of each key is left. `min.compaction.lag.ms`
        and `min.cleanable.dirty.ratio` do not matter, `delete.retention.ms` does. Raises ClusterError if a log of the
        topic cannot be compacted, for example on a broker that is down; the others are compacted then.
        """
        return await self._on_replicas(time_calls.COMPACT, "compacted", topic, timeout_ms)

    async def expire(self, topic: str, timeout_ms: int = WAIT_MS) -> TopicRemoval:
        """Apply retention to every log of a topic now; return what went.

        Raises ClusterError as `compact` does.
        """
        return await self._on_replicas(
            time_calls.EXPIRE, "checked for retention", topic, timeout_ms
        )

    async def _on_replicas(
        self, method: str, done: str, topic: str, timeout_ms: int
    ) -> TopicRemoval:
        views = await self._partitions_of(topic, timeout_ms)
        ends = {tp: view.log_end_offset or 0 for tp, view in views.items()}
        hosts = {broker for view in views.values() for broker in view.replicas}
        able = hosts.intersection(self._running.answering_ids(self.record))
        body = time_calls.encode_asked(Demand(ends, timeout_ms))
        answers = await self.ask(method, body, timeout_ms + _MORE_MS, sorted(able))
        rows: list[tuple[int, PartitionGone]] = []
        failures = self._absent(hosts - able)
        for broker, answer in answers.items():
            if isinstance(answer, Exception):
                failures.append(_refusal(broker, method, answer))
            else:
                rows += [(broker, row) for row in time_calls.decode_gone(answer)]
        failures += _failures(rows, ends if method == time_calls.COMPACT else {})
        if failures:
            shown = "; ".join(failures[:SHOWN_MAX])
            raise ClusterError(f"not every replica of {topic} was {done}: {shown}")
        return _removal(topic, rows, views)

    async def _partitions_of(
        self, topic: str, timeout_ms: int
    ) -> Mapping[TopicPartition, ObservedPartition]:
        """Return the partitions of a topic, each with a leader. Raises ClusterError."""
        if not any(tp.topic == topic for tp in (await self.state()).partitions):
            if not await self._brokers_know(TopicPartition(topic, 0)):
                raise ClusterError(f"there is no topic {topic}", f"minikafka topics create {topic}")
            await self.leader_of(topic, 0, timeout_ms)
        failure = f"not every partition of {topic} got a leader"
        state = await self._wait_for(lambda seen: _is_led(seen, topic), failure, timeout_ms)
        found = {tp: view for tp, view in state.partitions.items() if tp.topic == topic}
        for tp, view in sorted(found.items()):
            if not view.is_available:
                raise ClusterError(f"{tp} has no leader", f"minikafka why {tp}")
        return found

    def _absent(self, brokers: Collection[int]) -> list[str]:
        running = self._running.running_ids(self.record)
        return [
            f"broker {id_} is {'paused' if id_ in running else 'down'}" for id_ in sorted(brokers)
        ]

    async def expire_group(self, group: str, timeout_ms: int = WAIT_MS) -> GroupExpiry:
        """Let all committed offsets of a group without members expire now; return them.

        Offsets in open transactions stay. Raises ClusterError if there is no such group, or if it has members.
        """
        deadline = self._clock.now() + timeout_ms
        while True:
            body = time_calls.encode_group(group)
            answers = await self.ask(time_calls.EXPIRE_GROUP, body, timeout_ms)
            loading = False
            for broker, answer in answers.items():
                if not isinstance(answer, Exception):
                    return GroupExpiry(group, time_calls.decode_offsets(answer))
                code = answer.code if isinstance(answer, KafkaError) else ErrorCode.NONE
                if code not in _NOT_COORDINATOR:
                    text = _GROUP_ERRORS.get(code, "").format(group)
                    raise ClusterError(text or _refusal(broker, time_calls.EXPIRE_GROUP, answer))
                loading = loading or code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            if not loading or self._clock.now() >= deadline:
                ids = {broker.id for broker in self.record.brokers}
                absent = self._absent(ids - answers.keys())
                if not absent and not await self._brokers_know(TopicPartition(GROUP_TOPIC, 0)):
                    raise ClusterError(_GROUP_ERRORS[ErrorCode.GROUP_ID_NOT_FOUND].format(group))
                why = "; ".join(absent) or "its coordinator moves"
                raise ClusterError(f"no broker that answers coordinates group {group}: {why}")
            await self._clock.sleep(POLL_MS)

    async def advance_clock(
        self, duration: timedelta | str, timeout_ms: int = WAIT_MS
    ) -> ClockAdvance:
        """Move the wall time of all brokers ahead, for example by '8d'; return what became due, when it is done.

        Retention, compaction lags, the expiry of offsets, transactional ids, producer ids and delegation tokens follow.
        Sessions, leases and timeouts do not. Brokers that start later follow too. Raises ClusterError for a paused
        broker, and moves nothing then.
        """
        added = milliseconds(duration)
        self._check_none_paused()
        await self._wait_for(_is_led, "not every partition got a leader", timeout_ms)
        async with self.directory.locked(self._clock):
            total = self._advance_record(added).advanced_ms
            body = time_calls.encode_advance(total)
            answers = await self.ask(time_calls.ADVANCE_CLOCK, body, timeout_ms)
        failures = [
            _refusal(broker, time_calls.ADVANCE_CLOCK, answer)
            for broker, answer in answers.items()
            if isinstance(answer, Exception)
        ]
        if failures:
            raise ClusterError(f"the clock did not advance everywhere: {'; '.join(failures)}")
        dues = [time_calls.decode_due(one) for one in answers.values() if isinstance(one, Mapping)]
        return _advance(total, dues)

    def _check_none_paused(self) -> None:
        record = self.record
        running = set(self._running.running_ids(record))
        if paused := running.difference(self._running.answering_ids(record)):
            names = "; ".join(self._absent(paused))
            raise ClusterError(f"the clock cannot advance while {names}: resume it first")

    def _advance_record(self, added: int) -> ClusterRecord:
        """Store how far ahead the clocks are, for brokers that start later; return the new record."""
        self._check_none_paused()
        record = self.record
        total = record.advanced_ms + added
        if total > ADVANCED_MAX_MS:
            ahead = timedelta(milliseconds=record.advanced_ms)
            raise ClusterError(f"the clock is {ahead} ahead already, and can be 36500 days ahead")
        changed = replace(record, advanced_ms=total)
        self.directory.write(changed)
        return changed


def _is_led(state: ClusterState, topic: str | None = None) -> bool:
    """True if each partition of a topic (None: of all) has a leader, or can have none."""
    return all(
        view.is_available or not state.answers.keys() & set(view.isr)
        for tp, view in state.partitions.items()
        if topic in (None, tp.topic)
    )


def _refusal(broker: int, method: str, error: Exception) -> str:
    if isinstance(error, KafkaError) and "unknown control-plane method" in error.detail:
        return f"broker {broker} is of an older release, which has no {method}: upgrade it"
    return f"broker {broker}: {error or type(error).__name__}"


def _failures(
    rows: Iterable[tuple[int, PartitionGone]], ends: Mapping[TopicPartition, int]
) -> list[str]:
    """Return why replicas are not as wanted, each reason once. `ends`: offsets up to which to be compacted."""
    found = defaultdict[str, list[str]](list)
    for broker, row in rows:
        reason = row.failure
        if not reason and row.end_offset < ends.get(row.tp, -1):
            reason = f"an open transaction keeps the records from offset {row.end_offset} on"
        if reason:
            found[reason].append(f"{row.tp} on broker {broker}")
    return [
        f"{', '.join(names[:SHOWN_MAX])}{', ...' if len(names) > SHOWN_MAX else ''}: {reason}"
        for reason, names in found.items()
    ]


def _removal(
    topic: str,
    rows: Iterable[tuple[int, PartitionGone]],
    views: Mapping[TopicPartition, ObservedPartition],
) -> TopicRemoval:
    replicas = {
        (row.tp.partition, broker): Removed(row.records, row.size)
        for broker, row in sorted(rows, key=lambda item: (item[1].tp, item[0]))
    }
    leaders = {
        partition: gone
        for (partition, broker), gone in replicas.items()
        if views[TopicPartition(topic, partition)].leader == broker
    }
    return TopicRemoval(topic, leaders, replicas)


def _advance(total: int, dues: Iterable[Due]) -> ClockAdvance:
    found: dict[str, Any] = {"retained": {}, "compacted": {}}
    offsets = defaultdict[str, list[TopicPartition]](list)
    ids, tokens, producers = list[str](), list[str](), 0
    for due in dues:
        for name, rows in (("retained", due.retained), ("compacted", due.compacted)):
            for row in rows:
                gone = Removed(row.records, row.size)
                found[name][row.tp] = max(gone, found[name].get(row.tp, gone))
        for group, tp in due.offsets:
            offsets[group].append(tp)
        ids += due.transactional_ids
        tokens += due.tokens
        producers += due.producers
    return ClockAdvance(
        total,
        found["retained"],
        found["compacted"],
        {group: tuple(sorted(tps)) for group, tps in sorted(offsets.items())},
        tuple(sorted(ids)),
        tuple(sorted(tokens)),
        producers,
    )
