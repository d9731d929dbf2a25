"""The appends of a coordinator: all appends to a partition in one turn of the event loop become one batch.

Records of a transaction are in batches of their own, which contain the producer's id and epoch.

Invariants: the records of a partition are appended in the order of `add`. Every append is reported exactly once:
committed, failed, or timed out. If a batch of several appends is refused, each append is tried again in a batch
of its own. Without this, one append that is too large would make all appends of the batch fail.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple, Protocol

from minikafka.base.coordinators import Append
from minikafka.base.deciders import Outcome
from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Clock
from minikafka.broker.coordinators.internal_topic import TopicSettings
from minikafka.broker.host import Alarm
from minikafka.record.batch import Record, build
from minikafka.record.header import TRANSACTIONAL

logger = logging.getLogger(__name__)

_NOT_LEADER: Final = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_TIMED_OUT: Final = int(ErrorCode.REQUEST_TIMED_OUT)


class Log(Protocol):
    """The methods of the replica manager that append to logs."""

    def append(self, tp: TopicPartition, batch: bytes, guard: int = 0) -> asyncio.Future[int]:
        """Append a batch as leader; the future is done when the batch is committed or the append has failed.

        `guard`: the guard of the verification, for a batch of a transaction that is not open in the log.
        """

    def before_write(self, append: Callable[[], None]) -> None:
        """Call `append` once, just before logs are written.

        A tick is the handling of the requests that were received from one connection. Logs are written at the end
        of each tick. Outside of a tick, logs are written in the next turn of the event loop.
        """


class Batch(NamedTuple):
    """A batch that is not committed yet.

    `tokens` are the ids of the appends in the batch. At `deadline` (monotonic ms) the appends time out.
    """

    tokens: Sequence[int]
    done: asyncio.Future[int]
    deadline: int


class Appends:
    """The appends to `topic` in progress. `report` gets the outcome of each append once: its error code, 0 on success.

    Batches are compressed with the topic's codec. The appends of a batch that is not committed after the topic's
    `append_timeout_ms` are reported as timed out, although the batch may be committed later.
    """

    def __init__(
        self,
        log: Log,
        clock: Clock,
        topic: TopicSettings,
        report: Callable[[Outcome], None],
    ) -> None:
        self._log = log
        self._clock = clock
        self._topic = topic
        self._timeout_ms = topic.append_timeout_ms
        self._report = report
        self._alarm = Alarm(clock, self._give_up)
        self._gathered: dict[int, list[Append]] = {}
        """Appends queued in this turn of the event loop, by partition."""
        self._batches: dict[int, Batch] = {}
        """First token -> batch, for the batches that are not committed yet, in the order of their deadlines."""

    def add(self, append: Append) -> None:
        """Queue the append. The queued appends of a partition become one batch just before the logs are written."""
        if not self._gathered:
            self._log.before_write(self._append_gathered)
        self._gathered.setdefault(append.partition, []).append(append)

    def drop(self, partition: int) -> None:
        """Report NOT_LEADER_OR_FOLLOWER for queued appends to a partition that this broker no longer leads."""
        self._report_all(
            [append.token for append in self._gathered.pop(partition, ())], _NOT_LEADER
        )

    def _give_up(self, now: int) -> None:
        """Report REQUEST_TIMED_OUT for the appends whose deadline has passed."""
        late = [token for token, batch in self._batches.items() if batch.deadline <= now]
        for first in late:
            batch = self._batches.pop(first)
            batch.done.cancel()
            self._report_all(batch.tokens, _TIMED_OUT)
        self._set_alarm()

    def _set_alarm(self) -> None:
        # All batches have equally long, so the first one times out first.
        self._alarm.set(next((batch.deadline for batch in self._batches.values()), None))

    def _append_gathered(self) -> None:
        gathered, self._gathered = self._gathered, {}
        for partition, appends in gathered.items():
            for _, run in groupby(appends, attrgetter("producer")):
                self._append_together(partition, list(run))

    def _append_together(self, partition: int, appends: Sequence[Append]) -> None:
        """Append the records of several appends, all of them in the same transaction or in none."""
        done = self._append(partition, appends)
        if len(appends) > 1 and done.done() and done.exception() is not None:
            for append in appends:
                self._wait([append], self._append(partition, [append]))
        else:
            self._wait(appends, done)

    def _append(self, partition: int, appends: Sequence[Append]) -> asyncio.Future[int]:
        wall_ms = self._clock.wall_ms()
        records = [
            Record(timestamp=wall_ms, key=key, value=value)
            for append in appends
            for key, value in append.records
        ]
        tp = TopicPartition(self._topic.name, partition)
        producer = appends[0].producer
        if producer is None:
            return self._log.append(tp, build(records, codec=self._topic.codec))
        batch = build(
            records,
            codec=self._topic.codec,
            attributes=TRANSACTIONAL,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
        )
        return self._log.append(tp, batch, producer.guard)

    def _wait(self, appends: Sequence[Append], done: asyncio.Future[int]) -> None:
        tokens = [append.token for append in appends]
        self._batches[tokens[0]] = Batch(tokens, done, self._clock.now() + self._timeout_ms)
        done.add_done_callback(partial(self._appended, tokens[0]))
        self._set_alarm()

    def _appended(self, first: int, done: asyncio.Future[int]) -> None:
        batch = self._batches.pop(first, None)
        if batch is not None:  # None if the appends have timed out
            self._report_all(batch.tokens, _error_of(done))

    def _report_all(self, tokens: Sequence[int], error: int) -> None:
        for token in tokens:
            self._report(Outcome(token, error))


def _error_of(done: asyncio.Future[Any]) -> int:
    """Return the error code of a finished append, 0 on success."""
    error = done.exception()
    if error is None:
        return 0
    if isinstance(error, KafkaError):
        return int(error.code)
    logger.error("an append of a coordinator failed", exc_info=error)
    return int(ErrorCode.UNKNOWN_SERVER_ERROR)
