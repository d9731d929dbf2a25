"""What a client reads in its own token, and when it fetches the next one."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode

import pytest

from minikafka.security.bearer import InvalidToken, OwnToken, RefreshRules, read_token, refresh_ms

KAFKA = RefreshRules(0.8, 0.05, 60_000, 300_000)
HOUR = 3_600_000


def jwt_of(claims: object) -> str:
    body = urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{body}.c2ln"


def test_token_tells_from_when_until_when_it_is_valid() -> None:
    text = jwt_of({"sub": "alice", "exp": 20.5, "iat": 10})
    token = read_token(f"{text}\n", "sub")
    assert token == OwnToken(text, 10_000, 20_500)
    assert text not in repr(token)
    assert read_token(jwt_of({"id": "alice", "exp": 20}), "id").issued_ms is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "three parts"),
        ("e30.e30", "three parts"),
        ("<html>", "three parts"),
        ("e30.####.", "three parts"),
        ("e30.AAAA.", "claims cannot be read"),
        (jwt_of([]), "claims cannot be read"),
        (jwt_of({"sub": "alice"}), "no claim exp"),
        (jwt_of({"sub": "alice", "exp": "soon"}), "claim exp is not a time"),
        (jwt_of({"sub": "alice", "exp": True}), "claim exp is not a time"),
        (jwt_of({"sub": "alice", "exp": float("inf")}), "claim exp is not a time"),
        (jwt_of({"sub": "alice", "exp": 1, "iat": "x"}), "claim iat is not a time"),
        (jwt_of({"exp": 1}), "claim sub does not name a user"),
        (jwt_of({"exp": 1, "sub": " "}), "claim sub does not name a user"),
    ],
)
def test_what_is_no_token_is_refused_without_a_part_of_it(text: str, reason: str) -> None:
    with pytest.raises(InvalidToken, match=reason) as caught:
        read_token(text, "sub")
    assert not text or text not in str(caught.value)


@pytest.mark.parametrize(
    ("issued", "expires", "now", "share", "due"),
    [
        (0, HOUR, 0, 0.0, 0.8 * HOUR),
        (0, HOUR, 0, 1.0, 0.85 * HOUR),
        (None, HOUR + 1000, 1000, 0.0, 0.8 * HOUR + 1000),
        (0, 1_000_000, 0, 0.0, 700_000),  # the buffer of 300 s
        (0, HOUR, 0.8 * HOUR - 1, 0.0, 0.8 * HOUR + 59_999),  # the pause of 60 s
        (0, 100_000, 0, 0.0, 80_000),  # neither fits into the life of the token
        (0, 100_000, 50_000, 0.0, 90_000),
    ],
)
def test_next_token_is_fetched_when_kafkas_clients_fetch_it(
    issued: int | None, expires: int, now: int, share: float, due: int
) -> None:
    assert refresh_ms(OwnToken("", issued, expires), int(now), KAFKA, share) == due
