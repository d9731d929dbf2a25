"""Properties of SocketTransport that the Transport protocol class does not require, such as direct writes."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import cast

import pytest

from minikafka.base.ports import QUEUE_MARK_BYTES, Buffer, Link
from minikafka.runtime.connection import SLICES_MAX
from minikafka.runtime.transport import SocketTransport


class Handler:
    def __init__(self) -> None:
        self.link: Link
        self.ended: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.buffer = bytearray(1024)
        self.received = b""

    def connected(self, link: Link) -> None:
        self.link = link

    def get_buffer(self, hint: int) -> Buffer:
        return self.buffer

    def buffer_updated(self, count: int) -> None:
        self.received += self.buffer[:count]

    def disconnected(self, error: Exception | None) -> None:
        self.ended.set_result(error)

    def drained(self) -> None: ...


async def connected_to_a_plain_socket() -> tuple[Handler, socket.socket]:
    """Return a connected handler, and the blocking socket of its peer."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        handler = await SocketTransport().connect(Handler, *server.getsockname())
        assert isinstance(handler, Handler)
        peer, _ = server.accept()
    peer.settimeout(5)
    return handler, peer


async def test_send_reaches_the_socket_in_the_same_loop_iteration() -> None:
    handler, peer = await connected_to_a_plain_socket()
    handler.link.send([b"at ", bytearray(b"once"), memoryview(b"!")])
    assert peer.recv(100) == b"at once!"
    assert handler.link.queued_bytes() == 0
    peer.close()
    await handler.ended


async def test_read_callback_is_called_after_a_read_of_an_outgoing_connection() -> None:
    received: list[bytes] = []
    transport = SocketTransport(lambda: received.append(handler.received))
    with socket.create_server(("127.0.0.1", 0)) as server:
        handler = cast("Handler", await transport.connect(Handler, *server.getsockname()))
        peer, _ = server.accept()
    peer.sendall(b"read")
    peer.close()
    await handler.ended
    assert received == [b"read"]


async def test_read_callback_is_called_after_a_read_of_an_accepted_connection() -> None:
    received: list[bytes] = []
    transport = SocketTransport(lambda: received.append(handler.received))
    handler = Handler()
    listener = await transport.listen(lambda: handler, "127.0.0.1", 0)
    _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(b"read")
    writer.close()
    await writer.wait_closed()
    await handler.ended
    await listener.close()
    assert received == [b"read"]


async def test_send_delivers_all_bytes_of_more_slices_than_writev_accepts() -> None:
    handler, peer = await connected_to_a_plain_socket()
    handler.link.send([b"x"] * (SLICES_MAX + 1))
    assert peer.recv(10_000) == b"x" * (SLICES_MAX + 1)
    peer.close()
    await handler.ended


async def test_bytes_that_a_full_socket_does_not_accept_are_queued_and_sent_in_order() -> None:
    handler, peer = await connected_to_a_plain_socket()
    sent = b""
    number = 0
    while handler.link.queued_bytes() <= QUEUE_MARK_BYTES:
        slices = [struct.pack(">I", number + i) * 1000 for i in range(10)]
        number += 10
        handler.link.send(slices)
        sent += b"".join(slices)
    handler.link.send([b"the end"])
    sent += b"the end"
    received = bytearray()
    loop = asyncio.get_running_loop()
    peer.setblocking(False)
    while len(received) < len(sent):
        received += await loop.sock_recv(peer, 1 << 20)
    assert received == sent
    peer.close()
    await handler.ended


async def test_reset_by_the_peer_is_reported_once_and_later_sends_do_nothing() -> None:
    handler, peer = await connected_to_a_plain_socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    handler.link.send([b"into the void"])
    handler.link.send([b"again"])
    error = await handler.ended
    assert isinstance(error, OSError)
    handler.link.send([b"again"])


async def test_file_descriptor_is_not_written_to_after_the_connection_ended() -> None:
    handler, peer = await connected_to_a_plain_socket()
    handler.link.abort()
    await handler.ended
    await asyncio.sleep(0)  # the loop closes the socket after connection_lost
    ours, theirs = socket.socketpair()  # reuses the free descriptor number
    handler.link.send([b"for another connection"])
    with ours, theirs, peer:
        for other in (ours, theirs):
            other.setblocking(False)
            with pytest.raises(BlockingIOError):
                other.recv(100)


async def test_end_of_the_peers_stream_closes_the_connection() -> None:
    handler, peer = await connected_to_a_plain_socket()
    peer.sendall(b"last words")
    peer.shutdown(socket.SHUT_WR)
    assert await handler.ended is None
    assert handler.received == b"last words"
    peer.close()


async def test_small_writes_are_sent_without_delay() -> None:
    handler, peer = await connected_to_a_plain_socket()
    sock = handler.link._transport.get_extra_info("socket")  # type: ignore[attr-defined]
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    peer.close()
    await handler.ended


async def test_listener_on_a_name_with_several_addresses_gets_one_free_port() -> None:
    listener = await SocketTransport().listen(Handler, "localhost", 0)
    handler = await SocketTransport().connect(Handler, "localhost", listener.port)
    assert isinstance(handler, Handler)
    await listener.close()
    handler.link.abort()
    await handler.ended


async def test_has_ended_is_true_after_the_peer_closed_while_reading_is_paused() -> None:
    handler, peer = await connected_to_a_plain_socket()
    handler.link.pause_reading()
    assert not handler.link.has_ended()
    peer.sendall(b"not read")
    peer.close()
    async with asyncio.timeout(5):
        while not handler.link.has_ended():  # noqa: ASYNC110 - nothing tells the event loop
            await asyncio.sleep(0)
    assert handler.received == b""
    handler.link.abort()
    await handler.ended


async def test_error_of_a_failed_write_has_no_traceback() -> None:
    handler, peer = await connected_to_a_plain_socket()
    handler.link.pause_reading()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    while not handler.ended.done():
        handler.link.send([b"x"])
        await asyncio.sleep(0)
    error = await handler.ended
    assert isinstance(error, OSError)
    assert error.__traceback__ is None


@pytest.mark.key("minikafka.source.address")
async def test_connection_comes_from_the_source_address_of_its_transport() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        handler = await SocketTransport(source="127.77.0.9").connect(Handler, *server.getsockname())
        peer, address = server.accept()

    assert address[0] == "127.77.0.9"
    assert isinstance(handler, Handler)
    peer.close()
    await handler.ended
