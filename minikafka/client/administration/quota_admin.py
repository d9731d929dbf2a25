"""The administrator's side of quotas of users, client ids and addresses: set, remove and list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.client.administration.results import Outcome, read_outcome
from minikafka.client.metadata import Metadata
from minikafka.client.network import Network, request
from minikafka.client.retries import Retries
from minikafka.kafka.wire import versions
from minikafka.security.quotas import DEFAULT, QuotaEntity

_TYPES = ("user", "client-id", "ip")
"""Kafka's names of the parts of a QuotaEntity."""
_EXACT, _DEFAULT = range(2)


class QuotaRequests:
    """The administrative requests about quotas, available as `client.quotas`. Any broker answers them."""

    def __init__(
        self, network: Network, metadata: Metadata, retries: Retries, request_timeout_ms: int
    ) -> None:
        self._network = network
        self._metadata = metadata
        self._retries = retries
        self._timeout_ms = request_timeout_ms

    async def alter(self, owner: QuotaEntity, changes: Mapping[str, float | None]) -> Outcome:
        """Set quotas of one owner; a value of None removes the quota. All are changed or none."""
        ops = [
            {"key": key, "value": 0.0 if value is None else value, "remove": value is None}
            for key, value in changes.items()
        ]
        entity = [
            {"entity_type": kind, "entity_name": None if name is DEFAULT else name}
            for kind, name in _parts(owner)
        ]
        body = request(versions.ALTER_CLIENT_QUOTAS, entries=[{"entity": entity, "ops": ops}])
        response = await self._ask(versions.ALTER_CLIENT_QUOTAS, body)
        return read_outcome(response.entries[0])

    async def describe(self, owner: QuotaEntity) -> dict[QuotaEntity, dict[str, float]]:
        """Return the quotas of all owners that have the parts of `owner`; of all for one without parts.

        Raises KafkaError if the request is refused.
        """
        components = [
            {
                "entity_type": kind,
                "match_type": _DEFAULT if name is DEFAULT else _EXACT,
                "match": None if name is DEFAULT else name,
            }
            for kind, name in _parts(owner)
        ]
        body = request(versions.DESCRIBE_CLIENT_QUOTAS, components=components, strict=False)
        response = await self._ask(versions.DESCRIBE_CLIENT_QUOTAS, body)
        outcome = read_outcome(response)
        if outcome.code is not ErrorCode.NONE:
            raise KafkaError(outcome.code, outcome.reason)
        return {
            _owner(entry.entity): {item.key: item.value for item in entry.values}
            for entry in response.entries or ()
        }

    async def _ask(self, api: int, body: bytes) -> Any:
        async def attempt() -> Any:
            address = await self._metadata.any_address()
            return await self._network.call(address, api, self._timeout_ms, body)

        return await self._retries(attempt)


def _parts(owner: QuotaEntity) -> list[tuple[str, Any]]:
    return [(kind, name) for kind, name in zip(_TYPES, owner, strict=True) if name is not None]


def _owner(parts: Iterable[Any]) -> QuotaEntity:
    names = {part.entity_type: part.entity_name for part in parts}
    return QuotaEntity(
        *(
            (DEFAULT if names[kind] is None else names[kind]) if kind in names else None
            for kind in _TYPES
        )
    )
