"""SCRAM credentials of users: alterations of several users in one request, each user as a whole or not at all."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from minikafka.base.errors import CoordinationError, ErrorCode, KafkaError
from minikafka.base.printable import printable
from minikafka.broker.admin.refusals import refusal
from minikafka.broker.capabilities import Administration, ConfigKind, ConfigStore, Overrides
from minikafka.broker.turns import Pauses
from minikafka.security import scram

logger = logging.getLogger(__name__)

_NAME_MAX: Final = 1_000
"""Longest name of a user. It becomes the name of a node, up to three times as long."""
EMPTY_NAME: Final = "Username must not be empty"


class WrittenCredential(NamedTuple):
    """A credential to write. `mechanism` is a number of Kafka's protocol, `salted` the salted password."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted: bytes


class DeletedCredential(NamedTuple):
    """A credential to delete."""

    user: str
    mechanism: int


class UserResult(NamedTuple):
    """The outcome for one user."""

    user: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


class UserAdmin:
    """Reads and alters the SCRAM credentials of users; `apply_now()` makes this broker apply what was written."""

    def __init__(
        self,
        store: ConfigStore,
        administration: Administration,
        apply_now: Callable[[], Awaitable[None]],
        pauses: Pauses,
    ) -> None:
        self._store = store
        self._administration = administration
        self._apply_now = apply_now
        self._pauses = pauses

    def check_may_alter(self) -> None:
        """Raise KafkaError NOT_CONTROLLER if clients must send alterations to another broker."""
        self._administration.check_may_act()

    def overrides(self, users: Sequence[str] | None) -> AsyncIterator[Mapping[str, Overrides]]:
        """Yield the stored settings of these users (None: all users) in parts. Raises CoordinationError."""
        named = users if users is None else [user for user in users if 0 < len(user) <= _NAME_MAX]
        return self._store.users(named)

    async def alter(
        self, upsertions: Sequence[WrittenCredential], deletions: Sequence[DeletedCredential]
    ) -> list[UserResult]:
        """Alter the credentials of each user as a whole or not at all; return one result per user."""
        items: dict[str, list[WrittenCredential | DeletedCredential]] = {}
        every: list[WrittenCredential | DeletedCredential] = [*deletions, *upsertions]
        async for item in self._pauses.each(every):
            items.setdefault(item.user, []).append(item)
        results = [
            await self._alter(user, items[user]) async for user in self._pauses.each(items, 16)
        ]
        if any(not result.error for result in results):
            await self._apply_written()
        return results

    async def _apply_written(self) -> None:
        try:
            await self._apply_now()
        except CoordinationError as error:
            logger.info("written credentials apply when ZooKeeper answers again: %s", error)

    async def _alter(
        self, user: str, items: Sequence[WrittenCredential | DeletedCredential]
    ) -> UserResult:
        try:
            _check(user, items)
            await self._store.alter(
                ConfigKind.USER,
                user,
                lambda stored: dict(_changed(stored, items)),
                validate_only=False,
            )
        except (KafkaError, CoordinationError) as error:
            return UserResult(user, *refusal(error, f"credentials of user {printable(user)}"))
        return UserResult(user)


def _check(user: str, items: Sequence[WrittenCredential | DeletedCredential]) -> None:
    """Raise KafkaError, with Kafka's text, for the fault that Kafka would report."""
    if not user:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, EMPTY_NAME)
    if len(user) > _NAME_MAX:
        raise KafkaError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Username is longer than {_NAME_MAX} characters"
        )
    faults = [fault for item in items if (fault := _fault(item)) is not None]
    if faults:
        raise faults[-1]
    if max(Counter(item.mechanism for item in items).values()) > 1:
        raise KafkaError(
            ErrorCode.DUPLICATE_RESOURCE,
            "A user credential cannot be altered twice in the same request",
        )


def _fault(item: WrittenCredential | DeletedCredential) -> KafkaError | None:
    if item.mechanism not in scram.BY_TYPE:
        return KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(item, WrittenCredential) and item.iterations < scram.MIN_ITERATIONS:
        return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if isinstance(item, WrittenCredential) and item.iterations > scram.MAX_ITERATIONS:
        return KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    return None


def _changed(
    stored: Overrides, items: Iterable[WrittenCredential | DeletedCredential]
) -> Mapping[str, str]:
    """Return the settings of a user with the alterations. Raises KafkaError RESOURCE_NOT_FOUND."""
    after = dict(stored)
    for item in items:
        mechanism = scram.BY_TYPE[item.mechanism]
        if isinstance(item, WrittenCredential):
            credential = scram.credential_of(mechanism, item.salt, item.salted, item.iterations)
            after[mechanism.name] = scram.encode_credential(credential)
        elif after.pop(mechanism.name, None) is None:
            raise KafkaError(
                ErrorCode.RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            )
    return after
