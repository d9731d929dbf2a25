"""The port of a server with TLS, over real sockets: certificates of clients, and handshakes that do not end."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from support.security.certificates import Authority, Certificate
from support.zookeeper import wire
from support.zookeeper.wire import WireClient

from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.runtime.tasks import TaskRegistry, ThreadExecutor
from minikafka.runtime.tls import RenewableTls, TlsServer
from minikafka.runtime.tls_files import client_context, load_identity, load_trust, server_context
from minikafka.runtime.transport import SocketTransport
from minikafka.zookeeper.messages import codes, jute
from minikafka.zookeeper.messages.jute import Entry
from minikafka.zookeeper.server import connection
from minikafka.zookeeper.server.authentication import ClientAuthentication
from minikafka.zookeeper.server.server import SecurePort, ZooKeeperServer
from minikafka.zookeeper.server.settings import ServerSettings

HOST = "127.0.0.1"
ALICE = "CN=alice,OU=Data,O=Example"
ROOT = "CN=root,OU=Data,O=Example"
READ, ALL = 1, 31


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


class Scene:
    """A running server, and what its clients trust."""

    def __init__(self, server: ZooKeeperServer, authority: Authority) -> None:
        self.server = server
        self._authority = authority
        self._transport = SocketTransport()

    async def client(self, certificate: Certificate | None = None) -> WireClient:
        """Return a client of the port with TLS, with a session. Raises OSError."""
        identity = None if certificate is None else load_identity("k", str(certificate.pem))
        trust = load_trust("t", str(self._authority.pem))
        tls = RenewableTls(partial(client_context, "c", identity, trust, check_hostname=True))
        found = await self._transport.connect(WireClient, HOST, self.server.secure_port, tls)
        assert isinstance(found, WireClient)
        await found.greet()
        return found

    async def plain_client(self) -> WireClient:
        return await wire.client(self._transport, self.server.port)


@asynccontextmanager
async def running(
    authority: Authority, verify: ssl.VerifyMode = ssl.CERT_REQUIRED, *, tick_ms: int = 2_000
) -> AsyncIterator[Scene]:
    identity = load_identity("ssl.keyStore", str(authority.server().pem))
    trust = load_trust("ssl.trustStore", str(authority.pem))
    tasks, failures = TaskRegistry(), list[str]()
    server = ZooKeeperServer(
        None,
        SystemClock(),
        SystemRng(),
        SocketTransport(),
        tasks,
        ThreadExecutor(),
        settings=ServerSettings(tick_ms=tick_ms),
        authentication=ClientAuthentication(has_tls=True, x509_super=ROOT),
        on_failure=failures.append,
    )
    tls = TlsServer(partial(server_context, "ssl", identity, trust, verify=verify))
    await server.start(HOST, 0, SecurePort(HOST, 0, tls))
    try:
        yield Scene(server, authority)
    finally:
        await server.close()
        await tasks.close()
    assert failures == []


async def schemes(client: WireClient) -> set[tuple[str | None, str | None]]:
    reader = (await client.call(codes.WHO_AM_I)).reader()
    return set(reader.items(lambda: (reader.string(), reader.string())))


async def made(client: WireClient, path: str, *entries: Entry) -> int:
    return (await client.call(codes.CREATE, wire.create(path, b"", 0, jute.acl(entries)))).error


async def test_certificate_is_the_identity_of_its_owner(authority: Authority) -> None:
    async with running(authority) as scene:
        alice = await scene.client(authority.client("alice"))
        assert await schemes(alice) == {("ip", HOST), ("x509", ALICE)}
        assert await made(alice, "/a", (ALL, "auth", "")) == 0
        assert await made(alice, "/b", (READ, "x509", "CN=bob,OU=Data,O=Example")) == 0
        bob = await scene.client(authority.client("bob"))
        found = [(await bob.call(codes.GET_DATA, wire.read(path))).error for path in ("/a", "/b")]
        assert found == [codes.NO_AUTH, 0]
        acl = (await alice.call(codes.GET_ACL, jute.string("/a"))).reader().acl()
        assert acl == ((ALL, "x509", ALICE),)


async def test_super_user_by_certificate_may_do_everything(authority: Authority) -> None:
    async with running(authority) as scene:
        alice, root = [await scene.client(authority.client(name)) for name in ("alice", "root")]
        assert await made(alice, "/a", (ALL, "auth", "")) == 0
        assert await schemes(root) == {("ip", HOST), ("x509", ROOT), ("super", "")}
        assert (await root.call(codes.SET_DATA, wire.set_data("/a"))).error == 0


async def test_both_ports_serve_the_same_nodes(authority: Authority) -> None:
    async with running(authority) as scene:
        alice, plain = await scene.client(authority.client("alice")), await scene.plain_client()
        assert await schemes(plain) == {("ip", HOST)}
        assert await made(alice, "/a", (ALL, "auth", "")) == 0
        assert await made(alice, "/b", (ALL, "world", "anyone")) == 0
        for path, code in (("/a", codes.NO_AUTH), ("/b", 0)):
            assert (await plain.call(codes.GET_DATA, wire.read(path))).error == code


def _expired(authority: Authority, _: Path) -> Certificate:
    return authority.expired_client("alice")


def _foreign(_: Authority, directory: Path) -> Certificate:
    return Authority(directory, "foreign").client("alice")


@pytest.mark.parametrize("make", [None, _expired, _foreign])
@pytest.mark.parametrize("verify", [ssl.CERT_REQUIRED, ssl.CERT_OPTIONAL])
async def test_client_without_a_valid_certificate(
    authority: Authority,
    tmp_path: Path,
    make: Callable[[Authority, Path], Certificate] | None,
    verify: ssl.VerifyMode,
) -> None:
    """A server that wants certificates, but does not need them, refuses those that are not valid."""
    certificate = None if make is None else make(authority, tmp_path)
    async with running(authority, verify) as scene:
        if certificate is None and verify is ssl.CERT_OPTIONAL:
            assert await schemes(await scene.client()) == {("ip", HOST)}
            return
        with pytest.raises(ConnectionError):
            await scene.client(certificate)
        assert scene.server.state.sessions.open == {}


async def silent(port: int, count: int, sent: bytes = b"") -> list[asyncio.StreamWriter]:
    """Return connections that have sent these bytes, and send nothing more."""
    opened = [(await asyncio.open_connection(HOST, port))[1] for _ in range(count)]
    for writer in opened:
        writer.write(sent)
    return opened


def half_hello() -> bytes:
    """Return the first half of a client hello."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    side = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        side.do_handshake()
    hello = outgoing.read()
    return hello[: len(hello) // 2]


async def closed(writers: list[asyncio.StreamWriter]) -> None:
    for writer in writers:
        writer.close()


async def test_silent_and_half_open_connections_keep_nobody_out(authority: Authority) -> None:
    async with running(authority) as scene:
        others = await silent(scene.server.secure_port, 300)
        others += await silent(scene.server.secure_port, 300, half_hello())
        async with asyncio.timeout(5):
            alice = await scene.client(authority.client("alice"))
            assert ("x509", ALICE) in await schemes(alice)
        await closed(others)


@pytest.mark.parametrize("begin", [bytes, half_hello])
async def test_connection_without_a_session_ends_at_its_deadline(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, begin: Callable[[], bytes]
) -> None:
    monkeypatch.setattr(connection, "IDLE_MS", 300)
    async with running(authority, tick_ms=100) as scene:
        reader, writer = await asyncio.open_connection(HOST, scene.server.secure_port)
        writer.write(begin())
        async with asyncio.timeout(5):
            assert await _until_end(reader.read) == b""
        writer.close()
        assert scene.server.connections == {}


async def _until_end(read: Callable[[], Awaitable[bytes]]) -> bytes:
    try:
        return await read()
    except ConnectionResetError:
        return b""


async def test_request_in_the_clear_ends_the_connection(authority: Authority) -> None:
    async with running(authority) as scene:
        reader, writer = await asyncio.open_connection(HOST, scene.server.secure_port)
        writer.write(b"ruok")
        writer.write(bytes(100))
        async with asyncio.timeout(5):
            assert b"imok" not in await _until_end(reader.read)
        writer.close()
