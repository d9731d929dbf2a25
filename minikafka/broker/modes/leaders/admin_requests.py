"""The state-change requests that an administrator's side sends, without a leader.

Many requests are added to the queues in one multi, which does not return the names of their nodes: the sender waits
for all nodes that the queues have then.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import BrokerId, Epoch, TopicPartition
from minikafka.base.ports import MultiOp
from minikafka.broker.modes.leaders.queue import QueuedRequest, StateChangeQueue
from minikafka.broker.modes.zookeeper.ports import Ports
from minikafka.deciders.leaders import notes
from minikafka.deciders.leaders.commands import Note
from minikafka.deciders.leaders.model import FROM_ADMINISTRATOR, Operation, StateChange
from minikafka.zookeeper.nodes.leaders import queues

logger = logging.getLogger(__name__)

Addressed: TypeAlias = tuple[BrokerId, StateChange]
"""A request, and the broker that it is addressed to."""
AT_ONCE: Final = 100
"""Partitions whose requests are written in one multi."""
_IN_ONE_MULTI: Final = 500


def start(tp: TopicPartition, topic_id: bytes, receivers: Iterable[BrokerId]) -> list[Addressed]:
    """Return the requests to start the replicas of a new partition."""
    request = StateChange(Operation.START, tp, topic_id, FROM_ADMINISTRATOR, FROM_ADMINISTRATOR)
    return [(receiver, request) for receiver in receivers]


def close(
    tp: TopicPartition, topic_id: bytes, receivers: Iterable[BrokerId], epoch: Epoch
) -> list[Addressed]:
    """Return the requests to delete replicas of a partition, which may be delivered long after its deletion.

    `epoch`: the last epoch of the partition, -1 if it has never had a leader.
    """
    request = StateChange(Operation.CLOSE, tp, topic_id, epoch, FROM_ADMINISTRATOR)
    return [(receiver, request) for receiver in sorted(receivers)]


class AdminRequests:
    """Sends the requests of one broker's administrators, and waits for them. `note`: writes a ledger line."""

    def __init__(
        self,
        ports: Ports,
        queue: StateChangeQueue,
        note: Callable[[Note], None],
    ) -> None:
        self._zookeeper = ports.zookeeper
        self._queue = queue
        self._note = note
        self._faults = ports.faults

    async def check_receivers(self, receivers: Iterable[BrokerId]) -> None:
        """Raise KafkaError if one of these brokers has no queue. Raises CoordinationError."""
        missing = sorted(set(receivers).difference(await self._known()))
        if missing:
            named = ", ".join(map(str, missing))
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"brokers without a queue of state-change requests: {named}; start them, or add them with "
                "`minikafka brokers add`",
            )

    async def closing(self, tps: Collection[TopicPartition], topic_id: bytes) -> list[BrokerId]:
        """Return the brokers that still have to delete a replica of one of these deleted partitions.

        Raises CoordinationError.
        """
        backlog = await self._queue.backlog()
        return [
            broker_id
            for broker_id, length in backlog.items()
            if length and await self._queue.has_close(broker_id, tps, topic_id)
        ]

    async def _known(self) -> list[BrokerId]:
        names, _ = await self._zookeeper.children(queues.DIRECTORY)
        return queues.brokers(names, self._faults)

    async def send(
        self, changes: Sequence[MultiOp], requests: Sequence[Addressed]
    ) -> list[QueuedRequest]:
        """Write the changes and the requests in one multi; return the entries to wait for.

        Without changes, it may be several multis. A request to a broker that was removed from the cluster is dropped.
        Raises KafkaError, and CoordinationError, for example FollowerStateChangeQueueFull.
        """
        known = await self._known()
        sent = [(receiver, request) for receiver, request in requests if receiver in known]
        for receiver in {receiver for receiver, _ in requests}.difference(known):
            logger.warning("requests to broker %d are dropped: it has no queue", receiver)
        for part in [sent] if changes else self._parts(sent):
            counts = Counter(receiver for receiver, _ in part)
            for receiver in sorted(counts):
                await self._queue.make_room(receiver, counts[receiver])
            added = [queues.entry(*addressed) for addressed in part]
            await self._zookeeper.multi([*changes, *added])
            for receiver, request in part:
                self._note(notes.requested(request, receiver))
        return await self._entries(sent)

    def _parts(self, sent: Sequence[Addressed]) -> Iterator[Sequence[Addressed]]:
        """Yield the requests in parts that any queue has room for after a shrinking."""
        size = max(1, min(_IN_ONE_MULTI, self._queue.maximum // 2))
        for first in range(0, len(sent), size):
            yield sent[first : first + size]

    async def _entries(self, sent: Sequence[Addressed]) -> list[QueuedRequest]:
        """Return the entries to wait for: one per request and per node of the queues.

        The names of the new nodes are unknown: the requests are among these nodes.
        """
        receivers = sorted({receiver for receiver, _ in sent})
        paths = [queues.path_of(receiver) for receiver in receivers]
        entries = []
        found = await self._zookeeper.children_many(paths)
        for receiver, names in zip(receivers, found, strict=True):
            requests = [request for to, request in sent if to == receiver]
            there = queues.in_order(receiver, names or (), self._faults)
            count = max(len(requests), len(there)) if there else 0
            entries += [
                QueuedRequest(
                    receiver, there[min(n, len(there) - 1)], requests[min(n, len(requests) - 1)]
                )
                for n in range(count)
            ]
        return entries

    async def wait(self, entries: Iterable[QueuedRequest], timeout_ms: int) -> list[QueuedRequest]:
        """Wait until the live receivers have carried out these requests; return those still open after `timeout_ms`.

        Raises CoordinationError.
        """
        return await self._queue.wait_until_consumed(entries, timeout_ms)
