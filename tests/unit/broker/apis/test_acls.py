"""The requests that create, describe and delete ACLs."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from support.brokers.cold import Cold, context, decoded
from support.kafka.entities import entity

from minikafka.base.errors import ErrorCode
from minikafka.broker.apis.acls import HANDLERS
from minikafka.kafka.wire.versions import CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS


async def ask(api: int, version: int, **fields: Any) -> Any:
    request = entity(api, version, **fields)
    answer = HANDLERS[api](Cold().services, request, context(version))
    return decoded(api, version, await answer if inspect.isawaitable(answer) else answer)


@pytest.mark.parametrize("version", range(1, 4))
async def test_describe_acls_is_refused_without_an_authorizer(version: int) -> None:
    got = await ask(DESCRIBE_ACLS, version)
    assert got.error_code == ErrorCode.SECURITY_DISABLED
    assert got.resources == ()


@pytest.mark.parametrize("version", range(4))
async def test_each_acl_to_create_is_refused_without_an_authorizer(version: int) -> None:
    acl = {"resource_type": 2, "resource_name": "t", "principal": "User:a", "host": "*"}
    acl |= {"operation": 3, "permission_type": 3}
    got = await ask(CREATE_ACLS, version, creations=[acl] * 3)
    assert [result.error_code for result in got.results] == [ErrorCode.SECURITY_DISABLED] * 3
    assert got.results[0].error_message == "No Authorizer is configured."


@pytest.mark.parametrize("version", range(4))
async def test_each_filter_of_acls_to_delete_is_refused_without_an_authorizer(version: int) -> None:
    every = {"resource_type_filter": 1, "operation": 1, "permission_type": 1}
    every |= {"resource_name_filter": None, "principal_filter": None, "host_filter": None}
    got = await ask(DELETE_ACLS, version, filters=[every] * 2)
    assert [result.error_code for result in got.filter_results] == [ErrorCode.SECURITY_DISABLED] * 2
    assert got.filter_results[0].matching_acls == ()
