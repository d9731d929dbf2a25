"""Ids and ports of the brokers of a new, a larger and a smaller cluster."""

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
    """Return the first of `length` consecutive free ports."""
    return next(p for p in count(15_100, 7) if all(map(is_free, range(p, p + length))))


def test_new_brokers_get_the_ports_behind_the_clusters_own() -> None:
    first = free_row(5)
    three = planned(brokers=3, port=first)
    five = planned(three, brokers=5)
    assert ports(five) == list(range(first, first + 5))
    assert five.brokers[:3] == three.brokers


def test_new_broker_gets_another_port_if_the_next_one_is_in_use() -> None:
    first = free_row(4)
    three = planned(brokers=3, port=first)
    with socket.create_server((HOST, first + 3)):
        four = planned(three, brokers=4)
    assert ports(four)[3] not in range(first, first + 4)
    assert len({p for b in four.brokers for p in (b.port, b.control_port)}) == 8


def test_new_broker_gets_a_free_port_if_ports_are_not_consecutive() -> None:
    before = ClusterRecord(
        (BrokerRecord(1, 20_000, 20_001), BrokerRecord(2, 30_000, 30_001)), f"{HOST}:30002"
    )
    [*_, added] = ports(planned(before, brokers=3))
    assert added not in (9094, 20_002, 30_001, 30_002)
    assert is_free(added)


def test_new_broker_gets_a_free_port_behind_port_65535() -> None:
    before = ClusterRecord((BrokerRecord(1, 65_535, 20_001),), f"{HOST}:20002")
    assert ports(planned(before, brokers=2))[1] < 65_535


def test_returning_broker_has_its_former_ports() -> None:
    three = planned(brokers=3, port=0)
    two = planned(three, brokers=2)
    assert (len(two.brokers), two.retired) == (2, three.brokers[2:])
    one = planned(two, brokers=1)
    assert planned(planned(one), brokers=3).brokers == three.brokers


def test_new_first_port_also_moves_retired_brokers() -> None:
    two = planned(planned(brokers=3, port=31_000), brokers=2)
    moved = planned(planned(two, port=31_500), brokers=3)
    assert ports(moved) == [31_500, 31_501, 31_502]


@pytest.mark.parametrize(("first", "brokers"), [(65_535, 1), (65_533, 3)])
def test_port_65535_can_be_used(first: int, brokers: int) -> None:
    assert ports(planned(brokers=brokers, port=first))[-1] == 65_535


def test_error_about_a_port_out_of_range_names_the_option_or_key() -> None:
    with pytest.raises(
        ClusterError, match=r"^--port must be at most 65534 with 2 brokers, got 65535"
    ):
        planned(brokers=2, port=65_535)
    with pytest.raises(ConfigError, match=r"^cluster\.port must be at most 65533 with 3 brokers"):
        planned(config=ClusterConfig(port=65_534))
    assert ports(planned(brokers=2, config=ClusterConfig(port=65_534))) == [65_534, 65_535]
