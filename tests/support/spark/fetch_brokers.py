"""Brokers that serve what the Spark source needs: Metadata v11, ListOffsets v4, Fetch v11, OffsetForLeaderEpoch v3.

The brokers are threads behind real sockets, with logs in memory and no replication. The test decides which broker
leads a partition. The brokers answer as Kafka does in the cases that a reader must handle: batches cut at the byte
limit, at least one whole batch, errors for the wrong leader or epoch.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

LATEST = -1
NOT_LEADER = 6
UNKNOWN_TOPIC = 3
OFFSET_OUT_OF_RANGE = 1
FENCED = 74
UNKNOWN_EPOCH = 75
SASL_HANDSHAKE = 17
FLEXIBLE = {(3, 11), (9, 7), (61, 0), (66, 0)}
"""API key and version of the requests whose headers end with tagged fields."""
NO_TAGS = b"\x00"


def string(text: str | None) -> bytes:
    return struct.pack(">h", -1) if text is None else struct.pack(">h", len(text)) + text.encode()


def _compact(text: str | None) -> bytes:
    data = (text or "").encode()
    return bytes([0 if text is None else len(data) + 1]) + data


class Body:
    """A request body whose fields are read in order."""

    def __init__(self, data: bytes) -> None:
        self.data, self.position = data, 0

    def take(self, layout: str) -> tuple:
        values = struct.unpack_from(">" + layout, self.data, self.position)
        self.position += struct.calcsize(">" + layout)
        return values

    def string(self) -> str | None:
        (size,) = self.take("h")
        if size < 0:
            return None
        self.position += size
        return self.data[self.position - size : self.position].decode()

    def compact_string(self) -> str:
        (size,) = self.take("B")
        self.position += size - 1
        return self.data[self.position - size + 1 : self.position].decode()


@dataclass
class Partition:
    """A partition with its leader and its log. `batches`: (base offset, last offset, content) of each batch."""

    leader: int = 0
    epoch: int = 0
    log_start: int = 0
    high_watermark: int = 0
    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    """(leader epoch, first offset of the epoch), in order."""
    last_stable: int | None = None
    """The end of the log for readers of committed records. None: the high watermark."""
    aborted: list[tuple[int, int]] = field(default_factory=list)
    """(producer id, first offset) of each aborted transaction, for readers of committed records."""
    last_time: int | None = None
    """The largest timestamp in the log. None: every time is found, at the log start."""

    def end(self, isolation: int) -> int:
        """Return the end of the log for readers with this isolation level."""
        is_stable = isolation and self.last_stable is not None
        return self.last_stable if is_stable else self.high_watermark

    def append(self, batch: bytes, *, base: int | None = None) -> None:
        """Append a batch at the log end or, to leave a gap, at offset `base`.

        The batch's last offset delta sets the new log end.
        """
        base = self.high_watermark if base is None else base
        (last_delta,) = struct.unpack_from(">i", batch, 23)
        self.batches.append((base, base + last_delta, struct.pack(">q", base) + batch[8:]))
        self.high_watermark = base + last_delta + 1

    def truncate(self, offset: int) -> None:
        """Remove all batches that end at or after this offset."""
        self.batches = [batch for batch in self.batches if batch[1] < offset]
        self.high_watermark = offset

    def epoch_end(self, wanted: int) -> tuple[int, int]:
        """Return the largest leader epoch that is at most `wanted`, and the epoch's end offset."""
        later = [start for epoch, start in self.epochs if epoch > wanted]
        epoch = max(epoch for epoch, _ in self.epochs if epoch <= wanted)
        return epoch, later[0] if later else self.high_watermark

    def read(self, offset: int, limit: int, isolation: int = 0) -> bytes:
        """Return at most `limit` bytes, beginning with the first batch that ends at `offset` or later.

        The first batch is always returned whole.
        """
        found = [
            batch
            for base, last, batch in self.batches
            if last >= offset and base < self.end(isolation)
        ]
        if not found:
            return b""
        return b"".join(found)[: max(limit, len(found[0]))]


def _holder() -> socket.socket:
    """Return a socket that is bound to a free port and does not listen.

    A listener may be bound to the same port. Without a listener, connections to the port are refused.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    return holder


class FetchBrokers:
    """`count` brokers that share metadata. A test may change the metadata at any time."""

    def __init__(self, count: int = 1) -> None:
        self.topics: dict[str, list[Partition]] = {}
        self.topic_ids: dict[str, bytes] = {}
        """Topic id by topic name. Other topics have no id."""
        self.fetch_errors: list[int] = []
        """Error codes of the next Fetch responses."""
        self.fetched: list[int] = []
        """The number of partitions in each Fetch request."""
        self.on_list_offsets: list[Callable[[], object]] = []
        """Callbacks: each of the next ListOffsets requests calls one of them."""
        self.answers_before_kill: dict[int, int] = {}
        """By broker id: the number of whole Fetch responses before the broker dies in the middle of the next one."""
        self.cut_first_batch = False
        """Apply the byte limit even to the first batch, as very old brokers did."""
        self.producers: dict[int, int] = {}
        """The first offset of the open transaction of each producer in every partition; -1 without one."""
        self.names: dict[int, dict[int, str]] = {}
        """The transactional ids of each coordinator, by producer."""
        self.unserved: set[int] = set()
        """The API keys of `producers` and `names` that the brokers are too old for."""
        self.requests: list[tuple[int, int]] = []
        """(broker id, API key) of every request."""
        self.lock = threading.RLock()
        """Held while a request is answered, and while a broker joins, moves a partition or dies."""
        self.threads: list[threading.Thread] = []
        self.live: set[int] = set()
        """The brokers in the metadata. Broker 0 is the controller."""
        self.behind: set[int] = set()
        """Brokers that do not know any topic yet."""
        self.creates_topics = True
        """`auto.create.topics.enable`. A metadata request that creates a topic does not return it yet."""
        self.holders = [_holder() for _ in range(count)]
        """Sockets that keep the ports of killed brokers from other processes."""
        self.ports = {index: held.getsockname()[1] for index, held in enumerate(self.holders)}
        self.listeners: dict[int, socket.socket] = {}
        self.connections: dict[int, list[socket.socket]] = {index: [] for index in range(count)}
        for index in range(count):
            self.start(index)

    def handlers(self) -> dict[tuple[int, int], Callable[[int, Body], bytes]]:
        """Return the method for each API key and version that the brokers serve."""
        return {
            (1, 11): self._fetch,
            (2, 4): self._list_offsets,
            (3, 11): self._metadata,
            (23, 3): self._epoch_ends,
            (61, 0): self._describe_producers,
            (66, 0): self._list_transactions,
        }

    def _check_served(self, api: int) -> None:
        """Close the connection if the brokers are too old for an API."""
        if api in self.unserved:
            raise ConnectionAbortedError

    def _describe_producers(self, index: int, body: Body) -> bytes:
        self._check_served(61)
        body.take("BB")  # tags of the header, number of topics
        topic = body.compact_string()
        (_, partition) = body.take("Bi")
        states = b"".join(
            struct.pack(">qiiqiq", producer_id, 0, 0, 0, -1, start) + NO_TAGS
            for producer_id, start in self.producers.items()
        )
        head = struct.pack(">iB", 0, 2) + _compact(topic) + bytes([2])
        entry = struct.pack(">ihB", partition, 0, 0) + bytes([len(self.producers) + 1])
        return head + entry + states + NO_TAGS * 3

    def _list_transactions(self, index: int, body: Body) -> bytes:
        self._check_served(66)
        body.take("BBB")  # tags of the header, no states, one producer
        (wanted,) = body.take("q")
        found = [name for one, name in self.names.get(index, {}).items() if one == wanted]
        rows = b"".join(
            _compact(name) + struct.pack(">q", wanted) + b"\x08Ongoing" for name in found
        )
        head = struct.pack(">ihB", 0, 0, 1) + bytes([len(found) + 1])
        return head + rows + NO_TAGS * (len(found) + 1)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def create(self, topic: str, partitions: int = 1) -> list[Partition]:
        self.topics[topic] = [Partition() for _ in range(partitions)]
        return self.topics[topic]

    def move(self, topic: str, partition: int, leader: int) -> None:
        """Make `leader` the leader of the partition, in the next leader epoch."""
        with self.lock:
            moved = self.topics[topic][partition]
            moved.leader = leader
            moved.epoch += 1
            moved.epochs.append((moved.epoch, moved.high_watermark))

    def start(self, index: int) -> None:
        listener = socket.create_server(("127.0.0.1", self.ports[index]))
        with self.lock:
            self.listeners[index] = listener
            self.live.add(index)
        self._spawn(self._accept, index, listener)

    def fail_over(self, index: int) -> None:
        """Remove the broker from the metadata, and move its partitions to a live broker.

        This is one step: of two brokers that die at the same time, neither takes the other's partitions.
        """
        with self.lock:
            self.live.discard(index)
            for topic, partitions in self.topics.items():
                for number, partition in enumerate(partitions):
                    if partition.leader == index:
                        self.move(topic, number, min(self.live))

    def kill(self, index: int) -> None:
        """Remove the broker from the metadata, and close its listener and all its connections."""
        with self.lock:
            self.live.discard(index)
            listener = self.listeners.pop(index, None)
        if listener is not None:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        for connection in self.connections[index]:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Stop all brokers, wait until their threads have ended, and give their ports back."""
        for index in list(self.connections):
            self.kill(index)
        while self.threads:
            self.threads.pop().join(10)
        for holder in self.holders:
            holder.close()

    def _spawn(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        thread.start()
        self.threads.append(thread)

    def _accept(self, index: int, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self.connections[index].append(connection)
            if self.listeners.get(index) is not listener:
                connection.close()
                return
            self._spawn(self._serve, index, connection)

    def _serve(self, index: int, connection: socket.socket) -> None:
        stream = connection.makefile("rb")
        try:
            while len(head := stream.read(4)) == 4:
                if head[0]:
                    return  # no request, but for example the start of a TLS handshake
                body = Body(stream.read(int.from_bytes(head, "big")))
                api, version, correlation = body.take("hhi")
                if api == SASL_HANDSHAKE:
                    return
                body.string()
                with self.lock:
                    self.requests.append((index, api))
                    answer = self.handlers()[api, version](index, body)
                if (api, version) in FLEXIBLE:
                    answer = NO_TAGS + answer
                frame = struct.pack(">ii", len(answer) + 4, correlation) + answer
                if not self.deliver(index, connection, api, frame):
                    return
        except OSError:
            return
        finally:
            stream.close()
            connection.close()

    def deliver(self, index: int, connection: socket.socket, api: int, frame: bytes) -> bool:
        """Send a response. Return False if the connection must be closed."""
        if api == 1 and self._dies_now(index):
            self.fail_over(index)
            connection.sendall(frame[: len(frame) // 2])
            self.kill(index)
            return False
        connection.sendall(frame)
        return True

    def _dies_now(self, index: int) -> bool:
        with self.lock:
            if index not in self.answers_before_kill:
                return False
            self.answers_before_kill[index] -= 1
            return self.answers_before_kill[index] < 0

    def _metadata(self, index: int, body: Body) -> bytes:
        _, size = body.take("BB")  # tags of the header, length of the topic array + 1
        asked = [self._asked_topic(body) for _ in range(size - 1)] if size else list(self.topics)
        creates, with_operations = body.take("BB")
        assert not with_operations
        out = [struct.pack(">iB", 0, len(self.live) + 1)]
        for broker in sorted(self.live):
            out.append(struct.pack(">i", broker) + _compact("127.0.0.1"))
            out.append(struct.pack(">i", self.ports[broker]) + _compact(None) + NO_TAGS)
        out.append(_compact("cluster") + struct.pack(">iB", 0, len(asked) + 1))
        out += [self._topic(topic, {} if index in self.behind else self.topics) for topic in asked]
        if creates and self.creates_topics:
            for topic in asked:
                self.topics.get(topic) or self.create(topic, 3)
        return b"".join(out) + NO_TAGS

    def _asked_topic(self, body: Body) -> str:
        assert body.take("16s") == (bytes(16),)
        topic = body.compact_string()
        body.take("B")
        return topic

    def _topic(self, topic: str, known: dict[str, list[Partition]]) -> bytes:
        partitions = known.get(topic)
        code = UNKNOWN_TOPIC if partitions is None else 0
        out = [struct.pack(">h", code) + _compact(topic) + self.topic_ids.get(topic, bytes(16))]
        out.append(struct.pack(">BB", topic.startswith("__"), len(partitions or []) + 1))
        for number, partition in enumerate(partitions or []):
            out.append(struct.pack(">hiii", 0, number, partition.leader, partition.epoch))
            out.append(struct.pack(">BiBiBB", 2, partition.leader, 2, partition.leader, 1, 0))
        return b"".join(out) + struct.pack(">iB", 0, 0)

    def check(self, index: int, topic: str, number: int, epoch: int) -> int:
        partition = self.topics[topic][number]
        if partition.leader != index:
            return NOT_LEADER
        if epoch == partition.epoch or epoch == -1:
            return 0
        return FENCED if epoch < partition.epoch else UNKNOWN_EPOCH

    def _epoch_ends(self, index: int, body: Body) -> bytes:
        body.take("i")
        out = []
        (topic_count,) = body.take("i")
        for _ in range(topic_count):
            topic = body.string()
            (count,) = body.take("i")
            out.append(string(topic) + struct.pack(">i", count))
            for _ in range(count):
                number, epoch, wanted = body.take("iii")
                code = self.check(index, topic, number, epoch)
                found = (-1, -1) if code else self.topics[topic][number].epoch_end(wanted)
                out.append(struct.pack(">hiiq", code, number, *found))
        return struct.pack(">ii", 0, topic_count) + b"".join(out)

    def _list_offsets(self, index: int, body: Body) -> bytes:
        _, isolation = body.take("ib")
        if self.on_list_offsets:
            self.on_list_offsets.pop(0)()
        out = []
        (topic_count,) = body.take("i")
        for _ in range(topic_count):
            topic = body.string()
            (count,) = body.take("i")
            out.append(string(topic) + struct.pack(">i", count))
            for _ in range(count):
                number, epoch, timestamp = body.take("iiq")
                code = self.check(index, topic, number, epoch)
                partition = self.topics[topic][number]
                offset = partition.log_start
                if timestamp == LATEST:
                    offset = partition.end(isolation)
                elif partition.last_time is not None and timestamp > partition.last_time:
                    offset = -1
                out.append(
                    struct.pack(">ihqqi", number, code, -1, -1 if code else offset, partition.epoch)
                )
        return struct.pack(">ii", 0, topic_count) + b"".join(out)

    def _fetch(self, index: int, body: Body) -> bytes:
        replica, max_wait, min_bytes, room, isolation, session, _ = body.take("iiiibii")
        assert (replica, session, min_bytes) == (-1, 0, 1)
        assert max_wait > 0
        out = []
        (topic_count,) = body.take("i")
        size = 0
        for _ in range(topic_count):
            topic = body.string()
            (count,) = body.take("i")
            out.append(string(topic) + struct.pack(">i", count))
            for _ in range(count):
                answer, records = self._fetch_partition(index, topic, body, isolation, room, size)
                out.append(answer)
                size += records
        self.fetched.append(len(out) - topic_count)
        return struct.pack(">ihii", 0, 0, 0, topic_count) + b"".join(out)

    def _fetch_partition(
        self, index: int, topic: str, body: Body, isolation: int, room: int, size: int
    ) -> tuple[bytes, int]:
        """Return one partition of a response, and its number of bytes of records.

        If the response already has `size` bytes of records, no batch exceeds `room`.
        """
        number, epoch, offset, _, max_bytes = body.take("iiqqi")
        limit = min(max_bytes, max(room - size, 0))
        partition = self.topics[topic][number]
        code, records = self.check(index, topic, number, epoch), b""
        if self.fetch_errors:
            code = self.fetch_errors.pop(0)
        if not code and not partition.log_start <= offset <= partition.high_watermark:
            code = OFFSET_OUT_OF_RANGE
        if not code:
            records = partition.read(offset, limit, isolation)
            records = records[:limit] if self.cut_first_batch else records
            records = b"" if size and len(records) > limit else records
        high, start = partition.high_watermark, partition.log_start
        aborted = partition.aborted if isolation else []
        answer = (
            struct.pack(">ihqqqi", number, code, high, partition.end(1), start, len(aborted))
            + b"".join(struct.pack(">qq", *one) for one in aborted)
            + struct.pack(">ii", -1, len(records))
            + records
        )
        return answer, len(records)
