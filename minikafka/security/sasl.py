"""The server's side of SASL: one `Exchange` per authentication, for PLAIN, SCRAM and OAUTHBEARER.

What a client gets never tells whether a user exists. An unknown user of SCRAM gets a challenge, and fails with its
proof, as a user with a wrong password does. All comparisons take the same time for right and wrong secrets.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Protocol

from minikafka.security import scram
from minikafka.security.scram import ScramCredential

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (PLAIN, *scram.BY_NAME, OAUTHBEARER)
"""The mechanisms that a broker can serve. GSSAPI is not one of them."""
TOKEN_AUTH: Final = "tokenauth"  # noqa: S105 - the name of an extension
"""The SCRAM extension with which a client authenticates by a delegation token."""
_OTHER_ID: Final = (
    "Authentication failed: Client requested an authorization id that is different from username"
)
_ABORT: Final = b"\1"
_BEARER_FIRST: Final = re.compile(
    rf"n,(?:a=(?P<authzid>{scram.NAME}))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_BEARER: Final = re.compile(r"bearer +(?P<token>[-_~+/.a-zA-Z0-9]+=*)", re.IGNORECASE)


class AuthenticationFailed(Exception):
    """A client has not authenticated. The text is for the client, and contains no secret."""


class TokenLogin(NamedTuple):
    """What a client that logs in with a delegation token must prove, and whom the token stands for."""

    user: str
    credential: ScramCredential
    expires_ms: int


class BearerToken(NamedTuple):
    """What a verified JWT says."""

    user: str
    expires_ms: int


class RefusedToken(Exception):
    """A JWT is not accepted. `status` is the word that the client gets (RFC 6750); the text is for the log."""

    def __init__(self, status: str = "invalid_token", reason: str = "") -> None:
        super().__init__(reason)
        self.status = status


class ScramCredentials(Protocol):
    """The SCRAM credentials that a broker knows."""

    def find(self, mechanism: str, user: str) -> ScramCredential | None:
        """Return the credential of a user, or None."""

    def decoy(self, mechanism: str, user: str) -> ScramCredential:
        """Return a credential that no password fits. It is the same for each call with this user."""


class TokenLogins(Protocol):
    """The delegation tokens that a broker knows."""

    def login(self, mechanism: str, token_id: str) -> TokenLogin | None:
        """Return the login of a token, or None if there is no such token, or if it has expired."""


def _no_bearer(_: str) -> BearerToken:
    raise RefusedToken


@dataclass(frozen=True, slots=True)
class Lookups:
    """Where the exchanges of one listener look up users. All functions answer at once, from memory.

    `plain_users`: name -> password. `tokens`: None if the broker has no `delegation.token.secret.key`.
    `bearer_token` verifies a JWT, and raises RefusedToken. `random_bytes` are suitable for secrets.
    """

    random_bytes: Callable[[int], bytes]
    plain_users: Mapping[str, str] = field(default_factory=dict, repr=False)
    scram: ScramCredentials | None = None
    tokens: TokenLogins | None = None
    bearer_token: Callable[[str], BearerToken] = _no_bearer


class Exchange:
    """One authentication of one client. `step` is called with each token of the client until `is_done`.

    Then `principal` is the client, for example `User:alice`. `expires_ms` is the wall-clock time until which its
    delegation token or JWT is valid. `is_by_token`: the client has authenticated with a delegation token.
    """

    def __init__(self) -> None:
        self.is_done = False
        self.principal = ""
        self.expires_ms: int | None = None
        self.is_by_token = False

    def step(self, token: bytes) -> bytes:
        """Return the answer to a token of the client. Raises AuthenticationFailed, and is not called again then."""
        raise NotImplementedError

    def _finish(self, user: str, expires_ms: int | None = None) -> None:
        self.is_done = True
        self.principal = f"User:{user}"
        self.expires_ms = expires_ms


def new_exchange(mechanism: str, lookups: Lookups, *, reauthenticating: bool = False) -> Exchange:
    """Return the exchange of a client that has chosen one of `MECHANISMS`."""
    if mechanism == PLAIN:
        return _PlainExchange(lookups)
    during = "re-authentication" if reauthenticating else "authentication"
    failure = (
        f"Authentication failed during {during} due to invalid credentials "
        f"with SASL mechanism {mechanism}"
    )
    if mechanism == OAUTHBEARER:
        return _BearerExchange(lookups, failure)
    return _ScramExchange(scram.BY_NAME[mechanism], lookups, failure)


class _PlainExchange(Exchange):
    """PLAIN (RFC 4616): authorization id, user and password in one token, separated by NUL."""

    def __init__(self, lookups: Lookups) -> None:
        super().__init__()
        self._lookups = lookups

    def step(self, token: bytes) -> bytes:
        parts = token.decode(errors="replace").split("\0", 3)
        if len(parts) != 3:
            raise AuthenticationFailed(
                f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
            )
        authorization_id, user, password = parts
        for name, value in (("username", user), ("password", password)):
            if not value:
                raise AuthenticationFailed(f"Authentication failed: {name} not specified")
        if not self._is_password_of(user, password):
            raise AuthenticationFailed("Authentication failed: Invalid username or password")
        if authorization_id not in ("", user):
            raise AuthenticationFailed(_OTHER_ID)
        self._finish(user)
        return b""

    def _is_password_of(self, user: str, password: str) -> bool:
        """Compare digests with a random key: the time depends neither on the user nor on the length of a password."""
        key = self._lookups.random_bytes(32)
        expected = self._lookups.plain_users.get(user)
        is_equal = hmac.compare_digest(_keyed(key, password), _keyed(key, expected or ""))
        return is_equal and expected is not None


def _keyed(key: bytes, password: str) -> bytes:
    return hmac.digest(key, password.encode(errors="surrogatepass"), "sha256")


class _ScramExchange(Exchange):
    """SCRAM (RFC 5802) with a user's credential, or with a delegation token."""

    def __init__(self, mechanism: scram.ScramMechanism, lookups: Lookups, failure: str) -> None:
        super().__init__()
        self._mechanism = mechanism
        self._lookups = lookups
        self._failure = failure
        self._pending: _Challenge | None = None

    def step(self, token: bytes) -> bytes:
        try:
            if self._pending is None:
                return self._send_challenge(scram.read_client_first(token))
            return self._check_proof(self._pending, scram.read_client_final(token))
        except scram.InvalidScram:
            raise AuthenticationFailed(self._failure) from None

    def _send_challenge(self, first: scram.ClientFirst) -> bytes:
        if first.authorization_id not in ("", first.user):
            raise AuthenticationFailed(_OTHER_ID)
        login, is_known = self._find_login(first)
        credential = login.credential
        nonce = first.nonce + scram.random_text(self._lookups.random_bytes(17))
        challenge = scram.server_first(
            scram.ServerFirst(nonce, credential.salt, credential.iterations)
        )
        self._pending = _Challenge(first, nonce, challenge, login, is_known)
        return challenge.encode()

    def _find_login(self, first: scram.ClientFirst) -> tuple[_Login, bool]:
        """Return the login to prove, and whether it exists. If it does not exist, its credential is a decoy."""
        name, known = self._mechanism.name, self._lookups.scram
        if known is None:
            raise AuthenticationFailed(self._failure)
        decoy = known.decoy(name, first.user)
        if first.extensions.get(TOKEN_AUTH, "").lower() == "true":
            self.is_by_token = True
            tokens = self._lookups.tokens
            login = None if tokens is None else tokens.login(name, first.user)
            if login is None:
                return _Login(first.user, replace(decoy, iterations=scram.MIN_ITERATIONS)), False
            return _Login(*login), True
        found = known.find(name, first.user)
        if found is None or found.iterations < scram.MIN_ITERATIONS:
            return _Login(first.user, decoy), False
        return _Login(first.user, found), True

    def _check_proof(self, pending: _Challenge, final: scram.ClientFinal) -> bytes:
        login = pending.login
        signed = scram.signed_text(pending.first, pending.text, final.unproven)
        is_proven = scram.is_proven(self._mechanism, login.credential, signed, final.proof)
        # As in Kafka, the nonce need only end with that of the challenge: old librdkafka sends its own nonce twice.
        is_bound = final.header == pending.first.header and final.nonce.endswith(pending.nonce)
        if not (is_proven and is_bound and pending.is_known):
            raise AuthenticationFailed(self._failure)
        self._finish(login.user, login.expires_ms)
        return scram.server_final(
            scram.server_signature(self._mechanism, login.credential.server_key, signed)
        )


class _Login(NamedTuple):
    user: str
    credential: ScramCredential
    expires_ms: int | None = None


class _Challenge(NamedTuple):
    first: scram.ClientFirst
    nonce: str
    text: str
    login: _Login
    is_known: bool


class _BearerExchange(Exchange):
    """OAUTHBEARER (RFC 7628). A refused token is answered with JSON, and fails with the client's next message."""

    def __init__(self, lookups: Lookups, failure: str) -> None:
        super().__init__()
        self._lookups = lookups
        self._failure = failure
        self._refusal = ""

    def step(self, token: bytes) -> bytes:
        if self._refusal:
            raise AuthenticationFailed(self._refusal if token == _ABORT else self._failure)
        authorization_id, bearer = self._read(token)
        try:
            verified = self._lookups.bearer_token(bearer)
        except RefusedToken as refused:
            self._refusal = json.dumps({"status": refused.status}, separators=(",", ":"))
            return self._refusal.encode()
        if authorization_id not in ("", verified.user):
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id "
                "that is different from the token's principal name"
            )
        self._finish(verified.user, verified.expires_ms)
        return b""

    def _read(self, message: bytes) -> tuple[str, str]:
        """Return the authorization id and the JWT of the client's first message."""
        first = _BEARER_FIRST.fullmatch(message.decode(errors="replace"))
        if first is None:
            raise AuthenticationFailed(self._failure)
        pairs = dict(pair.partition("=")[::2] for pair in first["pairs"].split("\1")[:-1])
        auth = _BEARER.fullmatch(pairs.get("auth", ""))
        if auth is None:
            raise AuthenticationFailed(self._failure)
        return scram.unescape(first["authzid"] or ""), auth["token"]
