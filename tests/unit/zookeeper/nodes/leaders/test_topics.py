"""The nodes of topics and reassignments in the leader-coordinated mode, as raw bytes."""

from __future__ import annotations

import pytest

from minikafka.base.errors import MultiFailed
from minikafka.base.model import TopicPartition
from minikafka.simulation.zookeeper import ZooKeeperInMemory
from minikafka.simulation.zookeeper_client import InMemoryClient
from minikafka.zookeeper.nodes.faults import Faults
from minikafka.zookeeper.nodes.leaders import partitions, reassignments, topics, tree
from minikafka.zookeeper.server.core.tree import Tree

TP = TopicPartition("t", 0)
ID = bytes(range(16))
REASSIGNED = "/leaders/brokers/partitions_reassigned/t"


@pytest.fixture
async def zookeeper() -> InMemoryClient:
    """A session of a broker, with the topic t."""
    zookeeper = InMemoryClient(ZooKeeperInMemory())
    await zookeeper.start()
    await tree.ensure(zookeeper)
    await zookeeper.multi([topics.creation("t", ID), *topics.assignment(TP, (2, 0))])
    await reassignments.ensure_parent(zookeeper, "t")
    return zookeeper


def contents(zookeeper: InMemoryClient) -> dict[str, bytes]:
    nodes = zookeeper.server.nodes.items()
    return {path: node.data for path, node in nodes if "/t" in path.removeprefix("/leaders")}


async def test_every_broker_creates_the_parents_and_the_nodes_of_both_modes() -> None:
    zookeeper = InMemoryClient(ZooKeeperInMemory())
    await zookeeper.start()
    await tree.ensure(zookeeper)
    await tree.ensure(zookeeper)
    made = zookeeper.server.nodes.keys() - Tree().nodes.keys()
    assert sorted(made) == [
        "/config",
        "/config/brokers",
        "/config/changes",
        "/config/clients",
        "/config/ips",
        "/config/topics",
        "/config/users",
        "/latest_producer_id_block",
        "/leaders",
        "/leaders/brokers",
        "/leaders/brokers/ids",
        "/leaders/brokers/partitions_reassigned",
        "/leaders/brokers/state",
        "/leaders/brokers/topics",
    ]


async def test_topic_and_partition_are_nodes_with_the_id_and_the_replica_list(
    zookeeper: InMemoryClient,
) -> None:
    nodes = zookeeper.server.nodes
    assert nodes["/leaders/brokers/topics/t"].data == b"AAECAwQFBgcICQoLDA0ODw"
    assert nodes["/leaders/brokers/topics/t/0/replicas"].data == b"2,0"
    assert await topics.names(zookeeper) == ["t"]
    zookeeper.server.put("/leaders/brokers/topics/odd", b"?")
    ids = await topics.read_ids(zookeeper, ["t", "odd", "missing"], Faults())
    assert ids == {"t": ID, "odd": None}


async def test_partition_is_removed_with_all_its_nodes_unless_it_has_a_leader(
    zookeeper: InMemoryClient,
) -> None:
    views = await partitions.read_views(zookeeper, [TP], zookeeper.session_id, Faults())
    await zookeeper.multi(partitions.lead(TP, views[TP], 2, 0, (2, 0)))
    views = await partitions.read_views(zookeeper, [TP], zookeeper.session_id, Faults())
    with pytest.raises(MultiFailed):
        await zookeeper.multi(topics.partition_removal(TP, views[TP]))
    await zookeeper.multi(partitions.give_up(TP, views[TP]))
    await zookeeper.multi([*topics.partition_removal(TP, views[TP]), topics.removal("t", 0)])
    await zookeeper.multi([reassignments.parent_removal("t")])
    assert not any(path.endswith("/t") for path in zookeeper.server.nodes)


@pytest.mark.parametrize(
    ("replicas", "text"), [((1, 2), b"1,2"), ((), b"")], ids=["move", "deletion"]
)
async def test_request_is_a_node_with_the_new_replicas_and_a_second_one_is_refused(
    zookeeper: InMemoryClient, replicas: tuple[int, ...], text: bytes
) -> None:
    await zookeeper.multi([reassignments.request(TP, replicas)])
    assert zookeeper.server.nodes[f"{REASSIGNED}/0"].data == text
    with pytest.raises(MultiFailed):
        await zookeeper.multi([reassignments.request(TP, (5,))])
    await zookeeper.multi([reassignments.removal(TP, 0)])
    assert f"{REASSIGNED}/0" not in zookeeper.server.nodes


async def test_replaced_reassignment_is_not_completed_by_a_leader_that_read_the_former(
    zookeeper: InMemoryClient,
) -> None:
    """Both nodes have version 0."""
    zookeeper.server.put("/leaders/brokers/topics/t/0/ISR", b"2,0;4")
    zookeeper.server.put("/leaders/brokers/topics/t/0/leader", b"2;4")
    await zookeeper.multi([reassignments.request(TP, (0, 2))])
    views = await partitions.read_views(zookeeper, [TP], zookeeper.session_id, Faults())
    await zookeeper.multi(reassignments.replacement(TP, views[TP], (7, 8)))
    with pytest.raises(MultiFailed):
        await zookeeper.multi(partitions.complete_reassignment(TP, views[TP], 5, []))
    assert zookeeper.server.nodes[f"{REASSIGNED}/0"].data == b"7,8"
    assert zookeeper.server.nodes["/leaders/brokers/topics/t/0/replicas"].data == b"2,0"


async def test_reassignment_of_a_partition_that_is_being_created_can_be_withdrawn(
    zookeeper: InMemoryClient,
) -> None:
    new = TopicPartition("t", 1)
    await zookeeper.multi([reassignments.request(new, (1,))])
    views = await partitions.read_views(zookeeper, [new], zookeeper.session_id, Faults())
    await zookeeper.multi(reassignments.withdrawal(new, views[new]))
    assert f"{REASSIGNED}/1" not in zookeeper.server.nodes
