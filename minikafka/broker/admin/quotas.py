"""Quotas of users, client ids and addresses: descriptions, and alterations of each owner as a whole or not at all."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import Final, NamedTuple

from minikafka.base.config.keys import INT_MAX, LONG_MAX
from minikafka.base.errors import CoordinationError, ErrorCode, KafkaError
from minikafka.broker.admin.refusals import refusal
from minikafka.broker.capabilities import ConfigStore, Overrides
from minikafka.broker.clients.quotas import BrokerQuotas
from minikafka.broker.turns import Pauses
from minikafka.security.quotas import (
    CLIENT_KEYS,
    CONNECTION,
    DEFAULT,
    INTEGERS,
    Name,
    QuotaEntity,
)

logger = logging.getLogger(__name__)

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
_KINDS: Final = {USER: 0, CLIENT_ID: 1, IP: 2}
_NAME_MAX: Final = 1_000
"""Longest name. It becomes the name of a node, up to three times as long."""
_EPSILON: Final = 1e-6


class QuotaAlteration(NamedTuple):
    """A change of one owner's quotas. `entity`: (type, name) pairs; the name None is the default entity.

    `values`: the new values by key; None removes a quota.
    """

    entity: tuple[tuple[str, str | None], ...]
    values: tuple[tuple[str, float | None], ...]


class QuotaResult(NamedTuple):
    """The outcome for one alteration."""

    entity: tuple[tuple[str, str | None], ...]
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


class Filter(NamedTuple):
    """The owners to describe. `matches`: for user, client id and address, a name, `ANY`, or None without a condition.

    `is_strict`: owners with a part for which there is no condition are left out.
    """

    matches: tuple[str | object | None, str | object | None, str | object | None]
    is_strict: bool


ANY: Final = object()
"""The condition that an owner has a part of this type, with any name."""


class QuotaAdmin:
    """Reads and alters quotas; `apply_now()` makes this broker apply what was written."""

    def __init__(
        self,
        store: ConfigStore,
        quotas: BrokerQuotas,
        apply_now: Callable[[], Awaitable[None]],
        pauses: Pauses,
    ) -> None:
        self._store = store
        self._quotas = quotas
        self._apply_now = apply_now
        self._pauses = pauses

    async def described(self, wanted: Filter) -> list[tuple[QuotaEntity, Mapping[str, float]]]:
        """Return the owners that match, with their quotas. Raises CoordinationError."""
        await self._apply_now()
        return [
            (owner, values)
            async for owner, values in self._pauses.each(list(self._quotas.stored.items()))
            if _matches(wanted, owner)
        ]

    async def alter(
        self, alterations: Sequence[QuotaAlteration], *, validate_only: bool
    ) -> list[QuotaResult]:
        """Alter the quotas of each owner as a whole or not at all; return one result for each alteration."""
        results = [
            await self._alter(alteration, validate_only)
            async for alteration in self._pauses.each(alterations, 16)
        ]
        if not validate_only and any(not result.error for result in results):
            try:
                await self._apply_now()
            except CoordinationError as error:
                logger.info("written quotas apply when ZooKeeper answers again: %s", error)
        return results

    async def _alter(self, alteration: QuotaAlteration, validate_only: bool) -> QuotaResult:
        try:
            owner = _owner(alteration.entity)
            texts = dict(_texts(owner, alteration.values))
            await self._store.alter_quotas(
                owner, lambda stored: _changed(stored, texts), validate_only=validate_only
            )
        except (KafkaError, CoordinationError) as error:
            return QuotaResult(alteration.entity, *refusal(error, "alteration of quotas"))
        return QuotaResult(alteration.entity)


def _matches(wanted: Filter, owner: QuotaEntity) -> bool:
    for match, name in zip(wanted.matches, owner, strict=True):
        if match is None:
            if wanted.is_strict and name is not None:
                return False
        elif name is None or match not in (ANY, name):
            return False
    return True


def _owner(entity: Sequence[tuple[str, str | None]]) -> QuotaEntity:
    """Return the owner that a request names. Raises KafkaError."""
    if not entity:
        raise _invalid("Invalid empty client quota entity")
    names: list[Name] = [None, None, None]
    for kind, name in entity:
        if kind not in _KINDS:
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name is not None and not name:
            raise _invalid(f"Empty {kind} not supported")
        if name is not None and len(name) > _NAME_MAX:
            raise _invalid(f"{kind} is longer than {_NAME_MAX} characters")
        names[_KINDS[kind]] = DEFAULT if name is None else name
    owner = QuotaEntity(*names)
    if owner.ip is None:
        return owner
    if owner.user is not None or owner.client_id is not None:
        raise _invalid(
            "Invalid quota entity combination, IP entity should not be used with user/client ID entity."
        )
    return QuotaEntity(ip=_address(owner.ip))


def _address(ip: Name) -> Name:
    if not isinstance(ip, str):
        return ip
    try:
        return str(ip_address(ip))
    except ValueError:
        raise _invalid(f"{ip} is not a valid IP or resolvable host.") from None


def _texts(
    owner: QuotaEntity, values: Sequence[tuple[str, float | None]]
) -> Iterator[tuple[str, str | None]]:
    """Yield the values as they are stored; None to remove a quota. Raises KafkaError."""
    known = CLIENT_KEYS if owner.ip is None else (CONNECTION,)
    for key, value in values:
        if key in known:
            yield key, None if value is None else _text(key, value)
        elif value is not None:
            raise _invalid(f"Invalid configuration key {key}")


def _text(key: str, value: float) -> str:
    if not math.isfinite(value) or value < 0:
        raise _invalid(f"Configuration {key} must be at least 0, got {value}")
    kind = INTEGERS.get(key)
    if kind is None:
        return repr(value)
    number = int(value + _EPSILON)
    if abs(number - value) > _EPSILON or number > (INT_MAX if kind == "INT" else LONG_MAX):
        raise _invalid(f"Configuration {key} must be a {kind} value")
    return str(number)


def _changed(stored: Overrides, texts: Mapping[str, str | None]) -> Overrides:
    merged = {**stored, **texts}
    return {key: text for key, text in merged.items() if text is not None}


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
