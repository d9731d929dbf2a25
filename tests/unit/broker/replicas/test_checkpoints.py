"""The periodic checkpoints, and the last write of the high watermarks when the broker stops."""

from __future__ import annotations

from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from minikafka.base.config import BrokerConfig
from minikafka.base.model import TopicPartition
from minikafka.broker.replicas.checkpoints import Checkpoints
from minikafka.client import NewTopic, Record
from minikafka.simulation.clocks import ManualClock
from minikafka.simulation.cluster import LOG_DIR, MemoryCluster
from minikafka.simulation.files import former_bytes
from minikafka.simulation.loop import run_seeded
from minikafka.storage.log.checkpoints import LOG_START_OFFSETS


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


def test_log_start_offset_is_durable_after_the_next_periodic_checkpoint() -> None:
    async def scene() -> None:
        interval = {"log_flush_offset_checkpoint_interval_ms": 1_000}
        async with MemoryCluster(1, **interval) as cluster, cluster.client() as user:
            await user.create_topics(NewTopic("t"))
            await user.produce("t", [Record(value=b"x")] * 5, partition=0)
            await user.admin.delete_records({TopicPartition("t", 0): 3})
            await cluster.clock.sleep(2_000)
            left = cluster.storages[0].power_cut(former_bytes)
            assert left.read(f"{LOG_DIR}/{LOG_START_OFFSETS}") == b"0\n1\nt 0 3\n"

    run_seeded(1, scene())
