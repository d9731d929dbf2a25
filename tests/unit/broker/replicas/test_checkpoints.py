"""The last write of the high watermarks, when the broker stops."""

from __future__ import annotations

from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.manual_clock import ManualClock

from minikafka.base.config import BrokerConfig
from minikafka.base.model import TopicPartition
from minikafka.broker.replicas.checkpoints import Checkpoints


class Tasks:
    """Background tasks that never run."""

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        coroutine.close()


@pytest.mark.row("R35")
def test_broker_that_stops_before_its_first_leader_and_isr_keeps_the_checkpoint() -> None:
    """Its replicas are not known yet, so a checkpoint would lack them."""
    written: list[dict[TopicPartition, int]] = []
    logs = SimpleNamespace(checkpoint_high_watermarks=written.append)
    tp = TopicPartition("t", 0)
    partitions = {tp: SimpleNamespace(high_watermark=5)}
    made = Checkpoints(
        cast("Any", logs),
        cast("Any", partitions),
        BrokerConfig(),
        ManualClock(),
        cast("Any", Tasks()),
        lambda failure: None,
    )
    made.close()
    assert written == []
    made.start()
    made.close()
    assert written == [{tp: 5}]
