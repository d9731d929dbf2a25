"""Follower fetchers: one per leader broker, each with one connection and at most one fetch in flight (R52).

In normal operation, the callbacks of the connection do the work: they append the records of a response, then send
the next fetch. The task of a fetcher only connects and backs off. Invariants: a fetch is sent only after the records
of the previous response are written, because the offset in the fetch acknowledges these records. A fetch is sent
only if no OffsetForLeaderEpoch request is in flight, so that the partitions in that request join the next fetch.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from minikafka.base.config import BrokerConfig
from minikafka.base.endpoints import Endpoint
from minikafka.base.errors import StorageFailed
from minikafka.base.model import Broker, BrokerId, TopicPartition
from minikafka.base.ports import Clock, Link, Tasks, Timer
from minikafka.client.login import SESSION_SHARE, Connector, LoginFailed, LoginSteps
from minikafka.kafka.wire.codec import decode_response, encode_request, request
from minikafka.kafka.wire.fetch import decode_response_head, response_partitions
from minikafka.kafka.wire.fetch import encode_request as encode_fetch
from minikafka.kafka.wire.framing import SIZE, FramedStream
from minikafka.kafka.wire.single_fetch import SingleFetch, single_response
from minikafka.kafka.wire.versions import FETCH, OFFSET_FOR_LEADER_EPOCH, SASL_AUTHENTICATE
from minikafka.storage.replication.follower import Follower, Question
from minikafka.storage.replication.partition import Partition

logger = logging.getLogger(__name__)

_EPOCHS_VERSION: Final = 4
_BODY: Final = 8
"""Position of the body in a response frame, after the length prefix and the correlation id."""
_CONNECT_WITHIN_MS: Final = 10_000
"""Kafka's socket.connection.setup.timeout.ms: the time after which an attempt to connect has failed."""
_SILENT_MS: Final = 5_000
"""Time without a response to a fetch after which the leader counts as not reached."""
_SILENCE: Final = "no response to a fetch"
_BACKOFF_MIN_MS: Final = 50
_FRAME_SLACK: Final = 64 << 20
"""Maximum bytes of a response in addition to its records."""


class LeaderConnection(FramedStream):
    """One connection to a leader; the event `lost` is set when the connection has ended."""

    __slots__ = (
        "_checked",
        "_checked_at",
        "_clock",
        "_config",
        "_connector",
        "_correlation",
        "_fetcher",
        "_login",
        "_login_timer",
        "_outstanding",
        "_single",
        "_tasks",
        "_timer",
        "lost",
    )

    def __init__(self, fetcher: LeaderFetcher, fetchers: Fetchers, session_ms: int) -> None:
        """`session_ms`: the time after which the broker must have authenticated again; 0: it need not."""
        config = fetchers.config
        super().__init__(
            config.replica_fetch_response_max_bytes + config.socket_request_max_bytes + _FRAME_SLACK
        )
        self._fetcher = fetcher
        self._config = config
        self._clock = fetchers.clock
        self._connector = fetchers.connector
        self._tasks = fetchers.tasks
        self._correlation = 0
        self._outstanding: deque[int] = deque()
        self._checked = -1
        self._checked_at = fetchers.clock.now()
        self._timer: Timer | None = None
        self._login: LoginSteps | None = None
        """The login that is due or in progress (KIP-368); fetches wait for it."""
        self._login_timer: Timer | None = None
        self._begin_session(session_ms)
        self._single = SingleFetch(fetcher.client_id, fetcher.broker_id, self._limits())
        self.lost = asyncio.Event()

    def connected(self, link: Link) -> None:
        """Send the first requests, and let the fetcher use this connection."""
        self.link = link
        self._fetcher.connection = self
        self.pump()

    def disconnected(self, error: Exception | None) -> None:
        """Set `lost`, which wakes the fetcher's task to connect again."""
        for timer in (self._timer, self._login_timer):
            if timer is not None:
                timer.cancel()
        self.release()
        self.lost.set()

    def drained(self) -> None:
        """Do nothing. Requests are small, so a request never waits for the leader to receive earlier requests."""

    def parse(self, buf: bytearray, view: memoryview, start: int, end: int) -> int:
        """Append the records of all complete responses; return the position after the last complete response."""
        while end - start >= _BODY:
            stop = start + 4 + int(SIZE.unpack_from(buf, start)[0])
            if stop > end:
                break
            api = self._outstanding.popleft()
            if api == FETCH:
                self._on_fetch(buf, view, start, stop)
            elif api == SASL_AUTHENTICATE:
                self._on_login(view[start + 4 : stop])
            else:
                self._on_epochs(view[start + 4 : stop])
            start = stop
        return start

    def finish(self) -> None:
        """Send the next requests. Called when the received records have been written."""
        follower = self._fetcher.follower
        if follower.unreconciled and OFFSET_FOR_LEADER_EPOCH not in self._outstanding:
            # At most one OffsetForLeaderEpoch request is in flight. Otherwise the response to an earlier
            # request could be taken for the response about a later epoch of the same partition.
            questions = follower.epoch_questions()
            self._send(OFFSET_FOR_LEADER_EPOCH, self._epoch_request(questions))
        if follower.held:
            follower.release_held()
        if not self._outstanding:
            if self._login is not None:
                self._send(SASL_AUTHENTICATE, self._login.first())
            elif follower.has_fetch():
                self._send(FETCH, self._fetch_request())
        if follower.delayed or follower.held:
            self._arm()

    pump = finish

    def _begin_session(self, session_ms: int) -> None:
        """Authenticate again when most of the session is over."""
        if session_ms:
            self._login_timer = self._clock.call_later(session_ms * SESSION_SHARE, self._on_session)

    def _on_session(self) -> None:
        self._tasks.spawn(self._log_in(), f"login-to-{self._fetcher.leader}")

    async def _log_in(self) -> None:
        """Begin the login when the token for it is there; fetches go on meanwhile."""
        try:
            await self._connector.renew()
        except (OSError, LoginFailed) as error:
            logger.warning("no login to leader %d: %s", self._fetcher.leader, error)
            self.link.abort()
            return
        if not self.lost.is_set():
            self._login = self._connector.new_login(self._fetcher.client_id.decode())
            self.pump()

    def _on_login(self, answer: memoryview) -> None:
        """Send the next request of a login, or go on with fetches. A refused login closes the connection."""
        assert self._login is not None
        try:
            following = self._login.next(bytes(answer))
        except LoginFailed as error:
            logger.warning("leader %d refuses the login: %s", self._fetcher.leader, error)
            self.link.abort()
            return
        if following is not None:
            self._send(SASL_AUTHENTICATE, following)
            return
        session_ms, self._login = self._login.lifetime_ms, None
        self._begin_session(session_ms)

    def _send(self, api: int, frame: bytes) -> None:
        self._outstanding.append(api)
        self.link.send((frame,))

    def _epoch_request(self, questions: list[Question]) -> bytes:
        topics: dict[str, list[dict[str, int]]] = {}
        for topic, number, current, asked in questions:
            topics.setdefault(topic, []).append(
                {"partition": number, "current_leader_epoch": current, "leader_epoch": asked}
            )
        self._correlation += 1
        body = request(
            OFFSET_FOR_LEADER_EPOCH,
            _EPOCHS_VERSION,
            replica_id=self._fetcher.broker_id,
            topics=[{"topic": topic, "partitions": rows} for topic, rows in topics.items()],
        )
        return encode_request(
            OFFSET_FOR_LEADER_EPOCH,
            _EPOCHS_VERSION,
            self._correlation,
            self._fetcher.client_id.decode(),
            body,
        )

    def _fetch_request(self) -> bytes:
        follower = self._fetcher.follower
        correlation = self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        session = (follower.session_id, follower.session_epoch)
        single = follower.next_row()
        if single is not None:
            return self._single.encode(correlation, session, *single)
        topics, forgotten = follower.next_fetch()
        return encode_fetch(
            correlation,
            self._fetcher.client_id,
            self._fetcher.broker_id,
            self._limits(),
            session,
            list(topics.items()),
            list(forgotten.items()),
        )

    def _limits(self) -> tuple[int, int, int]:
        config = self._config
        return (
            config.replica_fetch_wait_max_ms,
            config.replica_fetch_min_bytes,
            config.replica_fetch_response_max_bytes,
        )

    def _on_fetch(self, buf: bytearray, view: memoryview, start: int, end: int) -> None:
        follower = self._fetcher.follower
        single = single_response(buf, start, end)
        if single is not None:
            session_id, topic, number, hw, log_start, first, last = single
            if follower.on_session(0, session_id):
                records = (buf, view, first, last)
                follower.on_partition((topic, number), 0, hw, log_start, records, None)
            return
        head = decode_response_head(buf, start + _BODY)
        if not follower.on_session(head.error, head.session_id):
            return
        on_partition = follower.on_partition
        for topic, number, error, hw, log_start, first, last, diverging in response_partitions(
            buf, head, end
        ):
            on_partition((topic, number), error, hw, log_start, (buf, view, first, last), diverging)

    def _on_epochs(self, view: memoryview) -> None:
        response = decode_response(OFFSET_FOR_LEADER_EPOCH, _EPOCHS_VERSION, view)
        for topic in response.topics:
            name = topic.topic.encode()
            for row in topic.partitions:
                self._fetcher.follower.on_epoch_answer(
                    (name, row.partition), int(row.error_code), row.leader_epoch, row.end_offset
                )

    def _arm(self) -> None:
        now = self._clock.now()
        due = self._fetcher.follower.get_timer(now)
        if due is not None and self._timer is None:
            self._timer = self._clock.call_later(max(due - now, 1), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._fetcher.follower.handle_timer(self._clock.now())
        self.pump()

    def check(self, now: int) -> None:
        """Abort the connection if the leader has not responded for replica.socket.timeout.ms. Called periodically."""
        if self._correlation != self._checked:
            self._checked, self._checked_at = self._correlation, now
        elif self._outstanding and now - self._checked_at > self._config.replica_socket_timeout_ms:
            logger.warning("leader %d does not respond, reconnecting", self._fetcher.leader)
            self._fetcher.note_failure(_SILENCE, self._checked_at)
            self.link.abort()

    def silent_since(self, now: int) -> int | None:
        """Return since when the leader owes a response (monotonic ms); None if it has responded lately."""
        is_silent = self._outstanding and now - self._checked_at > _SILENT_MS
        return self._checked_at if is_silent else None


class LeaderFetcher:
    """The fetcher for one leader broker: the partitions fetched from it, and the task that keeps it connected."""

    def __init__(self, leader: BrokerId, fetchers: Fetchers) -> None:
        self.leader = leader
        self.broker_id = fetchers.broker_id
        self.client_id = f"broker-{fetchers.broker_id}-fetcher-0".encode()
        config = fetchers.config
        self.follower = Follower(
            config.replica_fetch_max_bytes,
            config.replica_fetch_backoff_ms,
            fetchers.on_storage_failed,
            fetchers.on_awaited,
        )
        self._fetchers = fetchers
        self.connection: LeaderConnection | None = None
        self._failed: tuple[int, str] | None = None
        """When the first of the latest attempts to connect has failed (monotonic ms), and why the last one has."""

    def broken(self, now: int) -> tuple[int, str] | None:
        """Return since when the leader is not reached (monotonic ms), and why; None if it is reached."""
        if self._failed is not None or self.connection is None:
            return self._failed
        since = self.connection.silent_since(now)
        return None if since is None else (since, _SILENCE)

    def note_failure(self, why: str, since: int) -> None:
        """Note that the leader is not reached, `since` this time (monotonic ms) or an earlier failure."""
        self._failed = since if self._failed is None else self._failed[0], why

    def wake(self) -> None:
        """Act on a change of the followed partitions: send requests, or close the connection if none is left."""
        if self.connection is not None and not self.connection.lost.is_set():
            if self.follower.followed:
                self.connection.pump()
            else:
                self.connection.link.close()

    async def run(self) -> None:
        """Keep a connection to the leader as long as any partition is followed, then return."""
        backoff_ms = _BACKOFF_MIN_MS
        fetchers = self._fetchers
        while self.follower.followed:
            endpoint = fetchers.endpoints.get(self.leader)
            if endpoint is not None and await self._has_login():
                try:
                    async with asyncio.timeout(_CONNECT_WITHIN_MS / 1000):
                        made = await fetchers.connector.connect(
                            self._new_connection,
                            endpoint.host,
                            endpoint.port,
                            self.client_id.decode(),
                        )
                except (OSError, LoginFailed) as error:
                    why = str(error) or "no response"
                    logger.info("cannot reach leader %d at %s: %s", self.leader, endpoint, why)
                    self.note_failure(why, fetchers.clock.now())
                    if not isinstance(error, TimeoutError):  # silence is no sign of a death
                        fetchers.on_not_connected(self.leader)
                else:
                    assert isinstance(made, LeaderConnection)
                    self._failed = None
                    # Every followed partition may have been removed during `connect`: `wake` closes the connection.
                    self.wake()
                    await made.lost.wait()
                    backoff_ms = _BACKOFF_MIN_MS
                    if self.follower.followed:
                        fetchers.on_connection_lost(self.leader)
                self.connection = None
                self.follower.disconnected()
            if self.follower.followed:
                await fetchers.clock.sleep(backoff_ms)
                backoff_ms = min(2 * backoff_ms, fetchers.config.replica_fetch_backoff_ms)
        fetchers.ended(self)

    async def _has_login(self) -> bool:
        """Return False if there is no token for the login, which is no sign of a dead leader."""
        try:
            await self._fetchers.connector.renew()
        except (OSError, LoginFailed) as error:
            logger.warning("no login to leader %d: %s", self.leader, error)
            return False
        return True

    def _new_connection(self, session_ms: int) -> LeaderConnection:
        return LeaderConnection(self, self._fetchers, session_ms)


class Fetchers:
    """All fetchers of this broker, one per leader broker: Kafka's ReplicaFetcherManager."""

    def __init__(
        self,
        broker_id: BrokerId,
        config: BrokerConfig,
        connector: Connector,
        clock: Clock,
        tasks: Tasks,
        on_storage_failed: Callable[[Partition, StorageFailed], None],
        on_awaited: Callable[[Partition], None],
        on_connection_lost: Callable[[BrokerId], None],
        on_not_connected: Callable[[BrokerId], None],
    ) -> None:
        """`on_awaited(partition)` is called when a high watermark for which consumers wait has advanced.

        `on_connection_lost(leader)` is called when the connection to a leader has ended, if partitions are still
        fetched from this leader. `on_not_connected(leader)` is called when an attempt to connect has failed, except
        after silence.
        """
        self.broker_id = broker_id
        self.config = config
        self.connector = connector
        self.clock = clock
        self.tasks = tasks
        self.on_storage_failed = on_storage_failed
        self.on_awaited = on_awaited
        self.on_connection_lost = on_connection_lost
        self.on_not_connected = on_not_connected
        self.endpoints: dict[BrokerId, Endpoint] = {}
        self._fetchers: dict[BrokerId, LeaderFetcher] = {}
        self._where: dict[TopicPartition, LeaderFetcher] = {}
        self._to_wake: dict[LeaderFetcher, None] = {}
        self._closed = False

    def brokers_changed(self, brokers: Mapping[BrokerId, Broker]) -> None:
        """Update the inter-broker endpoints of the live brokers.

        Abort the connection to a leader whose endpoint has changed.
        """
        listener = self.config.endpoints.inter_broker
        for broker in brokers.values():
            endpoint = broker.endpoint(listener)
            if endpoint is None:
                logger.warning("broker %d has registered no listener %s", broker.id, listener)
                continue
            if self.endpoints.get(broker.id) not in (None, endpoint):
                fetcher = self._fetchers.get(broker.id)
                if fetcher is not None and fetcher.connection is not None:
                    fetcher.connection.link.abort()
            self.endpoints[broker.id] = endpoint

    def add(self, partition: Partition) -> None:
        """Begin to fetch the partition from its leader, after the current callback of the event loop."""
        if self._closed:
            return
        leader = partition.leader
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = LeaderFetcher(leader, self)
            fetcher.follower.add(partition)
            self.tasks.spawn(fetcher.run(), f"fetcher-{leader}")
        else:
            fetcher.follower.add(partition)
            self._wake_soon(fetcher)
        self._where[partition.tp] = fetcher

    def remove(self, tp: TopicPartition) -> None:
        """Stop fetching the partition."""
        fetcher = self._where.pop(tp, None)
        if fetcher is not None:
            fetcher.follower.remove(tp)
            self._wake_soon(fetcher)

    def _wake_soon(self, fetcher: LeaderFetcher) -> None:
        """Wake the fetcher after the current callback, so that a LeaderAndIsr request wakes it only once."""
        if not self._to_wake:
            self.clock.call_later(0, self._wake_all)
        self._to_wake[fetcher] = None

    def _wake_all(self) -> None:
        to_wake, self._to_wake = self._to_wake, {}
        for fetcher in to_wake:
            fetcher.wake()

    def ended(self, fetcher: LeaderFetcher) -> None:
        """Remove a fetcher that no longer follows any partition."""
        if self._fetchers.get(fetcher.leader) is fetcher:
            del self._fetchers[fetcher.leader]

    def broken(self, now: int) -> dict[BrokerId, tuple[str, int, str]]:
        """Return for each leader that is not reached its address, since when (monotonic ms), and why."""
        found = {}
        for leader, fetcher in self._fetchers.items():
            endpoint, failure = self.endpoints.get(leader), fetcher.broken(now)
            if endpoint is not None and failure is not None:
                found[leader] = (f"{endpoint.host}:{endpoint.port}", *failure)
        return found

    def check(self, now: int) -> None:
        """Abort the connections to leaders that do not respond. Called periodically."""
        for fetcher in self._fetchers.values():
            if fetcher.connection is not None:
                fetcher.connection.check(now)

    async def close(self) -> None:
        """Stop all fetchers."""
        self._closed = True
        for fetcher in self._fetchers.values():
            for followed in tuple(fetcher.follower.followed.values()):
                fetcher.follower.remove(followed.partition.tp)
            fetcher.wake()
