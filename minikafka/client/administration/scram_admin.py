"""The administrator's side of users who log in with SCRAM: create, list and delete their credentials.

A password never leaves the client: it sends the salted hash from which the broker makes the credential.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.client.administration.controller_requests import ControllerRequests
from minikafka.client.administration.results import Outcome, read_outcome
from minikafka.client.metadata import Metadata
from minikafka.client.network import Network, request
from minikafka.client.retries import Retries
from minikafka.kafka.wire import versions
from minikafka.security import scram

SALT_BYTES: Final = 26
"""Length of a salt, as Kafka's tools choose it."""


class ScramInfo(NamedTuple):
    """A credential of a user, without its secrets."""

    mechanism: str
    iterations: int


class ScramUser(NamedTuple):
    """The credentials of one user, or why they cannot be shown."""

    outcome: Outcome
    credentials: tuple[ScramInfo, ...] = ()


class NewPassword(NamedTuple):
    """A credential to create or replace. Its text contains no password."""

    user: str
    mechanism: scram.ScramMechanism
    iterations: int
    salt: bytes
    salted: bytes

    def __repr__(self) -> str:
        return f"NewPassword({self.user!r}, {self.mechanism.name})"


class OldPassword(NamedTuple):
    """A credential to delete."""

    user: str
    mechanism: scram.ScramMechanism


def new_password(
    user: str, mechanism: scram.ScramMechanism, password: str, iterations: int, salt: bytes
) -> NewPassword:
    """Return the credential of a password, whose hash takes some milliseconds."""
    salted = scram.salted_password(mechanism, password, salt, iterations)
    return NewPassword(user, mechanism, iterations, salt, salted)


class ScramAdmin:
    """The administrative requests about users, available as `client.users`."""

    def __init__(
        self, network: Network, metadata: Metadata, retries: Retries, request_timeout_ms: int
    ) -> None:
        self._network = network
        self._metadata = metadata
        self._retries = retries
        self._timeout_ms = request_timeout_ms
        self._controller = ControllerRequests(network, metadata, retries, request_timeout_ms)

    async def alter(
        self, written: Iterable[NewPassword] = (), deleted: Iterable[OldPassword] = ()
    ) -> dict[str, Outcome]:
        """Create, replace and delete credentials; return the outcome of each user."""
        new, old = list(written), list(deleted)

        def body(users: Sequence[str]) -> bytes:
            return request(
                versions.ALTER_USER_SCRAM_CREDENTIALS,
                upsertions=[_upsertion(one) for one in new if one.user in users],
                deletions=[_deletion(one) for one in old if one.user in users],
            )

        def read(response: Any) -> dict[str, Outcome]:
            return {result.user: read_outcome(result) for result in response.results}

        users = sorted({one.user for one in new} | {one.user for one in old})
        api = versions.ALTER_USER_SCRAM_CREDENTIALS
        return await self._controller.send_items(api, users, body, read)

    async def describe(self, users: Iterable[str] | None = None) -> dict[str, ScramUser]:
        """Return the credentials of these users, by default of all. Raises KafkaError if the request is refused."""
        named = None if users is None else [{"name": user} for user in dict.fromkeys(users)]
        body = request(versions.DESCRIBE_USER_SCRAM_CREDENTIALS, users=named)

        async def attempt() -> Any:
            address = await self._metadata.any_address()
            api = versions.DESCRIBE_USER_SCRAM_CREDENTIALS
            return await self._network.call(address, api, self._timeout_ms, body)

        response = await self._retries(attempt)
        whole = read_outcome(response)
        if whole.code is not ErrorCode.NONE:
            raise KafkaError(whole.code, whole.reason)
        return {result.user: _described(result) for result in response.results}


def _upsertion(one: NewPassword) -> dict[str, Any]:
    return {
        "name": one.user,
        "mechanism": one.mechanism.type,
        "iterations": one.iterations,
        "salt": one.salt,
        "salted_password": one.salted,
    }


def _deletion(one: OldPassword) -> dict[str, Any]:
    return {"name": one.user, "mechanism": one.mechanism.type}


def _described(result: Any) -> ScramUser:
    found = (
        ScramInfo(scram.BY_TYPE[info.mechanism].name, info.iterations)
        for info in result.credential_infos
        if info.mechanism in scram.BY_TYPE
    )
    return ScramUser(read_outcome(result), tuple(found))
