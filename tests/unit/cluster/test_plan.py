"""Ids and ports of the brokers of a cluster, new, grown and smaller for a while."""

from __future__ import annotations

import socket
from itertools import count

import pytest

from minikafka.base.config import ClusterConfig
from minikafka.base.errors import ConfigError
from minikafka.cluster.directory import HOST, BrokerRecord, ClusterError, ClusterRecord, is_free
from minikafka.cluster.plan import Request, plan
from minikafka.runtime.clock import SystemRng

RNG = SystemRng()


def planned(
    before: ClusterRecord | None = None,
    brokers: int | None = None,
    port: int | None = None,
    config: ClusterConfig | None = None,
) -> ClusterRecord:
    return plan(before, Request(brokers, port, config or ClusterConfig(), None, None), RNG)


def ports(record: ClusterRecord) -> list[int]:
    return [broker.port for broker in record.brokers]


def free_row(length: int) -> int:
    """The first of so many free ports in a row."""
    return next(p for p in count(15_100, 7) if all(map(is_free, range(p, p + length))))


def test_a_grown_cluster_goes_on_behind_its_own_ports() -> None:
    first = free_row(5)
    three = planned(brokers=3, port=first)
    five = planned(three, brokers=5)
    assert ports(five) == list(range(first, first + 5))
    assert five.brokers[:3] == three.brokers


def test_a_grown_cluster_leaves_a_port_alone_that_somebody_listens_on() -> None:
    first = free_row(4)
    three = planned(brokers=3, port=first)
    with socket.create_server((HOST, first + 3)):
        four = planned(three, brokers=4)
    assert ports(four)[3] not in range(first, first + 4)
    assert len({p for b in four.brokers for p in (b.port, b.control_port)}) == 8


def test_a_cluster_on_ports_here_and_there_grows_on_a_free_one() -> None:
    before = ClusterRecord(
        (BrokerRecord(1, 20_000, 20_001), BrokerRecord(2, 30_000, 30_001)), f"{HOST}:30002"
    )
    [*_, added] = ports(planned(before, brokers=3))
    assert added not in (9094, 20_002, 30_001, 30_002)
    assert is_free(added)


def test_a_cluster_at_the_last_port_grows_on_a_free_one() -> None:
    before = ClusterRecord((BrokerRecord(1, 65_535, 20_001),), f"{HOST}:20002")
    assert ports(planned(before, brokers=2))[1] < 65_535


def test_a_broker_that_comes_back_has_the_ports_it_had() -> None:
    three = planned(brokers=3, port=0)
    two = planned(three, brokers=2)
    assert (len(two.brokers), two.retired) == (2, three.brokers[2:])
    one = planned(two, brokers=1)
    assert planned(planned(one), brokers=3).brokers == three.brokers


def test_a_new_first_port_moves_those_that_retired_too() -> None:
    two = planned(planned(brokers=3, port=31_000), brokers=2)
    moved = planned(planned(two, port=31_500), brokers=3)
    assert ports(moved) == [31_500, 31_501, 31_502]


@pytest.mark.parametrize(("first", "brokers"), [(65_535, 1), (65_533, 3)])
def test_the_last_port_is_a_port(first: int, brokers: int) -> None:
    assert ports(planned(brokers=brokers, port=first))[-1] == 65_535


def test_a_port_behind_the_last_is_refused_by_the_name_of_who_asked_for_it() -> None:
    with pytest.raises(
        ClusterError, match=r"^--port cannot be 65535 with 2 brokers: at most 65534"
    ):
        planned(brokers=2, port=65_535)
    with pytest.raises(ConfigError, match=r"^cluster\.port cannot be 65534 with 3 brokers"):
        planned(config=ClusterConfig(port=65_534))
    assert ports(planned(brokers=2, config=ClusterConfig(port=65_534))) == [65_534, 65_535]
