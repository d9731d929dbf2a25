"""Who may read the page of metrics once security is on: the users of the cluster, by HTTP's basic and bearer schemes.

A reader that fails gets its answer `connection.failed.authentication.delay.ms` after its request, for every reason.
All users and mechanisms are compared before, so that neither text nor time tells whether a user exists.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from binascii import Error as InvalidBase64
from collections.abc import Collection, Iterable
from typing import Final

from minikafka.base.config import BrokerConfig
from minikafka.broker.clients.access import Access
from minikafka.broker.network.newcomer import Admission, Failures
from minikafka.broker.ports import BrokerPorts
from minikafka.broker.services import ClientConnection
from minikafka.security import scram
from minikafka.security.operations import METRICS
from minikafka.security.sasl import (
    OAUTHBEARER,
    PLAIN,
    AuthenticationFailed,
    Lookups,
    RefusedToken,
    ScramCredentials,
    new_exchange,
)

UNAUTHORIZED: Final = 401
FORBIDDEN: Final = 403


class MetricsReaders:
    """Checks the credentials of readers.

    A password counts if it is that of a user of PLAIN of some listener, or of a user with SCRAM. A bearer token counts
    if some listener with OAUTHBEARER accepts it. With an authorizer, the user needs the right Describe on the cluster.
    """

    def __init__(
        self,
        admissions: Collection[Admission],
        credentials: ScramCredentials,
        access: Access,
        failures: Failures,
        ports: BrokerPorts,
        config: BrokerConfig,
    ) -> None:
        self._plain = list(_lookups(admissions, PLAIN))
        self._bearer = list(_lookups(admissions, OAUTHBEARER))
        self._credentials = credentials
        self._access = access
        self._failures = failures
        self._clock = ports.clock
        self._executor = ports.executor
        self._delay_ms = config.connection_failed_authentication_delay_ms
        self._listener = config.endpoints.control.name
        self._one_at_a_time = asyncio.Lock()
        """A flood of wrong passwords computes in one thread at most."""

    async def refusal(self, authorization: str, peer: str) -> int:
        """Return the HTTP status with which a reader is refused; 0 if the reader may read the page.

        `authorization`: the value of the HTTP header with this name, "" without it. `peer`: host:port of the reader.
        """
        client = ClientConnection(0, self._listener, peer)
        asked = self._clock.now()
        user = await self._user_of(authorization)
        if user is None:
            self._failures.failed(client, "no valid credential for /metrics")
            await self._clock.sleep(max(asked + self._delay_ms - self._clock.now(), 0))
            return UNAUTHORIZED
        self._failures.succeeded()
        client.principal = f"User:{user}"
        return 0 if self._access.allows(client, METRICS) else FORBIDDEN

    async def _user_of(self, authorization: str) -> str | None:
        """Return the user that a header proves, or None."""
        scheme, _, value = authorization.partition(" ")
        if scheme.lower() == "bearer":
            return self._user_of_token(value.strip())
        if scheme.lower() != "basic":
            return None
        try:
            text = b64decode(value, validate=True).decode()
        except (InvalidBase64, UnicodeError):
            return None
        user, _, password = text.partition(":")
        async with self._one_at_a_time:
            fits = await self._executor.run(lambda: self._is_password_of(user, password))
        return user if fits else None

    def _user_of_token(self, token: str) -> str | None:
        for lookups in self._bearer:
            try:
                return lookups.bearer_token(token).user
            except RefusedToken:
                continue
        return None

    def _is_password_of(self, user: str, password: str) -> bool:
        """Compare the password with every one that the user could have."""
        found = [_is_plain(lookups, user, password) for lookups in self._plain]
        for mechanism in scram.MECHANISMS:
            known = self._credentials.find(mechanism.name, user)
            decoy = self._credentials.decoy(mechanism.name, user)
            is_usable = known is not None and known.iterations >= scram.MIN_ITERATIONS
            credential = known if known is not None and is_usable else decoy
            fits = scram.is_password(mechanism, credential, password)
            found.append(fits and is_usable)
        return bool(user) and any(found)


def _lookups(admissions: Iterable[Admission], mechanism: str) -> Iterable[Lookups]:
    return (
        admission.mechanisms[mechanism].lookups
        for admission in admissions
        if mechanism in admission.mechanisms
    )


def _is_plain(lookups: Lookups, user: str, password: str) -> bool:
    try:
        new_exchange(PLAIN, lookups).step(f"\0{user}\0{password}".encode())
    except AuthenticationFailed:
        return False
    return True
