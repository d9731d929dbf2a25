"""A broker in a coordination mode other than ZooKeeper's."""

from __future__ import annotations

from support.cold import LoopClock, SeededRng
from support.memory_cleaners import MemoryCleaners
from support.memory_cluster import InlineExecutor, ManyDescriptors, MemoryControlPlane
from support.memory_storage import MemoryStorage
from support.memory_transport import MemoryTransport
from support.solo_mode import SoloMode

from minikafka.base.config import BrokerConfig
from minikafka.broker.broker import create_broker
from minikafka.broker.capabilities.mode import CoordinationMode
from minikafka.broker.ports import BrokerPorts
from minikafka.client import Client, NewTopic
from minikafka.record.batch import Record
from minikafka.runtime.tasks import TaskRegistry


async def test_broker_serves_records_in_a_mode_without_zookeeper() -> None:
    config = BrokerConfig.from_mapping({"broker.id": 0, "log.dirs": "/data"})
    transport, storage, clock = MemoryTransport(), MemoryStorage(), LoopClock()
    ports = BrokerPorts(
        clock,
        SeededRng(),
        storage,
        transport,
        TaskRegistry(),
        InlineExecutor(),
        MemoryCleaners(storage, clock),
        lambda cluster_id: MemoryControlPlane({}, 0, clock),
        ManyDescriptors(),
    )
    mode: CoordinationMode = SoloMode()
    broker = await create_broker(config, ports, mode)
    await broker.start()
    async with Client("127.0.0.1:9092", transport=transport) as client:
        await client.create_topics(NewTopic("t", 2, 1))
        await client.produce("t", [Record(value=b"%d" % i) for i in range(50)])
        values = {row.value async for row in client.consume("t", until_end=True)}
    report = broker.describe()
    await broker.shutdown()
    assert values == {b"%d" % i for i in range(50)}
    assert (report["session_state"], report["controller_id"]) == ("solo", 0)
