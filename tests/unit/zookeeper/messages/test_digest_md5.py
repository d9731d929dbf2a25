"""SASL DIGEST-MD5: both sides together, with the example of RFC 2831, and with what a wrong side sends."""

from __future__ import annotations

import re

import pytest

from minikafka.zookeeper.messages import digest_md5
from minikafka.zookeeper.messages.digest_md5 import (
    TOKEN_MAX,
    DigestClient,
    DigestRefused,
    DigestServer,
)

USERS = {"alice": "alice-secret", "bücher": 'p"a\\ss', "名前": "秘密"}
NONCE = bytes(range(32))


def response(user: str = "alice", password: str = "alice-secret") -> tuple[DigestServer, bytes]:
    """Return a server that has sent its challenge, and the client's response."""
    server = DigestServer(USERS, NONCE)
    return server, DigestClient(user, password, bytes(8)).respond(server.step(b""))


@pytest.mark.parametrize("user", USERS)
def test_server_and_client_prove_the_password_to_each_other(user: str) -> None:
    server, client = DigestServer(USERS, NONCE), DigestClient(user, USERS[user], bytes(8))
    assert server.user is None
    proof = server.step(client.respond(server.step(b"")))
    assert server.user == user
    client.check(proof)
    with pytest.raises(DigestRefused, match="does not know the password"):
        client.check(proof[:-1] + b"x")


def test_response_is_that_of_the_example_in_the_rfc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest_md5, "DIGEST_URI", "imap/elwood.innosoft.com")
    client = DigestClient("chris", "secret", b"")
    client._cnonce = "OA6MHXh6VqTrRk"
    found = client.respond(
        b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",algorithm=md5-sess,charset=utf-8'
    )
    assert b"response=d388dad90d4bbd760a152321f2143af7" in found
    client.check(b"rspauth=ea40f60335c427b5527b84dbabcdfffd")


@pytest.mark.parametrize(
    ("user", "password"),
    [("alice", "wrong"), ("nobody", "x"), ("", ""), ("bücher", "alice-secret")],
)
def test_unknown_user_and_wrong_password_are_refused_alike(user: str, password: str) -> None:
    server, token = response(user, password)
    with pytest.raises(DigestRefused, match=r"^the user or the password is wrong$"):
        server.step(token)
    assert server.user is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (NONCE.hex(), "0" * 64),
        ("nc=00000001", "nc=00000002"),
        ('realm="zk-sasl-md5"', 'realm="other"'),
        ("zookeeper/zk-sasl-md5", "kafka/zk-sasl-md5"),
        ("qop=auth", "qop=auth-conf"),
        ('username="alice"', 'username="alice",username="alice"'),
        ('username="alice"', "username=alice="),
        ("response=", "answer="),
        ("charset=utf-8", "charset=" + "x" * TOKEN_MAX),
    ],
)
def test_response_that_is_not_exactly_right_is_refused(old: str, new: str) -> None:
    server, token = response()
    assert old in token.decode()
    with pytest.raises(DigestRefused):
        server.step(token.decode().replace(old, new).encode())
    assert server.user is None


def test_response_proves_nothing_in_another_exchange() -> None:
    _, token = response()
    other = DigestServer(USERS, bytes(32))
    other.step(b"")
    with pytest.raises(DigestRefused, match="another challenge"):
        other.step(token)


def test_exchange_ends_with_its_first_response() -> None:
    server, token = response("alice", "wrong")
    with pytest.raises(DigestRefused):
        server.step(token)
    for later in (b"", response()[1]):
        with pytest.raises(DigestRefused, match="the exchange is over"):
            server.step(later)
    with pytest.raises(DigestRefused, match="begins with an empty token"):
        DigestServer(USERS, NONCE).step(token)


def test_name_that_the_client_wants_to_act_for_is_part_of_the_proof_only() -> None:
    """Java's client names itself as `authzid`, and the server ignores whom it names."""
    server, token = response()
    with pytest.raises(DigestRefused):
        server.step(token + b',authzid="bob"')
    server, token = response()
    proof = digest_md5._Proof(
        "alice", USERS["alice"], {**digest_md5._directives(token), "authzid": "bob"}
    ).response("AUTHENTICATE")
    changed = re.sub(rb"response=\w+", b"response=" + proof, token)
    server.step(changed + b',authzid="bob"')
    assert server.user == "alice"


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"\xff",
        b"nonce",
        b'realm="r",nonce="n",algorithm=md5',
        b'realm="r",algorithm=md5-sess',
        b'nonce="n",qop="auth-conf",algorithm=md5-sess',
        b'nonce="n",nonce="m",algorithm=md5-sess',
    ],
)
def test_client_refuses_what_is_no_challenge(challenge: bytes) -> None:
    with pytest.raises(DigestRefused):
        DigestClient("alice", "secret", bytes(8)).respond(challenge)
