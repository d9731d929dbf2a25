"""The bodies of the calls that do what only time would do."""

from __future__ import annotations

import pytest

from minikafka.base.errors import KafkaError
from minikafka.base.model import TopicPartition
from minikafka.broker.rpc import time_calls
from minikafka.broker.rpc.encoding import pack, unpack
from minikafka.broker.rpc.time_calls import ADVANCED_MAX_MS, Demand, Due, PartitionGone

T0, T1 = (TopicPartition("t", number) for number in range(2))
GONE = (PartitionGone(T0, 5, -7, 12, ""), PartitionGone(T1, 0, 0, -1, "it was deleted"))


def test_requests_and_responses_survive_the_wire() -> None:
    asked = Demand({T0: 0, T1: 2**62}, 60_000)
    assert time_calls.decode_asked(unpack(pack(time_calls.encode_asked(asked)))) == asked
    assert time_calls.decode_gone(unpack(pack(time_calls.encode_gone(GONE)))) == GONE
    assert time_calls.decode_group(unpack(pack(time_calls.encode_group("é g")))) == "é g"
    offsets = {T0: 0, T1: 9}
    assert time_calls.decode_offsets(unpack(pack(time_calls.encode_offsets(offsets)))) == offsets
    due = Due(GONE, GONE[1:], (("g", T0),), ("a", "b"), ("token",), 3)
    assert time_calls.decode_due(unpack(pack(time_calls.encode_due(due)))) == due


def test_keys_of_a_later_release_are_ignored_and_missing_ones_have_defaults() -> None:
    assert time_calls.decode_asked({"later": 1}) == Demand({}, 0)
    assert time_calls.decode_due({"later": 1}) == Due((), (), (), (), (), 0)
    assert time_calls.decode_advance({}) == 0


@pytest.mark.parametrize("total", [-1, ADVANCED_MAX_MS + 1, "1", None, True])
def test_clock_that_would_go_back_or_too_far_is_refused(total: object) -> None:
    with pytest.raises(KafkaError):
        time_calls.decode_advance({"advanced_ms": total})


@pytest.mark.parametrize("row", [["t", 0], ["../t", 0, 1], ["t", -1, 1], ["t", 0, -1]])
def test_partition_without_a_valid_offset_is_refused(row: list[object]) -> None:
    with pytest.raises(KafkaError):
        time_calls.decode_asked({"partitions": [row], "wait_ms": 0})
