"""Client quotas, of which there are none."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from support.brokers.cold import Cold, context, decoded
from support.kafka.entities import entity

from minikafka.base.errors import ErrorCode
from minikafka.broker.apis.security import HANDLERS
from minikafka.kafka.wire.versions import (
    DESCRIBE_CLIENT_QUOTAS,
)

EXACT, DEFAULT, ANY = 0, 1, 2


async def ask(api: int, version: int, **fields: Any) -> Any:
    request = entity(api, version, **fields)
    answer = HANDLERS[api](Cold().services, request, context(version))
    return decoded(api, version, await answer if inspect.isawaitable(answer) else answer)


def component(kind: str, match_type: int = ANY, match: str | None = None) -> dict[str, Any]:
    return {"entity_type": kind, "match_type": match_type, "match": match}


@pytest.mark.parametrize("version", range(2))
@pytest.mark.parametrize(
    "components",
    [[], [component("user"), component("client-id", EXACT, "c")], [component("ip", DEFAULT)]],
)
async def test_description_of_client_quotas_is_empty(
    components: list[dict[str, Any]], version: int
) -> None:
    got = await ask(DESCRIBE_CLIENT_QUOTAS, version, components=components, strict=False)
    assert (got.error_code, got.error_message, got.entries) == (ErrorCode.NONE, None, ())


@pytest.mark.parametrize(
    ("components", "code", "words"),
    [
        ([component("")], ErrorCode.INVALID_REQUEST, "empty"),
        ([component("team")], ErrorCode.UNSUPPORTED_VERSION, "'team'"),
        ([component("user")] * 2, ErrorCode.INVALID_REQUEST, "Duplicate user"),
        ([component("client-id")] * 2, ErrorCode.INVALID_REQUEST, "Duplicate client"),
        ([component("user"), component("ip")], ErrorCode.INVALID_REQUEST, "combination"),
        ([component("user", 3)], ErrorCode.INVALID_REQUEST, "match type: 3"),
    ],
)
async def test_invalid_filter_of_client_quotas_gets_kafkas_error(
    components: list[dict[str, Any]], code: ErrorCode, words: str
) -> None:
    got = await ask(DESCRIBE_CLIENT_QUOTAS, 1, components=components, strict=True)
    assert got.error_code == code
    assert words in got.error_message
    assert got.entries is None
