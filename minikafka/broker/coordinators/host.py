"""The host of a coordinator: it connects the coordinator's pure core to the broker's logs, roles and clock.

A coordinator has two parameters: its internal topic (`InternalTopic`) and its core (`base/coordinators.py`).
Invariants: all commands of one event (a request, a timer or a finished append) are carried out in order before the
next event is handled. Every append is reported back exactly once: committed, failed, or timed out. The state of a
partition is dropped in the same call that ends this broker's leadership, so that no request is answered from the
state of an earlier epoch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from minikafka.base.coordinators import Answer, Append, Core
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Clock, Tasks, Timer
from minikafka.broker.coordinators.appends import Appends, Log
from minikafka.broker.coordinators.internal_topic import InternalTopic
from minikafka.broker.coordinators.loading import Loader
from minikafka.broker.replicas.roles import Roles
from minikafka.broker.turns.scheduler import Scheduler
from minikafka.record.transactions import Marker
from minikafka.replication.reader import PartitionReader

logger = logging.getLogger(__name__)

_LATE_MS: Final = 1_000
_GRACE_MS: Final = 500
"""Extra wait (ms) after a timer that fires more than `_LATE_MS` late: pending requests are handled first."""

_SKIPPED_MAX: Final = 10
"""Maximum number of corrupt batches of one partition in a report."""


class Replicas(Log, Protocol):
    """The methods of the replica manager that a coordinator's host uses."""

    roles: Roles
    turns: Scheduler

    def reader(self, tp: TopicPartition) -> PartitionReader:
        """Return a reader of a partition that this broker leads. Raises KafkaError."""

    def on_marker(self, callback: Callable[[TopicPartition, Marker], None]) -> None:
        """Call `callback(tp, marker)` for every transaction marker that this broker appends, once it is committed."""


class CoordinatorHost:
    """The host of one coordinator of a broker. It must be created before the broker starts.

    `carry_out_own(command)` carries out every command of the core that is neither an `Answer` nor an `Append`.
    """

    def __init__(
        self,
        core: Core,
        topic: InternalTopic,
        replicas: Replicas,
        clock: Clock,
        tasks: Tasks,
        carry_out_own: Callable[[Any], None] = lambda command: None,
    ) -> None:
        self.topic = topic
        self._name = topic.settings.name
        self._core = core
        self._clock = clock
        self._carry_out_own = carry_out_own
        loading = replicas.turns.loading
        self._loader = Loader(core, topic, replicas.reader, loading, clock, tasks, self._loaded)
        self._appends = Appends(replicas, clock, topic.settings, self._appended)
        self._timer: Timer | None = None
        self._wakes_at = 0
        replicas.roles.add(self)
        replicas.on_marker(self._marker_committed)

    def carry_out(self, commands: Iterable[Any]) -> None:
        """Carry out the commands that a method of the core has returned."""
        for command in commands:
            if isinstance(command, Answer):
                _answer(command)
            elif isinstance(command, Append):
                self._appends.add(command)
            else:
                self._carry_out_own(command)
        self._set_timer()

    def skipped(self, partition: int | None = None) -> list[dict[str, Any]]:
        """Return the batches without which the state of a partition (None: of all) was loaded, for diagnosis."""
        return [
            batch._asdict()
            for number, batches in self._loader.skipped.items()
            if partition in (None, number)
            for batch in batches[:_SKIPPED_MAX]
        ]

    # ---- roles

    def became_leader(self, tp: TopicPartition, leader_epoch: int) -> None:
        """Start loading a partition of the topic that this broker has begun to lead."""
        if tp.topic == self._name and self._core.begin_load(tp.partition, leader_epoch):
            self._loader.start(tp.partition, leader_epoch)

    def became_follower(self, tp: TopicPartition, leader_epoch: int) -> None:
        """Drop the state of a partition that this broker no longer leads."""
        if tp.topic == self._name:
            self._loader.cancel(tp.partition)
            self.carry_out(self._core.unload(tp.partition))
            self._appends.drop(tp.partition)

    stopped = became_follower

    def _loaded(self, partition: int, epoch: int) -> None:
        self._core.partition_count = self.topic.partition_count
        self.carry_out(self._core.loaded(partition, epoch, self._clock.now()))

    # ---- appends

    def _appended(self, token: int, error: int) -> None:
        self.carry_out(self._core.appended(token, error, self._clock.now()))

    def _marker_committed(self, tp: TopicPartition, marker: Marker) -> None:
        """Tell the core that a transaction has ended. A load in progress reads the marker from the log instead."""
        if tp.topic == self._name and not self._loader.is_loading(tp.partition):
            self.carry_out(self._core.transaction_ended(tp.partition, *marker))

    # ---- time

    def _set_timer(self) -> None:
        """Set the timer for the next deadline. A timer that fires earlier is kept."""
        deadline = self._core.next_deadline()
        appended = self._appends.next_deadline()
        if appended is not None:
            deadline = appended if deadline is None else min(deadline, appended)
        if deadline is None or (self._timer is not None and self._wakes_at <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._wakes_at = deadline
        self._timer = self._clock.call_later(max(deadline - self._clock.now(), 0), self._wake)

    def _wake(self) -> None:
        self._timer = None
        now = self._clock.now()
        if now - self._wakes_at > _LATE_MS:
            # The process was paused. Handle the requests that arrived during the pause before any timer of the core.
            self._wakes_at = now + _GRACE_MS
            self._timer = self._clock.call_later(_GRACE_MS, self._wake)
            return
        self._appends.give_up(now)
        deadline = self._core.next_deadline()
        if deadline is not None and deadline <= now:
            self.carry_out(self._core.handle_timer(now))
        else:
            self._set_timer()


def _answer(command: Answer) -> None:
    """Send a response. If that fails, only log the error, so that the next responses are still sent."""
    respond: Any = command.caller
    try:
        respond(command.response)
    except Exception:
        logger.exception("a response of a coordinator could not be sent")
