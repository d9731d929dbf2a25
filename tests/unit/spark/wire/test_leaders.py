"""Finding partition leaders when brokers disagree or do not answer."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest
from support.spark.fetch_brokers import FetchBrokers

from minikafka.base.errors import KafkaError
from minikafka.base.model import TopicPartition
from minikafka.spark.wire import protocol
from minikafka.spark.wire.deadline import Deadline
from minikafka.spark.wire.leaders import LeaderConnections, raise_if_final

LINES = TopicPartition("lines", 0)


@pytest.fixture
def brokers():
    running = FetchBrokers(2)
    running.create("lines", 2)
    yield running
    running.close()


@pytest.fixture
def behind(brokers):
    """Return a client that knows only broker 1, which is not the controller."""
    with closing(LeaderConnections([("127.0.0.1", brokers.ports[1])], "test", 5)) as leaders:
        yield leaders


@pytest.fixture
def leaders(brokers):
    leaders = LeaderConnections([("127.0.0.1", port) for port in brokers.ports.values()], "test", 5)
    leaders.refresh(["lines"])
    yield leaders
    leaders.close()


def test_newer_leader_replaces_the_known_one(brokers, leaders):
    brokers.move("lines", 0, 1)
    leaders.refresh(["lines"])
    assert leaders.address(LINES) == ("127.0.0.1", brokers.ports[1])
    assert leaders.leader_epoch(LINES) == 1


def test_older_leader_epoch_is_ignored(brokers, leaders):
    brokers.move("lines", 0, 1)
    leaders.refresh(["lines"])
    brokers.topics["lines"][0].leader, brokers.topics["lines"][0].epoch = 0, 0
    leaders.refresh(["lines"])
    assert leaders.address(LINES) == ("127.0.0.1", brokers.ports[1])


def test_topic_that_was_created_again_has_only_its_new_partitions_and_leaders(brokers, leaders):
    brokers.topic_ids["lines"] = bytes(15) + b"1"
    brokers.move("lines", 0, 1)
    leaders.refresh(["lines"])
    brokers.create("lines", 1)
    brokers.topic_ids["lines"] = bytes(15) + b"2"
    leaders.refresh(["lines"])
    assert leaders.partitions(["lines"]) == [LINES]
    assert leaders.address(LINES) == ("127.0.0.1", brokers.ports[0])


def test_partition_without_a_live_leader_has_no_address(brokers, leaders):
    brokers.topics["lines"][0].leader = -1
    brokers.topics["lines"][1].leader = 1
    brokers.kill(1)
    leaders.refresh(["lines"])
    assert leaders.partitions(["lines"]) == [LINES, TopicPartition("lines", 1)]
    assert [leaders.address(tp) for tp in leaders.partitions(["lines"])] == [None, None]


def test_broker_that_did_not_answer_is_asked_last(brokers):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = silent.getsockname()
        leaders = LeaderConnections([address, ("127.0.0.1", brokers.ports[0])], "test", 0.5)
        with closing(leaders):
            leaders.refresh(["lines"])
            leaders.refresh(["lines"])
        silent.settimeout(0)
        silent.accept()[0].close()
        with pytest.raises(BlockingIOError):
            silent.accept()


def find(leaders, topic, before=lambda: None):
    def ask():
        before()
        leaders.refresh([topic])
        found = leaders.partitions([topic])
        return found, [] if found else [topic]

    return leaders.find(ask, Deadline(120))


def test_topic_that_only_the_controller_knows_is_found(brokers, behind):
    brokers.behind.add(1)
    assert find(behind, "lines") == ([LINES, TopicPartition("lines", 1)], [])


def test_topic_unknown_to_the_controller_is_missing_without_further_retries(
    brokers, behind, monkeypatch
):
    monkeypatch.setattr("minikafka.spark.wire.leaders._NEW_TOPIC_S", 120)
    assert find(behind, "nowhere") == ([], ["nowhere"])
    assert {index for index, api in brokers.requests} == {0, 1}


def test_missing_topic_is_looked_for_longer_while_the_controller_is_dead(
    brokers, behind, monkeypatch
):
    monkeypatch.setattr("minikafka.spark.wire.leaders._SETTLED_S", 0)
    brokers.kill(0)
    pauses = iter([lambda: None, lambda: None, lambda: brokers.create("late")])
    assert find(behind, "late", lambda: next(pauses)()) == ([TopicPartition("late", 0)], [])


def is_final(code):
    try:
        raise_if_final(code, "lines", protocol.METADATA, "lines")
    except KafkaError:
        return True
    return False


@pytest.mark.parametrize("code", [29, 999])
def test_unknown_and_not_retriable_error_codes_are_final(code):
    assert is_final(code)


@pytest.mark.parametrize("code", [0, 3, 5, 6, 74, 75, 78])
def test_retriable_error_codes_are_not_final(code):
    assert not is_final(code)
