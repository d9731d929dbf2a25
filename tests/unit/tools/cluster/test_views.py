"""The metadata that counts if brokers contradict each other."""

from __future__ import annotations

from support.commands.scripted_admin import ScriptedAdmin

from minikafka.base.coordination import CONTROLLER, LEADERS
from minikafka.base.model import TopicPartition
from minikafka.client import ClusterInfo, Node, PartitionInfo, TopicInfo
from minikafka.client.administration.results import Resource, ResourceType
from minikafka.tools.cluster.observation.views import (
    BrokerView,
    contradictions,
    coordination_of,
    differing_lists,
    newest,
)


def view(
    broker: int, controller: int, leader: int, epoch: int, *, cluster: str = "id", alive: int = 3
) -> BrokerView:
    nodes = {id_: Node(id_, "h", id_, None) for id_ in range(1, alive + 1)}
    partition = PartitionInfo(0, leader, epoch, (1, 2, 3), (1, 2, 3), (), 0)
    info = ClusterInfo(cluster, controller, nodes)
    return BrokerView(f"h:{broker}", info, [TopicInfo("t", bytes(16), {0: partition})])


def test_old_metadata_of_the_broker_that_answers_first_do_not_count() -> None:
    views = [view(1, 1, 1, 4), view(2, 2, 3, 5), view(3, 2, 3, 5)]
    info, [topic] = newest(views)
    assert info.controller_id == 2
    assert (topic.partitions[0].leader, topic.partitions[0].leader_epoch) == (3, 5)
    info, [topic] = newest([view(1, 1, 1, 4), view(2, 1, 1, 4), view(3, 2, 3, 5)])
    assert topic.partitions[0].leader == 3


def test_brokers_that_name_different_controllers_contradict_each_other() -> None:
    views = [view(1, 1, 1, 4), view(2, 2, 3, 5), view(3, 2, 3, 5), view(4, -1, 3, 5)]
    [text] = contradictions(views, CONTROLLER)
    assert text.startswith(
        "the brokers disagree about the controller: h:1 names 1; h:2, h:3 names 2; if it lasts, one of them is a zombie"
    )
    assert list(contradictions(views, LEADERS)) == []
    assert list(contradictions(views[1:], CONTROLLER)) == []


def test_addresses_of_two_clusters_are_named() -> None:
    views = [view(1, 1, 1, 4), view(2, 2, 3, 5, cluster="other")]
    assert list(contradictions(views, CONTROLLER)) == [
        "the addresses belong to different clusters: h:1 to id; h:2 to other; name the brokers of one cluster"
    ]


def test_different_lists_of_live_brokers_are_a_note() -> None:
    views = [view(1, 1, 1, 4), view(2, 1, 1, 4, alive=2)]
    assert list(differing_lists(views)) == [
        "the brokers list different brokers as alive: h:1: 1, 2, 3; h:2: 1, 2"
    ]
    assert list(differing_lists(views[:1])) == []


async def test_coordination_mode_is_read_from_the_settings_of_a_broker() -> None:
    admin = ScriptedAdmin({TopicPartition("t", 0): (1, 2)}, brokers=2)
    info = await admin.describe_cluster()
    assert await coordination_of(admin, info) == CONTROLLER
    resource = Resource(ResourceType.BROKER, "1")
    admin.configs[resource] = {"minikafka.coordination": LEADERS}
    assert await coordination_of(admin, info) == LEADERS
