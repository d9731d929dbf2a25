from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from dataclasses import replace

import pytest

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.security import scram, tokens
from minikafka.security.credentials import KnownCredentials
from minikafka.security.sasl import AuthenticationFailed, Lookups, new_exchange
from minikafka.security.sasl_client import Login, new_client_exchange
from minikafka.security.tokens import DelegationToken, KnownTokens, TokenLifetimes

NOW = 1_700_000_000_000
LIFETIMES = TokenLifetimes(max_ms=1_000, renew_ms=100)
TOKEN = DelegationToken(
    "t-1", "User:alice", "User:bob", ("User:carol",), NOW, NOW + 100, NOW + 1_000
)
MECHANISMS = [mechanism.name for mechanism in scram.MECHANISMS]


def code_of(call: object, *arguments: object) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        call(*arguments)
    return refused.value.code


@pytest.mark.parametrize(
    ("life_ms", "expires", "last"),
    [(-1, 100, 1_000), (0, 100, 1_000), (50, 50, 50), (5_000, 100, 1_000)],
)
def test_new_token_must_be_renewed_before_its_longest_life_ends(life_ms, expires, last):
    token = tokens.new_token("t", "User:a", "User:b", ["User:c"], life_ms, LIFETIMES, NOW)

    assert (token.expires_ms, token.max_ms) == (NOW + expires, NOW + last)


@pytest.mark.parametrize("principal", ["User:alice", "User:carol"])
@pytest.mark.parametrize(("period_ms", "expires"), [(-1, 150), (0, 50), (300, 350), (9_999, 1_000)])
def test_owner_and_renewers_move_the_end_of_a_token(principal, period_ms, expires):
    renewed = tokens.renewed(TOKEN, principal, period_ms, LIFETIMES, NOW + 50)

    assert renewed == replace(TOKEN, expires_ms=NOW + expires)


def test_others_neither_renew_nor_end_a_token():
    for principal in ("User:bob", "User:mallory", "alice", ""):
        mismatch = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert code_of(tokens.renewed, TOKEN, principal, -1, LIFETIMES, NOW) is mismatch
        assert code_of(tokens.ended, TOKEN, principal, -1, NOW) is mismatch


def test_expired_token_is_neither_renewed_nor_shortened_but_can_be_removed():
    now = NOW + 101

    expired = ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert code_of(tokens.renewed, TOKEN, TOKEN.owner, -1, LIFETIMES, now) is expired
    assert code_of(tokens.ended, TOKEN, TOKEN.owner, 10, now) is expired
    assert tokens.ended(TOKEN, TOKEN.owner, -1, now) is None


def test_token_is_not_renewed_beyond_its_longest_life():
    old = replace(TOKEN, expires_ms=NOW + 9_000)

    code = code_of(tokens.renewed, old, TOKEN.owner, -1, LIFETIMES, NOW + 1_001)
    assert code is ErrorCode.DELEGATION_TOKEN_EXPIRED


def test_token_is_valid_until_the_millisecond_of_its_end() -> None:
    assert not TOKEN.has_expired(TOKEN.expires_ms)
    assert TOKEN.has_expired(TOKEN.expires_ms + 1)


class Time:
    ms = NOW


@pytest.fixture
def known() -> KnownTokens:
    Time.ms = NOW
    known = KnownTokens("the secret", lambda: Time.ms)
    known.update(TOKEN.id, TOKEN)
    return known


def test_hmac_is_made_with_sha_512_as_in_kafka(known: KnownTokens):
    expected = hmac.new(b"the secret", b"t-1", hashlib.sha512).digest()

    assert known.hmac_of("t-1") == expected
    assert known.find(expected) == TOKEN
    assert known.find(expected[:-1]) is None


def log_in(known: KnownTokens, password: str, mechanism: str = "SCRAM-SHA-256") -> str:
    lookups = Lookups(lambda count: b"\7" * count, scram=KnownCredentials(b"secret"), tokens=known)
    exchange = new_exchange(mechanism, lookups)
    client = new_client_exchange(
        Login(mechanism, TOKEN.id, password, is_by_token=True), lambda count: b"\5" * count
    )
    token = client.step(b"")
    while token is not None:
        token = client.step(exchange.step(token))
    assert exchange.expires_ms == TOKEN.expires_ms
    assert exchange.is_by_token
    return exchange.principal


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_client_logs_in_with_the_hmac_of_a_token_in_base64(known: KnownTokens, mechanism: str):
    password = b64encode(known.hmac_of(TOKEN.id)).decode()

    assert log_in(known, password, mechanism) == "User:alice"
    with pytest.raises(AuthenticationFailed):
        log_in(known, password[:-2], mechanism)


def test_expired_token_lets_no_client_log_in(known: KnownTokens):
    password = b64encode(known.hmac_of(TOKEN.id)).decode()
    log_in(known, password)

    Time.ms = TOKEN.expires_ms + 1

    with pytest.raises(AuthenticationFailed):
        log_in(known, password)


def test_removed_token_lets_no_client_log_in(known: KnownTokens):
    password = b64encode(known.hmac_of(TOKEN.id)).decode()
    log_in(known, password)

    known.update(TOKEN.id, None)

    assert known.find(known.hmac_of(TOKEN.id)) is None
    with pytest.raises(AuthenticationFailed):
        log_in(known, password)


def test_all_tokens_are_replaced(known: KnownTokens):
    other = replace(TOKEN, id="t-2")

    known.replace([other])

    assert list(known) == [other]
    assert known.login("SCRAM-SHA-256", "t-1") is None
