"""Where a client gets the token for its login by OAUTHBEARER: a file, or the token endpoint of an identity provider.

At an endpoint, the client shows its id and its secret, and gets a token (OAuth 2.0, grant type client_credentials).
No error contains a secret or a part of a token.
"""

from __future__ import annotations

import json
import ssl
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote_plus, unquote, urlencode, urlsplit

from minikafka.base.config.client import IGNORED
from minikafka.base.config.keys import table
from minikafka.base.config.security import SecurityKeys
from minikafka.base.errors import ConfigError
from minikafka.base.ports import Clock
from minikafka.base.printable import printable
from minikafka.client.login import LoginFailed
from minikafka.runtime.transport import SocketTransport
from minikafka.security.jaas import InvalidJaas

URL: Final = "sasl.oauthbearer.token.endpoint.url"
_TIMEOUT_MS: Final = 10_000
"""Timeout of a connection or an answer if no key sets it."""
_BYTES_MAX: Final = 1 << 20
_TEXT_MAX: Final = 200
_OK: Final = (200, 201)
_FINAL: Final = frozenset(
    (400, 401, 402, 403, 404, 405, 406, 407, 409, 410, 411, 412, 413, 414, 415, 501, 505)
)
"""The HTTP statuses after which another attempt would fail too, as in Kafka."""


class NoToken(ConnectionError):
    """The endpoint has given no token. Another attempt may succeed."""


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A file with a token, which another program replaces before the token ends."""

    path: Path

    async def fetch(self, *, is_patient: bool) -> str:
        """Return the content of the file. Raises NoToken."""
        try:
            return self.path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is no text"
            raise NoToken(f"{URL}: {self.path} cannot be read: {reason}") from None


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """A token endpoint. `credential` is the value of the header Authorization.

    `tls`: None to trust the authorities of the system.
    """

    url: str
    credential: str = field(repr=False)
    scope: str
    clock: Clock
    connect_ms: int
    read_ms: int
    backoff_ms: int
    backoff_max_ms: int
    tls: ssl.SSLContext | None = None

    async def fetch(self, *, is_patient: bool) -> str:
        """Return a new token. Raises NoToken, LoginFailed.

        If `is_patient`, attempts are repeated for `backoff_max_ms`; otherwise there is one.
        """
        ends, pause = self.clock.now() + self.backoff_max_ms * is_patient, self.backoff_ms
        while True:
            try:
                return await self._ask()
            except NoToken:
                left = ends - self.clock.now()
                if left <= 0:
                    raise
            await self.clock.sleep(min(pause, left))
            pause *= 2

    async def _ask(self) -> str:
        """Make one attempt."""
        import aiohttp  # only logins with OAUTHBEARER need it

        timeout = aiohttp.ClientTimeout(
            self.connect_ms / 1000 + self.read_ms / 1000,
            sock_connect=self.connect_ms / 1000,
            sock_read=self.read_ms / 1000,
        )
        headers = {
            "Accept": "application/json",
            "Authorization": self.credential,
            "Cache-Control": "no-cache",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        form = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.post(
                    self.url,
                    data=urlencode(form).encode(),
                    headers=headers,
                    ssl=self.tls or True,
                    allow_redirects=False,  # the secret is for this address only
                ) as answer,
            ):
                body = await answer.content.read(_BYTES_MAX)
                while len(body) < _BYTES_MAX and (more := await answer.content.read(_BYTES_MAX)):
                    body += more
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = "no answer in time" if isinstance(error, TimeoutError) else str(error)
            raise NoToken(f"no token from {self.url}: {printable(reason)}") from None
        return self._token(answer.status, body)

    def _token(self, status: int, body: bytes) -> str:
        found = _json(body)
        if status in _FINAL:
            raise LoginFailed(
                f"{self.url} refuses a token with HTTP status {status}{_reason(found)}"
            )
        if status not in _OK:
            raise NoToken(f"no token from {self.url}: HTTP status {status}{_reason(found)}")
        token = found.get("access_token")
        if not isinstance(token, str) or not token.strip():
            raise NoToken(f"no token from {self.url}: its answer has no access_token")
        return token


def _json(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _reason(found: Mapping[str, Any]) -> str:
    """Return the error of an answer in the form of RFC 6749."""
    words = [found[name] for name in ("error", "error_description") if found.get(name)]
    text = printable(" - ".join(map(str, words)))[:_TEXT_MAX]
    return f": {text}" if text else ""


def token_origin(
    keys: SecurityKeys, options: Mapping[str, str], clock: Clock
) -> TokenFile | TokenEndpoint:
    """Return where the tokens of a login module with these options come from. Raises ConfigError, InvalidJaas."""
    url = keys.sasl_oauthbearer_token_endpoint_url
    if not url:
        raise ConfigError(
            f"{URL} is not set: write the address from which the token comes, https://… or file:///…"
        )
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.path.startswith("/") and not parts.netloc:
        return TokenFile(Path(unquote(parts.path)))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(
            f"{URL} must be file:///PATH, http://HOST/… or https://HOST/…, got {url!r}"
        )
    return TokenEndpoint(
        url,
        _credential(options, is_encoded=keys.sasl_oauthbearer_header_urlencode),
        options.get("scope", "").strip(),
        clock,
        keys.sasl_login_connect_timeout_ms or _TIMEOUT_MS,
        keys.sasl_login_read_timeout_ms or _TIMEOUT_MS,
        keys.sasl_login_retry_backoff_ms,
        keys.sasl_login_retry_backoff_max_ms,
        _tls(options),
    )


def _credential(options: Mapping[str, str], *, is_encoded: bool) -> str:
    values = []
    for name in ("clientId", "clientSecret"):
        value = options.get(name, "").strip()
        if not value:
            raise InvalidJaas(f'has no {name}="…", which a token endpoint needs')
        values.append(quote_plus(value) if is_encoded else value)
    return f"Basic {b64encode(':'.join(values).encode()).decode()}"


def _tls(options: Mapping[str, str]) -> ssl.SSLContext | None:
    """Return the context that the options `ssl.…` of a login module describe; None without such options."""
    rows = {name: row for name, row in table(SecurityKeys).items() if name.startswith("ssl.")}
    given = {name: value for name, value in options.items() if name.startswith("ssl.")}
    if unknown := sorted(given.keys() - rows.keys() - IGNORED):
        raise InvalidJaas(f"has an unknown option {unknown[0]}")
    values = {rows[name].attribute: rows[name].parse(given[name]) for name in given if name in rows}
    if not values:
        return None
    return SocketTransport().tls(SecurityKeys(**values), server=False).context
