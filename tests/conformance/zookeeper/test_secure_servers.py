"""Authentication and permissions: Apache ZooKeeper and minikafka's own server answer the same requests alike."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.security import zookeeper_permissions as permissions
from support.security.certificates import Authority
from support.security.secure_zookeepers import (
    SUPER_SUBJECT,
    USERS,
    SecurePair,
    SecureWire,
    running_secure_pair,
)
from support.security.zookeeper_permissions import ADMIN, ALL, CHILD, GUARDED, NODE, READ
from support.zookeeper import bytes as wire
from support.zookeeper.bytes import Closed, Reply, Wire, framed

from minikafka.zookeeper.messages.digest_md5 import DigestClient

SASL = 102
TIMEOUT_MS = 30_000
ALICE = "CN=alice,OU=Data,O=Example"
BOB = ("digest", "bob:fyVmFCwVbTJYrznoSu1koqYEYF0=")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecurePair]:
    context = running_secure_pair(tmp_path_factory.mktemp("secure"))
    with asyncio.Runner() as runner:
        running = runner.run(context.__aenter__())
        try:
            yield running
        finally:
            runner.run(context.__aexit__(None, None, None))


class Server:
    """One of the two servers, for one case."""

    def __init__(self, port: int, secure_port: int, authority: Authority) -> None:
        self.port = port
        self._secure_port = secure_port
        self._authority = authority
        self._opened: list[Wire] = []

    def client(self, *credentials: bytes) -> Wire:
        """Return a client in the clear with a session and these identities of the scheme digest."""
        client = self._opened_wire(Wire(self.port))
        for one in credentials:
            assert auth(client, "digest", one).error == 0
        return client

    def owner(self, name: str | None) -> Wire:
        """Return a client under TLS, with the certificate of this name."""
        certificate = None if name is None else self._authority.client(name)
        return self._opened_wire(SecureWire(self._secure_port, self._authority, certificate))

    def _opened_wire(self, client: Wire) -> Wire:
        self._opened.append(client)
        client.connect(TIMEOUT_MS)
        return client

    def node(self, *entries: tuple[int, str, str]) -> None:
        """Create NODE with this list, and CHILD, after removing what an earlier case has left."""
        root = self.client(b"super:admin")
        for name in root.request(1, wire.CHILDREN, wire.text(NODE) + b"\0").body[0:1] or [[]]:
            for child in name:
                root.request(1, wire.DELETE, wire.text(f"{NODE}/{child}") + wire.integer(-1))
        root.request(1, wire.DELETE, wire.text(NODE) + wire.integer(-1))
        for path, acl in ((NODE, entries), (CHILD, permissions.ANYONE)):
            record = wire.text(path) + wire.data(b"") + wire.acl(acl) + wire.integer(0)
            assert root.request(1, wire.CREATE, record).error == 0

    def close(self) -> None:
        for client in self._opened:
            client.close()


def auth(client: Wire, scheme: str, credentials: bytes) -> Reply:
    record = wire.integer(0) + wire.text(scheme) + wire.data(credentials)
    return client.request(1, wire.AUTH, record)


def token(client: Wire, sent: bytes) -> tuple[int, int, int, bytes | None]:
    """Send a token; return xid, zxid and error of the reply, and the token."""
    client.send(framed(struct.pack("!ii", 7, SASL) + wire.data(sent)))
    cursor = wire.Cursor(client.frame())
    xid, zxid, error = cursor.unpack("!iqi")
    return xid, zxid, error, None if error else cursor.data()


def login(client: Wire, user: str, password: str) -> list[Any]:
    """Log in; return what the server answers, and whether it knows the password."""
    exchange = DigestClient(user, password, bytes(8))
    *first, challenge = token(client, b"")
    *second, proof = token(client, exchange.respond(challenge or b""))
    if proof is None:
        return [first, second, ended(client)]
    exchange.check(proof)
    return [first, second, "proven"]


def ended(client: Wire) -> str:
    try:
        client.frame()
    except Closed:
        return "closed"
    return "open"


def identities(client: Wire) -> Reply:
    return client.request(1, wire.WHO_AM_I)


def both(pair: SecurePair, case: Callable[[Server], Any]) -> Any:
    """Run the case on both servers; return the outcome, which must be the same."""
    outcomes = []
    for process in (pair.apache, pair.embedded):
        server = Server(process.port, process.secure_port, pair.material.authority)
        try:
            outcomes.append(case(server))
        finally:
            server.close()
    apache, embedded = outcomes
    assert embedded == apache
    return apache


# ---- permissions


@pytest.mark.parametrize("name", GUARDED)
def test_request_needs_the_same_permission(pair: SecurePair, name: str) -> None:
    guarded = GUARDED[name]

    def case(server: Server) -> list[int]:
        found = []
        for granted, credentials in (
            (ALL & ~guarded.permissions, b"bob:secret"),
            (guarded.permissions, b"bob:secret"),
            (ALL, b"bob:wrong"),
            (0, b"super:admin"),
            (0, b"super:wrong"),
        ):
            server.node((granted, *BOB))
            client = server.client(credentials)
            client.send_request(1, guarded.opcode, guarded.record)
            frame = client.frame()
            error = struct.unpack_from("!i", frame, 12)[0]
            found.append(permissions.error_of(guarded, error, frame[16:]))
        return found

    no = permissions.NO_AUTH
    assert both(pair, case) == [no, 0, no, 0, no]


# ---- identities


@pytest.mark.parametrize("credentials", [b"super:admin", b"super:wrong", b"bob:secret", b"", b":"])
def test_password_of_the_scheme_digest_gives_the_same_identities(
    pair: SecurePair, credentials: bytes
) -> None:
    def case(server: Server) -> list[Any]:
        client = server.client()
        return [auth(client, "digest", credentials).error, identities(client).body]

    assert both(pair, case)[0] == 0


@pytest.mark.parametrize("scheme", ["sasl", "x509", "super", "world", "auth", "unknown", ""])
def test_scheme_without_credentials_in_a_request_is_refused(pair: SecurePair, scheme: str) -> None:
    def case(server: Server) -> list[Any]:
        client = server.client()
        return [auth(client, scheme, b"CN=root"), ended(client)]

    assert both(pair, case)[1] == "closed"


@pytest.mark.parametrize("name", ["alice", "root", None])
def test_certificate_gives_the_same_identities(pair: SecurePair, name: str | None) -> None:
    found = both(pair, lambda server: identities(server.owner(name)).body[0])
    expected = [("ip", "127.0.0.1")]
    if name == "alice":
        expected += [("x509", ALICE)]
    if name == "root":
        expected += [("super", ""), ("x509", SUPER_SUBJECT)]
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize("user", USERS)
def test_user_of_sasl_gets_the_same_identities(pair: SecurePair, user: str) -> None:
    def case(server: Server) -> list[Any]:
        client = server.client()
        return [login(client, user, USERS[user]), identities(client).body[0]]

    steps, found = both(pair, case)
    assert steps[2] == "proven"
    assert ("sasl", user) in found


@pytest.mark.parametrize(
    ("user", "password"), [("alice", "wrong"), ("nobody", "x"), ("super", "admin")]
)
def test_login_with_a_wrong_password_ends_alike(pair: SecurePair, user: str, password: str) -> None:
    found = both(pair, lambda server: login(server.client(), user, password))
    assert found[1][2] == -115


def test_login_under_tls_adds_an_identity(pair: SecurePair) -> None:
    def case(server: Server) -> Any:
        client = server.owner("alice")
        login(client, "alice", USERS["alice"])
        return identities(client).body[0]

    found = both(pair, case)
    assert {("sasl", "alice"), ("x509", ALICE)} <= set(found)


# ---- access control lists

ENTRIES: list[tuple[int, str, str]] = [
    (READ, "sasl", "alice"),
    (READ, "sasl", "bob"),
    (ADMIN, "sasl", "alice"),
    (READ, "x509", ALICE),
    (READ, "x509", "CN=bob"),
    (READ, "x509", ALICE.lower()),
    (READ, "digest", "alice:x"),
    (READ, "sasl", "super"),
    (READ, "ip", "127.0.0.1"),
]
WHO: dict[str, Callable[[Server], Wire]] = {
    "nobody": lambda server: server.client(),
    "certificate": lambda server: server.owner("alice"),
    "super user by certificate": lambda server: server.owner("root"),
    "user": lambda server: logged_in(server, "alice"),
    "user super": lambda server: logged_in(server, "super"),
    "super user by login": lambda server: logged_in(server, "chief"),
}


def logged_in(server: Server, user: str) -> Wire:
    client = server.client()
    login(client, user, USERS[user])
    return client


@pytest.mark.parametrize("who", WHO)
def test_entry_lets_in_the_same_clients(pair: SecurePair, who: str) -> None:
    def case(server: Server) -> list[int]:
        client = WHO[who](server)
        found = []
        for entry in ENTRIES:
            server.node(entry)
            found.append(client.request(1, wire.GET, wire.text(NODE) + b"\0").error)
        return found

    found = both(pair, case)
    assert 0 in found


@pytest.mark.parametrize("who", WHO)
def test_auth_stands_for_the_same_identities(pair: SecurePair, who: str) -> None:
    def case(server: Server) -> list[Any]:
        server.node((ALL, "world", "anyone"))
        client = WHO[who](server)
        record = wire.text(f"{NODE}/own") + wire.data(b"") + wire.acl([(ALL, "auth", "")])
        made = client.request(1, wire.CREATE, record + wire.integer(0)).error
        root = server.client(b"super:admin")
        return [made, root.request(1, wire.GET_ACL, wire.text(f"{NODE}/own")).body[0:1]]

    both(pair, case)


NAMES = [
    *(("sasl", name) for name in ("alice", "", "a b", "zk/host@REALM", "a@b@c", "a/b/c@R", "@")),
    ("x509", ALICE),
    ("x509", ""),
    ("x509", "alice"),
    ("x509", "CN=alice,"),
    ("x509", "CN="),
    ("x509", "XX=alice"),
    ("x509", r"CN=a\,b , o=x"),
    ("x509", 'CN="a,b"'),
    ("x509", "CN=a;O=b+OU=c"),
    ("x509", "1.2.840.113549.1.9.1=#160161"),
    ("x509", "EMAILADDRESS=a@b"),
    ("super", ""),
    ("super", "x"),
]


def test_names_of_the_schemes_are_checked_alike(pair: SecurePair) -> None:
    def case(server: Server) -> dict[tuple[str, str], int]:
        server.node((ALL, "world", "anyone"))
        client = server.client()
        found = {}
        for number, (scheme, name) in enumerate(NAMES):
            record = wire.text(f"{NODE}/{number}") + wire.data(b"")
            acl = wire.acl([(ALL, scheme, name)]) + wire.integer(0)
            found[scheme, name] = client.request(1, wire.CREATE, record + acl).error
        return found

    assert set(both(pair, case).values()) == {0, -114}
