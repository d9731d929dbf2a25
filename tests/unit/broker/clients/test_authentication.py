"""The authentication of one client: the order of its requests, and the end of a session that began with a token."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from minikafka.broker.clients.authentication import Authentication, LoginRefused, ServedMechanism
from minikafka.security.sasl import OAUTHBEARER, PLAIN, BearerToken, Lookups
from minikafka.simulation.clocks import ManualClock

BEARER = b"n,,\1auth=Bearer token\1\1"
WORDS = b"\0alice\0secret"


def authentication(clock: ManualClock, token_ms: int, max_reauth_ms: int = 0) -> Authentication:
    """Return the authentication of a client that has alice's password, and a token that ends after `token_ms`."""
    token = BearerToken("alice", clock.wall_ms() + token_ms)
    lookups = Lookups(bytes, {"alice": "secret"}, bearer_token=lambda _: token)
    served = (ServedMechanism(name, lookups, max_reauth_ms) for name in (PLAIN, OAUTHBEARER))
    return Authentication({one.name: one for one in served}, clock)


def log_in(login: Authentication, mechanism: str, token: bytes) -> None:
    login.on_handshake(1, SimpleNamespace(mechanism=mechanism))
    login.on_authenticate(1, SimpleNamespace(auth_bytes=token))


@pytest.mark.parametrize(
    ("max_reauth_ms", "token_ms", "session_ms"),
    [(0, 5_000, 5_000), (9_000, 5_000, 5_000), (3_000, 5_000, 3_000), (9_000, -1, 0)],
)
def test_session_ends_with_its_token_or_when_the_client_must_log_in_again(
    max_reauth_ms: int, token_ms: int, session_ms: int
) -> None:
    clock = ManualClock()
    login = authentication(clock, token_ms, max_reauth_ms)
    log_in(login, OAUTHBEARER, BEARER)
    assert login.principal == "User:alice"
    assert login.expires == clock.now() + session_ms


def test_client_cannot_begin_again_in_the_middle_of_a_login() -> None:
    login = authentication(ManualClock(), 5_000)
    login.on_handshake(1, SimpleNamespace(mechanism=PLAIN))
    with pytest.raises(LoginRefused, match="unexpected SaslHandshake"):
        login.on_handshake(1, SimpleNamespace(mechanism=OAUTHBEARER))


def test_client_cannot_use_another_mechanism_to_log_in_again() -> None:
    login = authentication(ManualClock(), 5_000)
    login.on_renewed = lambda: None
    log_in(login, PLAIN, WORDS)
    login.again()
    with pytest.raises(LoginRefused, match="for re-authentication of mechanism 'PLAIN'"):
        log_in(login, OAUTHBEARER, BEARER)
