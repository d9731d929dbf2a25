"""The reasons why partitions make no progress, and their age."""

from __future__ import annotations

import pytest

from minikafka.base.model import TopicPartition
from minikafka.simulation.clocks import ManualClock
from minikafka.tools.cli.execution import waiting as module
from minikafka.tools.cli.execution.waiting import AGAIN_MS, Blocked

T0 = TopicPartition("t", 0)


@pytest.mark.parametrize(("takes_ms", "examined"), [(0, 1), (AGAIN_MS, 2)])
async def test_reason_is_as_old_as_the_moment_at_which_its_examination_began(
    monkeypatch: pytest.MonkeyPatch, takes_ms: int, examined: int
) -> None:
    clock, asked = ManualClock(), []

    async def why(local: object, tp: object, *_: object) -> str:
        asked.append(tp)
        clock.advance(takes_ms)
        return "broker 2 is down"

    monkeypatch.setattr(module, "local_cluster", lambda servers: (object(), ""))
    monkeypatch.setattr(module, "SystemClock", lambda: clock)
    monkeypatch.setattr("minikafka.tools.explain.blockers.why_partition_waits", why)
    blocked = Blocked()
    for _ in range(2):
        assert await blocked.reasons([T0]) == {"t-0": "broker 2 is down"}
    assert len(asked) == examined
