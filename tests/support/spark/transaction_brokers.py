"""`ProduceBrokers` that also serve transactions: one coordinator for all transactional ids and groups.

Only the rules that a client can see are here: a new epoch ends the transaction of the epoch before, a batch or an
offset is refused outside of its transaction, and an end that is repeated has the same outcome.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from support.spark.fetch_brokers import NO_TAGS, Body, string
from support.spark.produce_brokers import ProduceBrokers, Sent

INVALID_EPOCH = 47
INVALID_STATE = 48
TIMEOUT_TOO_LONG = 50
NOT_COORDINATOR = 16
MARKER = ("__consumer_offsets", 0)


@dataclass
class Transactional:
    """The state of one transactional id."""

    producer_id: int
    epoch: int = -1
    partitions: set[tuple[str, int]] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    pending: dict[str, tuple[int, str]] = field(default_factory=dict)
    """The offset and the metadata that the open transaction commits for each group."""
    outcomes: dict[int, bool] = field(default_factory=dict)
    """Whether the transaction of each epoch was committed. An epoch without an entry is open or has written nothing."""


class TransactionBrokers(ProduceBrokers):
    """Brokers with transactions. Broker 0 is the coordinator unless a test sets another one."""

    def __init__(self, count: int = 1) -> None:
        self.ids: dict[str, Transactional] = {}
        self.offsets: dict[str, tuple[int, str]] = {}
        """The marker of each group."""
        self.coordinator = 0
        self.max_timeout_ms = 900_000
        self.coordinator_errors: list[int] = []
        """Error codes of the next requests to the coordinator."""
        self.lost: set[int] = set()
        """API keys of which the next answer is lost: the request is handled, and the connection is closed."""
        super().__init__(count)

    def handlers(self) -> dict[tuple[int, int], Callable[[int, Body], bytes]]:
        served = super().handlers() | {
            (10, 2): self._find_coordinator,
            (22, 1): self._init_producer,
            (24, 1): self._add_partitions,
            (25, 1): self._add_offsets,
            (26, 1): self._end,
            (28, 2): self._commit_offset,
            (9, 7): self._fetch_offset,
            (19, 4): self._create_topic,
            (20, 3): self._delete_topic,
            (21, 1): self._delete_records,
        }
        return {one: self._losing(one[0], handler) for one, handler in served.items()}

    def _losing(
        self, api: int, handler: Callable[[int, Body], bytes]
    ) -> Callable[[int, Body], bytes]:
        def handle(index: int, body: Body) -> bytes:
            answer = handler(index, body)
            if api in self.lost:
                self.lost.discard(api)
                raise ConnectionAbortedError
            return answer

        return handle

    def visible(self, topic: str, number: int) -> list[bytes]:
        """Return the batches of a partition that readers of committed records see."""
        committed = {
            (one.producer_id, epoch)
            for one in self.ids.values()
            for epoch, is_committed in one.outcomes.items()
            if is_committed
        }
        batches = [batch for _, _, batch in self.topics[topic][number].batches]
        return [one for one in batches if struct.unpack_from(">qh", one, 43) in committed]

    def time_out(self) -> None:
        """Abort all open transactions, as the coordinator does at their timeout."""
        for one in self.ids.values():
            if one.partitions or one.groups:
                self._close(one, committed=False)
                one.epoch += 1

    def _find_coordinator(self, index: int, body: Body) -> bytes:
        body.string()
        port = self.ports[self.coordinator]
        head = struct.pack(">ih", 0, 0) + string(None) + struct.pack(">i", self.coordinator)
        return head + string("127.0.0.1") + struct.pack(">i", port)

    def _refusal(self, index: int) -> int:
        if index != self.coordinator:
            return NOT_COORDINATOR
        return self.coordinator_errors.pop(0) if self.coordinator_errors else 0

    def _init_producer(self, index: int, body: Body) -> bytes:
        name = body.string()
        (timeout_ms,) = body.take("i")
        if name is None:
            body.position = body.position - 6
            return super()._init_producer(index, body)
        code = self._refusal(index) or (timeout_ms > self.max_timeout_ms and TIMEOUT_TOO_LONG)
        if code:
            return struct.pack(">ihqh", 0, code, -1, -1)
        one = self.ids.setdefault(name, Transactional(5_000 + len(self.ids)))
        self._close(one, committed=False)
        one.epoch += 1
        return struct.pack(">ihqh", 0, 0, one.producer_id, one.epoch)

    def _close(self, one: Transactional, *, committed: bool) -> None:
        if one.partitions or one.groups:
            one.outcomes[one.epoch] = committed
            if committed:
                self.offsets |= one.pending
        one.partitions, one.groups, one.pending = set(), set(), {}

    def _known(self, index: int, body: Body) -> tuple[Transactional, int]:
        """Return the id that a request names, and the error of the request."""
        one = self.ids[body.string()]
        code = self._epoch_error(one, *body.take("qh"))
        return one, self._refusal(index) or code

    def _epoch_error(self, one: Transactional, producer_id: int, epoch: int) -> int:
        return 0 if (producer_id, epoch) == (one.producer_id, one.epoch) else INVALID_EPOCH

    def _add_partitions(self, index: int, body: Body) -> bytes:
        one, code = self._known(index, body)
        out = []
        (topic_count,) = body.take("i")
        for _ in range(topic_count):
            topic = body.string()
            (count,) = body.take("i")
            out.append(string(topic) + struct.pack(">i", count))
            for (number,) in (body.take("i") for _ in range(count)):
                if not code:
                    one.partitions.add((topic, number))
                out.append(struct.pack(">ih", number, code))
        return struct.pack(">ii", 0, topic_count) + b"".join(out)

    def _add_offsets(self, index: int, body: Body) -> bytes:
        one, code = self._known(index, body)
        group = body.string()
        if not code:
            one.groups.add(group)
        return struct.pack(">ih", 0, code)

    def _commit_offset(self, index: int, body: Body) -> bytes:
        one, group = self.ids[body.string()], body.string()
        code = self._epoch_error(one, *body.take("qh"))
        code = self._refusal(index) or code
        body.take("i")
        topic = body.string()
        _, number, offset, _ = body.take("iiqi")
        assert (topic, number) == MARKER
        if not code and group not in one.groups:
            code = INVALID_STATE
        if not code:
            one.pending[group] = offset, body.string()
        entry = struct.pack(">iih", 1, number, code)
        return struct.pack(">ii", 0, 1) + string(topic) + entry

    def _end(self, index: int, body: Body) -> bytes:
        one, code = self._known(index, body)
        (committed,) = body.take("?")
        if not code and not (one.partitions or one.groups):
            code = 0 if one.outcomes.get(one.epoch) is committed else INVALID_STATE
        elif not code:
            self._close(one, committed=committed)
        return struct.pack(">ih", 0, code)

    def _fetch_offset(self, index: int, body: Body) -> bytes:
        body.take("B")  # tags of the header
        group = body.compact_string()
        offset, metadata = self.offsets.get(group, (-1, ""))
        code = self._refusal(index)
        if any(group in one.groups for one in self.ids.values()):
            code = 88
        topic, number = MARKER
        entry = struct.pack(">iqi", number, offset, -1) + _compact(metadata)
        entry += struct.pack(">h", code) + NO_TAGS
        topics = bytes([2]) + _compact(topic) + bytes([2]) + entry + NO_TAGS
        return struct.pack(">i", 0) + topics + struct.pack(">h", 0) + NO_TAGS

    def _create_topic(self, index: int, body: Body) -> bytes:
        body.take("i")
        topic = body.string()
        partitions, replicas, _ = body.take("ihi")
        assert replicas == len(self.live)
        code = 36 if topic in self.topics else 0
        if not code:
            self.create(topic, partitions)
        return struct.pack(">ii", 0, 1) + string(topic) + struct.pack(">h", code) + string(None)

    def _delete_topic(self, index: int, body: Body) -> bytes:
        body.take("i")
        topic = body.string()
        del self.topics[topic]
        return struct.pack(">ii", 0, 1) + string(topic) + struct.pack(">h", 0)

    def _delete_records(self, index: int, body: Body) -> bytes:
        (count,) = body.take("i")
        for _ in range(count):
            topic = body.string()
            for _ in range(*body.take("i")):
                number, offset = body.take("iq")
                self.topics[topic][number].log_start = offset
        return b""

    def refused_in_transaction(self, sent: Sent) -> int:
        if self.transactional_id is None:
            return super().refused_in_transaction(sent)
        one = self.ids[self.transactional_id]
        is_member = (sent.topic, sent.partition) in one.partitions
        return self._epoch_error(one, *sent.producer) or (0 if is_member else INVALID_STATE)


def _compact(text: str) -> bytes:
    data = text.encode()
    size = len(data) + 1
    head = bytes([size]) if size < 128 else bytes([size & 0x7F | 0x80, size >> 7])
    return head + data
