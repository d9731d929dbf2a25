"""SASL DIGEST-MD5 (RFC 2831) as ZooKeeper uses it: the exchange of a server and that of a client.

Random bytes are arguments. MD5 protects little against somebody who records the exchange: use TLS as well. An
unknown user and a wrong password end alike, and cost the same.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Final

REALM: Final = "zk-sasl-md5"
"""The realm, which is also the host of the service, of every ZooKeeper server."""
DIGEST_URI: Final = f"zookeeper/{REALM}"
NONCE_BYTES: Final = 32
TOKEN_MAX: Final = 4096
"""Maximum size of a response or challenge (RFC 2831)."""
_FIRST_COUNT: Final = "00000001"
_QOP: Final = "auth"
_DIRECTIVE: Final = re.compile(
    r'[ \t,]*([A-Za-z-]+)[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))'
)
_NOBODY: Final = ("", "nobody has this password")


class DigestRefused(Exception):
    """The other side has not proven who it is. The text contains no password."""


class DigestServer:
    """The server's side of one exchange. `users`: name → password."""

    def __init__(self, users: Mapping[str, str], nonce: bytes) -> None:
        self.user: str | None = None
        """The authenticated user, when the exchange is complete."""
        self._users = users
        self._nonce = nonce.hex()
        self._has_begun = False
        self._has_ended = False

    def step(self, token: bytes) -> bytes:
        """Return the next token for the client. Raises DigestRefused, also for a token after the end."""
        if self._has_ended:
            raise DigestRefused("the exchange is over")
        if not self._has_begun:
            if token:
                raise DigestRefused("a client of DIGEST-MD5 begins with an empty token")
            self._has_begun = True
            return (
                f'realm="{REALM}",nonce="{self._nonce}",qop="{_QOP}",'
                "charset=utf-8,algorithm=md5-sess"
            ).encode()
        self._has_ended = True
        return self._finish(_directives(token))

    def _finish(self, found: Mapping[str, str]) -> bytes:
        expected = {"nonce": self._nonce, "nc": _FIRST_COUNT, "realm": REALM}
        if any(found.get(name, "") != value for name, value in expected.items()):
            raise DigestRefused("the response belongs to another challenge")
        if found.get("qop", _QOP) != _QOP or found.get("digest-uri", "").lower() != DIGEST_URI:
            raise DigestRefused("the response is not for ZooKeeper")
        user = found.get("username", "")
        password = self._users.get(user)
        name, secret = _NOBODY if password is None else (user, password)
        proof = _Proof(name, secret, found)
        is_right = hmac.compare_digest(
            proof.response("AUTHENTICATE"), found.get("response", "").encode()
        )
        if not is_right or password is None:
            raise DigestRefused("the user or the password is wrong")
        self.user = user
        return b"rspauth=" + proof.response("")


class DigestClient:
    """The client's side of one exchange: `respond` to the challenge, then `check` the server's proof."""

    def __init__(self, user: str, password: str, cnonce: bytes) -> None:
        self._user = user
        self._password = password
        self._cnonce = cnonce.hex()
        self._proof: _Proof | None = None

    def respond(self, challenge: bytes) -> bytes:
        """Return the response to the server's challenge. Raises DigestRefused for anything else."""
        found = _directives(challenge)
        if "nonce" not in found or found.get("algorithm") != "md5-sess":
            raise DigestRefused("the server sent no challenge of DIGEST-MD5")
        if _QOP not in found.get("qop", _QOP).split(","):
            raise DigestRefused(f"the server does not offer the protection {_QOP}")
        answer = {
            "username": self._user,
            "realm": found.get("realm", ""),
            "nonce": found["nonce"],
            "nc": _FIRST_COUNT,
            "cnonce": self._cnonce,
            "digest-uri": DIGEST_URI,
            "charset": "utf-8",
        }
        self._proof = _Proof(self._user, self._password, answer)
        quoted = {"username", "realm", "nonce", "cnonce", "digest-uri"}
        texts = [
            f"{name}={_quoted(value) if name in quoted else value}"
            for name, value in answer.items()
        ]
        response = self._proof.response("AUTHENTICATE").decode()
        return ",".join((*texts, f"response={response}", f"qop={_QOP}")).encode()

    def check(self, token: bytes) -> None:
        """Raise DigestRefused unless the server has proven that it knows the password, too."""
        found = _directives(token).get("rspauth", "")
        if self._proof is None or not hmac.compare_digest(self._proof.response(""), found.encode()):
            raise DigestRefused("the server does not know the password")


class _Proof:
    """What both sides compute from the password and the directives of the response."""

    def __init__(self, user: str, password: str, directives: Mapping[str, str]) -> None:
        nonce, cnonce = directives["nonce"], directives.get("cnonce", "")
        realm = directives["realm"]
        secret = _md5(b":".join((_encoded(user), _encoded(realm), _encoded(password))))
        parts = [secret, nonce.encode(), cnonce.encode()]
        if "authzid" in directives:
            parts.append(directives["authzid"].encode())
        self._key = _md5(b":".join(parts)).hex()
        self._middle = f"{nonce}:{_FIRST_COUNT}:{cnonce}:{_QOP}"
        self._uri = directives["digest-uri"]

    def response(self, method: str) -> bytes:
        """Return the proof: of the client for the method AUTHENTICATE, of the server for none."""
        second = _md5(f"{method}:{self._uri}".encode()).hex()
        return _md5(f"{self._key}:{self._middle}:{second}".encode()).hex().encode()


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


def _encoded(text: str) -> bytes:
    """Return the text in ISO 8859-1 if possible, else in UTF-8, as RFC 2831 demands before the hash."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def _quoted(text: str) -> str:
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def _directives(token: bytes) -> dict[str, str]:
    """Return the directives of a token, such as nonce="…". Raises DigestRefused if it is malformed."""
    if len(token) > TOKEN_MAX:
        raise DigestRefused(f"a token has more than {TOKEN_MAX} bytes")
    try:
        text = token.decode().strip(" \t,")
    except UnicodeDecodeError:
        raise DigestRefused("a token is not UTF-8") from None
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _DIRECTIVE.match(text, position)
        if match is None or match[1].lower() in found:
            raise DigestRefused("a token is malformed")
        value = match[3] if match[2] is None else re.sub(r"\\(.)", r"\1", match[2], flags=re.DOTALL)
        found[match[1].lower()] = value
        position = match.end()
    return found
