"""Where a client gets the token for its login by OAUTHBEARER: a file, or the token endpoint of an identity provider.

No error contains a secret or a part of a token.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from minikafka.base.config.security import SecurityKeys
from minikafka.base.errors import ConfigError
from minikafka.base.ports import Clock
from minikafka.base.printable import printable
from minikafka.client.login import LoginFailed
from minikafka.runtime.transport import SocketTransport
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
    """A token endpoint. `tls`: None to trust the authorities of the system."""

    request: TokenRequest
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
            except RefusedRequest as error:
                raise LoginFailed(str(error)) from None
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
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.post(
                    self.request.url,
                    data=self.request.form,
                    headers=dict(self.request.headers),
                    ssl=self.tls or True,
                    allow_redirects=False,  # the secret is for this address only
                ) as answer,
            ):
                body = await answer.content.read(BYTES_MAX)
                while len(body) < BYTES_MAX and (more := await answer.content.read(BYTES_MAX)):
                    body += more
        except aiohttp.ClientConnectorCertificateError as error:
            reason = getattr(error.certificate_error, "verify_message", "")
            raise UntrustedEndpoint(self.request.url, reason) from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = "no answer in time" if isinstance(error, TimeoutError) else str(error)
            raise NoToken(f"no token from {self.request.url}: {printable(reason)}") from None
        return token_in(self.request.url, answer.status, body)


def token_origin(
    keys: SecurityKeys, options: Mapping[str, str], clock: Clock
) -> TokenFile | TokenEndpoint:
    """Return where the tokens of a login module with these options come from. Raises ConfigError, InvalidJaas."""
    url = keys.sasl_oauthbearer_token_endpoint_url
    if not url:
        raise ConfigError(
            f"{URL} is not set: write the address from which the token comes, https://… or file:///…"
        )
    if path := token_file(url):
        return TokenFile(Path(path))
    return TokenEndpoint(
        token_request(url, options, keys),
        clock,
        keys.sasl_login_connect_timeout_ms or TIMEOUT_MS,
        keys.sasl_login_read_timeout_ms or TIMEOUT_MS,
        keys.sasl_login_retry_backoff_ms,
        keys.sasl_login_retry_backoff_max_ms,
        _tls(options),
    )


def _tls(options: Mapping[str, str]) -> ssl.SSLContext | None:
    """Return the context that the options `ssl.…` of a login module describe; None without such options."""
    keys = tls_of_module(options)
    return None if keys is None else SocketTransport().tls(keys, server=False).context
