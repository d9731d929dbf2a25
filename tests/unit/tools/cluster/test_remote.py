"""A cluster elsewhere: the states of its brokers, and the sentences about what could not be seen."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.client import ClusterInfo, Node
from minikafka.client.administration.inspection import DENIED, UNKNOWN
from minikafka.client.network import Address
from minikafka.tools.cluster.observation.causes import causes_of, state_of
from minikafka.tools.cluster.observation.remote import ALWAYS_UNSEEN, RemoteCluster, remote_cluster
from minikafka.tools.cluster.observation.views import BrokerView

REFUSED = KafkaError(ErrorCode.NETWORK_EXCEPTION, "connection refused")
SILENT = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no answer within 3 s")
OLD = KafkaError(ErrorCode.UNSUPPORTED_VERSION, UNKNOWN)
NO_RIGHT = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, DENIED)


class Inspected:
    """Brokers that answer `state`, or fail with an error. `asked`: the brokers that got a question."""

    def __init__(self, failures: dict[int, KafkaError], session: str = "connected") -> None:
        self.failures = failures
        self.session = session
        self.asked: list[int] = []

    async def ask(self, address: Address, *_: Any, broker: int, **__: Any) -> list[bytes]:
        self.asked.append(broker)
        if broker in self.failures:
            raise self.failures[broker]
        summary = {
            "coordination": "controller",
            "zookeeper": "z:2181",
            "session_state": self.session,
            "controller_epoch": 1,
            "controller_id": 1,
            "is_controller": broker == 1,
            "live_brokers": [1, 2, 3],
        }
        row = {"topic": "t", "partition": 0, "replicas": [1, 4], "role": "leader"}
        row |= {"leader": 1, "leader_epoch": 0}
        return [json.dumps(one).encode() for one in (summary, row)]


def cluster(inspected: Inspected) -> RemoteCluster:
    nodes = {id_: Node(id_, f"h{id_}", 9092, None) for id_ in (1, 2, 3)}
    client: Any = SimpleNamespace(inspection=inspected)
    return RemoteCluster(client, [BrokerView("h1:9092", ClusterInfo("c", 1, nodes), [])], "h1:9092")


async def test_states_and_unseen_facts_say_why_a_broker_tells_nothing() -> None:
    inspected = Inspected({2: REFUSED, 3: OLD})
    found = cluster(inspected)
    seen = await found.sights()
    states = {id_: state_of(one, seen) for id_, one in seen.brokers.items()}
    assert states == {1: "up", 2: "unreachable", 3: "unknown", 4: "unreachable"}
    causes = {cause.broker: cause.sentence for cause in causes_of(seen)}
    assert causes.keys() == {2, 4}
    assert "h2:9092 cannot be reached from here: connection refused" in causes[2]
    assert "broker 1 lists it as alive" in causes[2]
    assert causes[4].startswith("broker 4 is away: no broker that answers lists it as alive")
    always, old, *_ = found.unseen([1, 3])
    assert always == ALWAYS_UNSEEN
    assert old.startswith("broker 3 does not answer this command (it does not know the request")
    assert "minikafka 0.1.0" in old
    await found.ask("explain", {})
    assert inspected.asked == [1, 2, 3, 1]  # those that failed are not asked again


async def test_broker_that_only_this_machine_cannot_reach_is_not_said_to_be_down() -> None:
    seen = await cluster(Inspected({2: SILENT})).sights()
    [cause] = [cause for cause in causes_of(seen) if cause.broker == 2]
    assert cause.text.endswith("no answer within 3 s, although brokers 1, 3 list it as alive")
    assert cause.remedy.startswith("check the network between here and its machine")


async def test_zookeeper_is_reported_if_no_broker_that_answers_has_a_session() -> None:
    seen = await cluster(Inspected({}, "suspended")).sights()
    found = [cause for cause in causes_of(seen) if cause.name == "zookeeper-silent"]
    assert "ZooKeeper at z:2181 does not serve: no broker that answers has a session" in (
        found[0].text
    )


@pytest.mark.parametrize(
    ("failures", "code", "words"),
    [
        ({1: SILENT, 2: NO_RIGHT, 3: OLD}, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "grants it"),
        ({1: SILENT, 2: OLD, 3: OLD}, ErrorCode.UNSUPPORTED_VERSION, "minikafka 0.1.0"),
        ({1: SILENT, 2: REFUSED, 3: SILENT}, ErrorCode.NETWORK_EXCEPTION, "broker 2: connection"),
    ],
)
async def test_error_without_any_answer_is_the_one_that_the_user_can_mend(
    failures: dict[int, KafkaError], code: ErrorCode, words: str
) -> None:
    with pytest.raises(KafkaError, match=words) as raised:
        await cluster(Inspected(failures)).sights()
    assert raised.value.code is code


async def test_cluster_that_does_not_answer_is_named_once_with_the_reason() -> None:
    with pytest.raises(KafkaError) as caught:
        async with remote_cluster("127.0.0.1:1", None):
            pass
    assert caught.value.detail.count("no broker answers at 127.0.0.1:1") == 1
    assert "(connection refused)" in caught.value.detail
