"""SCRAM credentials of users in ZooKeeper."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from support.brokers.cold import Cold, context, decoded
from support.kafka.entities import entity

from minikafka.base.errors import ErrorCode
from minikafka.broker.apis.users import HANDLERS
from minikafka.broker.ledger.record import NOTHING
from minikafka.kafka.wire.versions import (
    ALTER_USER_SCRAM_CREDENTIALS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
)
from minikafka.security import scram
from minikafka.zookeeper.nodes import layout

SHA_256, SHA_512 = scram.MECHANISMS
SALTED = bytes(range(32))


def upsertion(
    name: str, mechanism: int = 1, iterations: int = 4096, salted: bytes = SALTED
) -> dict[str, Any]:
    return {
        "name": name,
        "mechanism": mechanism,
        "iterations": iterations,
        "salt": b"salt",
        "salted_password": salted,
    }


def deletion(name: str, mechanism: int = 1) -> dict[str, Any]:
    return {"name": name, "mechanism": mechanism}


async def ask(cold: Cold, api: int, **fields: Any) -> Any:
    answer: Any = HANDLERS[api](cold.services, entity(api, 0, **fields), context(0))
    return decoded(api, 0, await answer)


async def alter(
    cold: Cold, *upsertions: dict[str, Any], deletions: list[dict[str, Any]] | None = None
) -> dict[str, tuple[int, str | None]]:
    got = await ask(
        cold,
        ALTER_USER_SCRAM_CREDENTIALS,
        upsertions=list(upsertions),
        deletions=deletions or [],
    )
    return {result.user: (result.error_code, result.error_message) for result in got.results}


async def describe(cold: Cold, *names: str) -> Any:
    users = [{"name": name} for name in names]
    return await ask(cold, DESCRIBE_USER_SCRAM_CREDENTIALS, users=users or None)


def stored(cold: Cold, node: str) -> dict[str, str]:
    return json.loads(cold.data(f"/config/users/{node}"))["config"]


OK = (ErrorCode.NONE, None)


async def test_written_credential_has_kafkas_text_and_is_announced_to_all_brokers():
    cold = Cold()

    assert await alter(cold, upsertion("alice"), upsertion("alice", 2, 8192)) == {"alice": OK}

    assert stored(cold, "alice") == {
        mechanism.name: scram.encode_credential(
            scram.credential_of(mechanism, b"salt", SALTED, iterations)
        )
        for mechanism, iterations in ((SHA_256, 4096), (SHA_512, 8192))
    }
    (change,) = [path for path in cold.znodes() if path.startswith(layout.CONFIG_CHANGE_PREFIX)]
    assert json.loads(cold.data(change)) == {"version": 2, "entity_path": "users/alice"}
    assert cold.admin.configs._store.applied == 1


async def test_name_of_a_user_is_url_encoded_in_the_name_of_its_node():
    cold = Cold()

    await alter(cold, upsertion("CN=a b,O=ü/*~+"))

    assert "SCRAM-SHA-256" in stored(cold, "CN%3Da%20b%2CO%3D%C3%BC%2F%2A%7E%2B")
    (described,) = (await describe(cold)).results
    assert described.user == "CN=a b,O=ü/*~+"


async def test_quotas_of_a_user_survive_a_change_of_its_credentials():
    cold = Cold()
    quota = {"producer_byte_rate": "1000"}
    cold.ensemble.put("/config/users/alice", layout.encode_config(quota))

    await alter(cold, upsertion("alice"))
    await alter(cold, deletions=[deletion("alice")])

    assert stored(cold, "alice") == quota


@pytest.mark.parametrize(
    ("upsertions", "deletions", "code", "message"),
    [
        ([upsertion("")], [], ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        ([], [deletion("")], ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        ([upsertion("u", 1, 4095)], [], ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        ([upsertion("u", 2, 16385)], [], ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        (
            [upsertion("u", 1, 0), upsertion("u", 2, 99999)],
            [deletion("u", 7)],
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "Too many iterations",
        ),
        (
            [upsertion("u"), upsertion("u", 0)],
            [],
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            "Unknown SCRAM mechanism",
        ),
        (
            [],
            [deletion("u", 3)],
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            "Unknown SCRAM mechanism",
        ),
        (
            [upsertion("u"), upsertion("u", 2)],
            [deletion("u", 2)],
            ErrorCode.DUPLICATE_RESOURCE,
            "A user credential cannot be altered twice in the same request",
        ),
        (
            [upsertion("u")],
            [deletion("u", 2)],
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to delete a user credential that does not exist",
        ),
        (
            [upsertion("u" * 1001)],
            [],
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "Username is longer than 1000 characters",
        ),
    ],
)
async def test_invalid_alteration_of_a_user_gets_kafkas_error_and_leaves_other_users_alone(
    upsertions, deletions, code, message
):
    cold = Cold()
    before = cold.znodes()

    got = await alter(cold, upsertion("other"), *upsertions, deletions=deletions)

    assert got.pop("other") == OK
    assert list(got.values()) == [(code, message)]
    written = {path for path in cold.znodes().keys() - before.keys() if "/users/" in path}
    assert written == {"/config/users/other"}


@pytest.mark.parametrize("name", [".", ".."])
async def test_user_whose_node_zookeeper_refuses_gets_an_error(name):
    assert (await alter(Cold(), upsertion(name)))[name][0] != ErrorCode.NONE


async def test_only_the_controller_alters_credentials():
    cold = Cold(controller_id=2)
    before = cold.znodes()

    got = await alter(cold, upsertion("b"), deletions=[deletion("a")])

    message = "this broker is not the controller"
    assert list(got.items()) == [
        ("a", (ErrorCode.NOT_CONTROLLER, message)),
        ("b", (ErrorCode.NOT_CONTROLLER, message)),
    ]
    assert cold.znodes() == before


async def test_description_has_mechanisms_and_iterations_of_named_users():
    cold = Cold()
    await alter(cold, upsertion("alice", 2, 8192), upsertion("alice"), upsertion("bob"))

    got = await describe(cold, "alice")

    (alice,) = got.results
    assert [(info.mechanism, info.iterations) for info in alice.credential_infos] == [
        (1, 4096),
        (2, 8192),
    ]


async def test_description_of_all_users_is_sorted_and_leaves_out_users_without_credentials():
    cold = Cold()
    await alter(cold, upsertion("bob"), upsertion("alice"))
    quota = layout.encode_config({"producer_byte_rate": "1"})
    for node in ("carol", "<default>"):
        cold.ensemble.put(f"/config/users/{node}", quota)

    got = await describe(cold)

    assert [result.user for result in got.results] == ["alice", "bob"]


async def test_description_of_many_users_is_complete():
    cold = Cold()
    names = [f"user-{number:03}" for number in range(120)]
    credential = scram.encode_credential(scram.credential_of(SHA_256, b"s", SALTED, 4096))
    for name in names:
        cold.ensemble.put(f"/config/users/{name}", layout.encode_config({SHA_256.name: credential}))

    assert [result.user for result in (await describe(cold)).results] == names


async def test_named_user_without_credentials_gets_kafkas_error():
    cold = Cold()
    await alter(cold, upsertion("twice"))

    got = await describe(cold, "a", "twice", "", "twice", "b" * 1001)

    assert [(result.user[:5], result.error_code) for result in got.results] == [
        ("a", ErrorCode.RESOURCE_NOT_FOUND),
        ("twice", ErrorCode.DUPLICATE_RESOURCE),
        ("", ErrorCode.RESOURCE_NOT_FOUND),
        ("bbbbb", ErrorCode.RESOURCE_NOT_FOUND),
    ]


async def test_malformed_credential_in_zookeeper_fails_only_its_user():
    cold = Cold()
    await alter(cold, upsertion("bob"))
    data = layout.encode_config({SHA_256.name: "salt=secret-of-alice"})
    cold.ensemble.put("/config/users/alice", data)

    got = await describe(cold)

    assert [(result.user, result.error_code) for result in got.results] == [
        ("alice", ErrorCode.UNKNOWN_SERVER_ERROR),
        ("bob", ErrorCode.NONE),
    ]
    assert "secret-of-alice" not in got.results[0].error_message


async def test_keys_of_a_credential_are_neither_logged_nor_in_the_ledger(caplog, monkeypatch):
    lines: list[str] = []
    monkeypatch.setattr(
        type(NOTHING), "record", lambda _, *arguments: lines.append(repr(arguments))
    )
    cold = Cold()

    with caplog.at_level(logging.DEBUG):
        await alter(cold, upsertion("alice"))

    keys = stored(cold, "alice")[SHA_256.name].split(",")[1:3]
    shown = caplog.text + "".join(lines)
    assert "/config/users/alice" in shown
    assert [key for key in keys if key.partition("=")[2] in shown] == []
