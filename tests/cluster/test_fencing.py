"""ZooKeeper's transaction log shows that two controllers never write at the same time while controllers change."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from support.clients.real_clients import ConfluentKafka, Writing
from support.clusters.controller_writes import audit
from support.clusters.running_cluster import (
    BROKERS,
    KEYS,
    create_topic,
    end_session,
    eventually,
    heal,
)
from support.zookeeper.transaction_log import (
    CHECK,
    CREATE,
    DELETE,
    SET,
    Operation,
    Transaction,
    transactions,
)

from minikafka.base.errors import KafkaError
from minikafka.checks.delivery import verdict
from minikafka.client import Client, NewTopic
from minikafka.tools.cluster import LocalCluster

TOPIC = "stream"
PARTITIONS = 6
REPLICAS = 2
"""Replication factor of topics created during the faults: the number of brokers that stay alive."""
BETWEEN_SECONDS = 0.05
CLIENT = ConfluentKafka()
FAULTS = ("pause", "kill", "depose", "stop", "depose", "pause")


@asynccontextmanager
async def topics_created(cluster: LocalCluster) -> AsyncIterator[None]:
    """Create topics during the block, so that the controller always has something to write."""

    async def make() -> None:
        async with Client(cluster.bootstrap) as client:
            for number in count():
                with suppress(KafkaError, OSError):  # raised while there is no controller
                    await client.create_topics(NewTopic(f"made-{number}", 2, REPLICAS))
                await asyncio.sleep(BETWEEN_SECONDS)

    making = asyncio.create_task(make())
    try:
        yield
    finally:
        making.cancel()
        with suppress(asyncio.CancelledError):
            await making


async def replace_controller(cluster: LocalCluster, fault: str) -> None:
    """Inject the fault into the controller and wait until a controller with a higher epoch is elected.

    After "pause", the former controller is resumed as a zombie. After "depose", it still has its session.
    """
    before = await cluster.state()
    assert before.controller is not None
    assert before.controller_epoch is not None
    former, epoch = before.controller, before.controller_epoch
    await (depose(cluster) if fault == "depose" else getattr(cluster, fault)(former))
    if fault in ("pause", "kill"):
        await end_session(cluster, former)

    async def is_replaced() -> bool:
        now = await cluster.state()
        return now.controller is not None and (now.controller_epoch or 0) > epoch

    await eventually(is_replaced)
    if fault == "pause":
        await cluster.resume(former)
    await cluster.start()


async def depose(cluster: LocalCluster) -> None:
    """Delete `/controller`, as an operator does to force an election."""

    def delete() -> None:
        kazoo = KazooClient(cluster.zookeeper)
        kazoo.start(timeout=15)
        try:
            kazoo.delete("/controller")
        finally:
            kazoo.stop()
            kazoo.close()

    await asyncio.to_thread(delete)


@pytest.mark.row("R1", "R2", "R9")
async def test_former_controllers_never_write_after_their_successors(
    tmp_path: Path,
) -> None:
    async with LocalCluster(len(BROKERS), data=tmp_path, config=KEYS) as cluster:
        await create_topic(cluster, TOPIC, PARTITIONS)
        with Writing(CLIENT, cluster.bootstrap, TOPIC, "none") as writing:
            async with topics_created(cluster):
                for fault in FAULTS:
                    await replace_controller(cluster, fault)
            await heal(cluster)
            history = await asyncio.to_thread(writing.finish)
        reading = await asyncio.to_thread(CLIENT.read, cluster.bootstrap, TOPIC, PARTITIONS)
        written = transactions(cluster.directory.zookeeper)
    found = audit(written)
    assert found.faults == []
    assert found.elections > len(FAULTS)
    assert len(found.writes) > len(FAULTS) / 2, "most controllers had nothing to write"
    assert verdict([history], reading).ok


STATE = "/brokers/topics/t/partitions/0/state"
EPOCH = "/controller_epoch"


def state(**changes: object) -> bytes:
    fields = {"controller_epoch": 1, "leader": 1, "version": 1, "leader_epoch": 0, "isr": [1, 2]}
    return json.dumps({**fields, **changes}).encode()


def election(session: int, epoch: int) -> Transaction:
    made = Operation(CREATE, "/controller", ephemeral=True)
    raised = Operation(SET, EPOCH, epoch, b"%d" % epoch)
    return Transaction(epoch, session, 0, (made, Operation(CHECK, EPOCH, epoch - 1), raised))


def write(session: int, *ops: Operation) -> Transaction:
    return Transaction(99, session, 0, ops)


GOOD = [
    *(write(session, Operation(CREATE, f"/brokers/ids/{session}")) for session in (7, 8, 9)),
    election(7, 1),
    write(7, Operation(CHECK, EPOCH, 1), Operation(CREATE, STATE, data=state())),
    write(8, Operation(SET, STATE, 1, state(isr=[1]))),
    write(7, Operation(CHECK, EPOCH, 1), Operation(DELETE, "/controller")),
    election(8, 2),
    write(8, Operation(CHECK, EPOCH, 2), Operation(SET, STATE, 2, state(controller_epoch=2))),
]
BAD = {
    "another session's write": write(
        7, Operation(CHECK, EPOCH, 2), Operation(SET, STATE, 3, state(controller_epoch=2))
    ),
    "a former epoch": write(
        8, Operation(CHECK, EPOCH, 2), Operation(SET, STATE, 3, state(controller_epoch=1))
    ),
    "a check of a former epoch": write(
        8, Operation(CHECK, EPOCH, 1), Operation(SET, STATE, 3, state(controller_epoch=2))
    ),
    "a leader elected without the check": write(
        8, Operation(SET, STATE, 3, state(controller_epoch=2, leader=2))
    ),
    "a topic deleted without the check": write(8, Operation(DELETE, "/brokers/topics/t")),
    "an election next to a controller": election(9, 3),
}
OPERATOR = 6


def test_audit_of_controller_writes_accepts_a_correct_history() -> None:
    assert audit(GOOD).faults == []
    assert audit(GOOD).elections == 2


def test_audit_of_controller_writes_accepts_deletion_of_controller_node_by_hand() -> None:
    deposed = write(OPERATOR, Operation(DELETE, "/controller"))
    found = audit([*GOOD, deposed, election(9, 3)])
    assert (found.faults, found.epoch) == ([], 3)


@pytest.mark.parametrize("kind", BAD)
def test_audit_of_controller_writes_reports_each_kind_of_faulty_write(kind: str) -> None:
    assert len(audit([*GOOD, BAD[kind]]).faults) == 1
