"""The registration of one broker across its sessions."""

from __future__ import annotations

from support.memory_coordination import Ensemble, MemoryCoordination
from support.memory_storage import MemoryStorage
from support.recording_ledger import RecordingLedger
from support.until import until

from minikafka.base.model import Broker
from minikafka.broker.zookeeper.registration import Registration
from minikafka.broker.zookeeper.session_file import SessionFile
from minikafka.runtime.clock import SystemClock
from minikafka.runtime.tasks import TaskRegistry
from minikafka.zk import layout

PATH = layout.broker_path(1)


async def test_registration_replaces_the_node_of_a_former_session_at_once() -> None:
    ensemble, tasks, epochs = Ensemble(), TaskRegistry(), list[int]()
    ensemble.put(layout.BROKER_IDS)
    session = MemoryCoordination(ensemble)
    session.attach()
    registration = Registration(
        session,
        SessionFile(MemoryStorage(), "/data"),
        SystemClock(),
        tasks,
        RecordingLedger(),
        Broker(1, ()),
        epochs.append,
    )
    await registration.start()
    former = session.session_id
    session.expire()
    ensemble.put(PATH, b"{}")
    ensemble.nodes[PATH].owner = former  # this server has not applied the expiry yet
    session.attach()
    await until(lambda: len(epochs) == 2)
    await tasks.close()
    assert epochs[1] > epochs[0]
    assert ensemble.nodes[PATH].owner == session.session_id != former
