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


def test_find_coordinator_answers_each_key_of_a_list() -> None:
    request = codec.request(FIND_COORDINATOR, 4, coordinator_keys=["a", "b"])
    answer = find_coordinator(Cold().services, request, context(4))
    assert [item.key for item in answer.coordinators] == ["a", "b"]
    assert {item.error_code for item in answer.coordinators} == {
        ErrorCode.COORDINATOR_NOT_AVAILABLE
    }
