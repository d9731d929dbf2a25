"""Log directory failures, reported to the controller through ZooKeeper."""

from __future__ import annotations

from typing import Any

from support.controller_bench import RecordingChannels
from support.memory_coordination import Ensemble, MemoryCoordination
from support.memory_storage import MemoryStorage
from support.recording_ledger import RecordingLedger
from support.until import until

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import NotConnected, OutcomeUnknown, StaleSession
from minikafka.broker.cluster.step_gate import StepGate
from minikafka.broker.modes.controller.coordinator import ZooKeeperCoordinator
from minikafka.broker.modes.controller.session_file import SessionFile
from minikafka.runtime.clock import SystemClock
from minikafka.runtime.tasks import TaskRegistry
from minikafka.zk import layout


def coordinator(session: MemoryCoordination, tasks: TaskRegistry) -> ZooKeeperCoordinator:
    return ZooKeeperCoordinator(
        BrokerConfig.from_mapping({"broker.id": 1}),
        session,
        SessionFile(MemoryStorage(), "/data"),
        RecordingChannels(),
        SystemClock(),
        tasks,
        RecordingLedger(),
        StepGate(),
    )


async def test_log_dir_failure_report_is_retried_until_its_write_is_confirmed():
    ensemble, tasks = Ensemble(), TaskRegistry()
    ensemble.put(layout.LOG_DIR_EVENTS)
    session = MemoryCoordination(ensemble)
    session.attach()
    create = session.create
    failures = [NotConnected(), OutcomeUnknown(), StaleSession()]

    async def unlucky(*what: Any, **how: Any) -> Any:
        if failures:
            raise failures.pop()
        return await create(*what, **how)

    session.create = unlucky  # type: ignore[method-assign]
    coordinator(session, tasks).report_log_dir_failure()
    await until(lambda: tasks.names() == [])
    assert failures == []
    (name,) = ensemble.children(layout.LOG_DIR_EVENTS)
    data = ensemble.nodes[f"{layout.LOG_DIR_EVENTS}/{name}"].data
    assert layout.decode_log_dir_event(data) == 1


async def test_log_dir_failure_is_not_reported_after_the_session_was_closed():
    crashes: list[str] = []
    tasks = TaskRegistry(lambda name, _: crashes.append(name))
    session = MemoryCoordination(Ensemble())
    session.attach()
    await session.close()
    coordinator(session, tasks).report_log_dir_failure()
    await until(lambda: tasks.names() == [])
    assert crashes == []
