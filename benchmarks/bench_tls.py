"""Cost of TLS per 16 KiB, without a network: through a connection, and by OpenSSL alone.

The difference between a connection and OpenSSL is the work of `runtime/tls.py`, and one system call for each 256 KiB.
The last bench is the floor of every server in Python: one block of memory goes to another process, over and over.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from time import perf_counter_ns
from typing import Any, Final, cast

import trustme

from benchmarks.micro import Outcome, main
from minikafka.base.ports import Buffer, StreamHandler
from minikafka.runtime.tls import TlsConnection

SIZE: Final = 16 << 10
AT_ONCE: Final = 16
BLOCK: Final = 64
"""Slices of 16 KiB that are passed to OpenSSL in one call."""
"""Operations of one call, as when a client has 16 requests in flight."""
DATA: Final = memoryview(bytes(SIZE))


class _Handler:
    """Takes decrypted bytes, as a connection with a receive buffer of 256 KiB does."""

    def __init__(self) -> None:
        self._buffer = memoryview(bytearray(AT_ONCE * SIZE))
        self.received = 0

    def get_buffer(self, hint: int) -> Buffer:
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        self.received += count

    def drained(self) -> None: ...


class _Null:
    """Stands for the event loop's transport and its socket: /dev/null takes all bytes."""

    def __init__(self) -> None:
        self._file = os.open(os.devnull, os.O_WRONLY)

    def __del__(self) -> None:
        os.close(self._file)

    def fileno(self) -> int:
        return self._file

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, **_: int) -> None: ...

    def get_extra_info(self, name: str) -> Any:
        return self if name == "socket" else None


def _pair() -> tuple[TlsConnection, ssl.SSLObject, ssl.MemoryBIO, ssl.MemoryBIO]:
    """Return a connection of a server, and the TLS state of its client with both queues."""
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(server)
    authority.configure_trust(client)
    handler = _Handler()
    connection = TlsConnection(cast("StreamHandler", handler), None)
    connection._attach(cast("Any", _Null()))
    connection.begin(server, server=True)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = client.wrap_bio(incoming, outgoing, server_hostname="localhost")
    sent = connection._outgoing

    def answer() -> None:
        incoming.write(sent.read())

    connection._flush = answer  # type: ignore[method-assign]
    while not connection._is_secure:
        with suppress(ssl.SSLWantReadError):
            tls.do_handshake()
        _receive(connection, outgoing.read())
    with suppress(ssl.SSLWantReadError):
        tls.read(1)  # the session tickets
    return connection, tls, incoming, outgoing


def _receive(connection: TlsConnection, data: bytes) -> None:
    """Let the connection receive this data, as the event loop does."""
    left = memoryview(data)
    while left:
        buffer = memoryview(connection.get_buffer(-1))
        count = min(len(buffer), len(left))
        buffer[:count] = left[:count]
        connection.buffer_updated(count)
        left = left[count:]


def _write_all(tls: ssl.SSLObject) -> None:
    for _ in range(AT_ONCE):
        tls.write(DATA)


def _repeated(operations: int, prepare: Callable[[], Any], work: Callable[[Any], Any]) -> Outcome:
    """Return the time of `work` alone, which gets what `prepare` returns, and does `AT_ONCE` operations."""
    elapsed = 0
    turns = -(-operations // AT_ONCE)
    for _ in range(turns):
        prepared = prepare()
        started = perf_counter_ns()
        work(prepared)
        elapsed += perf_counter_ns() - started
    return Outcome(elapsed, turns * AT_ONCE, turns)


def send(operations: int) -> Outcome:
    """Send slices of 16 KiB on a connection."""
    connection = _pair()[0]
    slices = [DATA] * AT_ONCE
    return _repeated(operations, lambda: slices, connection.send)


def encrypt_by_openssl(operations: int) -> Outcome:
    """Encrypt 16 KiB, and take the result out of OpenSSL's queue."""
    connection = _pair()[0]
    tls, queue = cast("ssl.SSLObject", connection._tls), connection._outgoing

    def work(_: None) -> None:
        _write_all(tls)
        queue.read()

    return _repeated(operations, lambda: None, work)


def receive(operations: int) -> Outcome:
    """Receive 16 KiB on a connection."""
    connection, tls, _, outgoing = _pair()

    def prepare() -> bytes:
        _write_all(tls)
        return outgoing.read()

    return _repeated(operations, prepare, lambda data: _receive(connection, data))


def decrypt_by_openssl(operations: int) -> Outcome:
    """Put 16 KiB into OpenSSL's queue, and decrypt them into a buffer."""
    connection, tls, _, outgoing = _pair()
    own, queue = cast("ssl.SSLObject", connection._tls), connection._incoming
    buffer = memoryview(bytearray(SIZE))

    def prepare() -> bytes:
        _write_all(tls)
        return outgoing.read()

    def work(data: bytes) -> None:
        queue.write(data)
        for _ in range(AT_ONCE):
            own.read(SIZE, buffer)

    return _repeated(operations, prepare, work)


def send_one_block_to_a_process(operations: int) -> Outcome:
    """Send the same 1 MiB to another process, which decrypts it; no file is read, no request is answered."""
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("localhost").configure_cert(server)
    authority.configure_trust(client)
    turns = -(-operations // BLOCK)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        if not (sender := os.fork()):
            _send_block(server.wrap_socket(listening.accept()[0], server_side=True), turns)
            os._exit(0)
        with client.wrap_socket(
            socket.create_connection(listening.getsockname()), server_hostname="localhost"
        ) as connection:
            buffer = bytearray(BLOCK * SIZE)
            connection.recv_into(buffer)  # the sender has begun
            started = perf_counter_ns()
            while connection.recv_into(buffer):
                pass
            elapsed = perf_counter_ns() - started
        os.waitpid(sender, 0)
    return Outcome(elapsed, turns * BLOCK, turns)


def _send_block(connection: ssl.SSLSocket, turns: int) -> None:
    block = bytes(BLOCK * SIZE)
    with connection:
        for _ in range(turns):
            connection.sendall(block)


BENCHES = (send, encrypt_by_openssl, receive, decrypt_by_openssl, send_one_block_to_a_process)

if __name__ == "__main__":
    main(*BENCHES)
