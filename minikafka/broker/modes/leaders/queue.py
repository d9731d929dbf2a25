"""The queues of state-change requests between brokers (C5, C11 to C13, C22, C39).

A request is durable before its sender goes on, and is deleted by its receiver after it was carried out. It may be
carried out twice. Any broker and any other client of ZooKeeper may write to a queue at the same time: its limit may be
exceeded by the number of writers.

A broker carries out the requests of its own queue in its order, each in the lane of its partition. Requests for
different partitions are carried out side by side: one after the other, a topic with 1,000 partitions takes three times
as long. An entry is deleted after that, so that a crash in between repeats it. While the lease is over, they wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final, NamedTuple

from minikafka.base.errors import (
    Closed,
    CoordinationError,
    ErrorCode,
    FollowerStateChangeQueueFull,
    KafkaError,
    MultiFailed,
    NoNode,
    NotConnected,
    OutcomeUnknown,
    StaleSession,
)
from minikafka.base.model import NO_EPOCH, BrokerId, TopicPartition
from minikafka.base.ports import Clock, MultiOp, Tasks, Watch, WatchKind, ZooKeeper
from minikafka.broker.modes.leaders.lease import Lease
from minikafka.broker.side_by_side import all_of
from minikafka.deciders.leaders import shrinking
from minikafka.deciders.leaders.model import Operation, StateChange
from minikafka.zookeeper.nodes import registrations
from minikafka.zookeeper.nodes.faults import Faults
from minikafka.zookeeper.nodes.leaders import queues, tree

logger = logging.getLogger(__name__)

_READ_AT_ONCE: Final = 100
_REMOVED_AT_ONCE: Final = 500
_SHRINKINGS: Final = 5
"""Attempts to shrink a queue that other brokers change at the same time."""
_POLL_MS: Final = 500
"""Time after which a waiting sender looks again which brokers are alive."""


class QueuedRequest(NamedTuple):
    """A request that this broker has added to a queue, and the name of its node."""

    broker_id: BrokerId
    name: str
    request: StateChange


class StateChangeQueue:
    """The queue of this broker, which it alone consumes, and the queues of the brokers that it sends requests to.

    `maximum`: the number of requests at which a queue counts as full.
    """

    def __init__(
        self, zookeeper: ZooKeeper, clock: Clock, broker_id: BrokerId, maximum: int
    ) -> None:
        self._zookeeper = zookeeper
        self._clock = clock
        self._broker_id = broker_id
        self.maximum = maximum
        self._faults = Faults()
        self._watches: dict[str, Watch] = {}
        """Watches on queues that have not fired yet. All waiters for one queue share its watch."""
        self._next: deque[tuple[str, StateChange]] = deque()
        """The first requests of the own queue, which were read and not consumed yet."""
        self._generation = -1
        """Number of the session in which `_next` was read."""
        self._waits: Counter[BrokerId] = Counter()
        """Number of senders that wait for the queue of each broker."""
        self._shrinking: defaultdict[BrokerId, asyncio.Lock] = defaultdict(asyncio.Lock)

    # The own queue.

    async def open(self) -> None:
        """Create the own queue if it does not exist. It stays when the broker stops. Raises CoordinationError."""
        await self._zookeeper.ensure(queues.path_of(self._broker_id))

    async def first(self) -> tuple[str, StateChange]:
        """Wait for a request in the own queue; return the name and the request of the oldest entry.

        Returns the same entry again until `consume` is called. Raises Closed.
        """
        while True:
            if self._generation != self._zookeeper.generation:
                self._next.clear()  # the watch that was set before they were read is gone with its session
            if self._next:
                return self._next[0]
            with suppress(NotConnected, OutcomeUnknown, StaleSession):
                self._generation = await self._zookeeper.connected()
                watch = await self._read_own()
                if not self._next:
                    await watch.wait()

    async def next_requests(self) -> list[tuple[str, StateChange]]:
        """Wait for a request in the own queue; return the oldest requests, each of another partition.

        They may be carried out side by side, because the order of requests matters within a partition only. A request
        to scan all replicas is returned alone. Raises Closed.
        """
        found = [await self.first()]
        tps = {found[0][1].tp}
        for name, request in islice(self._next, 1, None):
            if Operation.RESCAN in (found[0][1].operation, request.operation) or request.tp in tps:
                break
            tps.add(request.tp)
            found.append((name, request))
        return found

    async def has_requests(self) -> bool:
        """Return True if the own queue has a request that can be carried out. Raises CoordinationError."""
        if self._next and self._generation == self._zookeeper.generation:
            return True
        entries = await self._entries(self._broker_id)
        return any(request is not None for request in entries.values())

    async def consume(self, name: str) -> None:
        """Delete an entry of the own queue whose request has been carried out. Raises Closed."""
        delete = queues.removal(self._broker_id, name)
        while True:
            try:
                with suppress(NoNode):  # the queue was shrunk
                    await self._zookeeper.delete(*delete)
                break
            except (NotConnected, OutcomeUnknown, StaleSession):
                await self._zookeeper.connected()
        self._next = deque(one for one in self._next if one[0] != name)

    async def _read_own(self) -> Watch:
        """Read the next requests of the own queue, and return the watch that fires when the queue changes."""
        watch, names = await self._watched(self._broker_id)
        if names is None:
            await self.open()
            return await self._read_own()
        ordered = queues.in_order(self._broker_id, names, self._faults)
        for start in range(0, len(ordered), _READ_AT_ONCE):
            wanted = ordered[start : start + _READ_AT_ONCE]
            found = await queues.read(self._zookeeper, self._broker_id, wanted, self._faults)
            for name, request in found.items():
                if request is None:
                    await self.consume(name)  # it can never be carried out
                else:
                    self._next.append((name, request))
            if self._next:
                break
        return watch

    # The queues of other brokers.

    async def enqueue(self, broker_id: BrokerId, request: StateChange) -> QueuedRequest:
        """Add a request to the queue of a broker, which may be this one; shrink a full queue first.

        After a lost answer, the request is added again. Raises KafkaError if the broker has no queue, and
        CoordinationError: FollowerStateChangeQueueFull if the queue is full, StaleSession if the session has ended.
        """
        generation = self._zookeeper.generation
        create = queues.entry(broker_id, request)
        while True:
            try:
                await self.make_room(broker_id)
                path, _ = await self._zookeeper.create(
                    create.path, create.data, sequential=True, generation=generation
                )
            except NoNode:
                raise _unknown(broker_id) from None
            except (NotConnected, OutcomeUnknown):
                if await self._zookeeper.connected() != generation:
                    raise StaleSession("the request may not have been added to the queue") from None
            else:
                return QueuedRequest(broker_id, path.rpartition("/")[2], request)

    async def has_close(
        self, broker_id: BrokerId, tps: Collection[TopicPartition], topic_id: bytes
    ) -> bool:
        """Return True if the queue of a broker has a request to delete a replica of these partitions with records.

        A replica of a partition that has never had a leader has no records. Raises CoordinationError.
        """
        return any(
            request.operation is Operation.CLOSE
            and request.epoch != NO_EPOCH
            and request.tp in tps
            and request.topic_id == topic_id
            for request in (await self._entries(broker_id)).values()
            if request is not None
        )

    async def make_room(self, broker_id: BrokerId, wanted: int = 1) -> None:
        """Shrink the queue of a broker if it lacks room for `wanted` requests, which are added next, e.g. in a multi.

        Entries that no broker has made do not count. Raises KafkaError if the broker has no queue, and
        CoordinationError: FollowerStateChangeQueueFull if no request can be dropped.
        """
        stat = await self._zookeeper.exists(queues.path_of(broker_id))
        if stat is None:
            raise _unknown(broker_id)
        if stat.num_children + wanted <= self.maximum:
            return
        async with self._shrinking[broker_id]:
            for _ in range(_SHRINKINGS):
                entries = await self._entries(broker_id)
                if len(entries) + wanted <= self.maximum:
                    return
                removed, added = shrinking.shrink(entries, self._broker_id)
                if not removed:
                    break
                await self._shrink(broker_id, removed, added)
        logger.error(
            "FollowerStateChangeQueueFull: the queue of broker %d has %d requests or more, which cannot be dropped",
            broker_id,
            self.maximum,
        )
        raise FollowerStateChangeQueueFull(
            f"the queue of broker {broker_id} has its maximum of {self.maximum} requests to delete replicas; "
            "start the broker, or raise minikafka.leaders.queue.max"
        )

    async def _shrink(
        self, broker_id: BrokerId, removed: Sequence[str], added: Sequence[StateChange]
    ) -> None:
        """Replace entries of a queue, unless the receiver or another sender has removed one of them meanwhile."""
        # The requests that stand for removed ones come first: if a later multi fails, no request is lost.
        multi: list[MultiOp] = [queues.entry(broker_id, request) for request in added]
        multi += [queues.removal(broker_id, name) for name in removed]
        try:
            for start in range(0, len(multi), _REMOVED_AT_ONCE):
                await self._zookeeper.multi(multi[start : start + _REMOVED_AT_ONCE])
        except MultiFailed as failed:
            logger.info("the queue of broker %d changed while it was shrunk: %s", broker_id, failed)
        else:
            logger.info(
                "removed %d old requests from the queue of broker %d", len(removed), broker_id
            )

    async def _entries(self, broker_id: BrokerId) -> dict[str, StateChange | None]:
        [names] = await self._zookeeper.children_many([queues.path_of(broker_id)])
        ordered = queues.in_order(broker_id, names or (), self._faults)
        return await queues.read(self._zookeeper, broker_id, ordered, self._faults)

    # Waiting and monitoring.

    async def wait_until_consumed(
        self, entries: Iterable[QueuedRequest], timeout_ms: int
    ) -> list[QueuedRequest]:
        """Wait until every live receiver has carried out these requests; return those that were not in time.

        For a broker that is not registered, the durable request is enough. A shrinking of the queue may replace a
        request: then the wait lasts until the replacement is consumed. Raises CoordinationError.
        """
        deadline = self._clock.now() + timeout_ms
        left = list(entries)
        receivers = {entry.broker_id for entry in left}
        self._waits.update(receivers)
        try:
            while left:
                changed = asyncio.Event()
                # Each watch is set before its queue is read, so that no change is missed.
                left = await self._not_consumed(left, changed)
                remaining = deadline - self._clock.now()
                if not left or remaining <= 0:
                    break
                await self._wait_for(changed, min(_POLL_MS, remaining))
        finally:
            self._waits.subtract(receivers)
            await self._unwatch(receivers)
        return left

    async def _not_consumed(
        self, entries: Sequence[QueuedRequest], changed: asyncio.Event
    ) -> list[QueuedRequest]:
        """Return the requests that a live broker has not consumed. `changed` is set when one of the queues changes."""
        names, _ = await self._zookeeper.children(tree.REGISTRATIONS)
        live = registrations.ids(names, self._faults, tree.REGISTRATIONS)
        left: list[QueuedRequest] = []
        for broker_id in sorted({entry.broker_id for entry in entries}.intersection(live)):
            sent = [entry for entry in entries if entry.broker_id == broker_id]
            watch, there = await self._watched(broker_id)
            watch.on_signal(lambda _: changed.set())
            left += await self._pending(broker_id, sent, there or ())
        return left

    async def _pending(
        self, broker_id: BrokerId, sent: Sequence[QueuedRequest], there: Collection[str]
    ) -> list[QueuedRequest]:
        """Return the requests in `sent` that are not consumed. `there`: the names of the queue's entries, just read."""
        here = frozenset(there)
        own = {entry.name: entry.request for entry in sent}
        if here >= own.keys():
            return list(sent)
        others = queues.in_order(broker_id, here - own.keys(), self._faults)
        found = await queues.read(self._zookeeper, broker_id, others, self._faults)
        if len(found) < len(others):
            # An entry that is gone may stand for one of these. The watch has fired.
            return list(sent)
        standing = [own[name] for name in here & own.keys()] + list(found.values())
        return [
            entry
            for entry in sent
            if entry.name in here
            or any(shrinking.is_replaced_by(entry.request, other) for other in standing)
        ]

    async def _wait_for(self, changed: asyncio.Event, timeout_ms: int) -> None:
        timer = self._clock.call_later(timeout_ms, changed.set)
        try:
            await changed.wait()
        finally:
            timer.cancel()

    async def backlog(self) -> dict[BrokerId, int]:
        """Return the number of requests in the queue of each broker (C39). Raises CoordinationError."""
        names, _ = await self._zookeeper.children(queues.DIRECTORY)
        brokers = queues.brokers(names, self._faults)
        found = await self._zookeeper.get_many([queues.path_of(broker) for broker in brokers])
        return {
            broker: node.stat.num_children
            for broker, node in sorted(zip(brokers, found, strict=True))
            if node is not None
        }

    async def _watched(self, broker_id: BrokerId) -> tuple[Watch, list[str] | None]:
        """Return a watch on a queue, and the names of its children that were read after the watch was set.

        The names are None if the queue does not exist; the watch never fires then.
        """
        path = queues.path_of(broker_id)
        watch = self._watches.get(path)
        if watch is not None:
            [there] = await self._zookeeper.children_many([path])
            if there is not None:
                return watch, there
        watch = self._zookeeper.watch(WatchKind.CHILDREN, path)
        try:
            names, _ = await self._zookeeper.children(path, watch=True)
        except NoNode:
            return watch, None
        self._watches[path] = watch
        watch.on_signal(lambda _: self._forget(path, watch))
        return watch, names

    def _forget(self, path: str, watch: Watch) -> None:
        if self._watches.get(path) is watch:
            del self._watches[path]

    async def _unwatch(self, brokers: Collection[BrokerId]) -> None:
        """Remove the watches on the queues of other brokers that nobody waits for any more."""
        for broker_id in brokers:
            path = queues.path_of(broker_id)
            is_needed = self._waits[broker_id] > 0 or broker_id == self._broker_id
            if not is_needed and self._watches.pop(path, None) is not None:
                await self._zookeeper.unwatch(WatchKind.CHILDREN, path)


def _unknown(broker_id: BrokerId) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        f"broker {broker_id} has no queue of state-change requests: it has never started, or was removed with "
        "`minikafka brokers remove`; start it, or add it with `minikafka brokers add`",
    )


_RETRY_MS: Final = 200


class RequestQueue:
    """Follows the queue of one broker. `carry_out(lease, entry, request)` returns when the request has been handled."""

    def __init__(
        self,
        queue: StateChangeQueue,
        clock: Clock,
        tasks: Tasks,
        carry_out: Callable[[Lease, str, StateChange], Awaitable[None]],
    ) -> None:
        self._queue = queue
        self._clock = clock
        self._tasks = tasks
        self._carry_out = carry_out
        self._lease: Lease | None = None
        self._may_act = asyncio.Event()
        self._progress = asyncio.Event()
        self._is_following = False

    async def drain(self, lease: Lease) -> None:
        """Carry out the requests of this lease; return when the queue is empty for the first time (C1)."""
        self._lease = lease
        self._may_act.set()
        if not self._is_following:
            self._is_following = True
            self._tasks.spawn(self._follow(), "received-requests")
        while not lease.is_over:
            self._progress.clear()
            if not await self._queue.has_requests():
                return
            # Another program may delete an entry, which would cause no progress.
            timer = self._clock.call_later(_RETRY_MS, self._progress.set)
            await self._progress.wait()
            timer.cancel()

    async def _follow(self) -> None:
        while True:
            try:
                await self._may_act.wait()
                requests = await self._queue.next_requests()
            except Closed:
                return
            except CoordinationError as error:
                logger.info("the queue cannot be read: %s %s", type(error).__name__, error)
                await self._clock.sleep(_RETRY_MS)
                continue
            lease = self._lease
            if lease is None or lease.is_over:
                self._may_act.clear()  # the next `drain` lets them be carried out
                continue
            await all_of(self._carry_out(lease, *one) for one in requests)
            self._progress.set()
