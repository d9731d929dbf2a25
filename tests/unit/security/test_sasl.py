from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace

import pytest
from aiokafka.conn import ScramAuthenticator
from kafka.net.sasl.oauth import SaslMechanismOAuth
from kafka.net.sasl.plain import SaslMechanismPlain
from kafka.net.sasl.scram import SaslMechanismScram

from minikafka.security import sasl, scram
from minikafka.security.jaas import SCRAM_MODULE, InvalidJaas, parse
from minikafka.security.sasl import (
    AuthenticationFailed,
    BearerToken,
    Exchange,
    Lookups,
    RefusedToken,
    TokenLogin,
    new_exchange,
)
from minikafka.security.sasl_client import Login, ServerNotTrusted, login_of, new_client_exchange

SCRAMS = [mechanism.name for mechanism in scram.MECHANISMS]
PASSWORD = "p=a,s s\u00e9"
EXPIRES_MS = 1_700_000_000_000


class Users:
    """SCRAM credentials of alice, and the delegation token `t-1` of her."""

    def __init__(self, iterations: int = 4096) -> None:
        self._iterations = iterations
        self.decoys: list[str] = []

    def find(self, mechanism: str, user: str) -> scram.ScramCredential | None:
        if user not in ("alice", "a,b=c"):
            return None
        return scram.new_credential(
            scram.BY_NAME[mechanism], PASSWORD, self._iterations, b"salt of alice"
        )

    def decoy(self, mechanism: str, user: str) -> scram.ScramCredential:
        self.decoys.append(user)
        return scram.decoy(scram.BY_NAME[mechanism], b"secret", user, 8192)

    def login(self, mechanism: str, token_id: str) -> TokenLogin | None:
        if token_id != "t-1":
            return None
        credential = scram.new_credential(scram.BY_NAME[mechanism], "hmac", 4096, b"token salt")
        return TokenLogin("alice", credential, EXPIRES_MS)


def counting_bytes() -> Callable[[int], bytes]:
    numbers = itertools.count(1)
    return lambda count: next(numbers).to_bytes(count, "little")


def lookups(users: Users | None = None) -> Lookups:
    users = users or Users()

    def bearer_token(text: str) -> BearerToken:
        if text != "good.jwt":
            raise RefusedToken
        return BearerToken("alice", EXPIRES_MS)

    return Lookups(
        counting_bytes(),
        plain_users={"alice": PASSWORD, "empty": ""},
        scram=users,
        tokens=users,
        bearer_token=bearer_token,
    )


def log_in(login: Login, exchange: Exchange) -> None:
    """Run both sides until the client has nothing to send."""
    client = new_client_exchange(login, counting_bytes())
    token = client.step(b"")
    while token is not None:
        token = client.step(exchange.step(token))
    assert client.is_done


def failure_of(login: Login, **options: bool) -> str:
    with pytest.raises(AuthenticationFailed) as failed:
        log_in(login, new_exchange(login.mechanism, lookups(), **options))
    return str(failed.value)


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAMS])
def test_client_with_the_right_password_is_the_user(mechanism):
    exchange = new_exchange(mechanism, lookups())

    log_in(Login(mechanism, "alice", PASSWORD), exchange)

    assert (exchange.is_done, exchange.principal, exchange.expires_ms, exchange.is_by_token) == (
        True,
        "User:alice",
        None,
        False,
    )


def test_client_with_a_jwt_is_the_user_until_the_jwt_expires():
    exchange = new_exchange("OAUTHBEARER", lookups())

    log_in(Login("OAUTHBEARER", token="good.jwt"), exchange)

    assert (exchange.principal, exchange.expires_ms) == ("User:alice", EXPIRES_MS)


@pytest.mark.parametrize("mechanism", SCRAMS)
def test_client_with_a_delegation_token_is_its_owner_until_the_token_expires(mechanism):
    exchange = new_exchange(mechanism, lookups())

    log_in(Login(mechanism, "t-1", "hmac", is_by_token=True), exchange)

    assert (exchange.principal, exchange.expires_ms, exchange.is_by_token) == (
        "User:alice",
        EXPIRES_MS,
        True,
    )


@pytest.mark.parametrize("mechanism", SCRAMS)
@pytest.mark.parametrize(
    ("user", "password", "is_by_token"),
    [
        ("alice", "wrong", False),
        ("nobody", PASSWORD, False),
        ("t-1", "hmac", False),
        ("t-1", "wrong", True),
        ("t-2", "hmac", True),
        ("alice", PASSWORD, True),
    ],
)
def test_scram_with_a_wrong_login_fails_with_its_proof_and_the_same_text(
    mechanism, user, password, is_by_token
):
    exchange = new_exchange(mechanism, lookups())
    client = new_client_exchange(
        Login(mechanism, user, password, is_by_token=is_by_token), counting_bytes()
    )
    proof = client.step(exchange.step(client.step(b"")))

    with pytest.raises(AuthenticationFailed) as failed:
        exchange.step(proof)

    assert str(failed.value) == (
        "Authentication failed during authentication due to invalid credentials "
        f"with SASL mechanism {mechanism}"
    )
    assert (exchange.is_done, exchange.principal) == (False, "")


def test_failed_reauthentication_is_named_in_the_text():
    text = failure_of(Login("SCRAM-SHA-256", "alice", "wrong"), reauthenticating=True)

    assert "failed during re-authentication due" in text


def test_plain_answers_an_unknown_user_and_a_wrong_password_alike():
    texts = {
        failure_of(Login("PLAIN", user, password))
        for user, password in [("alice", "wrong"), ("nobody", PASSWORD), ("empty", "x")]
    }

    assert texts == {"Authentication failed: Invalid username or password"}


@pytest.mark.parametrize(
    ("token", "expected"),
    [
        (b"\0alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0x\0y", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\0x", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0\xff\0\xff", "Authentication failed: Invalid username or password"),
    ],
)
def test_plain_answers_a_malformed_token_as_kafka_does(token, expected):
    with pytest.raises(AuthenticationFailed) as failed:
        new_exchange("PLAIN", lookups()).step(token)

    assert str(failed.value) == expected


@pytest.mark.parametrize("name", ["alice", "nobody"])
def test_another_authorization_id_is_refused_whether_or_not_the_user_exists(name):
    for mechanism in SCRAMS:
        with pytest.raises(AuthenticationFailed, match="different from username"):
            new_exchange(mechanism, lookups()).step(f"n,a=admin,n={name},r=abc".encode())


def test_plain_refuses_another_authorization_id_only_after_the_password():
    right, wrong = (f"admin\0alice\0{text}".encode() for text in (PASSWORD, "wrong"))

    with pytest.raises(AuthenticationFailed, match="different from username"):
        new_exchange("PLAIN", lookups()).step(right)
    with pytest.raises(AuthenticationFailed, match="Invalid username or password"):
        new_exchange("PLAIN", lookups()).step(wrong)


def test_known_user_costs_a_decoy_too():
    users = Users()

    new_exchange("SCRAM-SHA-256", lookups(users)).step(b"n,,n=alice,r=abc")

    assert users.decoys == ["alice"]


def test_unknown_user_gets_the_same_salt_in_each_attempt():
    challenges = [
        scram.read_server_first(new_exchange("SCRAM-SHA-256", lookups()).step(b"n,,n=nobody,r=abc"))
        for _ in range(2)
    ]

    assert challenges[0].salt == challenges[1].salt


def test_credential_with_fewer_iterations_than_kafka_allows_is_not_used():
    exchange = new_exchange("SCRAM-SHA-256", lookups(Users(iterations=4095)))

    with pytest.raises(AuthenticationFailed):
        log_in(Login("SCRAM-SHA-256", "alice", PASSWORD), exchange)


def test_nonce_of_the_server_differs_in_each_exchange():
    known = lookups()
    nonces = {
        scram.read_server_first(
            new_exchange("SCRAM-SHA-256", known).step(b"n,,n=alice,r=abc")
        ).nonce
        for _ in range(3)
    }

    assert len(nonces) == 3


def prove(header: str, before: str, after: str) -> Exchange:
    """Log in with a proof for this header, and for the nonce of the server with text before and after it."""
    mechanism = scram.BY_NAME["SCRAM-SHA-256"]
    exchange = new_exchange(mechanism.name, lookups())
    first = scram.client_first("alice", "abc", {})
    text = exchange.step((first.header + first.bare).encode())
    challenge = scram.read_server_first(text)
    salted = scram.salted_password(mechanism, PASSWORD, challenge.salt, challenge.iterations)
    unproven = scram.unproven(header, before + challenge.nonce + after)
    signed = scram.signed_text(first, text.decode(), unproven)
    exchange.step(scram.client_final(unproven, scram.client_proof(mechanism, salted, signed)))
    return exchange


@pytest.mark.parametrize(("header", "suffix"), [("n,a=alice,", ""), ("n,,", "x")])
def test_proof_for_another_header_or_nonce_is_refused(header, suffix):
    with pytest.raises(AuthenticationFailed):
        prove(header, "", suffix)


def test_nonce_of_the_client_may_come_twice_as_old_librdkafka_sends_it():
    """librdkafka 2.0, which kcat of Debian 12 uses, sends its nonce before the nonce of the server."""
    assert prove("n,,", "abc", "").principal == "User:alice"


@pytest.mark.parametrize("mechanism", SCRAMS)
def test_kafka_python_logs_in_with_scram(mechanism):
    exchange = new_exchange(mechanism, lookups())
    client = SaslMechanismScram(
        sasl_plain_username="alice", sasl_plain_password=PASSWORD, sasl_mechanism=mechanism
    )

    while not client.is_done():
        client.receive(exchange.step(client.auth_bytes()))

    assert (client.is_authenticated(), exchange.principal) == (True, "User:alice")


@pytest.mark.parametrize("mechanism", SCRAMS)
def test_aiokafka_logs_in_with_scram_and_an_escaped_name(mechanism):
    exchange = new_exchange(mechanism, lookups())
    client = ScramAuthenticator(
        loop=asyncio.Runner,
        sasl_plain_password=PASSWORD,
        sasl_plain_username="a,b=c",
        sasl_mechanism=mechanism,
    )

    client.process_server_first_message(exchange.step(client.first_message().encode()).decode())
    client.process_server_final_message(exchange.step(client.final_message().encode()).decode())

    assert exchange.principal == "User:a,b=c"


def test_kafka_python_logs_in_with_plain():
    exchange = new_exchange("PLAIN", lookups())
    client = SaslMechanismPlain(
        sasl_plain_username="alice", sasl_plain_password=PASSWORD, security_protocol="SASL_SSL"
    )

    client.receive(exchange.step(client.auth_bytes()))

    assert exchange.principal == "User:alice"


@pytest.mark.parametrize(("token", "principal"), [("good.jwt", "User:alice"), ("bad.jwt", "")])
def test_kafka_python_gets_the_verdict_on_its_jwt(token, principal):
    exchange = new_exchange("OAUTHBEARER", lookups())
    provider = SimpleNamespace(token=lambda: token, extensions=lambda: {"traceId": "1"})
    client = SaslMechanismOAuth.__new__(SaslMechanismOAuth)
    client.token_provider = provider
    client._is_done = client._is_authenticated = client._error = False

    client.receive(exchange.step(client.auth_bytes()))

    assert (exchange.principal, client.is_authenticated()) == (principal, bool(principal))


def test_refused_jwt_is_answered_with_json_and_fails_with_the_next_message():
    exchange = new_exchange("OAUTHBEARER", lookups())

    answer = exchange.step(b"n,,\1auth=Bearer bad.jwt\1\1")

    assert answer == b'{"status":"invalid_token"}'
    with pytest.raises(AuthenticationFailed) as failed:
        exchange.step(b"\1")
    assert str(failed.value) == answer.decode()


def test_good_jwt_does_not_help_after_a_refused_one():
    exchange = new_exchange("OAUTHBEARER", lookups())
    exchange.step(b"n,,\1auth=Bearer bad.jwt\1\1")

    with pytest.raises(AuthenticationFailed):
        exchange.step(b"n,,\1auth=Bearer good.jwt\1\1")

    assert not exchange.is_done


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\1",
        b"n,,\1\1",
        b"n,,\1auth=Basic good.jwt\1\1",
        b"n,,\1auth=Bearer\1\1",
        b"n,,\1auth=Bearer good.jwt\1",
        b"y,,\1auth=Bearer good.jwt\1\1",
        b"n,,\1auth=Bearer good.jwt\1x\1\1",
        b"n,,\1au2h=Bearer good.jwt\1\1",
    ],
)
def test_malformed_first_message_of_oauthbearer_is_refused(message):
    with pytest.raises(AuthenticationFailed):
        new_exchange("OAUTHBEARER", lookups()).step(message)


def test_jwt_of_another_user_than_the_authorization_id_is_refused():
    accepted = new_exchange("OAUTHBEARER", lookups())
    accepted.step(b"n,a=alice,\1auth=bearer  good.jwt\1host=x\1\1")

    assert accepted.principal == "User:alice"
    with pytest.raises(AuthenticationFailed, match="token's principal name"):
        new_exchange("OAUTHBEARER", lookups()).step(b"n,a=bob,\1auth=Bearer good.jwt\1\1")


def test_broker_without_users_refuses_every_login():
    nothing = Lookups(counting_bytes())

    for mechanism in sasl.MECHANISMS:
        login = Login(mechanism, "alice", PASSWORD, token="good.jwt")
        with pytest.raises(AuthenticationFailed):
            log_in(login, new_exchange(mechanism, nothing))


def test_client_refuses_a_server_that_does_not_know_the_password():
    exchange = new_exchange("SCRAM-SHA-512", lookups())
    client = new_client_exchange(Login("SCRAM-SHA-512", "alice", PASSWORD), counting_bytes())
    exchange.step(client.step(exchange.step(client.step(b""))))

    with pytest.raises(ServerNotTrusted, match="does not know"):
        client.step(scram.server_final(bytes(64)))
    assert not client.is_done


@pytest.mark.parametrize(
    ("challenge", "expected"),
    [
        (b"r=other,s=AAAA,i=4096", "nonce"),
        (b"r=NONCEx,s=AAAA,i=4095", "4095 SCRAM iterations"),
        (b"r=NONCEx,s=AAAA,i=99999999", "99999999 SCRAM iterations"),
        (b"", "malformed"),
        (b"\xff", "malformed"),
    ],
)
def test_client_refuses_a_forged_challenge(challenge, expected):
    client = new_client_exchange(Login("SCRAM-SHA-256", "alice", PASSWORD), counting_bytes())
    first = scram.read_client_first(client.step(b""))

    with pytest.raises(ServerNotTrusted, match=expected):
        client.step(challenge.replace(b"NONCE", first.nonce.encode()))


def test_login_of_a_jaas_entry_has_its_user_password_and_kind():
    entry = parse(f'{SCRAM_MODULE} required username="t-1" password="hmac" tokenauth="true";')

    login = login_of("SCRAM-SHA-256", entry)

    assert (login.user, login.password, login.is_by_token) == ("t-1", "hmac", True)
    assert "hmac" not in repr(login)


def test_login_of_a_jaas_entry_without_a_password_is_refused():
    with pytest.raises(InvalidJaas, match='no password="…", which a login with PLAIN needs'):
        login_of("PLAIN", parse('Module required username="alice";'))


def test_secrets_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch):
    """A comparison with == would pass every other test."""
    compared: list[int] = []

    def compare(one: bytes, other: bytes) -> bool:
        assert len(one) == len(other)
        compared.append(len(one))
        return one == other

    monkeypatch.setattr("hmac.compare_digest", compare)
    for mechanism, size in (("PLAIN", 32), ("SCRAM-SHA-256", 32), ("SCRAM-SHA-512", 64)):
        for user, password in (("alice", PASSWORD), ("alice", "x"), ("nobody", PASSWORD)):
            compared.clear()
            with suppress(AuthenticationFailed):
                log_in(Login(mechanism, user, password), new_exchange(mechanism, lookups()))
            assert compared[0] == size
