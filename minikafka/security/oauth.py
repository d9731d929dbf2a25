"""JSON Web Tokens of OAUTHBEARER: the keys that sign them, and the check of a token, as Kafka does it.

Signatures are checked by PyJWT. Only signatures with a public key are accepted, so that no key of the server is secret.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import jwt

from minikafka.security.sasl import BearerToken, RefusedToken

_FAMILIES: Final = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
"""Type of a key → the algorithms for which it may be used."""
_ALGORITHMS: Final = [name for family in _FAMILIES.values() for name in family]
KEY_ID_MAX: Final = 1_000
"""Longest id of a key. As in Kafka, a longer one is not looked for."""
_INVALID: Final = "invalid_token"


class InvalidKeys(ValueError):
    """A text is no JSON Web Key Set, or has no key that can check a token."""


class UnknownSigner(RefusedToken):
    """The key that has signed a token is not in the key set, which may be old."""

    def __init__(self, key_id: str) -> None:
        super().__init__(_INVALID, "the key set has no key for the token")
        self.key_id = key_id


class _Key(NamedTuple):
    id: str | None
    type: str
    algorithm: str | None
    public: Any


class KeySet:
    """The public keys with which tokens are checked."""

    def __init__(self, text: str) -> None:
        """Read a JSON Web Key Set (RFC 7517). Raises InvalidKeys."""
        try:
            rows = json.loads(text)["keys"]
            assert isinstance(rows, list)
            self._keys = [key for row in rows if (key := _read_key(row)) is not None]
        except (ValueError, LookupError, TypeError, AssertionError, RecursionError):
            raise InvalidKeys('must be a JSON Web Key Set: {"keys": […]}') from None
        if not self._keys:
            raise InvalidKeys("has no RSA, EC or OKP key for signatures")

    def find(self, key_id: str | None, algorithm: str) -> Any | None:
        """Return the public key for a token with this header, or None. A token without an id takes the first key."""
        for key in self._keys:
            if (
                (key_id is None or key.id == key_id)
                and algorithm in _FAMILIES[key.type]
                and key.algorithm in (None, algorithm)
            ):
                return key.public
        return None


def _read_key(row: Any) -> _Key | None:
    """Return a key, or None if it cannot check signatures."""
    if row["kty"] not in _FAMILIES or row.get("use") not in (None, "sig"):
        return None
    try:
        public = jwt.PyJWK.from_dict(row).key
    except jwt.PyJWTError:
        return None
    return _Key(row.get("kid"), row["kty"], row.get("alg"), public)


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What a token must say. An audience is needed if there are some here, and refused if there are none."""

    audiences: frozenset[str] = frozenset()
    issuer: str | None = None
    skew_s: int = 30
    scope_claim: str = "scope"
    user_claim: str = "sub"


def verify(token: str, keys: KeySet, rules: TokenRules, now_ms: int) -> BearerToken:
    """Return what a token says if it is signed by one of the keys and valid now. Raises RefusedToken."""
    claims = _signed_claims(token, keys)
    _check_times(claims, rules.skew_s, now_ms // 1_000)
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise RefusedToken(_INVALID, "the issuer of the token is another one than expected")
    _check_audience(claims.get("aud"), rules.audiences)
    _check_scopes(claims.get(rules.scope_claim))
    user = claims.get(rules.user_claim)
    if not isinstance(user, str) or not user.strip():
        raise RefusedToken(_INVALID, f"the token has no text as claim {rules.user_claim!r}")
    return BearerToken(user.strip(), int(claims["exp"]) * 1_000)


def _signed_claims(token: str, keys: KeySet) -> Mapping[str, Any]:
    signatures = jwt.PyJWS(algorithms=_ALGORITHMS)
    try:
        header = signatures.get_unverified_header(token)
        key_id, algorithm = header.get("kid"), header.get("alg")
        if algorithm not in _ALGORITHMS:
            raise RefusedToken(_INVALID, "the token is not signed with a public-key algorithm")
        key = keys.find(key_id, algorithm)
        if key is None:
            raise UnknownSigner(key_id or "")
        with warnings.catch_warnings(action="ignore"):  # a short key is the issuer's decision
            claims = json.loads(signatures.decode(token, key, [algorithm]))
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise RefusedToken(_INVALID, "the token is malformed or its signature is wrong") from None
    if not isinstance(claims, dict):
        raise RefusedToken(_INVALID, "the token has no claims")
    for name in ("iss", "sub", "jti"):
        if not isinstance(claims.get(name), str | None):
            raise RefusedToken(_INVALID, f"the claim {name!r} of the token is no text")
    return claims


def _check_times(claims: Mapping[str, Any], skew_s: int, now_s: int) -> None:
    for name in ("exp", "iat"):
        if claims.get(name) is None:
            raise RefusedToken(_INVALID, f"the token has no claim {name!r}")
    times = {name: claims[name] for name in ("exp", "iat", "nbf") if claims.get(name) is not None}
    for name, value in times.items():
        if type(value) not in (int, float) or not abs(value) < 2**53:
            raise RefusedToken(_INVALID, f"the claim {name!r} of the token is no time")
    expires, issued, begins = (int(times.get(name, 0)) for name in ("exp", "iat", "nbf"))
    if expires <= now_s - skew_s or expires < max(issued, begins):
        raise RefusedToken(_INVALID, "the token has expired")
    if begins > now_s + skew_s or issued < 0:
        raise RefusedToken(_INVALID, "the token is not valid yet")


def _check_audience(found: Any, expected: frozenset[str]) -> None:
    audiences = [found] if isinstance(found, str) else found
    if audiences is None and not expected:
        return
    if not isinstance(audiences, list) or not all(isinstance(item, str) for item in audiences):
        raise RefusedToken(_INVALID, "the token has no audience")
    if expected.isdisjoint(audiences):
        raise RefusedToken(_INVALID, "the token is for another audience")


def _check_scopes(scopes: Any) -> None:
    """Refuse a malformed scope, as Kafka does, although no one uses it."""
    if isinstance(scopes, str):
        scopes = [scopes]
    if not isinstance(scopes, list):
        return
    texts = [item.strip() for item in scopes if isinstance(item, str)]
    if len(texts) < len(scopes) or not all(texts) or len(set(texts)) < len(texts):
        raise RefusedToken(_INVALID, "the scope of the token is malformed")
