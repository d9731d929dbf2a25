"""The bodies of the calls between transaction coordinators and leaders."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.broker.rpc import coordinator_calls
from minikafka.broker.rpc.coordinator_calls import MarkerRow, VerifyRow
from minikafka.broker.rpc.encoding import pack, unpack

T0, T1 = (TopicPartition("t", number) for number in range(2))


def test_markers_survive_the_wire() -> None:
    rows = (MarkerRow(7, 1, 3, True, ((T0, 5), (T1, 0))), MarkerRow(2**62, 0, 0, False, ()))
    assert (
        coordinator_calls.decode_markers(unpack(pack(coordinator_calls.encode_markers(rows))))
        == rows
    )


def test_verifications_survive_the_wire() -> None:
    rows = (VerifyRow("é" * 16_000, 7, 1, (T0, T1)), VerifyRow("", 0, 0, ()))
    body = unpack(pack(coordinator_calls.encode_verifications(rows)))
    assert coordinator_calls.decode_verifications(body) == rows


def test_errors_survive_the_wire() -> None:
    errors = [[0, ErrorCode.TRANSACTION_COORDINATOR_FENCED], [], [ErrorCode.UNKNOWN_SERVER_ERROR]]
    body = unpack(pack(coordinator_calls.encode_errors(errors)))
    assert coordinator_calls.decode_errors(body, [2, 0, 1]) == errors


@pytest.mark.parametrize("lengths", [[2], [2, 1], [1, 0, 1]])
def test_errors_that_do_not_fit_the_request_are_refused(lengths: list[int]) -> None:
    body = coordinator_calls.encode_errors([[0, 0], [], [0]])
    with pytest.raises(KafkaError):
        coordinator_calls.decode_errors(body, lengths)


@pytest.mark.parametrize(
    ("index", "value"), [(0, -1), (0, "7"), (1, 2**15), (2, -1), (3, 1), (4, None), (4, [["t", 0]])]
)
def test_marker_with_an_invalid_field_is_refused(index: int, value: Any) -> None:
    body = coordinator_calls.encode_markers([MarkerRow(7, 1, 3, True, ((T0, 5),))])
    body["markers"][0][index] = value
    with pytest.raises(KafkaError):
        coordinator_calls.decode_markers(body)


@pytest.mark.parametrize(
    ("index", "value"), [(0, 7), (0, "x" * 32_768), (1, -1), (2, 2**15), (3, [["/", 0]])]
)
def test_verification_with_an_invalid_field_is_refused(index: int, value: Any) -> None:
    body = coordinator_calls.encode_verifications([VerifyRow("x", 7, 1, (T0,))])
    body["producers"][0][index] = value
    with pytest.raises(KafkaError):
        coordinator_calls.decode_verifications(body)
