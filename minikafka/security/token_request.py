"""The request for a token to the token endpoint of an identity provider, and the token in its answer.

The client shows its id and its secret, and gets a token (OAuth 2.0, grant type client_credentials). No error contains
a secret or a part of a token.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote_plus, unquote, urlencode, urlsplit

from minikafka.base.config.client import IGNORED, ClientConfig
from minikafka.base.config.keys import table
from minikafka.base.config.security import SecurityKeys
from minikafka.base.errors import ConfigError
from minikafka.base.printable import printable
from minikafka.security.jaas import InvalidJaas

URL: Final = "sasl.oauthbearer.token.endpoint.url"
TIMEOUT_MS: Final = 10_000
"""Timeout of a connection or an answer if no key sets it."""
BYTES_MAX: Final = 1 << 20
"""Maximum size of an answer of the endpoint."""
_TEXT_MAX: Final = 200
_OK: Final = (200, 201)
_FINAL: Final = frozenset(
    (400, 401, 402, 403, 404, 405, 406, 407, 409, 410, 411, 412, 413, 414, 415, 501, 505)
)
"""The HTTP statuses after which another attempt would fail too, as in Kafka."""
_KEYS: Final = {name: row for name, row in table(SecurityKeys).items() if name.startswith("ssl.")}


class NoToken(ConnectionError):
    """The endpoint has given no token. Another attempt may succeed."""


class RefusedRequest(Exception):
    """The endpoint refuses a token. Another attempt would fail too."""


class UntrustedEndpoint(RefusedRequest):
    """No trusted authority has signed the certificate of the endpoint, or it is not that of the host."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(
            f"the certificate of {url} is not valid ({printable(reason)}); set ssl.truststore.location in"
            " sasl.jaas.config to the PEM file of the authority that signed it, with ssl.truststore.type PEM"
        )


class TokenRequest(NamedTuple):
    """A POST request. `headers`: one of them contains the secret of the client."""

    url: str
    headers: tuple[tuple[str, str], ...]
    form: bytes

    def __repr__(self) -> str:
        """Return what is no secret."""
        return f"TokenRequest({self.url!r})"


def token_file(url: str) -> str | None:
    """Return the path in the address of a file; None for the address of an endpoint."""
    parts = urlsplit(url)
    is_file = parts.scheme == "file" and parts.path.startswith("/") and not parts.netloc
    return unquote(parts.path) if is_file else None


def token_request(url: str, options: Mapping[str, str], keys: SecurityKeys) -> TokenRequest:
    """Return the request of a login module with these options. Raises ConfigError, InvalidJaas."""
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise ConfigError(
            f"{URL} must have no login before the host: set clientId and clientSecret of sasl.jaas.config"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(
            f"{URL} must be file:///PATH, http://HOST/… or https://HOST/…, got {url!r}"
        )
    headers = {
        "Accept": "application/json",
        "Authorization": _credential(options, is_encoded=keys.sasl_oauthbearer_header_urlencode),
        "Cache-Control": "no-cache",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    scope = options.get("scope", "").strip()
    form = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
    return TokenRequest(url, tuple(headers.items()), urlencode(form).encode())


def _credential(options: Mapping[str, str], *, is_encoded: bool) -> str:
    values = []
    for name in ("clientId", "clientSecret"):
        value = options.get(name, "").strip()
        if not value:
            raise InvalidJaas(f'has no {name}="…", which a token endpoint needs')
        values.append(quote_plus(value) if is_encoded else value)
    return f"Basic {b64encode(':'.join(values).encode()).decode()}"


def tls_of_module(options: Mapping[str, str]) -> ClientConfig | None:
    """Return how the options `ssl.…` of a login module encrypt the request; None without such options.

    Raises ConfigError, InvalidJaas.
    """
    given = {name: value for name, value in options.items() if name.startswith("ssl.")}
    if unknown := sorted(given.keys() - _KEYS.keys() - IGNORED):
        raise InvalidJaas(f"has an unknown option {unknown[0]}")
    values = {
        _KEYS[name].attribute: _KEYS[name].parse(given[name]) for name in given if name in _KEYS
    }
    return ClientConfig(**values) if values else None


def token_in(url: str, status: int, body: bytes) -> str:
    """Return the token in an answer of the endpoint. Raises NoToken, RefusedRequest."""
    found = _json(body)
    if status in _FINAL:
        raise RefusedRequest(f"{url} refuses a token with HTTP status {status}{_reason(found)}")
    if status not in _OK:
        raise NoToken(f"no token from {url}: HTTP status {status}{_reason(found)}")
    token = found.get("access_token")
    if not isinstance(token, str) or not token.strip():
        raise NoToken(f"no token from {url}: its answer has no access_token")
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
