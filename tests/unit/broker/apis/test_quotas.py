"""Descriptions and alterations of quotas."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.brokers.cold import Cold, context, decoded
from support.kafka.entities import entity

from minikafka.base.errors import ErrorCode
from minikafka.broker.apis.quotas import HANDLERS
from minikafka.kafka.wire.versions import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS
from minikafka.security.quotas import DEFAULT, QuotaEntity
from minikafka.zookeeper.nodes import layout

EXACT, DEFAULT_NAME, ANY = 0, 1, 2
INVALID = ErrorCode.INVALID_REQUEST
STORED = {
    QuotaEntity("alice"): {"producer_byte_rate": "1000"},
    QuotaEntity("alice", "c"): {"consumer_byte_rate": "2000"},
    QuotaEntity(DEFAULT): {"request_percentage": "12.5"},
    QuotaEntity(client_id="c"): {"controller_mutation_rate": "3"},
    QuotaEntity(ip="10.0.0.1"): {"connection_creation_rate": "7"},
}


async def ask(cold: Cold, api: int, version: int, **fields: Any) -> Any:
    answer: Any = HANDLERS[api](cold.services, entity(api, version, **fields), context(version))
    return decoded(api, version, await answer)


def component(kind: str, match_type: int = ANY, match: str | None = None) -> dict[str, Any]:
    return {"entity_type": kind, "match_type": match_type, "match": match}


async def described(components: list[dict[str, Any]], *, strict: bool) -> list[Any]:
    cold = Cold()
    cold.quotas.load(STORED)
    got = await ask(cold, DESCRIBE_CLIENT_QUOTAS, 1, components=components, strict=strict)
    assert (got.error_code, got.error_message) == (ErrorCode.NONE, None)
    return sorted(
        ",".join(f"{part.entity_type}={part.entity_name}" for part in entry.entity)
        + ":"
        + ",".join(f"{value.key}={value.value}" for value in entry.values)
        for entry in got.entries
    )


ALICE = "user=alice:producer_byte_rate=1000.0"
BOTH = "user=alice,client-id=c:consumer_byte_rate=2000.0"
EVERYONE = "user=None:request_percentage=12.5"
CLIENT = "client-id=c:controller_mutation_rate=3.0"
ADDRESS = "ip=10.0.0.1:connection_creation_rate=7.0"


@pytest.mark.parametrize(
    ("components", "strict", "found"),
    [
        ([], False, [CLIENT, ADDRESS, BOTH, ALICE, EVERYONE]),
        ([], True, []),
        ([component("user", EXACT, "alice")], False, [BOTH, ALICE]),
        ([component("user", EXACT, "alice")], True, [ALICE]),
        ([component("user", DEFAULT_NAME)], True, [EVERYONE]),
        ([component("user")], True, [ALICE, EVERYONE]),
        ([component("client-id", EXACT, "c")], False, [CLIENT, BOTH]),
        ([component("client-id"), component("user", EXACT, "alice")], True, [BOTH]),
        ([component("ip", EXACT, "10.0.0.1")], False, [ADDRESS]),
        ([component("ip", EXACT, "10.0.0.2")], False, []),
    ],
)
async def test_description_has_the_owners_that_match(
    components: list[dict[str, Any]], strict: bool, found: list[str]
) -> None:
    assert await described(components, strict=strict) == sorted(found)


@pytest.mark.parametrize(
    ("components", "code", "words"),
    [
        ([component("")], INVALID, "empty"),
        ([component("team")], ErrorCode.UNSUPPORTED_VERSION, "'team'"),
        ([component("user")] * 2, INVALID, "Duplicate user"),
        ([component("client-id")] * 2, INVALID, "Duplicate client"),
        ([component("user"), component("ip")], INVALID, "combination"),
        ([component("user", 3)], INVALID, "match type: 3"),
    ],
)
async def test_invalid_filter_of_client_quotas_gets_kafkas_error(
    components: list[dict[str, Any]], code: ErrorCode, words: str
) -> None:
    got = await ask(Cold(), DESCRIBE_CLIENT_QUOTAS, 1, components=components, strict=True)
    assert got.error_code == code
    assert words in got.error_message
    assert got.entries is None


def part(kind: str, name: str | None) -> dict[str, Any]:
    return {"entity_type": kind, "entity_name": name}


def alteration(
    *entity: dict[str, Any], key: str = "producer_byte_rate", value: float | None = 1000
) -> dict[str, Any]:
    op = {"key": key, "value": value or 0, "remove": value is None}
    return {"entity": list(entity), "ops": [op]}


async def alter(cold: Cold, *entries: dict[str, Any], validate_only: bool = False) -> list[Any]:
    got = await ask(
        cold, ALTER_CLIENT_QUOTAS, 1, entries=list(entries), validate_only=validate_only
    )
    return [(entry.error_code, entry.error_message) for entry in got.entries]


@pytest.mark.parametrize(
    ("entity", "path"),
    [
        ([part("user", "al ice*")], "users/al%20ice%2A"),
        ([part("user", None)], "users/<default>"),
        ([part("client-id", "c/1")], "clients/c%2F1"),
        ([part("client-id", None)], "clients/<default>"),
        ([part("client-id", "c"), part("user", "alice")], "users/alice/clients/c"),
        ([part("user", None), part("client-id", None)], "users/<default>/clients/<default>"),
        ([part("user", "<default>")], "users/%3Cdefault%3E"),
    ],
)
async def test_quota_is_written_to_kafkas_node_with_a_notification(
    entity: list[dict[str, Any]], path: str
) -> None:
    cold = Cold()
    await cold.session.attach()
    assert await alter(cold, alteration(*entity)) == [(ErrorCode.NONE, None)]
    stored = json.loads(cold.data(f"/config/{path}"))
    assert stored == {"version": 1, "config": {"producer_byte_rate": "1000"}}
    [change] = [
        data
        for node, (data, _) in cold.znodes().items()
        if node.startswith(layout.CONFIG_CHANGES + "/")
    ]
    assert json.loads(change) == {"version": 2, "entity_path": path}


async def test_alteration_keeps_credentials_and_other_quotas_of_the_user() -> None:
    cold = Cold()
    kept = {"SCRAM-SHA-256": "salt=…", "consumer_byte_rate": "5", "producer_byte_rate": "7"}
    cold.ensemble.put("/config/users/alice", layout.encode_config(kept))
    rate = alteration(part("user", "alice"), key="request_percentage", value=2.5)
    gone = alteration(part("user", "alice"), value=None)
    assert await alter(cold, rate, gone) == [(ErrorCode.NONE, None)] * 2
    stored = layout.decode_config(cold.data("/config/users/alice"))
    assert stored == {
        "SCRAM-SHA-256": "salt=…",
        "consumer_byte_rate": "5",
        "request_percentage": "2.5",
    }


async def test_removal_of_a_credential_as_a_quota_changes_nothing() -> None:
    cold = Cold()
    cold.ensemble.put("/config/users/alice", layout.encode_config({"SCRAM-SHA-256": "salt=…"}))
    removal = alteration(part("user", "alice"), key="SCRAM-SHA-256", value=None)
    assert await alter(cold, removal) == [(ErrorCode.NONE, None)]
    assert layout.decode_config(cold.data("/config/users/alice")) == {"SCRAM-SHA-256": "salt=…"}


async def test_validated_alteration_writes_nothing() -> None:
    cold = Cold()
    before = cold.znodes()
    entry = alteration(part("user", "alice"), part("client-id", "c"))
    assert await alter(cold, entry, validate_only=True) == [(ErrorCode.NONE, None)]
    assert cold.znodes() == before


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (alteration(), "Invalid empty client quota entity"),
        (alteration(part("team", "x")), "Unhandled client quota entity type: team"),
        (alteration(part("user", "")), "Empty user not supported"),
        (alteration(part("user", "x" * 1001)), "longer than 1000"),
        (alteration(part("ip", "1.2.3.4"), part("user", "x")), "combination"),
        (alteration(part("ip", "nowhere.example")), "nowhere.example is not a valid IP"),
        (alteration(part("ip", "1.2.3.4")), "Invalid configuration key producer_byte_rate"),
        (alteration(part("user", "x"), key="speed"), "Invalid configuration key speed"),
        (
            alteration(part("user", "x"), value=1.5),
            "Configuration producer_byte_rate must be a LONG value",
        ),
        (alteration(part("user", "x"), value=-1), "at least 0"),
        (alteration(part("user", "x"), value=float("nan")), "at least 0"),
        (
            alteration(part("ip", None), key="connection_creation_rate", value=2.0**31),
            "must be a INT value",
        ),
    ],
)
async def test_invalid_alteration_is_refused_and_the_next_one_is_written(
    entry: dict[str, Any], words: str
) -> None:
    cold = Cold()
    [(code, message), good] = await alter(cold, entry, alteration(part("user", "bob")))
    assert code == INVALID
    assert words in message
    assert good == (ErrorCode.NONE, None)
    names = [path for path in cold.znodes() if path.startswith("/config/users/")]
    assert names == ["/config/users/bob"]


async def test_address_is_written_in_one_form() -> None:
    cold = Cold()
    rate = {"key": "connection_creation_rate", "value": 3}
    entries = [
        alteration(part("ip", "2001:DB8:0:0::1"), **rate),
        alteration(part("ip", None), **rate),
    ]
    assert await alter(cold, *entries) == [(ErrorCode.NONE, None)] * 2
    nodes = sorted(path for path in cold.znodes() if path.startswith("/config/ips/"))
    assert nodes == ["/config/ips/2001%3Adb8%3A%3A1", "/config/ips/<default>"]
