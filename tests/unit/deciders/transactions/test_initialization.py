"""The transactional ids that InitProducerId accepts."""

from __future__ import annotations

import pytest
from support.deciders.transaction_world import TransactionWorld

from minikafka.base.errors import ErrorCode


@pytest.mark.parametrize("name", ["", "x" * 32_768, "ä" * 16_384])
def test_empty_and_too_long_ids_are_refused(name):
    assert TransactionWorld().init(name).error == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("name", ["x" * 32_767, "ä" * 16_383])
def test_longest_ids_are_accepted(name):
    assert TransactionWorld().init(name).error == 0
