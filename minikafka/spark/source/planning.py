"""Asks the cluster for the available offsets, and plans the tasks of a batch or micro-batch.

The connections to the brokers are kept for the next planning call, and opened again if they were closed. Each
planning call looks up the partitions, their leaders and the topic ids again, because brokers may stop and topics
may be created again in the meantime.
Invariant: 0 <= start < end <= end of the log at planning time for every range, so a retried task reads the
same records. The end of the log is the high watermark, or the last stable offset with read_committed. A warning
names the open transaction that holds records back from a read_committed query.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Final

from minikafka.base.errors import ConfigError, ErrorCode, KafkaError, ProtocolViolation
from minikafka.base.model import TopicPartition
from minikafka.base.open_transactions import holding
from minikafka.spark import cores
from minikafka.spark.source.bounds import Bound
from minikafka.spark.source.filters import EVERYTHING, Selection
from minikafka.spark.source.options import ReadOptions
from minikafka.spark.source.positions import Positions
from minikafka.spark.source.ranges import (
    OffsetRange,
    Ranges,
    default_tasks,
    grouped,
    report_loss,
    split,
)
from minikafka.spark.wire import producers
from minikafka.spark.wire.deadline import Deadline
from minikafka.spark.wire.kept import kept_client
from minikafka.spark.wire.leaders import LeaderConnections, Position, Unreachable
from minikafka.spark.wire.protocol import EARLIEST, LATEST, Isolation

_LATE_END_S: Final = 5.0
"""Retry for this time if a log seems to end below the offset already read.

A new leader may not know its high watermark yet.
"""


def connect(options: ReadOptions, first: int = 0) -> LeaderConnections:
    """Return a client without connections. The caller must close the client.

    `first`: the index of the server to ask first, modulo the number of servers. With different values, the
    tasks of a job do not all ask the same server first.
    """
    first %= len(options.servers)
    servers = [*options.servers[first:], *options.servers[:first]]
    return LeaderConnections(
        servers,
        options.client_id,
        options.request_timeout_ms / 1000,
        options.isolation,
        options.security,
    )


def kept(options: ReadOptions, first: int = 0) -> AbstractContextManager[LeaderConnections]:
    """Return a context manager of a client that the process keeps, with connections and leaders of its last use.

    `first`: as for `connect`, if the client is new.
    """
    key = (
        options.servers,
        options.client_id,
        options.request_timeout_ms,
        options.isolation,
        options.security,
    )
    return kept_client(key, partial(connect, options, first))


class _Cluster:
    """The client for one planning call, with the options and the deadline of the call."""

    def __init__(self, options: ReadOptions, leaders: LeaderConnections) -> None:
        self.options = options
        self.leaders = leaders
        self.deadline = Deadline(options.planning_timeout_ms / 1000)

    def partitions(self) -> list[TopicPartition]:
        """Return the subscribed partitions, sorted. Wait briefly for topics that were just created."""
        found, missing = self.leaders.find(self._find_partitions, self.deadline)
        if missing:
            raise _unknown(missing, self.options.subscription.option)
        return found

    def _find_partitions(self) -> tuple[list[TopicPartition], list[str]]:
        """Return the subscribed partitions that exist, and the subscribed names that do not exist."""
        subscription = self.options.subscription
        listed = self.leaders.list_topics() if subscription.pattern else ()
        topics = subscription.names(listed)
        if topics:
            self.leaders.refresh(topics)
        found = [tp for tp in self.leaders.partitions(topics) if subscription.selects(tp)]
        if subscription.partitions is not None:
            return found, sorted(map(str, subscription.partitions - set(found)))
        return found, sorted(set(topics) - {tp.topic for tp in found})

    def ends(self, partitions: Sequence[TopicPartition], which: int) -> Positions:
        """Return the start of each log if `which` is EARLIEST, or the end of each log if `which` is LATEST."""
        return self.leaders.list_offsets(dict.fromkeys(partitions, which), self.deadline)

    def resolve(self, bound: Bound, earliest: Positions, latest: Positions) -> Positions:
        """Return the offset of `bound` in each partition; -1 if no record is at or after the time of `bound`."""
        _check_named(bound, latest)
        if bound.by_time:
            wanted = {tp: bound.number(tp) for tp in latest}
            return self.leaders.list_offsets(wanted, self.deadline)
        ends = {EARLIEST: earliest, LATEST: latest}
        numbers = {tp: bound.number(tp) for tp in latest}
        return {
            tp: ends[number][tp] if number in ends else Position(number, -1)
            for tp, number in numbers.items()
        }

    def start(self, earliest: Positions, latest: Positions) -> Positions:
        """Return the start positions of a new query.

        If a starting time is after the last record, `startingOffsetsByTimestampStrategy` decides: `error`
        raises `ConfigError`, and `latest` starts at the partition's end.
        """
        bound = self.options.starting
        found = self.resolve(bound, earliest, latest)
        late = [tp for tp, position in found.items() if position.offset < 0]
        if late and not self.options.missing_time_is_latest:
            raise ConfigError(
                f"option {bound.option}: {late[0]} has no record at or after {bound.number(late[0])};"
                " set startingOffsetsByTimestampStrategy to latest to start at its end"
            )
        return found | {tp: latest[tp] for tp in late}

    def selected_starts(self, selection: Selection, latest: Positions) -> dict[TopicPartition, int]:
        """Return the offset before which no record is selected, in each partition where a time decides this."""
        since_ms = selection.since_ms
        if since_ms is None:
            return {}
        wanted = {tp: since_ms for tp in latest if selection.includes(tp)}
        found = self.leaders.list_offsets(wanted, self.deadline)
        return {tp: at.offset if at.offset >= 0 else latest[tp].offset for tp, at in found.items()}

    def report_loss(self, text: str) -> None:
        report_loss(text, fail=self.options.fail_on_data_loss)

    def inside(self, tp: TopicPartition, offset: int, first: int, last: int) -> int:
        """Return `offset`. If `offset` is outside the log, report a loss and return the nearest valid offset."""
        if last < offset and self.is_committed:
            self._check_committed(tp, offset, last)
        elif not first <= offset <= last:
            self.report_loss(
                f"offset {offset} of {tp} is not in the log, which holds {first} to {last}"
            )
        return min(max(offset, first), last)

    @property
    def is_committed(self) -> bool:
        return self.options.isolation is Isolation.READ_COMMITTED

    def _check_committed(self, tp: TopicPartition, offset: int, stable: int) -> None:
        """Report that an offset is beyond the log, or that it is not committed yet."""
        partitions = {tp: Position(stable, -1)}
        if offset > high_watermarks(self.leaders, partitions, self.deadline)[tp]:
            self.report_loss(f"offset {offset} of {tp} is not in the log, which ends at {stable}")
        else:
            text = reason(self.leaders, tp, stable) or "its transaction has ended just now"
            self.report_loss(f"offset {offset} is not committed: {text}")

    def not_before(self, start: Positions, ends: Positions) -> Positions:
        """Return `start` for the partitions whose records up to there exist, although they are not committed."""
        high = high_watermarks(self.leaders, ends, self.deadline)
        return {
            tp: start[tp]
            for tp, end in ends.items()
            if start[tp].offset <= high[tp] and start[tp].leader_epoch <= end.leader_epoch
        }


@contextmanager
def _asking(options: ReadOptions) -> Iterator[_Cluster]:
    with kept(options) as leaders:
        leaders.forget()
        yield _Cluster(options, leaders)


def _unknown(missing: Sequence[str], option: str) -> KafkaError:
    what = "no such partition" if option == "assign" else "no such topic"
    text = f"{', '.join(missing)}: {what}; correct option {option}, or create it"
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)


def _check_named(bound: Bound, partitions: Mapping[TopicPartition, Position]) -> None:
    """Raise `ConfigError` if `bound` is set by partition, and does not name exactly the existing partitions.

    `bound`: the start or the end of the range to read. Spark's own Kafka source has the same rule.
    """
    if isinstance(bound.numbers, int):
        return
    if missing := [str(tp) for tp in partitions if tp not in bound.numbers]:
        raise ConfigError(
            f"option {bound.option} must name every partition; missing: {', '.join(missing)}"
        )
    if extra := sorted(str(tp) for tp in bound.numbers.keys() - partitions.keys()):
        raise ConfigError(
            f"option {bound.option} names partitions that do not exist: {', '.join(extra)}"
        )


def plan_batch(options: ReadOptions, selection: Selection = EVERYTHING) -> list[OffsetRange]:
    """Return the ranges of a batch read, each at most as large as a task may be.

    Offsets that `selection` excludes are left out.

    Raises `Unreachable`, `DataLost`, `KafkaError`, and also `ConfigError` if the start is after the end or if
    a bound does not match the existing partitions.
    """
    with _asking(options) as cluster:
        inside, latest = _bounds(cluster)
        since = cluster.selected_starts(selection, latest)
    ranges = []
    for found in inside:
        ranges += selection.narrowed(found, since.get(found.tp, 0))
    return split(ranges, options.max_records, options.min_partitions)


def batch_ranges(options: ReadOptions) -> list[tuple[OffsetRange, str]]:
    """Return the range of each partition that a batch would read now, with the topic id. Errors as `plan_batch`."""
    with _asking(options) as cluster:
        inside, latest = _bounds(cluster)
    return [(found, latest[found.tp].topic_id) for found in inside]


def _bounds(cluster: _Cluster) -> tuple[list[OffsetRange], Positions]:
    """Return the range of each partition, and the ends of the logs."""
    options = cluster.options
    partitions = cluster.partitions()
    earliest, latest = (cluster.ends(partitions, which) for which in (EARLIEST, LATEST))
    warn_of_open_transactions(cluster.leaders, latest, cluster.deadline)
    starting = cluster.start(earliest, latest)
    ending = cluster.resolve(options.ending, earliest, latest)
    ranges = []
    for tp in partitions:
        wanted = starting[tp].offset, _end(ending[tp], latest[tp])
        start, end = (
            cluster.inside(tp, offset, earliest[tp].offset, latest[tp].offset) for offset in wanted
        )
        if wanted[0] > wanted[1]:
            raise ConfigError(
                f"option {options.starting.option} puts the start of {tp} at offset {wanted[0]}, beyond its"
                f" end {wanted[1]} by {options.ending.option}: start it at {wanted[1]} or before, or end it later"
            )
        ranges.append(OffsetRange(tp, start, end))
    return ranges, latest


def _end(wanted: Position, latest: Position) -> int:
    """Return the wanted end, or the end of the log if no record is at or after the wanted time."""
    return latest.offset if wanted.offset < 0 else wanted.offset


def tasks(options: ReadOptions, ranges: Sequence[OffsetRange]) -> list[Ranges]:
    """Divide planned ranges among tasks. Asks no broker."""
    most = options.max_tasks or default_tasks(ranges, cores.known())
    return grouped(ranges, max(most, options.min_partitions or 0), options.max_records)


def first_positions(options: ReadOptions) -> Positions:
    """Return the start positions of a new stream. Raises the same errors as `plan_batch`."""
    with _asking(options) as cluster:
        partitions = cluster.partitions()
        earliest, latest = (cluster.ends(partitions, which) for which in (EARLIEST, LATEST))
        found = cluster.start(earliest, latest)
        return {
            tp: latest[tp]._replace(
                offset=cluster.inside(tp, position.offset, earliest[tp].offset, latest[tp].offset)
            )
            for tp, position in found.items()
        }


def is_repeatable(options: ReadOptions) -> bool:
    """True if `first_positions` returns the same positions later, unless the starts of logs have moved."""
    starting = options.starting
    if starting.by_time:
        return not options.missing_time_is_latest
    numbers = starting.numbers
    return LATEST not in ([numbers] if isinstance(numbers, int) else numbers.values())


def latest_positions(options: ReadOptions, start: Positions) -> Positions:
    """Return the ends of the subscribed partitions.

    If a log ends below the partition's offset in `start`, retry for at most `_LATE_END_S`.
    """
    with _asking(options) as cluster:
        partitions = cluster.partitions()
        patience = Deadline(_LATE_END_S)
        while True:
            latest = cluster.ends(partitions, LATEST)
            late = [tp for tp in latest if tp in start and _ends_before(latest[tp], start[tp])]
            if late and cluster.is_committed:
                # The stable part may end below offsets that were read without read_committed before.
                latest |= cluster.not_before(start, {tp: latest[tp] for tp in late})
                late = [tp for tp in late if _ends_before(latest[tp], start[tp])]
            if not late or not patience.wait_to_retry():
                break
            cluster.leaders.try_to_refresh(late)
        if all(tp not in start or at.offset <= start[tp].offset for tp, at in latest.items()):
            warn_of_open_transactions(cluster.leaders, latest, cluster.deadline)
        return latest


def _ends_before(latest: Position, start: Position) -> bool:
    """True if the log end `latest` is below `start`. Always False if the topic was recreated in between."""
    return latest.offset < start.offset and not latest.is_of_another_topic(start)


def known_starts(options: ReadOptions, start: Positions, end: Positions) -> Positions:
    """Return the start position of each partition in `end`.

    A partition that is not in `start`, or whose topic was recreated, starts at the earliest offset. A loss is
    reported for recreated topics, for partitions of `start` that are not in `end`, and for new partitions
    whose log does not start at 0.
    """
    if gone := sorted(str(tp) for tp in start.keys() - end.keys()):
        text = (
            f"partitions {', '.join(gone)} of the checkpoint were deleted, or this query does not"
        )
        text += " read them and needs a checkpoint of its own"
        report_loss(text, fail=options.fail_on_data_loss)
    again = [tp for tp in start.keys() & end.keys() if start[tp].is_of_another_topic(end[tp])]
    for tp in sorted(again):
        report_loss(_recreation(tp, start[tp], end[tp]), fail=options.fail_on_data_loss)
    read = {tp: at for tp, at in start.items() if tp in end and tp not in again}
    new = sorted(end.keys() - read.keys())
    if not new:
        return read
    with _asking(options) as cluster:
        cluster.partitions()
        earliest = cluster.ends(new, EARLIEST)
        for tp, position in earliest.items():
            if position.offset > 0:
                cluster.report_loss(
                    f"the new partition {tp} starts at offset {position.offset} instead of 0"
                )
    return read | earliest


def plan_stream(options: ReadOptions, start: Positions, end: Positions) -> list[OffsetRange]:
    """Return the ranges of a micro-batch, as `plan_batch`. Raises `Unreachable`, `DataLost`, `KafkaError`.

    If a log was truncated below `start`, a loss is reported. If the query continues after the report, it
    reads the records that replaced the lost records.
    """
    begin = known_starts(options, start, end)
    kept = _kept_offsets(options, begin, end)
    ranges = []
    for tp, position in end.items():
        offset = begin[tp].offset
        if kept.get(tp, offset) < offset:
            report_loss(_truncation(tp, begin[tp], kept[tp]), fail=options.fail_on_data_loss)
            offset = kept[tp]
        ranges.append(OffsetRange(tp, offset, max(position.offset, offset)))
    return split(ranges, options.max_records, options.min_partitions)


def _kept_offsets(
    options: ReadOptions, begin: Positions, end: Positions
) -> dict[TopicPartition, int]:
    """Return, for each log that may have been truncated, the offset at which the unchanged records end.

    Within one leader epoch, a log never becomes shorter, and the leader epoch never decreases. If a log
    violates these rules, the topic was recreated or all records were lost, and the offset is 0. So it is if a log
    has become shorter and the epoch is not known, as in a checkpoint of Spark's own Kafka connector.
    """
    known = {tp: at for tp, at in begin.items() if at.leader_epoch >= 0}
    kept = {
        tp: 0
        for tp, at in begin.items()
        if end[tp].leader_epoch < at.leader_epoch
        or (at.leader_epoch in (-1, end[tp].leader_epoch) and end[tp].offset < at.offset)
    }
    asked = {
        tp: at.leader_epoch
        for tp, at in known.items()
        if tp not in kept and end[tp].leader_epoch > at.leader_epoch
    }
    if asked:
        with _asking(options) as cluster:
            cluster.partitions()
            ends = cluster.leaders.epoch_ends(asked, cluster.deadline)
        kept |= {tp: found.offset for tp, found in ends.items() if found.offset >= 0}
    return kept


def _recreation(tp: TopicPartition, start: Position, end: Position) -> str:
    return (
        f"{tp} was deleted and created again: it was read up to offset {start.offset} with the topic id"
        f" {start.topic_id}, but its topic id is now {end.topic_id}"
    )


def _truncation(tp: TopicPartition, begin: Position, kept: int) -> str:
    if not kept:
        return (
            f"{tp} was deleted and created again, or lost records: it was read up to offset {begin.offset}"
            f"{_in_epoch(begin)}, but its log has started again"
        )
    return (
        f"records {kept} to {begin.offset - 1} of {tp} were read but are no longer in the log: leader epoch"
        f" {begin.leader_epoch} ends at offset {kept} since an unclean leader election"
    )


def _in_epoch(begin: Position) -> str:
    return f" in leader epoch {begin.leader_epoch}" if begin.leader_epoch >= 0 else ""


logger = logging.getLogger(__name__)

_SHOWN_MAX: Final = 3
"""Maximum number of partitions whose transactions are looked up for one warning."""
_warned: set[str] = set()
"""The warnings that this process has logged. A stream that waits plans again and again."""


def warn_of_open_transactions(
    leaders: LeaderConnections, stable: Mapping[TopicPartition, Position], deadline: Deadline
) -> None:
    """Log why records after the last stable offsets `stable` are not read. Raises no error."""
    if leaders.isolation is not Isolation.READ_COMMITTED:
        return
    try:
        high = high_watermarks(leaders, stable, deadline)
    except (KafkaError, Unreachable, OSError, ProtocolViolation) as error:
        logger.info("The high watermarks are not known: %s", error)
        return
    held = [tp for tp, at in stable.items() if at.offset < high[tp]]
    for tp in held[:_SHOWN_MAX]:
        text = reason(leaders, tp, stable[tp].offset)
        if text and text not in _warned:
            _warned.add(text)
            logger.warning("%s", text)


def high_watermarks(
    leaders: LeaderConnections, partitions: Mapping[TopicPartition, Position], deadline: Deadline
) -> dict[TopicPartition, int]:
    """Return the high watermarks. Raises the errors of `LeaderConnections.list_offsets`."""
    wanted = dict.fromkeys(partitions, LATEST)
    found = leaders.list_offsets(wanted, deadline, Isolation.READ_UNCOMMITTED)
    return {tp: position.offset for tp, position in found.items()}


def reason(leaders: LeaderConnections, tp: TopicPartition, stable: int) -> str:
    """Return which transaction holds back a partition, and how to end it; "" if it has ended in the meantime."""
    address = leaders.address(tp)
    if address is None:
        return holding(tp, stable)
    try:
        body = producers.describe_producers_request(tp)
        answer = leaders.connection(address).call(producers.DESCRIBE_PRODUCERS, body)
        found = producers.parse_open_transactions(answer)
    except (OSError, ProtocolViolation) as error:
        leaders.drop(address)
        logger.info("The open transactions of %s are not known: %s", tp, error)
        return holding(tp, stable)
    if not found:
        return ""
    producer_id, start = min(found.items(), key=lambda item: item[1])
    body = producers.list_transactions_request(producer_id)
    listed = leaders.call_all(producers.LIST_TRANSACTIONS, body, producers.parse_transactional_ids)
    names = [name for answer in listed for name in answer]
    is_complete = len(listed) == leaders.broker_count()
    return holding(tp, stable, producer_id, start, names[0] if names else None, is_complete)
