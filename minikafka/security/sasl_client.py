"""The client's side of SASL, for connections between brokers and for the project's own client."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from minikafka.security import scram
from minikafka.security.jaas import InvalidJaas, JaasEntry
from minikafka.security.sasl import OAUTHBEARER, PLAIN, TOKEN_AUTH

_CONFIRM_ERROR: Final = b"\1"
_EXTENSION: Final = "extension_"
_NAME: Final = re.compile(r"[A-Za-z]+")
_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
_MAX_ITERATIONS: Final = 1_000_000
"""A server cannot make a client compute for longer than about a second."""


class ServerNotTrusted(Exception):
    """The server has answered with something that only a wrong or forged server sends."""


@dataclass(frozen=True, slots=True)
class Login:
    """How a client logs in. Secrets are not in `repr`.

    `password` is the HMAC of a delegation token if `is_by_token`. `token` is the JWT of OAUTHBEARER, and `extensions`
    are its SASL extensions.
    """

    mechanism: str
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    is_by_token: bool = False
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)


def login_of(mechanism: str, entry: JaasEntry) -> Login:
    """Return the login with user and password of a JAAS entry. Raises InvalidJaas."""
    missing = [name for name in ("username", "password") if not entry.options.get(name)]
    if missing:
        raise InvalidJaas(f'has no {missing[0]}="…", which a login with {mechanism} needs')
    is_by_token = entry.options.get(TOKEN_AUTH, "").lower() == "true"
    return Login(
        mechanism,
        entry.options["username"],
        entry.options["password"],
        is_by_token=is_by_token and mechanism in scram.BY_NAME,
    )


def bearer_login_of(entry: JaasEntry) -> Login:
    """Return the login with OAUTHBEARER of a JAAS entry, without its token. Raises InvalidJaas."""
    found = {
        name.removeprefix(_EXTENSION): value
        for name, value in entry.options.items()
        if name.startswith(_EXTENSION)
    }
    for name, value in found.items():
        if name == "auth" or not (_NAME.fullmatch(name) and _VALUE.fullmatch(value)):
            raise InvalidJaas(f"has a SASL extension that cannot be sent: {_EXTENSION}{name}")
    return Login(OAUTHBEARER, extensions=found)


class ClientExchange:
    """One authentication at a server.

    `step(b"")` returns the first token. Each answer of the server is passed to `step`, which returns the next token,
    or None if there is none to send. When it has returned None, `is_done` is True.
    """

    def __init__(self) -> None:
        self.is_done = False

    def step(self, challenge: bytes) -> bytes | None:
        """Return the next token for the server. Raises ServerNotTrusted."""
        raise NotImplementedError


def new_client_exchange(login: Login, random_bytes: Callable[[int], bytes]) -> ClientExchange:
    """Return the exchange of a login with one of `sasl.MECHANISMS`."""
    if login.mechanism == PLAIN:
        return _OneToken(f"\0{login.user}\0{login.password}".encode())
    if login.mechanism == OAUTHBEARER:
        pairs = "".join(f"{name}={value}\1" for name, value in login.extensions.items())
        return _OneToken(f"n,,\1auth=Bearer {login.token}\1{pairs}\1".encode())
    return _ScramClient(login, random_bytes)


class _OneToken(ClientExchange):
    """PLAIN and OAUTHBEARER: the client sends one token, and an empty answer accepts it.

    OAUTHBEARER answers a refused token with an error text. The client confirms it with one byte, and the server then
    fails the authentication.
    """

    def __init__(self, token: bytes) -> None:
        super().__init__()
        self._token: bytes | None = token

    def step(self, challenge: bytes) -> bytes | None:
        token, self._token = self._token, None
        if token is None and challenge:
            return _CONFIRM_ERROR
        self.is_done = token is None
        return token


class _ScramClient(ClientExchange):
    """SCRAM. The server, too, must prove that it knows the password."""

    def __init__(self, login: Login, random_bytes: Callable[[int], bytes]) -> None:
        super().__init__()
        self._mechanism = scram.BY_NAME[login.mechanism]
        self._login = login
        extensions = {TOKEN_AUTH: "true"} if login.is_by_token else {}
        nonce = scram.random_text(random_bytes(17))
        self._first = scram.client_first(login.user, nonce, extensions)
        self._salted: bytes | None = None
        self._signed = b""
        self._is_begun = False

    def step(self, challenge: bytes) -> bytes | None:
        if not self._is_begun:
            self._is_begun = True
            return f"{self._first.header}{self._first.bare}".encode()
        try:
            if self._salted is None:
                return self._prove(challenge)
            self._check_server(self._salted, scram.read_server_final(challenge))
        except scram.InvalidScram as invalid:
            raise ServerNotTrusted(str(invalid)) from None
        self.is_done = True
        return None

    def _prove(self, message: bytes) -> bytes:
        challenge = scram.read_server_first(message)
        if not challenge.nonce.startswith(self._first.nonce):
            raise ServerNotTrusted("the nonce of the server does not begin with that of the client")
        if not scram.MIN_ITERATIONS <= challenge.iterations <= _MAX_ITERATIONS:
            raise ServerNotTrusted(
                f"the server asks for {challenge.iterations} SCRAM iterations, "
                f"allowed are {scram.MIN_ITERATIONS} to {_MAX_ITERATIONS}"
            )
        self._salted = scram.salted_password(
            self._mechanism, self._login.password, challenge.salt, challenge.iterations
        )
        unproven = scram.unproven(self._first.header, challenge.nonce)
        self._signed = scram.signed_text(self._first, message.decode(), unproven)
        proof = scram.client_proof(self._mechanism, self._salted, self._signed)
        return scram.client_final(unproven, proof)

    def _check_server(self, salted: bytes, signature: bytes) -> None:
        if not scram.is_signed_by_server(self._mechanism, salted, self._signed, signature):
            raise ServerNotTrusted("the server does not know the credential of the user")
