"""The token with which a task or the driver logs in by OAUTHBEARER.

It is a text in the login module, a file that is read for each login, or comes from the token endpoint of an identity
provider. Each process keeps the token of an endpoint for a share of its life. No error contains a part of a token.
"""

from __future__ import annotations

import ssl
import time
import urllib.error
import urllib.request
from typing import Any, Final

from minikafka.base.config.client import ClientConfig
from minikafka.base.config.security import JAAS
from minikafka.base.errors import ConfigError
from minikafka.security.bearer import InvalidToken, OwnToken, read_token
from minikafka.security.client_login import login_module
from minikafka.security.jaas import InvalidJaas, JaasEntry
from minikafka.security.token_request import (
    BYTES_MAX,
    TIMEOUT_MS,
    URL,
    NoToken,
    RefusedRequest,
    TokenRequest,
    UntrustedEndpoint,
    tls_of_module,
    token_file,
    token_in,
    token_request,
)
from minikafka.spark.wire.deadline import Deadline, wall_ms
from minikafka.spark.wire.tls import context_of

TOKEN: Final = "token"  # noqa: S105 - the name of an option of the login module
_kept: Final[dict[TokenRequest, tuple[OwnToken, float]]] = {}
"""The token of each endpoint, with the Unix ms at which the next one is fetched."""


def current_token(config: ClientConfig) -> str:
    """Return a token that has not expired. Raises ConfigError, which names the key and says what to do."""
    try:
        entry = login_module(config)
        given = entry.options.get(TOKEN)
        if given:
            return _usable(given, config, f"{JAAS}: its option {TOKEN}").text
        url = config.sasl_oauthbearer_token_endpoint_url
        if not url:
            raise ConfigError(
                f"{URL} is not set, and {JAAS} has no {TOKEN}: write file:///PATH of a file with a token, "
                f'https://… of a token endpoint, or {TOKEN}="…"'
            )
        if path := token_file(url):
            return _usable(_content(path), config, f"{URL}: {url}").text
        return _from_endpoint(url, config, entry)
    except InvalidJaas as error:
        raise ConfigError(f"{JAAS} {error}") from None


def _usable(text: str, config: ClientConfig, source: str) -> OwnToken:
    try:
        found = read_token(text, config.sasl_oauthbearer_sub_claim_name)
    except InvalidToken as error:
        raise ConfigError(
            f"{source} has no token with which a client can log in: {error}"
        ) from None
    if found.expires_ms <= wall_ms():
        ended = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(found.expires_ms / 1000))
        raise ConfigError(f"{source} has a token that expired at {ended}: write a new one")
    return found


def _content(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise ConfigError(
            f"{URL}: {path} cannot be read: {reason}; every machine needs the file under this path"
        ) from None


def _from_endpoint(url: str, config: ClientConfig, entry: JaasEntry) -> str:
    request = token_request(url, entry.options, config)
    known = _kept.get(request)
    if known is not None and wall_ms() < known[1]:
        return known[0].text
    found = _usable(_asked(request, config), config, f"{URL}: {url}")
    left = found.expires_ms - wall_ms()
    _kept[request] = found, wall_ms() + left * config.sasl_login_refresh_window_factor
    return found.text


def _asked(request: TokenRequest, config: ClientConfig) -> str:
    """Return the token in the answer of the endpoint; a failed request is repeated for a while."""
    deadline = Deadline(config.sasl_login_retry_backoff_max_ms / 1000)
    while True:
        try:
            return token_in(request.url, *_answer(request, config))
        except UntrustedEndpoint as error:
            raise ConfigError(f"{URL}: {error}") from None
        except RefusedRequest as error:
            advice = f"correct clientId and clientSecret of {JAAS}"
            raise ConfigError(f"{URL}: {error}: {advice}") from None
        except NoToken as error:
            if not deadline.wait_to_retry():
                advice = "check the address, and that it answers"
                raise ConfigError(f"{URL}: {error}: {advice}") from None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The secret is for this address only."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _answer(request: TokenRequest, config: ClientConfig) -> tuple[int, bytes]:
    """Return the HTTP status and the body of the endpoint's answer. Raises NoToken."""
    posted = urllib.request.Request(request.url, request.form, dict(request.headers))  # noqa: S310
    timeout = (config.sasl_login_read_timeout_ms or TIMEOUT_MS) / 1000
    handlers = [_NoRedirect(), urllib.request.HTTPSHandler(context=_context(config))]
    try:
        with urllib.request.build_opener(*handlers).open(posted, timeout=timeout) as answer:
            return answer.status, answer.read(BYTES_MAX)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(BYTES_MAX)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise UntrustedEndpoint(request.url, reason.verify_message) from None
        raise NoToken(f"no token from {request.url}: {reason}") from None


def _context(config: ClientConfig) -> ssl.SSLContext | None:
    """Return the context of the options `ssl.…` of the login module; None trusts the authorities of the system."""
    own = tls_of_module(login_module(config).options)
    return None if own is None else context_of(own)
