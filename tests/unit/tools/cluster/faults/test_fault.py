"""A fault counts what it hits, and ends once, in both kinds of code."""

from __future__ import annotations

import pytest

from minikafka.tools.cluster import ClusterError
from minikafka.tools.cluster.faults.fault import Fault


class Link:
    """A link with a fault, whose hits the test sets."""

    def __init__(self) -> None:
        self.hits = {"bytes": 0}
        self.ends = 0
        self.fault = Fault("cut 1 2", count=self._count, heal=self._heal)

    async def _count(self) -> dict[str, int]:
        return dict(self.hits)

    async def _heal(self) -> dict[str, int]:
        self.ends += 1
        return dict(self.hits)


def test_fault_in_a_with_block_is_healed_and_keeps_its_last_count():
    link = Link()

    with link.fault as fault:
        assert fault.count() == {"bytes": 0}
        assert not fault.has_hit
        link.hits["bytes"] = 7

    assert link.ends == 1
    assert fault.hits == {"bytes": 7}
    assert fault.has_hit
    assert repr(fault) == "<Fault cut 1 2: 7 bytes>"


async def test_fault_in_a_coroutine_is_awaited():
    link = Link()

    async with link.fault as fault:
        link.hits["bytes"] = 7
        assert await fault.count() == {"bytes": 7}

    assert link.ends == 1
    assert await fault.heal() == {"bytes": 7}


async def test_fault_in_a_with_block_is_refused_when_an_event_loop_runs():
    with pytest.raises(ClusterError, match="use async with <Fault cut 1 2: no hits>"):  # noqa: SIM117
        with Link().fault:
            raise AssertionError("not reached")
