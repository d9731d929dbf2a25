"""The connection to one broker: order of responses, closing, invalid responses."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from minikafka.base.errors import ProtocolViolation
from minikafka.spark.wire.connection import BlockingConnection

API = (18, 0)


@contextmanager
def served_by(
    answer: Callable[[socket.socket], None], timeout_s: float = 10
) -> Iterator[BlockingConnection]:
    """Yield a connection to a peer that runs `answer` and then closes its sending side."""

    def serve() -> None:
        peer, _ = listener.accept()
        with peer:
            answer(peer)
            peer.shutdown(socket.SHUT_WR)
            while peer.recv(4096):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer = threading.Thread(target=serve)
        peer.start()
        with closing(
            BlockingConnection("127.0.0.1", listener.getsockname()[1], "test", timeout_s)
        ) as made:
            yield made
        peer.join()


def frame(correlation: int, body: bytes) -> bytes:
    return struct.pack(">ii", len(body) + 4, correlation) + body


def test_responses_are_returned_in_the_order_of_the_requests():
    with served_by(lambda peer: peer.sendall(frame(1, b"first") + frame(2, b""))) as connection:
        connection.send(API, b"")
        connection.send(API, b"")
        assert bytes(connection.receive()) == b"first"
        assert bytes(connection.receive()) == b""


@pytest.mark.parametrize("size", [3, -1, 2**31 - 1])
def test_response_of_an_invalid_size_is_a_protocol_violation(size):
    with (
        served_by(lambda peer: peer.sendall(struct.pack(">ii", size, 1))) as connection,
        pytest.raises(ProtocolViolation),
    ):
        connection.call(API, b"")


def test_response_to_another_request_is_a_protocol_violation():
    with (
        served_by(lambda peer: peer.sendall(frame(9, b""))) as connection,
        pytest.raises(ProtocolViolation),
    ):
        connection.call(API, b"")


@pytest.mark.parametrize("sent", [b"", b"\x00\x00", frame(1, b"answer")[:-1]])
def test_closed_connection_raises_oserror(sent):
    with (
        served_by(lambda peer: peer.sendall(sent)) as connection,
        pytest.raises(OSError, match=r"closed|reset"),
    ):
        connection.call(API, b"")


def test_silent_broker_times_out():
    given_up = threading.Event()
    with served_by(lambda peer: given_up.wait(10), timeout_s=0.05) as connection:
        with pytest.raises(TimeoutError):
            connection.call(API, b"")
        given_up.set()
