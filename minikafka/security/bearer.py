"""The token (JWT) with which a client logs in by OAUTHBEARER: what it says, and when the next one is fetched.

A client cannot verify its token. It reads it only to know until when it is valid. No error contains a part of a token.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode
from binascii import Error as InvalidBase64
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

_SECONDS_MAX: Final = 1e12
_PART: Final = r"[A-Za-z0-9_-]+"
_JWT: Final = re.compile(rf"{_PART}\.({_PART})\.[A-Za-z0-9_-]*")


class InvalidToken(ValueError):
    """A text is no token with which a client can log in."""


class OwnToken(NamedTuple):
    """A token of a client. `issued_ms` is None if the token does not say it. Times are Unix milliseconds."""

    text: str
    issued_ms: int | None
    expires_ms: int

    def __repr__(self) -> str:
        """Return what is no secret."""
        return f"OwnToken(expires_ms={self.expires_ms})"


class RefreshRules(NamedTuple):
    """Kafka's `sasl.login.refresh.*`: when a token is replaced by the next one.

    `factor` and `jitter` are shares of its life. At least `min_period_ms` passes between two tokens, and the next token
    is fetched at least `buffer_ms` before the end.
    """

    factor: float
    jitter: float
    min_period_ms: int
    buffer_ms: int


def read_token(text: str, sub_claim: str) -> OwnToken:
    """Return the token in a text. `sub_claim`: the claim that must name the user. Raises InvalidToken."""
    token = text.strip()
    match = _JWT.fullmatch(token)
    if match is None:
        raise InvalidToken("it does not have the three parts of a JWT")
    claims = _claims(match[1])
    expires, issued, user = _time(claims, "exp"), _time(claims, "iat"), claims.get(sub_claim)
    if expires is None:
        raise InvalidToken("it has no claim exp")
    if not isinstance(user, str) or not user.strip():
        raise InvalidToken(f"its claim {sub_claim} does not name a user")
    return OwnToken(token, issued, expires)


def _claims(part: str) -> dict[str, Any]:
    try:
        found = json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (InvalidBase64, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidToken("its claims cannot be read")
    return found


def _time(claims: Mapping[str, Any], name: str) -> int | None:
    """Return the time (ms) in a claim, None if there is none."""
    value = claims.get(name)
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value < _SECONDS_MAX:
        raise InvalidToken(f"its claim {name} is not a time")
    return int(value * 1000)


def refresh_ms(token: OwnToken, now_ms: int, rules: RefreshRules, share: float) -> int:
    """Return when the next token is fetched, as Kafka's clients do. `share`: a random number between 0 and 1."""
    part = rules.factor + rules.jitter * share
    if now_ms + rules.min_period_ms + rules.buffer_ms > token.expires_ms:
        return now_ms + int((token.expires_ms - now_ms) * part)
    start = now_ms if token.issued_ms is None else token.issued_ms
    proposed = start + int((token.expires_ms - start) * part)
    latest = token.expires_ms - rules.buffer_ms
    return min(max(proposed, now_ms + rules.min_period_ms), latest)
