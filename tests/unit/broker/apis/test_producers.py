"""InitProducerId."""

from __future__ import annotations

import pytest
from support.cold import Cold

from minikafka.base.errors import ErrorCode, NotConnected
from minikafka.broker.apis.producers import init_producer_id
from minikafka.wire import codec
from minikafka.wire.versions import INIT_PRODUCER_ID


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("timeout", [-1, 0, 2**31 - 1])
async def test_a_producer_gets_an_id_of_its_own_with_epoch_0(version: int, timeout: int) -> None:
    cold = Cold()
    request = codec.request(
        INIT_PRODUCER_ID, version, transactional_id=None, transaction_timeout=timeout
    )
    answers = [await init_producer_id(cold.services, request, version) for _ in range(2)]
    assert [(a.error_code, a.producer_id, a.producer_epoch) for a in answers] == [
        (0, 0, 0),
        (0, 1, 0),
    ]


async def test_a_producer_that_brings_its_old_id_gets_a_new_one() -> None:
    request = codec.request(
        INIT_PRODUCER_ID, 4, transactional_id=None, producer_id=77, producer_epoch=3
    )
    answer = await init_producer_id(Cold().services, request, 4)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 0, 0)


@pytest.mark.parametrize(
    ("transactional_id", "code"),
    [("tx", ErrorCode.COORDINATOR_NOT_AVAILABLE), ("", ErrorCode.INVALID_REQUEST)],
)
async def test_transactions_are_not_served(transactional_id: str, code: ErrorCode) -> None:
    request = codec.request(INIT_PRODUCER_ID, 4, transactional_id=transactional_id)
    answer = await init_producer_id(Cold().services, request, 4)
    assert (answer.error_code, answer.producer_id) == (code, -1)


async def test_zookeeper_out_of_reach_is_something_to_try_again() -> None:
    cold = Cold()
    cold.znodes.failures = [NotConnected()]
    answer = await init_producer_id(
        cold.services, codec.request(INIT_PRODUCER_ID, 1, transactional_id=None), 1
    )
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
