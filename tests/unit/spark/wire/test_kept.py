"""Clients that a process keeps for its next task: who uses them, and which connections they have then."""

from __future__ import annotations

import os

import pytest
from support.spark.fetch_brokers import FetchBrokers

from minikafka.spark.wire import kept
from minikafka.spark.wire.kept import close_kept, kept_client
from minikafka.spark.wire.leaders import LeaderConnections


@pytest.fixture
def brokers():
    running = FetchBrokers(1)
    running.create("lines", 2)
    yield running
    running.close()


@pytest.fixture
def make(brokers):
    close_kept()
    yield lambda: LeaderConnections([("127.0.0.1", brokers.ports[0])], "test", 5)
    close_kept()


def test_next_user_gets_the_client_with_its_connection(brokers, make):
    with kept_client("a", make) as first:
        first.refresh(["lines"])
    with kept_client("a", make) as second:
        second.refresh(["lines"])
    assert second is first
    assert len(brokers.connections[0]) == 1


def test_two_users_at_the_same_time_have_different_clients(make):
    with kept_client("a", make) as first, kept_client("a", make) as second:
        assert second is not first
    assert len(kept._kept) == 1


@pytest.mark.parametrize("error", [ValueError, GeneratorExit])
def test_client_whose_user_failed_is_closed(brokers, make, error):
    users = []

    def use() -> None:
        with kept_client("a", make) as client:
            client.refresh(["lines"])
            users.append(client)
            raise error

    for _ in range(2):
        with pytest.raises(error):
            use()
    assert users[0] is not users[1]
    assert [client._connections for client in users] == [{}, {}]


def test_connection_with_an_outstanding_response_is_not_used_again(brokers, make):
    with kept_client("a", make) as first:
        first.refresh(["lines"])
        address = first.address(first.partitions(["lines"])[0])
        first.connection(address)._waiting.append((1, False))
    with kept_client("a", make) as second:
        assert second._connections == {}


def test_clients_used_least_recently_are_closed(brokers, make):
    for key in range(20):
        with kept_client(key, make) as client:
            client.refresh(["lines"])
    assert list(kept._kept) == list(range(12, 20))


def test_child_process_uses_no_connection_of_its_parent(make):
    with kept_client("a", make) as client:
        client.refresh(["lines"])
    child = os.fork()
    if not child:
        os._exit(len(kept._kept) + len(client._connections))
    assert os.waitpid(child, 0)[1] == 0
    assert len(client._connections) == 1
