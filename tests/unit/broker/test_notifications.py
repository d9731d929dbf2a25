"""A notification for the controller is told whatever happens to the first attempts."""

from __future__ import annotations

from typing import Any

from support.memory_coordination import Ensemble, MemoryCoordination

from minikafka.base.errors import NotConnected, OutcomeUnknown, StaleSession
from minikafka.broker.notifications import notify
from minikafka.zk import layout


async def test_it_is_written_until_that_is_certain() -> None:
    ensemble = Ensemble()
    ensemble.put(layout.LOG_DIR_EVENTS)
    coordination = MemoryCoordination(ensemble)
    coordination.attach()
    create = coordination.create
    failures = [NotConnected(), OutcomeUnknown(), StaleSession()]

    async def unlucky(*what: Any, **how: Any) -> Any:
        if failures:
            raise failures.pop()
        return await create(*what, **how)

    coordination.create = unlucky  # type: ignore[method-assign]
    await notify(coordination, layout.LOG_DIR_EVENT_PREFIX, b"{}")
    assert failures == []
    assert len(ensemble.children(layout.LOG_DIR_EVENTS)) == 1


async def test_a_broker_that_has_closed_its_session_tells_nothing_any_more() -> None:
    coordination = MemoryCoordination(Ensemble())
    coordination.attach()
    await coordination.close()
    await notify(coordination, layout.LOG_DIR_EVENT_PREFIX, b"{}")
