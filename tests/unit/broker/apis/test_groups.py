"""FindCoordinator, while groups are not served."""

from __future__ import annotations

import pytest
from support.cold import Cold, context

from minikafka.base.errors import ErrorCode
from minikafka.broker.apis.groups import find_coordinator
from minikafka.wire import codec
from minikafka.wire.versions import FIND_COORDINATOR


@pytest.mark.parametrize("version", range(4))
def test_find_coordinator_returns_not_available(version: int) -> None:
    request = codec.request(FIND_COORDINATOR, version, key="g")
    answer = find_coordinator(Cold().services, request, context(version))
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert answer.node_id == -1
    codec.encode_response(1, FIND_COORDINATOR, version, answer)


@pytest.mark.parametrize("version", range(1, 5))
@pytest.mark.parametrize("key_type", [1, 2, -1])
def test_coordinator_of_anything_but_a_group_is_an_invalid_request(
    version: int, key_type: int
) -> None:
    """With a retriable error a transactional producer would ask again until its time-out."""
    keys = {"key": "tx"} if version < 4 else {"coordinator_keys": ["tx"]}
    request = codec.request(FIND_COORDINATOR, version, key_type=key_type, **keys)
    answer = find_coordinator(Cold().services, request, context(version))
    (row,) = (answer,) if version < 4 else answer.coordinators
    assert (row.error_code, row.node_id) == (ErrorCode.INVALID_REQUEST, -1)
    codec.encode_response(1, FIND_COORDINATOR, version, answer)


def test_find_coordinator_answers_each_key_of_a_list() -> None:
    request = codec.request(FIND_COORDINATOR, 4, coordinator_keys=["a", "b"])
    answer = find_coordinator(Cold().services, request, context(4))
    assert [item.key for item in answer.coordinators] == ["a", "b"]
    assert {item.error_code for item in answer.coordinators} == {
        ErrorCode.COORDINATOR_NOT_AVAILABLE
    }
