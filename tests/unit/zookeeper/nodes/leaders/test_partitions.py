"""The nodes of partitions in the leader-coordinated mode, as raw bytes: what is read, and what the multis write."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from minikafka.base.errors import MultiFailed
from minikafka.base.model import TopicPartition, topic_id_text
from minikafka.base.ports import MultiOp
from minikafka.deciders.leaders.model import (
    IsrNode,
    LeaderNode,
    Operation,
    PartitionView,
    Reassignment,
    StateChange,
)
from minikafka.simulation.zookeeper import ZooKeeperInMemory
from minikafka.simulation.zookeeper_client import InMemoryClient
from minikafka.zookeeper.nodes.faults import Faults
from minikafka.zookeeper.nodes.leaders import partitions, tree

TP = TopicPartition("orders", 0)
ID = bytes(range(16))
BASE = "/leaders/brokers/topics/orders"
NEW = "/leaders/brokers/partitions_reassigned/orders/0"
CLOSE = StateChange(Operation.CLOSE, TP, ID, 8, 1)


@pytest.fixture
async def zookeeper() -> InMemoryClient:
    """A session of broker 1, with the replica list 1,2,3 of orders-0 and no leader yet."""
    zookeeper = InMemoryClient(ZooKeeperInMemory())
    await zookeeper.start()
    await tree.ensure(zookeeper)
    zookeeper.server.put(BASE, topic_id_text(ID).encode())
    zookeeper.server.put(f"{BASE}/0/replicas", b"1,2,3")
    return zookeeper


async def view(zookeeper: InMemoryClient, tp: TopicPartition = TP) -> PartitionView:
    views = await partitions.read_views(zookeeper, [tp], zookeeper.session_id, Faults())
    return views[tp]


async def lead(zookeeper: InMemoryClient, epoch: int = 0) -> PartitionView:
    read = await view(zookeeper)
    await zookeeper.multi(partitions.lead(TP, read, 1, epoch, (1, 2, 3)))
    return await view(zookeeper)


def tree_of(zookeeper: InMemoryClient, below: str = "/leaders") -> dict[str, bytes]:
    nodes = zookeeper.server.nodes
    return {path: node.data for path, node in nodes.items() if path.startswith(below)}


async def test_view_has_the_contents_and_versions_of_all_nodes_of_a_partition(
    zookeeper: InMemoryClient,
) -> None:
    ensemble = zookeeper.server
    ensemble.put(f"{BASE}/0/replicas", b"1,2,3")
    ensemble.put(f"{BASE}/0/ISR", b"2,1;7")
    ensemble.put(NEW, b"3,4")
    await zookeeper.create(f"{BASE}/0/leader", b"2;7", ephemeral=True)
    assert await view(zookeeper) == PartitionView(
        topic_id=ID,
        replicas=(1, 2, 3),
        replicas_version=1,
        leader=LeaderNode(2, 7, 0, is_ours=True),
        isr=IsrNode((2, 1), 7, 0),
        reassignment=Reassignment((3, 4), 0),
    )


async def test_view_of_a_partition_without_nodes_is_empty_but_readable(
    zookeeper: InMemoryClient,
) -> None:
    nothing = await view(zookeeper, TopicPartition("unknown", 3))
    assert nothing == PartitionView(None, None, -1, None, None, None)
    assert nothing.is_readable


async def test_empty_reassignment_means_that_the_partition_is_being_deleted(
    zookeeper: InMemoryClient,
) -> None:
    zookeeper.server.put(NEW, b"")
    assert (await view(zookeeper)).is_being_deleted


async def test_leader_node_of_another_session_is_not_ours(zookeeper: InMemoryClient) -> None:
    other = InMemoryClient(zookeeper.server)
    await other.start()
    await other.create(f"{BASE}/0/leader", b"2;0", ephemeral=True)
    assert (await view(zookeeper)).leader == LeaderNode(2, 0, 0, is_ours=False)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (BASE, b""),
        (BASE, b"not an id"),
        (f"{BASE}/0/replicas", b""),
        (f"{BASE}/0/replicas", b"1,1"),
        (f"{BASE}/0/replicas", b"[1,2]"),
        (f"{BASE}/0/replicas", b"1, 2"),
        (f"{BASE}/0/replicas", b"1,2,"),
        (f"{BASE}/0/replicas", b"-1"),
        (f"{BASE}/0/leader", b"1"),
        (f"{BASE}/0/leader", b"1;-1"),
        (f"{BASE}/0/leader", b"1;2147483647"),
        (f"{BASE}/0/leader", b"\xff;1"),
        (f"{BASE}/0/ISR", b""),
        (f"{BASE}/0/ISR", b";3"),
        (f"{BASE}/0/ISR", b"1,2"),
        (f"{BASE}/0/ISR", b"1,2;"),
        (f"{BASE}/0/ISR", b"1;2;3"),
        (NEW, b"4,5 "),
        (NEW, b"null"),
    ],
)
async def test_view_with_an_unreadable_node_says_so_and_the_node_stays(
    zookeeper: InMemoryClient, path: str, text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    zookeeper.server.put(path, text)
    before = tree_of(zookeeper)
    with caplog.at_level(logging.ERROR):
        read = await view(zookeeper)
    assert not read.is_readable
    assert f"{path} is not readable" in caplog.text
    assert tree_of(zookeeper) == before


async def test_topic_setting_decides_about_unclean_elections_before_the_brokers(
    zookeeper: InMemoryClient,
) -> None:
    async def unclean(default: bool) -> bool:
        views = await partitions.read_views(
            zookeeper, [TP], zookeeper.session_id, Faults(), unclean_default=default
        )
        return views[TP].unclean_election

    assert [await unclean(False), await unclean(True)] == [False, True]
    for value, means in ((b"true", True), (b"false", False)):
        text = b'{"version":1,"config":{"unclean.leader.election.enable":"%s"}}' % value
        zookeeper.server.put("/config/topics/orders", text)
        assert [await unclean(False), await unclean(True)] == [means, means]


async def test_views_of_many_partitions_are_one_read(zookeeper: InMemoryClient) -> None:
    reads: list[int] = []

    class Counting:
        async def get_many(self, paths: list[str]) -> object:
            reads.append(len(paths))
            return await zookeeper.get_many(paths)

    tps = [TopicPartition("orders", number) for number in range(100)]
    counting: Any = Counting()
    views = await partitions.read_views(counting, tps, 1, Faults())
    assert list(views) == tps
    assert reads == [402]


async def test_broker_hosts_its_replica_while_a_reassignment_completes_between_two_reads(
    zookeeper: InMemoryClient,
) -> None:
    """Otherwise broker 4 would take itself for a broker without the replica, and delete it."""
    await lead(zookeeper, 7)
    zookeeper.server.put(NEW, b"4,1")
    zookeeper.server.put(f"{BASE}/0/ISR", b"1,4;7")
    multi = partitions.complete_reassignment(TP, await view(zookeeper), 8, [])

    class Torn:
        """Reads one node after the other; the reassignment completes after the first of its two nodes."""

        async def get_many(self, paths: list[str]) -> list[object]:
            found: list[object] = []
            for path in paths:
                found += await zookeeper.get_many([path])
                if path in (NEW, f"{BASE}/0/replicas") and NEW in zookeeper.server.nodes:
                    await zookeeper.multi(multi)
            return found

    torn: Any = Torn()
    views = await partitions.read_views(torn, [TP], zookeeper.session_id, Faults())
    assert 4 in views[TP].hosts
    hosts = await partitions.read_hosts(torn, [TP], Faults())
    assert 4 in hosts[TP]


async def test_all_partitions_are_listed_and_other_names_are_reported(
    zookeeper: InMemoryClient, caplog: pytest.LogCaptureFixture
) -> None:
    for path in ("clicks/11", "clicks/2", "clicks/x", "clicks/01", "a b/0"):
        zookeeper.server.put(f"/leaders/brokers/topics/{path}")
    zookeeper.server.put("/leaders/brokers/partitions_reassigned/new/0", b"1")
    zookeeper.server.put(NEW, b"4")
    faults = Faults()
    with caplog.at_level(logging.ERROR):
        found = await partitions.list_partitions(zookeeper, faults)
    assert found == [
        TopicPartition("clicks", 2),
        TopicPartition("clicks", 11),
        TopicPartition("new", 0),
        TP,
    ]
    assert len(caplog.records) == 3
    hosts = await partitions.read_hosts(zookeeper, found, faults)
    assert hosts[TP] == {1, 2, 3, 4}
    assert hosts[TopicPartition("new", 0)] == {1}
    assert hosts[TopicPartition("clicks", 2)] == frozenset()


@pytest.mark.row("C19")
async def test_first_leader_creates_leader_and_isr_with_epoch_and_ids(
    zookeeper: InMemoryClient,
) -> None:
    read = await lead(zookeeper)
    assert tree_of(zookeeper, f"{BASE}/0/") == {
        f"{BASE}/0/replicas": b"1,2,3",
        f"{BASE}/0/leader": b"1;0",
        f"{BASE}/0/ISR": b"1,2,3;0",
    }
    assert read.leader is not None
    assert read.leader.is_ours


async def test_second_candidate_writes_neither_leader_nor_epoch(zookeeper: InMemoryClient) -> None:
    stale = await view(zookeeper)
    await lead(zookeeper)
    await refused(zookeeper, partitions.lead(TP, stale, 2, 0, (2,)))


async def test_candidate_writes_nothing_if_another_leader_came_and_went(
    zookeeper: InMemoryClient,
) -> None:
    await lead(zookeeper)
    zookeeper.server.delete(f"{BASE}/0/leader")
    stale = await view(zookeeper)
    gone = await lead(zookeeper, 1)
    await zookeeper.multi(partitions.give_up(TP, gone))
    await refused(zookeeper, partitions.lead(TP, stale, 2, 1, (2,)))


async def test_candidate_writes_nothing_if_the_replica_list_has_changed(
    zookeeper: InMemoryClient,
) -> None:
    stale = await view(zookeeper)
    zookeeper.server.put(f"{BASE}/0/replicas", b"2,3,4")
    await refused(zookeeper, partitions.lead(TP, stale, 1, 0, (1,)))


async def test_leader_that_leads_on_writes_the_next_epoch_in_both_nodes(
    zookeeper: InMemoryClient,
) -> None:
    read = await lead(zookeeper)
    await zookeeper.multi(partitions.raise_epoch(TP, read, 1, (1, 3)))
    assert tree_of(zookeeper, f"{BASE}/0/")[f"{BASE}/0/leader"] == b"1;1"
    assert tree_of(zookeeper, f"{BASE}/0/")[f"{BASE}/0/ISR"] == b"1,3;1"
    await refused(zookeeper, partitions.raise_epoch(TP, read, 1, (1,)))


async def test_leader_that_leads_on_enqueues_its_close_requests_in_the_same_multi(
    zookeeper: InMemoryClient,
) -> None:
    read = await lead(zookeeper)
    zookeeper.server.put("/leaders/brokers/state/9", b"")
    await refused(zookeeper, partitions.raise_epoch(TP, read, 1, (1,), [(8, CLOSE)]))
    await zookeeper.multi(partitions.raise_epoch(TP, read, 1, (1,), [(9, CLOSE)]))
    assert len(tree_of(zookeeper, "/leaders/brokers/state/9/")) == 1


async def replaced(zookeeper: InMemoryClient) -> PartitionView:
    """Return the view of a leader that another leader has replaced, whose node also has version 0."""
    stale = await lead(zookeeper)
    zookeeper.server.delete(f"{BASE}/0/leader")
    now = await view(zookeeper)
    await zookeeper.multi(partitions.lead(TP, now, 2, 1, (1, 2, 3)))
    return stale


async def test_replaced_leader_neither_leads_on_nor_deletes_the_node_of_its_successor(
    zookeeper: InMemoryClient,
) -> None:
    stale = await replaced(zookeeper)
    await refused(zookeeper, partitions.raise_epoch(TP, stale, 1, (1,)))
    await refused(zookeeper, partitions.give_up(TP, stale))
    await refused(zookeeper, partitions.leave(TP, stale, 1))


@pytest.mark.row("C31")
async def test_completed_reassignment_is_one_multi_with_the_requests_to_close(
    zookeeper: InMemoryClient,
) -> None:
    await lead(zookeeper, 7)
    zookeeper.server.put(NEW, b"3,1")
    zookeeper.server.put("/leaders/brokers/state/2")
    read = await view(zookeeper)
    await zookeeper.multi(partitions.complete_reassignment(TP, read, 8, [(2, CLOSE)]))
    assert tree_of(zookeeper, f"{BASE}/0/") == {
        f"{BASE}/0/replicas": b"3,1",
        f"{BASE}/0/leader": b"1;8",
        f"{BASE}/0/ISR": b"1,3;8",
    }
    assert NEW not in zookeeper.server.nodes
    assert tree_of(zookeeper, "/leaders/brokers/state/2/") == {
        "/leaders/brokers/state/2/q-0000000000": b'{"operation":"close-replica","topic":"orders",'
        b'"topic_id":"AAECAwQFBgcICQoLDA0ODw","partition":0,"epoch":8,"sender":1}'
    }


@pytest.mark.parametrize("change", ["leader", "ISR", "replicas", "reassignment"])
async def test_reassignment_does_not_complete_if_anything_has_changed(
    zookeeper: InMemoryClient, change: str
) -> None:
    await lead(zookeeper, 7)
    zookeeper.server.put(NEW, b"3,1")
    read = await view(zookeeper)
    changed = NEW if change == "reassignment" else f"{BASE}/0/{change}"
    zookeeper.server.put(changed, zookeeper.server.nodes[changed].data)
    await refused(zookeeper, partitions.complete_reassignment(TP, read, 8, []))


async def test_broker_that_leaves_keeps_the_epoch_and_deletes_its_leader_node(
    zookeeper: InMemoryClient,
) -> None:
    await zookeeper.multi(partitions.leave(TP, await lead(zookeeper), 3))
    assert tree_of(zookeeper, f"{BASE}/0/")[f"{BASE}/0/ISR"] == b"1,2;0"
    await zookeeper.multi(partitions.leave(TP, await view(zookeeper), 1))
    assert tree_of(zookeeper, f"{BASE}/0/") == {
        f"{BASE}/0/replicas": b"1,2,3",
        f"{BASE}/0/ISR": b"2;0",
    }


async def refused(zookeeper: InMemoryClient, multi: list[MultiOp]) -> None:
    """Assert that ZooKeeper refuses the multi, and that nothing changes."""
    before = tree_of(zookeeper)
    with pytest.raises(MultiFailed):
        await zookeeper.multi(multi)
    assert tree_of(zookeeper) == before
