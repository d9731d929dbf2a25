"""Fetch (key 1), versions 4 to 17, for consumers and for followers.

Consumers read below the high watermark, or below the last stable offset with isolation level read_committed. They
wait for min_bytes, for at most max_wait_ms. Followers read up to the written log end. Epochs are fenced as in
KIP-320, and divergence is reported as in KIP-595. Version notes: 5 log start offset, 7 sessions, 9 current leader
epoch, 10 topics with compression.type zstd, 11 rack id, 12 flexible and last fetched epoch, 13 topic ids, 15 replica
id in a tagged field, 16 current leaders. Nothing is on tiered storage, so version 14 brings no further error. Brokers
themselves send version 12.

Topic ids (KIP-516): UNKNOWN_TOPIC_ID means that this broker knows no topic with the id. A session whose topic was
deleted gets UNKNOWN_TOPIC_OR_PARTITION, and INCONSISTENT_TOPIC_ID once a topic with the same name exists: it never
reads the records of the new topic. A session names topics either by name or by id: a request that names them in the
other way gets FETCH_SESSION_TOPIC_ID_ERROR. With NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH, version 16 names the
current leader and its address (KIP-951).

A read_committed consumer also gets the aborted transactions that have batches in its records, from the transaction
indexes, and skips their batches. The last stable offset moves only with the high watermark. So a waiting fetch is tried
again when the marker of an open transaction is committed.

Responses are sent in the order of the requests. So a fetch that waits would delay the responses behind it. If a request
other than Produce and Fetch arrives on its connection, the fetch is answered at once with the records that can be
read, even if they are less than min_bytes. The same happens when its session is closed. Java's consumer asks for
offsets on the connection on which its next fetch already waits; behind Apache Kafka's brokers, such a question takes
up to fetch.max.wait.ms.

Incremental sessions (KIP-227): a response contains the partitions that have records, an error, a preferred read
replica, or a high watermark or log start offset that has changed since the last response. At most
`max.incremental.fetch.session.cache.slots` sessions are kept, including the sessions of followers. A consumer
that gets no session receives session id 0, and sends all partitions in each request. When all slots are taken,
a new session replaces a session that was not used for two minutes. If there is no such session, the new session
replaces a smaller session that has been in use for more than two minutes. A follower's session may replace the session
of any consumer. The session of a follower ends with its connection.

Reads from followers (KIP-392): from version 11, a follower also answers consumers, up to the high watermark that it
knows. If `replica.selector.class` is set, the leader returns a preferred read replica: a follower that is in the ISR
and in the client's rack, and has the offset. The leader returns no replica if the leader itself is in the client's
rack. A leader that has named a follower sends this follower each new high watermark at once.

Records beyond the first 64 KiB of a response are read when the client's socket can take them, in pieces of at most
256 KiB. All clients of a broker share a budget of 64 MiB for such pieces. As the budget is used up, the pieces get
smaller, down to 16 KiB. Until a client has received a response with more than 64 KiB of records, its further requests
are not read. If the records are deleted or truncated before they are sent, the connection is closed.

A fetch of more than 64 partitions is handled in steps. Between steps, the broker handles other connections. For a
fetch in a session, only the partitions in the request and the partitions that may have changed are counted. The
connection's next request is handled after such a fetch is answered. While 16 fetches of a connection wait for records,
its next request waits too.

A consumer's request of 8 KiB or more and a follower's request of 16 KiB or more are also decoded in steps. The broker
handles one such request at a time. The connection is closed if a Fetch is larger than 1 MiB (enough for 30,000
partitions), or if a follower's session has more than 10,000 partitions. The sessions of all consumers together have at
most 100,000 partitions. Beyond this number, sessions are replaced in the same way as when all slots are taken. A fetch
of more than 4,096 partitions without a session does not wait for records.
Deliberately ignored: the cluster id, and the broker epoch and directory id of a follower.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Final

from minikafka.base.errors import ProtocolViolation
from minikafka.base.fetch_rows import PARTITION, PartitionData
from minikafka.base.ports import Clock, Slice
from minikafka.broker.clients.access import Access, Basis, Verdicts
from minikafka.broker.fetch.consumer_fetch import ROWS_MAX, ConsumerFetch
from minikafka.broker.fetch.consumer_fetches import (
    FOLLOWER_LARGE_BYTES,
    LARGE_BYTES,
    ConsumerFetches,
    LargeRequest,
    Steps,
)
from minikafka.broker.fetch.rights import CLUSTER_RESOURCE, DENIED
from minikafka.broker.replicas.manager import ReplicaManager
from minikafka.broker.reports.request_metrics import RequestMetrics
from minikafka.broker.services import ClientConnection
from minikafka.broker.turns import Scheduler
from minikafka.kafka.messages.steps import finished
from minikafka.kafka.wire.fetch import (
    FOLLOWER_VERSION,
    FetchRequest,
    decode,
    decode_in_steps,
    encode_response,
    encode_response_in_steps,
)
from minikafka.kafka.wire.single_fetch import SingleRequest, encode_single_response, single_request
from minikafka.storage.replication.purgatory import AnswerQueue, Slot
from minikafka.storage.replication.sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    INVALID_SESSION_EPOCH,
    SESSION_NOT_FOUND,
    FollowerSession,
    Topics,
)

REQUEST_BYTES_MAX: Final = 1 << 20
"""Maximum size of a Fetch request in bytes: enough for 30,000 partitions."""


class FetchApi:
    """Fetch on one connection: any number of consumer fetches, or the session of one follower.

    `filled()` is called whenever a response may have made `is_full` true. `turns` schedules the steps of
    large fetches. `refused(violation)` closes the connection when a large request is malformed.
    """

    __slots__ = (
        "answers",
        "consumers",
        "correlation",
        "decided",
        "followers",
        "now",
        "refused",
        "replicas",
        "requests",
        "session",
        "slot",
    )

    def __init__(
        self,
        client: ClientConnection,
        replicas: ReplicaManager,
        answers: AnswerQueue,
        clock: Clock,
        requests: RequestMetrics,
        filled: Callable[[], None],
        turns: Scheduler,
        refused: Callable[[ProtocolViolation], None],
        access: Access,
    ) -> None:
        self.refused = refused
        self.consumers = ConsumerFetches(
            client, replicas, answers, clock, requests, filled, turns, refused, access
        )
        self.followers = self.consumers.followers
        self.decided: Basis | None = None
        """What the right of the follower depended on when its latest fetch arrived."""
        self.replicas = replicas
        self.answers = answers
        self.requests = requests
        self.now = 0
        self.session: FollowerSession | None = None
        self.slot = Slot()
        """The queue entry of the response to a follower, whose session has at most one fetch in flight."""
        self.correlation = 0

    def on_request(
        self,
        buf: bytearray,
        view: memoryview,
        version: int,
        correlation: int,
        _: int,
        body: int,
        end: int,
    ) -> bool:
        """Begin a fetch. A fetch that cannot read `min_bytes` waits for records, for at most `max_wait_ms`.

        Any other fetch is answered as soon as the complete requests in the receive buffer have been handled, or in
        a later turn of the event loop if the fetch is large. Return True if the connection must not parse further
        requests yet. Raises ProtocolViolation.
        """
        if self.session is not None and version == FOLLOWER_VERSION:
            single = single_request(buf, body, end)
            if single is not None and self._follower_again(self.session, single, correlation):
                return False
        if end - body >= LARGE_BYTES:
            is_of_follower = self._is_of_follower(buf, body, version)
            if not is_of_follower or end - body >= FOLLOWER_LARGE_BYTES:
                self._begin_large(view[body:end], version, correlation)
                return True
        request = decode(buf, view, body, end, version)
        if request.replica_id >= 0 and version == FOLLOWER_VERSION:
            finished(self._follower(request, correlation, self.now))
            self.consumers.rows += sum(len(partitions) for _, partitions in request.topics)
        else:
            ConsumerFetch(self.consumers, request, correlation, version, self.now).begin()
        return self.consumers.rows > ROWS_MAX or self.is_full()

    def _is_of_follower(self, buf: bytearray, body: int, version: int) -> bool:
        """True if a broker sent the request, which means that the replica id in it is not negative.

        The header of a broker's request has no tagged fields, so the position of the replica id is fixed.
        """
        return version == FOLLOWER_VERSION and buf[body] == 0 and buf[body + 1] < 0x80

    def _begin_large(self, body: memoryview, version: int, correlation: int) -> None:
        """Queue a request to be decoded in steps. Raises ProtocolViolation above `REQUEST_BYTES_MAX`."""
        if len(body) > REQUEST_BYTES_MAX:
            raise ProtocolViolation(
                f"a Fetch request must have at most {REQUEST_BYTES_MAX} bytes, got {len(body)}"
            )
        steps = self._large_steps(bytearray(body), version, correlation)
        self.consumers.begin_large(LargeRequest(self.consumers, steps, self.refused))

    def _large_steps(self, body: bytearray, version: int, correlation: int) -> Steps:
        """Decode a request in steps. For a consumer, return a `ConsumerFetch` that has not begun yet.

        For a follower, carry out the fetch in further steps and return None. Raises ProtocolViolation.
        """
        now = self.consumers.clock.now()
        request = yield from decode_in_steps(body, memoryview(body), 0, len(body), version)
        if request.replica_id < 0 or version != FOLLOWER_VERSION:
            return ConsumerFetch(self.consumers, request, correlation, version, now)
        yield from self._follower(request, correlation, now)
        return None

    def is_full(self) -> bool:
        """True while this connection must not parse further requests.

        Reasons: a large fetch is in progress, too many fetches wait, or too many bytes of records are unsent.
        """
        return self.consumers.is_full()

    def close(self) -> None:
        """Drop all fetches and the follower's session, because the connection has ended."""
        self.consumers.close()
        if self.session is not None:
            self.replicas.follower_disconnected(self.session)
            self.session = None

    # ---- followers

    def _follower_again(
        self, session: FollowerSession, single: SingleRequest, correlation: int
    ) -> bool:
        """Handle a follower's fetch of one partition of its session. Return False for any other request."""
        if self.followers is not None and not self.followers.knows(CLUSTER_RESOURCE):
            return False
        (replica_id, max_wait_ms, max_bytes, session_id, session_epoch), topic, row = single
        if replica_id < 0 or session_id != session.id or session_epoch != session.epoch:
            return False
        items = session.items.get(topic)
        item = items.get(row[PARTITION]) if items is not None else None
        if item is None:
            return False
        self._await_response(correlation)
        now = self.now
        if max_bytes > self.replicas.config.fetch_max_bytes:
            max_bytes = self.replicas.config.fetch_max_bytes
        session.fetch_one(item, row, max_bytes, now + max_wait_ms, now)
        return True

    def _follower(
        self, request: FetchRequest, correlation: int, now: int
    ) -> Generator[None, None, None]:
        """Queue an entry for the response, open or continue the session, and carry out the fetch in steps."""
        self._await_response(correlation)
        if self.followers is not None and not self.followers.allow(CLUSTER_RESOURCE):
            yield from self._deny(request)
            return
        error = self._open_or_continue(request)
        if error:
            self.respond(error, [])
            return
        assert self.session is not None
        yield from self.session.fetch(
            request.topics,
            request.forgotten,
            min(request.max_bytes, self.replicas.config.fetch_max_bytes),
            now + request.max_wait_ms,
            now,
        )

    def _deny(self, request: FetchRequest) -> Generator[None, None, None]:
        """End the session, and answer every partition of the request with an error, as Kafka does."""
        if self.session is not None:
            self.replicas.fetch_sessions.close(self.session)
            self.session = None
        topics: list[tuple[bytes, list[PartitionData]]] = []
        for topic, rows in request.topics:
            topics.append((topic, []))
            for row in rows:
                topics[-1][1].append(PartitionData(row[PARTITION], DENIED, -1, -1, -1, (), 0))
                yield
        answer = yield from encode_response_in_steps(
            self.correlation, FOLLOWER_VERSION, 0, 0, topics, None
        )
        self.requests.follower_fetches.value += 1
        self.answers.answer(self.slot, answer)

    def _await_response(self, correlation: int) -> None:
        session = self.session
        if session is not None and session.parked:
            session.answer_now([])
        self.correlation = correlation
        if self.followers is not None:
            self.decided = self.followers.basis
        self.answers.entries.append(self.slot)

    def _open_or_continue(self, request: FetchRequest) -> int:
        """Open or continue the follower's session. Return the error code, 0 on success."""
        session = self.session
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session is not None:
                self.replicas.fetch_sessions.close(session)
            sessions = self.replicas.fetch_sessions
            session = self.session = sessions.open(request.replica_id, self, self.now)
            session.min_bytes = request.min_bytes
            return 0
        if session is None or request.session_id != session.id:
            return SESSION_NOT_FOUND
        if request.session_epoch != session.epoch:
            return INVALID_SESSION_EPOCH
        return 0

    def respond(self, error: int, topics: Topics) -> None:
        """Answer the follower's fetch with an error code, or with these partitions if the code is 0."""
        self.requests.follower_fetches.value += 1
        if self.followers is not None and self.decided != self.followers.basis:
            topics = self._still_allowed(topics, self.followers)
        session_id = self.session.id if self.session is not None and not error else 0
        response: Sequence[Slice] | None = None
        if len(topics) == 1 and len(topics[0][1]) == 1:
            topic, (row,) = topics[0]
            response = encode_single_response(self.correlation, session_id, topic, row)
        if response is None:
            response = encode_response(
                self.correlation, FOLLOWER_VERSION, error, session_id, topics
            )
        self.answers.answer(self.slot, response)

    def _still_allowed(self, topics: Topics, followers: Verdicts) -> Topics:
        """Return the topics, or errors in their place if the follower has lost its right while its fetch waited."""
        if not topics or followers.allow(CLUSTER_RESOURCE):
            return topics
        return [
            (topic, [PartitionData(row[PARTITION], DENIED, -1, -1, -1, (), 0) for row in rows])
            for topic, rows in topics
        ]

    def release_parked(self) -> None:
        """Answer the fetches that wait for records, so that the response to the next request need not wait."""
        self.consumers.stop_waiting()
        if self.session is not None and self.session.parked:
            self.session.answer_now([])
