"""Log directory failures, reported to the controller through ZooKeeper."""

from __future__ import annotations

from typing import Any

from support.brokers.mode_ports import mode_ports
from support.until import until

from minikafka.base.errors import NotConnected, OutcomeUnknown, StaleSession
from minikafka.broker.modes.controller.lifecycle import ZooKeeperLifecycle
from minikafka.broker.modes.zookeeper.session_file import SessionFile
from minikafka.runtime.clock import SystemClock
from minikafka.runtime.tasks import TaskRegistry
from minikafka.simulation.storage import MemoryStorage
from minikafka.simulation.zookeeper import ZooKeeperInMemory
from minikafka.simulation.zookeeper_client import InMemoryClient
from minikafka.zookeeper.nodes import layout


def lifecycle(session: InMemoryClient, tasks: TaskRegistry) -> ZooKeeperLifecycle:
    ports = mode_ports(zookeeper=session, clock=SystemClock(), tasks=tasks)
    unused: Any = None
    return ZooKeeperLifecycle(ports, SessionFile(MemoryStorage(), "/data"), unused, unused, unused)


async def test_log_dir_failure_report_is_retried_until_its_write_is_confirmed():
    ensemble, tasks = ZooKeeperInMemory(), TaskRegistry()
    ensemble.put(layout.LOG_DIR_EVENTS)
    session = InMemoryClient(ensemble)
    await session.attach()
    create = session.create
    failures = [NotConnected(), OutcomeUnknown(), StaleSession()]

    async def unlucky(*what: Any, **how: Any) -> Any:
        if failures:
            raise failures.pop()
        return await create(*what, **how)

    session.create = unlucky  # type: ignore[method-assign]
    lifecycle(session, tasks).report_log_dir_failure()
    await until(lambda: tasks.names() == [])
    assert failures == []
    (name,) = ensemble.children(layout.LOG_DIR_EVENTS)
    data = ensemble.nodes[f"{layout.LOG_DIR_EVENTS}/{name}"].data
    assert layout.decode_log_dir_event(data) == 1


async def test_log_dir_failure_is_not_reported_after_the_session_was_closed():
    crashes: list[str] = []
    tasks = TaskRegistry(lambda name, _: crashes.append(name))
    session = InMemoryClient(ZooKeeperInMemory())
    await session.attach()
    await session.close()
    lifecycle(session, tasks).report_log_dir_failure()
    await until(lambda: tasks.names() == [])
    assert crashes == []
