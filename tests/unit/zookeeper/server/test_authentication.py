"""Authentication at a server in memory, and the permissions that each request needs."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import pytest
from support.security import zookeeper_permissions as permissions
from support.security.certificates import Authority
from support.security.zookeeper_permissions import ADMIN, ALL, CHILD, GUARDED, NO_AUTH, NODE, READ
from support.zookeeper import bytes as raw
from support.zookeeper import wire
from support.zookeeper.wire import WireClient

from minikafka.simulation.loop import run_seeded
from minikafka.simulation.transport import MemoryTransport
from minikafka.zookeeper.messages import codes, jute
from minikafka.zookeeper.messages.digest_md5 import DigestClient
from minikafka.zookeeper.messages.jute import INT, Entry
from minikafka.zookeeper.server.authentication import ClientAuthentication
from minikafka.zookeeper.server.core import acl

PORT = 2181
BOB, ROOT = b"bob:bob-secret", b"super:admin"
SUPER_DIGEST = "super:xQJmxLMiHGwaqBvst5y6rkB6HQs="
USERS = {"alice": "alice-secret", "super": "super-secret", "chief": "chief-secret"}
SECURE = ClientAuthentication(
    super_digest=SUPER_DIGEST, users=USERS, sasl_supers=frozenset({"chief"})
)


class Scene:
    def __init__(self, authentication: ClientAuthentication) -> None:
        self.transport = MemoryTransport()
        self.failures: list[str] = []
        self.server = wire.server(self.transport, self.failures, authentication=authentication)

    async def client(self, *credentials: bytes) -> WireClient:
        client = await wire.client(self.transport, PORT)
        for one in credentials:
            assert await authenticate(client, "digest", one) == 0
        return client

    async def node(self, *entries: Entry) -> None:
        """Create NODE with this list, and CHILD."""
        admin = await self.client(b"admin:x")
        everything: Entry = (ALL, *acl.digest_identity(b"admin:x"))
        await ok(admin, codes.CREATE, wire.create(NODE, b"", 0, jute.acl((*entries, everything))))
        await ok(admin, codes.CREATE, wire.create(CHILD))

    async def remove(self) -> None:
        root = await self.client(ROOT)
        children = (await ok(root, codes.GET_CHILDREN, wire.read(NODE))).reader()
        for name in children.items(children.string):
            await ok(root, codes.DELETE, wire.versioned(f"{NODE}/{name}"))
        await ok(root, codes.DELETE, wire.versioned(NODE))


def played(
    scenario: Callable[[Scene], Awaitable[None]], authentication: ClientAuthentication = SECURE
) -> None:
    async def play() -> None:
        scene = Scene(authentication)
        await scene.server.start("127.0.0.1", PORT)
        await scenario(scene)
        await scene.server.close()
        assert scene.failures == []

    run_seeded(1, play())


async def ok(client: WireClient, opcode: int, body: bytes = b"") -> wire.Reply:
    reply = await client.call(opcode, body)
    assert reply.error == 0, reply
    return reply


async def authenticate(client: WireClient, scheme: str, credentials: bytes) -> int:
    body = INT.pack(0) + jute.string(scheme) + jute.buffer(credentials)
    return (await client.call(codes.AUTH, body, -4)).error


async def token(client: WireClient, sent: bytes) -> wire.Reply:
    return await client.call(codes.SASL, jute.buffer(sent))


async def login(client: WireClient, user: str, password: str) -> int:
    """Authenticate by SASL; return the error code of the last reply."""
    exchange = DigestClient(user, password, bytes(8))
    challenge = (await token(client, b"")).reader().buffer()
    reply = await token(client, exchange.respond(challenge or b""))
    if not reply.error:
        exchange.check(reply.reader().buffer() or b"")
    return reply.error


async def identities(client: WireClient) -> set[tuple[str | None, str | None]]:
    reader = (await ok(client, codes.WHO_AM_I)).reader()
    return set(reader.items(lambda: (reader.string(), reader.string())))


# ---- permissions


@pytest.mark.parametrize("name", GUARDED)
def test_request_needs_its_permission(name: str) -> None:
    guarded = GUARDED[name]

    async def scenario(scene: Scene) -> None:
        for granted, credentials, expected in (
            (ALL & ~guarded.permissions, BOB, NO_AUTH),
            (guarded.permissions, BOB, 0),
            (ALL, b"bob:wrong", NO_AUTH),
            (0, ROOT, 0),
        ):
            await scene.node((granted, *acl.digest_identity(BOB)))
            client = await scene.client(credentials)
            reply = await client.call(guarded.opcode, guarded.record)
            assert permissions.error_of(guarded, reply.error, reply.body) == expected, granted
            await scene.remove()

    played(scenario)


def test_event_is_sent_only_to_those_who_may_read_the_node() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.node((READ, *acl.digest_identity(BOB)))
        bob, eve, root = [await scene.client(who) for who in (BOB, b"eve:x", ROOT)]
        for client in (bob, eve, root):
            assert (await client.call(codes.ADD_WATCH, wire.versioned(NODE, 0))).error == 0
        await ok(await scene.client(ROOT), codes.SET_DATA, wire.set_data(NODE))
        for client in (bob, root):
            assert (await client.reply()).xid == wire.EVENT_XID
        assert (await eve.call(codes.PING, b"", wire.PING_XID)).xid == wire.PING_XID

    played(scenario)


def test_get_acl_shows_hashes_to_administrators_and_the_super_user_alone() -> None:
    async def scenario(scene: Scene) -> None:
        entry: Entry = (READ, *acl.digest_identity(BOB))
        await scene.node(entry)
        for who, shown in ((BOB, (READ, "digest", "bob:x")), (ROOT, entry)):
            reply = await ok(await scene.client(who), codes.GET_ACL, raw.text(NODE))
            assert (reply.reader().acl() or ())[0] == shown

    played(scenario)


# ---- digest


@pytest.mark.parametrize("credentials", [b"super:wrong", b"root:admin", b"super:admin:", b"super"])
def test_super_user_needs_the_right_password(credentials: bytes) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.node()
        client = await scene.client(credentials)
        assert (await client.call(codes.GET_DATA, wire.read(NODE))).error == NO_AUTH

    played(scenario)


def test_nobody_is_super_user_if_the_server_has_none() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.node()
        for credentials in (ROOT, b"", b"super:"):
            client = await scene.client(credentials)
            assert (await client.call(codes.GET_DATA, wire.read(NODE))).error == NO_AUTH
            assert ("super", "") not in await identities(client)

    played(scenario, ClientAuthentication())


def test_super_identity_is_in_no_list() -> None:
    async def scenario(scene: Scene) -> None:
        root = await scene.client(ROOT)
        assert await identities(root) == {("ip", "127.0.0.1"), ("super", ""), ("digest", "super")}
        await ok(root, codes.CREATE, wire.create("/a", b"", 0, jute.acl(((ALL, "auth", ""),))))
        found = (await ok(root, codes.GET_ACL, raw.text("/a"))).reader().acl()
        assert found == ((ALL, *acl.digest_identity(ROOT)),)
        reply = await root.call(
            codes.CREATE, wire.create("/b", b"", 0, jute.acl(((ALL, "super", ""),)))
        )
        assert reply.error == codes.INVALID_ACL

    played(scenario)


# ---- certificates


@pytest.mark.parametrize(
    ("subject", "is_super"),
    [
        ("CN=alice,OU=Data,O=Example", True),
        ("", False),
        ("CN=alice", False),
        ("CN=alice,OU=Data,O=Example,C=DE", False),
        ("cn=alice,ou=data,o=example", False),
    ],
)
def test_super_user_by_certificate_has_exactly_the_subject(
    tmp_path: Path, subject: str, is_super: bool
) -> None:
    authentication = ClientAuthentication(has_tls=True, x509_super=subject)
    found = authentication.of_certificate(Authority(tmp_path).client("alice").der)
    assert (acl.SUPER in found) == is_super
    assert ("x509", "CN=alice,OU=Data,O=Example") in found


# ---- SASL


@pytest.mark.parametrize(
    ("user", "shown"),
    [
        ("alice", {("sasl", "alice")}),
        ("super", {("sasl", "super")}),
        ("chief", {("sasl", "chief"), ("super", "")}),
    ],
)
def test_user_of_sasl_has_the_identity_of_its_name(user: str, shown: set[tuple[str, str]]) -> None:
    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        assert await login(client, user, USERS[user]) == 0
        assert await identities(client) == {("ip", "127.0.0.1"), *shown}

    played(scenario)


@pytest.mark.parametrize(
    ("user", "entry", "error"),
    [
        ("alice", ((READ, "sasl", "alice"),), 0),
        ("alice", ((READ, "sasl", "bob"),), NO_AUTH),
        ("alice", ((ADMIN, "sasl", "alice"),), NO_AUTH),
        ("super", ((READ, "sasl", "bob"),), 0),
        ("super", ((READ, "digest", "a:b"),), NO_AUTH),
        ("super", [(READ, "sasl", f"user{number}") for number in range(20)], 0),
        ("super", [(ADMIN, "sasl", f"user{number}") for number in range(20)], NO_AUTH),
        ("alice", [(READ, "sasl", f"user{number}") for number in range(20)], NO_AUTH),
        ("chief", ((ADMIN, "digest", "a:b"),), 0),
    ],
)
def test_entry_of_the_scheme_sasl_lets_its_user_in(
    user: str, entry: Iterable[Entry], error: int
) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.node(*entry)
        client = await scene.client()
        assert (await client.call(codes.GET_DATA, wire.read(NODE))).error == NO_AUTH
        assert await login(client, user, USERS[user]) == 0
        assert (await client.call(codes.GET_DATA, wire.read(NODE))).error == error

    played(scenario)


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "x")])
def test_wrong_password_ends_the_connection(
    user: str, password: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        assert await login(client, user, password) == codes.AUTH_FAILED
        client.request(codes.WHO_AM_I)
        assert await client.end() == b""

    with caplog.at_level(logging.WARNING):
        played(scenario)
    assert "127.0.0.1" in caplog.text
    assert "does not authenticate" in caplog.text
    assert user not in caplog.text


def test_second_exchange_on_a_connection_is_refused() -> None:
    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        assert await login(client, "alice", USERS["alice"]) == 0
        assert (await token(client, b"")).error == codes.AUTH_FAILED
        assert await client.end() == b""

    played(scenario)


def test_challenges_differ() -> None:
    async def scenario(scene: Scene) -> None:
        found = {(await token(await scene.client(), b"")).body for _ in range(3)}
        assert len(found) == 3

    played(scenario)


def test_server_without_sasl_answers_a_token_with_none() -> None:
    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        assert (await token(client, b"")).body == jute.NULL
        assert await identities(client) == {("ip", "127.0.0.1")}

    played(scenario, ClientAuthentication())


@pytest.mark.parametrize("scheme", ["sasl", "x509"])
def test_scheme_that_the_server_does_not_have_is_in_no_list(scheme: str) -> None:
    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        body = wire.create("/a", b"", 0, jute.acl(((ALL, scheme, "CN=alice"),)))
        assert (await client.call(codes.CREATE, body)).error == codes.INVALID_ACL
        assert await authenticate(client, scheme, b"CN=alice") == codes.AUTH_FAILED

    played(scenario, ClientAuthentication())


@pytest.mark.parametrize(
    ("scheme", "name", "is_valid"),
    [
        ("sasl", "alice", True),
        ("sasl", "", True),
        ("sasl", "zk/host@REALM", True),
        ("sasl", "a/b/c@REALM", False),
        ("x509", "CN=alice,OU=Data,O=Example", True),
        ("x509", "", True),
        ("x509", r'cn = a\,b , o="x, y"+1.2.3=#0c0178', True),
        ("x509", "alice", False),
        ("x509", "CN=alice,", False),
        ("x509", "XX=alice", False),
        ("x509", "CN=" + " " * 100_000 + '"', False),
    ],
)
def test_names_of_the_schemes_are_checked(scheme: str, name: str, is_valid: bool) -> None:
    async def scenario(scene: Scene) -> None:
        client = await scene.client()
        reply = await client.call(
            codes.CREATE, wire.create("/a", b"", 0, jute.acl(((ALL, scheme, name),)))
        )
        assert reply.error == (0 if is_valid else codes.INVALID_ACL)

    played(scenario, ClientAuthentication(users=USERS, has_tls=True))


# ---- enforced authentication


def test_client_without_a_demanded_identity_gets_no_answer() -> None:
    required = ClientAuthentication(users=USERS, required=frozenset({"sasl"}))

    async def scenario(scene: Scene) -> None:
        for opcode, body in (
            (codes.GET_DATA, wire.read("/")),
            (codes.PING, b""),
            (codes.CLOSE_SESSION, b""),
            (codes.CREATE, wire.create("/a")),
        ):
            client = await scene.client()
            assert (await client.call(opcode, body)).error == codes.AUTHENTICATION_REQUIRED
            assert await client.end() == b""
        client = await scene.client(BOB)  # another scheme is not enough
        assert (await client.call(codes.GET_DATA, wire.read("/"))).error == -124
        client = await scene.client()
        assert await login(client, "alice", USERS["alice"]) == 0
        await ok(client, codes.GET_DATA, wire.read("/"))

    played(scenario, required)


def test_secrets_are_in_no_repr() -> None:
    assert "secret" not in repr(SECURE)
    assert "xQJm" not in repr(SECURE)
