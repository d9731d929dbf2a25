"""Requests to a coordinator that are sent again until the patience is over."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.spark.wire.coordinators import Coordinator
from minikafka.spark.wire.leaders import Unreachable
from minikafka.spark.wire.transactions import OF_GROUPS


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (None, "the coordinator of group g does not answer"),
        (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "the coordinator of group g refuses: UNKNOWN_TOPIC_OR_PARTITION",
        ),
    ],
)
def test_error_after_the_last_retry_says_whether_the_coordinator_answered(monkeypatch, code, said):
    answer = None if code is None else SimpleNamespace(error=int(code))
    monkeypatch.setattr(Coordinator, "_ask", lambda *_: answer)
    with pytest.raises(Unreachable, match=f"^{said}$"):
        Coordinator(SimpleNamespace(), OF_GROUPS, "g", 0.0).call((8, 2), b"", lambda _: answer)
