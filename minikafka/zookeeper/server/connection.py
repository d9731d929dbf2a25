"""The connection of one client: it receives frames with requests, and sends replies and events.

Each request is applied when it arrives. Its reply is collected, and `GroupCommit` sends it when it may be sent. So
the replies of a connection are in the order of its requests, and an event precedes the reply to the write that caused
it. While too much is unanswered or unsent, nothing is read from the client.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable, Iterable
from struct import Struct
from typing import Final, NamedTuple

from minikafka.base.ports import Buffer, Clock, Link, Rng
from minikafka.security.principals import InvalidCertificate
from minikafka.zookeeper.messages import codes, jute, replies, requests
from minikafka.zookeeper.messages.codes import UNKNOWN_ZXID, Refused
from minikafka.zookeeper.messages.digest_md5 import NONCE_BYTES, DigestRefused, DigestServer
from minikafka.zookeeper.messages.jute import INT, LONG, Identity, JuteReader, Malformed
from minikafka.zookeeper.messages.replies import ANSWER_BYTES_MAX, PASSWORD_BYTES, AnswerTooLong
from minikafka.zookeeper.server.authentication import ClientAuthentication
from minikafka.zookeeper.server.commit import GroupCommit
from minikafka.zookeeper.server.core.sessions import Session
from minikafka.zookeeper.server.core.state import ServerState
from minikafka.zookeeper.server.counters import Counters, Latencies, ReplyBatch
from minikafka.zookeeper.server.handlers import HANDLERS, answer
from minikafka.zookeeper.server.settings import (
    EVENTS_AT_ONCE_MAX,
    EVENTS_MAX,
    FRAME_MAX,
    IDENTITIES_MAX,
    IDLE_MS,
    UNANSWERED_MAX,
    UNSENT_MAX,
)

logger = logging.getLogger(__name__)

_HEADER: Final = Struct("!ii")
"""Xid and opcode."""
_HEADER_BYTES: Final = 8
_SIZE_BYTES: Final = 4
_AUTH_ZXID: Final = 0
PING_XID: Final = -2
RECEIVE_BYTES: Final = 64 << 10


class ServerParts(NamedTuple):
    """The objects that all connections of a server share. `fail(reason)` ends the process."""

    state: ServerState
    clock: Clock
    commit: GroupCommit
    counters: Counters
    connections: dict[ServerConnection, None]
    newcomers: dict[ServerConnection, None]
    """The connections that have no session yet, the oldest first."""
    secret: bytes
    words: dict[bytes, Callable[[], str]]
    buffer: memoryview
    """Where every connection receives: its bytes are copied before the next connection receives."""
    call_soon: Callable[[Callable[[], None]], object]
    rng: Rng
    authentication: ClientAuthentication
    fail: Callable[[str], None]

    def password(self, session_id: int) -> bytes:
        """Return the password of a session, which nobody can compute without the secret."""
        return hmac.digest(self.secret, LONG.pack(session_id), "sha1")[:PASSWORD_BYTES]


class ServerConnection:
    """The connection of one client (StreamHandler of the transport, Client of the state)."""

    def __init__(self, shared: ServerParts) -> None:
        self.session_id = 0
        self.identities: dict[Identity, None] = {}
        self.counters = Latencies()
        self.last_request = ("NA", 0)
        """Name and xid of the last request, for the four-letter word `cons`."""
        self.deadline = shared.clock.now() + IDLE_MS
        """When the connection is cut off; 0 while it has a session."""
        self.since_ms = shared.clock.wall_ms()
        self.last_zxid = 0
        """Zxid after the last request."""
        self.last_sent_ms = 0
        """Monotonic time of the last reply or event."""
        self.is_paused = False
        """True while nothing is read from the client."""
        self.link: Link
        self._shared = shared
        self._state = shared.state
        self._has_begun = False
        self._is_closing = False
        self._must_authenticate = bool(shared.authentication.required)
        """True until the connection has an identity that the server demands."""
        self._exchange: DigestServer | None = None
        """The exchange of SASL that has begun."""
        self._rest = bytearray()
        """Received bytes that are not a whole frame, or that wait while the connection is paused."""
        self._rest_min = _SIZE_BYTES
        """Length of `_rest` with which its first frame is whole."""
        self._event_zxid = UNKNOWN_ZXID
        """Zxid of the last event."""
        self._events_at_once = 0
        """Number of events with this zxid."""
        self._yields = False
        """True if other clients get their turn before the next request."""
        self._output = ReplyBatch()
        self._sending: ReplyBatch | None = None
        """Output that waits for the log."""

    # ---- called by the transport

    def connected(self, link: Link) -> None:
        """Remember the link."""
        self.link = link
        host = link.peer().rpartition(":")[0].strip("[]")
        self.identities["ip", host] = None
        self._shared.connections[self] = self._shared.newcomers[self] = None

    def get_buffer(self, hint: int) -> Buffer:
        """Return the buffer of all connections."""
        return self._shared.buffer

    def buffer_updated(self, count: int) -> None:
        """Apply the requests that were received."""
        if self._is_closing:
            return
        self._rest += self._shared.buffer[:count]
        self._shared.counters.bytes_received += count
        if len(self._rest) >= self._rest_min:  # a frame may arrive in a million pieces
            self._apply()

    def disconnected(self, error: Exception | None) -> None:
        """Forget the connection. Its session stays until it expires."""
        self._is_closing = True
        self._rest = bytearray()
        self._shared.connections.pop(self, None)
        self._shared.newcomers.pop(self, None)
        self._state.drop(self)

    def drained(self) -> None:
        """Continue to apply requests: the client has received most of the sent bytes."""
        self._proceed()

    # ---- requests

    def _apply(self) -> None:
        """Apply all whole frames that were received, unless too much is unanswered or unsent."""
        data = bytes(self._rest)
        self._rest_min = _SIZE_BYTES
        self._shared.commit.begin_turn()
        try:
            self._rest = bytearray(data[self._apply_frames(data) :])
        except Exception as error:  # noqa: BLE001 - any error ends the process
            self._shared.fail(f"a request of {self.link.peer()} fails unexpectedly: {error!r}")
            return
        self._shared.commit.end_turn()

    def _apply_frames(self, data: bytes) -> int:
        """Apply frames; return the position after the last one."""
        now, time_ms = self._shared.clock.now(), self._shared.clock.wall_ms()
        position, end, count, before = 0, len(data), 0, self._state.zxid
        if not self._has_begun and self._is_word(data):
            return end
        output, (packets_max, bytes_max) = self._output, self._room()
        while end - position >= _SIZE_BYTES:
            size: int = INT.unpack_from(data, position)[0]
            if not 0 <= size <= FRAME_MAX:
                self.cut()
                break
            start = position + _SIZE_BYTES
            if start + size > end:
                self._rest_min = _SIZE_BYTES + size
                break
            if len(output.packets) >= packets_max or output.bytes > bytes_max:
                self._pause()
                break
            position = start + size
            if self._has_begun:
                self._serve(data[start:position], time_ms)
            else:
                self._begin(data[start:position], now, time_ms)
            count += 1
            if self._is_closing:
                break
            if self._yields:
                self._yields = False
                self._pause()
                self._shared.call_soon(self._proceed)
                break
        if output.packets:
            self._shared.commit.add(self)
        self._count(count, self._state.zxid - before, now)
        return position

    def _pause(self) -> None:
        self.is_paused = True
        self.link.pause_reading()

    def _count(self, requests: int, writes: int, now: int) -> None:
        self._output.count(requests, writes, now)
        self.last_zxid = self._state.zxid
        self.counters.received += requests
        self._shared.counters.received += requests
        session = self._state.sessions.open.get(self.session_id)
        if session is not None:
            self._state.sessions.touch(session, now)

    def _room(self) -> tuple[int, int]:
        """Return how many packets and bytes the output may have before the client is not read any more."""
        unsent, sending = self.link.queued_bytes(), self._sending
        if sending is None:
            return UNANSWERED_MAX, UNSENT_MAX - unsent
        return UNANSWERED_MAX - len(sending.packets), UNSENT_MAX - unsent - sending.bytes

    def _is_full(self) -> bool:
        packets_max, bytes_max = self._room()
        return len(self._output.packets) >= packets_max or self._output.bytes > bytes_max

    def _proceed(self) -> None:
        """Apply the requests that wait, after replies were sent."""
        if self.is_paused and not self._is_closing and not self._is_full():
            self.is_paused = False
            self.link.resume_reading()
            self._apply()

    def _serve(self, frame: bytes, time_ms: int) -> None:
        if len(frame) < _HEADER_BYTES:
            self.cut()
            return
        xid, opcode = _HEADER.unpack_from(frame)
        if self._must_authenticate and opcode not in (codes.AUTH, codes.SASL):
            self._refuse(xid, codes.AUTHENTICATION_REQUIRED)
            return
        handler = HANDLERS.get(opcode)
        if handler is None:
            self._serve_other(xid, opcode, frame, time_ms)
            return
        name, decode, self._yields = handler
        self.last_request = name, xid
        try:
            request = decode(JuteReader(frame, _HEADER_BYTES))
        except Exception:  # noqa: BLE001 - whatever is wrong with the bytes is the client's fault
            self._collect(replies.encode_error(xid, self._state.zxid, codes.MARSHALLING_ERROR))
            return
        try:
            body = answer(self._state, self, xid, request, time_ms)
        except Refused as refused:
            self._collect(replies.encode_error(xid, self._state.zxid, refused.code))
            return
        except AnswerTooLong:
            self._cut_for_length(name)
            return
        self._collect(replies.encode_reply(xid, self._state.zxid, body))

    def _cut_for_length(self, name: str) -> None:
        logger.warning(
            "%s is disconnected: the answer to its request %s would be longer than %d MiB",
            self.link.peer(),
            name,
            ANSWER_BYTES_MAX >> 20,
        )
        self.cut()

    def _serve_other(self, xid: int, opcode: int, frame: bytes, time_ms: int) -> None:
        if opcode == codes.PING:
            self._answer_ping()
        elif opcode == codes.CLOSE_SESSION:
            self._state.close_session(self.session_id, xid, time_ms)
            self._collect(replies.encode_reply(xid, self._state.zxid))
            self.close()
        elif opcode == codes.AUTH:
            self._authenticate(xid, frame)
        elif opcode == codes.SASL:
            self._continue_exchange(xid, frame)
        else:
            self._collect(replies.encode_error(xid, UNKNOWN_ZXID, codes.UNIMPLEMENTED))
            self.close()

    def _answer_ping(self) -> None:
        """Answer a ping. The xid of the reply is that of all pings, whatever the client sent [measured]."""
        self.last_request = "PING", PING_XID
        try:
            self._state.check_session(self)
        except Refused as refused:
            self._collect(replies.encode_error(PING_XID, self._state.zxid, refused.code))
        else:
            self._collect(replies.encode_reply(PING_XID, self._state.zxid))

    # ---- authentication

    def _authenticate(self, xid: int, frame: bytes) -> None:
        try:
            scheme, credentials = requests.decode_auth(JuteReader(frame, _HEADER_BYTES))
        except Malformed:
            self.cut()
            return
        found = self._shared.authentication.of_request(scheme, credentials)
        self._add_identities(found or ())
        if found is None or len(self.identities) > IDENTITIES_MAX:
            self._refuse(xid, codes.AUTH_FAILED)
            return
        self._collect(replies.encode_reply(xid, _AUTH_ZXID))

    def _continue_exchange(self, xid: int, frame: bytes) -> None:
        """Answer a token of SASL. A server without SASL answers with none [measured]."""
        shared = self._shared
        if self._exchange is None:
            self._exchange = shared.authentication.exchange(shared.rng.bytes(NONCE_BYTES))
        answer = None
        try:
            token = requests.decode_sasl(JuteReader(frame, _HEADER_BYTES))
            if self._exchange is not None:
                answer = self._exchange.step(token)
        except Malformed:
            self.cut()
            return
        except DigestRefused as refused:
            logger.warning("%s does not authenticate: %s", self.link.peer(), refused)
            self._refuse(xid, codes.AUTH_FAILED)
            return
        if self._exchange is not None and self._exchange.user is not None:
            self._add_identities(shared.authentication.of_user(self._exchange.user))
        self._collect(replies.encode_reply(xid, _AUTH_ZXID, jute.buffer(answer)))

    def _add_identities(self, found: Iterable[Identity]) -> None:
        for identity in found:
            self.identities[identity] = None
        self._must_authenticate = not self._shared.authentication.is_enough(self.identities)

    def _read_certificate(self) -> bool:
        """Add the identities of the client's certificate, if there is one; return False if it cannot be read."""
        certificate = self.link.peer_certificate()
        if certificate is not None:
            try:
                self._add_identities(self._shared.authentication.of_certificate(certificate))
            except InvalidCertificate as error:
                logger.warning(
                    "%s has a certificate without a readable subject: %s", self.link.peer(), error
                )
                return False
        return True

    def _refuse(self, xid: int, code: int) -> None:
        """Answer with an error, and end the connection."""
        self._collect(replies.encode_error(xid, _AUTH_ZXID, code))
        self.close()

    # ---- start of a session

    def _is_word(self, data: bytes) -> bool:
        """Answer a four-letter word, if the data begin with one."""
        word = data[:_SIZE_BYTES]
        answer = self._shared.words.get(word)
        if answer is None:
            return False
        self.counters.received += 1
        self._shared.counters.received += 1
        try:
            text = answer()
        except AnswerTooLong:
            self._cut_for_length(word.decode())
            return True
        self._emit(text.encode())
        self.close()
        return True

    def _begin(self, frame: bytes, now: int, time_ms: int) -> None:
        """Open a session, or attach to one."""
        try:
            request = requests.decode_connect(frame)
        except Malformed:
            self.cut()
            return
        # To a client that has seen a later zxid, the state would seem to go back.
        if request.seen_zxid > self._state.zxid or not self._read_certificate():
            self.cut()
            return
        self._has_begun = True
        session = (
            self._attach(request)
            if request.session_id
            else self._state.open_session(request.timeout_ms, now, time_ms)
        )
        if session is None:
            self._collect(replies.encode_refused_connection(has_read_only=request.has_read_only))
            self.close()
        else:
            self._join(session, now, has_read_only=request.has_read_only)

    def _join(self, session: Session, now: int, *, has_read_only: bool) -> None:
        """Make this the connection of the session, and greet the client."""
        self.deadline = 0
        self._shared.newcomers.pop(self, None)
        self.session_id = session.id
        session.connection = self
        self._state.sessions.touch(session, now)
        password = self._shared.password(session.id)
        self._collect(
            replies.encode_connected(
                session.id, session.timeout_ms, password, has_read_only=has_read_only
            )
        )

    def _attach(self, request: requests.Connect) -> Session | None:
        """Return the session if the client may use it. Its former connection is closed, and loses its watches."""
        session = self._state.sessions.open.get(request.session_id)
        expected = self._shared.password(request.session_id)
        if session is None or not hmac.compare_digest(request.password, expected):
            return None
        former = session.connection
        if isinstance(former, ServerConnection):
            # First the watches: the client sets them again on the new connection, and must get no event twice.
            self._state.drop(former)
            former.close()
        session.timeout_ms = self._state.sessions.clamped(request.timeout_ms)
        return session

    # ---- output

    def on_event(self, change: int, path: str, zxid: int) -> None:
        """Collect a watch event."""
        if self._is_closing:
            return
        self._shared.counters.events[change] += 1
        self._emit(replies.encode_event(change, path, zxid))
        if zxid != self._event_zxid:
            self._event_zxid, self._events_at_once = zxid, 0
        if zxid != UNKNOWN_ZXID:  # not an event of its own setWatches
            self._events_at_once += 1
        if self._output.bytes > EVENTS_MAX or self._events_at_once > EVENTS_AT_ONCE_MAX:
            self.cut()
            self._state.drop(self)  # the rest of these events is not even made

    def _emit(self, packet: bytes) -> None:
        """Collect a packet outside of `_apply`: an event, or the answer to a four-letter word."""
        self._collect(packet)
        self._shared.commit.add(self)

    def _collect(self, packet: bytes) -> None:
        output = self._output
        output.packets.append(packet)
        output.bytes += len(packet)

    def take_output(self) -> ReplyBatch:
        """Return the collected output, and begin to collect the next. It is sent when the log is durable."""
        output, self._output = self._output, ReplyBatch()
        output.is_last = self._is_closing
        self._sending = output
        return output

    def send_output(self, output: ReplyBatch) -> None:
        """Send the output, and close the connection if it is the last one."""
        self._sending = None
        link, packets = self.link, output.packets
        queued = link.queued_bytes()
        if packets:
            link.send(packets if len(packets) == 1 else (b"".join(packets),))
            now = self._shared.clock.now()
            self.last_sent_ms = now
            output.add_to(self.counters, now)
            output.add_to(self._shared.counters, now)
            self._shared.counters.writes += output.writes
            self._shared.counters.bytes_sent += output.bytes
        if output.is_last:
            link.close()
        elif queued > UNSENT_MAX and link.queued_bytes() > EVENTS_MAX:
            self.cut()
        elif self.is_paused:
            self._shared.call_soon(self._proceed)

    def unanswered(self) -> int:
        """Return the number of requests whose replies wait for the log."""
        return self._output.requests + (self._sending.requests if self._sending else 0)

    def close(self) -> None:
        """Apply no further request, and close the connection when the collected output has been sent."""
        self._is_closing = True
        self.deadline = self._shared.clock.now() + IDLE_MS
        self._shared.commit.add(self)

    def cut(self) -> None:
        """Close the connection at once, and drop the collected output."""
        self._is_closing = True
        self._output = ReplyBatch()
        self.link.abort()
