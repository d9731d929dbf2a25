"""Brokers' sessions with encryption and authentication, on Apache ZooKeeper and on minikafka's own server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, NoAuthError
from kazoo.handlers.threading import KazooTimeoutError
from support.security.certificates import PASSWORD, Authority, Certificate
from support.security.secure_zookeepers import (
    DIGEST_MODULE,
    HOST,
    USERS,
    Material,
    SecureApache,
    SecureEmbedded,
    secure_server,
)
from support.zookeeper import bytes as wire
from support.zookeeper.bytes import Wire
from support.zookeeper.proxy import proxy_to
from support.zookeeper.zookeepers import heal_servers

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import NoAuth, NotConnected, ZooKeeperLoginRefused
from minikafka.base.ports import Create, SessionState
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.runtime.tasks import TaskRegistry
from minikafka.runtime.transport import SocketTransport
from minikafka.tools.cluster.zookeeper.access import access_of
from minikafka.zookeeper.client.client import ZooKeeperClient, close_session

SECONDS = 20
ALICE = ("x509", "CN=alice,OU=Data,O=Example")
READERS = (1, "world", "anyone")
JAAS = f'{DIGEST_MODULE} required username="%s" password="%s";'
Server = SecureApache | SecureEmbedded


@pytest.fixture(scope="module", params=[SecureApache, SecureEmbedded])
def shared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("secure")
    server = secure_server(request.param, directory / "server", Material(directory / "ca"))
    server.client_auth = "need"
    try:
        asyncio.run(heal_servers([server]))
        yield server
    finally:
        asyncio.run(server.stop())


@pytest.fixture
async def server(shared: Server) -> AsyncIterator[Server]:
    yield shared
    await heal_servers([shared])


@pytest.fixture
def root(request: pytest.FixtureRequest) -> str:
    """The chroot of a test."""
    return "/" + "".join(c if c.isalnum() else "-" for c in request.node.name)


def certificate_keys(server: Server, certificate: Certificate) -> dict[str, object]:
    """Return a broker's keys for the port with TLS."""
    return {
        "zookeeper.ssl.client.enable": True,
        "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
        "zookeeper.ssl.keystore.location": str(certificate.pkcs12),
        "zookeeper.ssl.keystore.password": PASSWORD,
        "zookeeper.ssl.keystore.type": "PKCS12",
        "zookeeper.ssl.truststore.location": str(server.material.authority.pem),
    }


def login_keys(user: str = "alice", password: str = USERS["alice"]) -> dict[str, object]:
    return {"minikafka.zookeeper.jaas.config": JAAS % (user, password)}


@asynccontextmanager
async def session(
    connect: str, keys: dict[str, object], *, session_ms: int = 6_000, connect_ms: int = 6_000
) -> AsyncIterator[ZooKeeperClient]:
    """Return a started client of a broker with these keys."""
    rng, tasks = SystemRng(), TaskRegistry()
    config = BrokerConfig.from_mapping({"broker.id": 1, "zookeeper.connect": connect, **keys})
    client = ZooKeeperClient(
        connect,
        session_ms,
        SystemClock(),
        rng,
        tasks,
        SocketTransport(),
        access=access_of(config, rng),
        connect_timeout_ms=connect_ms,
    )
    try:
        await client.start()
        yield client
        await client.close()
    finally:
        await tasks.close()


async def once(connect: str, keys: dict[str, object]) -> None:
    """Connect for a moment, long before the connect timeout."""
    async with asyncio.timeout(SECONDS), session(connect, keys, connect_ms=60_000):
        pytest.fail("the client has connected")


def acl(server: Server, path: str) -> set[tuple[int, str, str]]:
    """Return the list of a node, as the super user reads it."""
    client = Wire(server.port)
    client.connect(6_000)
    client.request(1, wire.AUTH, wire.integer(0) + wire.text("digest") + wire.data(b"super:admin"))
    found = client.request(1, wire.GET_ACL, wire.text(path)).body[0]
    client.close()
    return set(found)


# ---- encryption


async def test_certificate_owns_what_the_broker_creates(server: Server, root: str) -> None:
    keys = certificate_keys(server, server.material.authority.client("alice"))
    connect = f"{HOST}:{server.secure_port}{root}"
    async with session(connect, keys | {"zookeeper.set.acl": True}) as client:
        await client.create("/a", b"x")
        await client.multi([Create("/b", b""), Create("/consumers", b"")])
        await client.ensure("/config/users/alice")
        assert (await client.get("/a")).data == b"x"
        await client.set("/a", b"y", 0)
    for path in (root, f"{root}/a", f"{root}/b", f"{root}/config"):
        assert acl(server, path) == {(31, *ALICE), READERS}
    for path in (f"{root}/config/users", f"{root}/config/users/alice"):
        assert acl(server, path) == {(31, *ALICE)}
    assert acl(server, f"{root}/consumers") == {(31, "world", "anyone")}


async def test_nodes_are_open_without_the_setting(server: Server, root: str) -> None:
    keys = certificate_keys(server, server.material.authority.client("alice"))
    async with session(f"{HOST}:{server.secure_port}{root}", keys) as client:
        await client.create("/a", b"x")
    for path in (root, f"{root}/a"):
        assert acl(server, path) == {(31, "world", "anyone")}


async def test_other_certificate_may_read_and_not_write(server: Server, root: str) -> None:
    connect = f"{HOST}:{server.secure_port}{root}"
    authority = server.material.authority
    secure = {"zookeeper.set.acl": True}
    async with session(connect, certificate_keys(server, authority.client("alice")) | secure) as a:
        await a.create("/a", b"x")
        await a.ensure("/config/users/u")
    async with session(connect, certificate_keys(server, authority.client("bob")) | secure) as b:
        assert (await b.get("/a")).data == b"x"
        for refused in (
            b.set("/a", b"y", 0),
            b.delete("/a", 0),
            b.create("/a/b", b""),
            b.get("/config/users/u"),
        ):
            with pytest.raises(NoAuth):
                await refused


@pytest.mark.parametrize("what", ["expired", "foreign", "none", "plain", "name", "protocol"])
async def test_start_ends_with_the_reason(server: Server, tmp_path: Path, what: str) -> None:
    authority = server.material.authority
    keys = certificate_keys(server, authority.client("alice"))
    port = server.secure_port
    if what == "expired":
        keys = certificate_keys(server, authority.expired_client("alice"))
    elif what == "foreign":
        keys = certificate_keys(server, Authority(tmp_path, "foreign").client("alice"))
    elif what == "none":
        for name in ("location", "password", "type"):
            del keys[f"zookeeper.ssl.keystore.{name}"]
    elif what == "plain":
        port = server.port
    elif what == "name":
        keys["zookeeper.ssl.truststore.location"] = str(Authority(tmp_path, "other").pem)
    elif what == "protocol":
        keys["zookeeper.ssl.cipher.suites"] = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
    with pytest.raises(NotConnected, match=r"no ZooKeeper server answers at 127.0.0.1:\d+: ."):
        async with session(f"{HOST}:{port}", keys, connect_ms=4_000):
            pytest.fail("the client has connected")


async def test_name_of_the_server_is_verified_unless_the_broker_says_otherwise(
    server: Server, root: str
) -> None:
    """The certificate has the names localhost and 127.0.0.1."""
    keys = certificate_keys(server, server.material.authority.client("alice"))
    other = f"127.1:{server.secure_port}{root}"  # the same address by a name that is not there
    with pytest.raises(NotConnected, match="mismatch"):
        async with session(other, keys, connect_ms=4_000):
            pytest.fail("the client has connected")
    lenient = keys | {"zookeeper.ssl.endpoint.identification.algorithm": ""}
    async with session(other, lenient) as client:
        await client.create("/a", b"")


# ---- SASL


async def test_user_owns_what_the_broker_creates(server: Server, root: str) -> None:
    keys = login_keys() | {"zookeeper.set.acl": True}
    async with session(f"{HOST}:{server.port}{root}", keys) as client:
        await client.create("/a", b"x", ephemeral=True)
        assert acl(server, f"{root}/a") == {(31, "sasl", "alice"), READERS}


async def test_user_and_certificate_both_own_what_the_broker_creates(
    server: Server, root: str
) -> None:
    keys = certificate_keys(server, server.material.authority.client("alice")) | login_keys()
    connect = f"{HOST}:{server.secure_port}{root}"
    async with session(connect, keys | {"zookeeper.set.acl": True}) as client:
        await client.create("/a", b"x")
    assert acl(server, f"{root}/a") == {(31, *ALICE), (31, "sasl", "alice"), READERS}


async def test_every_new_connection_logs_in_before_anything_else(server: Server, root: str) -> None:
    keys = login_keys() | {"zookeeper.set.acl": True}
    async with proxy_to(server.port) as proxy, session(f"{proxy.connect}{root}", keys) as client:
        await client.create("/a", b"")
        for number in range(3):
            states = client.events()
            before, connection = len(proxy.seen), client.connection
            proxy.rst() if number % 2 else proxy.fin()
            async with asyncio.timeout(SECONDS):
                while client.connection == connection:
                    await anext(states)
            await client.set("/a", b"x", number)
            assert proxy.seen[before : before + 3] == [0, 102, 102]
        assert client.generation == 1


async def test_login_follows_a_restart_of_the_server(server: Server, root: str) -> None:
    keys = login_keys() | {"zookeeper.set.acl": True}
    async with session(f"{HOST}:{server.port}{root}", keys, session_ms=10_000) as client:
        await client.create("/a", b"")
        await server.stop()
        await server.start()
        async with asyncio.timeout(SECONDS):
            await client.connected()
        await client.set("/a", b"x", 0)
        assert client.state is SessionState.CONNECTED


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "x")])
async def test_wrong_password_ends_the_start_with_the_key(
    server: Server, user: str, password: str
) -> None:
    with pytest.raises(
        ZooKeeperLoginRefused, match=r"user .* of minikafka.zookeeper.jaas.config"
    ) as ended:
        await once(f"{HOST}:{server.port}", login_keys(user, password))
    assert password not in str(ended.value).replace(user, "")


async def test_session_of_an_ended_process_is_ended_under_tls(server: Server, root: str) -> None:
    keys = certificate_keys(server, server.material.authority.client("alice")) | login_keys()
    connect = f"{HOST}:{server.secure_port}{root}"
    config = BrokerConfig.from_mapping({"broker.id": 1, **keys})
    async with session(connect, keys) as client:
        await client.create("/e", b"", ephemeral=True)
        states = client.events()
        await close_session(
            connect,
            client.session_id,
            client.session_password,
            SystemClock(),
            SocketTransport(),
            access_of(config, SystemRng()),
        )
        async with asyncio.timeout(SECONDS):
            while (await anext(states)).generation == 1:
                pass
        assert await client.exists("/e") is None


# ---- kazoo, which shares no code with minikafka


def kazoo(server: Server, **options: Any) -> KazooClient:
    return KazooClient(options.pop("hosts", f"{HOST}:{server.port}"), timeout=6, **options)


async def test_kazoo_with_a_certificate_reads_what_the_broker_wrote(
    server: Server, root: str
) -> None:
    authority = server.material.authority
    keys = certificate_keys(server, authority.client("alice")) | {"zookeeper.set.acl": True}
    alice = authority.client("alice")

    def work() -> bytes:
        client = kazoo(
            server,
            hosts=f"{HOST}:{server.secure_port}",
            use_ssl=True,
            ca=str(authority.pem),
            certfile=str(alice.chain_file),
            keyfile=str(alice.key_file),
        )
        client.start(timeout=15)
        client.set(f"{root}/a", b"kazoo")
        client.stop()
        client.close()
        return b"kazoo"

    async with session(f"{HOST}:{server.secure_port}{root}", keys) as broker:
        await broker.create("/a", b"x")
        assert await asyncio.to_thread(work) == (await broker.get("/a")).data


async def test_kazoo_with_a_password_has_the_rights_of_its_user(server: Server, root: str) -> None:
    def work() -> list[str]:
        found = []
        options = {"mechanism": "DIGEST-MD5", "username": "alice", "password": USERS["alice"]}
        for extra in ({"sasl_options": options}, {"auth_data": [("digest", "super:admin")]}, {}):
            client = kazoo(server, **extra)
            client.start(timeout=15)
            try:
                client.set(f"{root}/a", b"kazoo")
                found.append("set")
            except NoAuthError:
                found.append("refused")
            client.stop()
            client.close()
        return found

    keys = login_keys() | {"zookeeper.set.acl": True}
    async with session(f"{HOST}:{server.port}{root}", keys) as broker:
        await broker.create("/a", b"x")
        assert await asyncio.to_thread(work) == ["set", "set", "refused"]


async def test_kazoo_with_a_wrong_password_is_refused(server: Server) -> None:
    def work() -> None:
        options = {"mechanism": "DIGEST-MD5", "username": "alice", "password": "wrong"}
        client = kazoo(server, sasl_options=options)
        try:
            client.start(timeout=15)
            client.get("/")
        finally:
            client.stop()
            client.close()

    with pytest.raises((AuthFailedError, KazooTimeoutError)):
        await asyncio.to_thread(work)
