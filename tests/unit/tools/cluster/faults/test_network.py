"""A fault of the network that cannot be is refused in one sentence, before the proxy is asked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from minikafka.tools.cluster import ClusterError, LocalCluster
from minikafka.tools.cluster.directory import BrokerRecord, ClusterRecord, ProxyRecord
from minikafka.tools.cluster.launch.proxy import routes_of
from minikafka.tools.cluster.processes import ProcessId
from minikafka.tools.cluster.proxy.addresses import source_of
from minikafka.tools.cluster.proxy.rules import ZOOKEEPER

NOBODY = ProcessId(2**22, 1)
"""A process that does not exist: pids are below 2**22."""


def cluster_in(path: Path, protocol: str = "PLAINTEXT", *, has_proxy: bool = True) -> LocalCluster:
    """Return a cluster of brokers 1 and 2 that is not running."""
    cluster = LocalCluster(data=path)
    brokers = [
        BrokerRecord(id_, 0, 10 + id_, None, {"CLIENTS": id_}, {"CLIENTS": protocol})
        for id_ in (1, 2)
    ]
    proxy = ProxyRecord({}, NOBODY) if has_proxy else None
    record = ClusterRecord(tuple(brokers), "127.0.0.1:3", has_faults=has_proxy, proxy=proxy)
    cluster.directory.write(record)
    return cluster


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"api": "Produse"}, "there is no API 'Produse': did you mean Produce"),
        ({"api": "?"}, "there is no API '?': use the name in Kafka's protocol"),
        ({"n": 0}, "n must be a whole number of at least 1, got 0"),
        ({"broker": 3}, "there is no broker 3, the cluster has 1, 2"),
        ({"sender": 3}, "there is no broker 3, the cluster has 1, 2"),
        ({"sender": "zookeeper"}, "sender must be a broker id or clients, got 'zookeeper'"),
    ],
)
async def test_wait_for_requests_that_cannot_be_is_refused(
    tmp_path: Path, arguments: dict, text: str
):
    with pytest.raises(ClusterError, match=re.escape(text)):
        await cluster_in(tmp_path).after(**{"api": "Produce", **arguments})


async def test_wait_for_requests_is_refused_when_clients_connect_under_tls(tmp_path: Path):
    with pytest.raises(ClusterError, match="clients connect under TLS, which the proxy cannot"):
        await cluster_in(tmp_path, "SASL_SSL").after("Produce")


async def test_verbs_of_the_network_name_the_option_that_a_cluster_without_faults_lacks(
    tmp_path: Path,
):
    cluster = cluster_in(tmp_path, has_proxy=False)

    for verb in (cluster.cut(1, 2), cluster.after("Produce"), cluster.network_faults()):
        with pytest.raises(ClusterError, match=r"LocalCluster\(faults=True\)") as refused:
            await verb
        assert "minikafka up --faults" in refused.value.hint


async def test_heal_of_an_end_that_does_not_exist_is_refused(tmp_path: Path):
    with pytest.raises(ClusterError, match="there is no broker 9, the cluster has 1, 2"):
        await cluster_in(tmp_path).heal(9)


async def test_proxy_that_has_ended_is_named_with_what_starts_it_again(tmp_path: Path):
    with pytest.raises(ClusterError, match=f"process {NOBODY.pid}, has ended") as refused:
        await cluster_in(tmp_path).cut(1, 2)

    assert refused.value.hint == "minikafka up"


@pytest.mark.parametrize("secure", [False, True])
def test_brokers_with_faults_listen_behind_the_ports_that_they_advertise(
    tmp_path: Path, secure: bool
):
    launcher = LocalCluster(2, data=tmp_path, faults=True, secure=secure)._launcher()
    launcher.write(launcher.plan(None))
    record, directory = launcher.record, launcher.directory

    file = directory.broker_config(2)
    routes = {route.port: route for route in routes_of(directory, record)}

    assert file is not None
    advertised = {end.name: end.port for end in file.endpoints.advertised}
    assert advertised == record.broker(2).ports
    for end in (*file.endpoints.kafka, file.endpoints.control):
        assert routes[advertised[end.name]].behind == end.port
    assert file.minikafka_source_address == source_of(2)
    assert routes[record.broker(2).clients[0].port].is_plain is not secure
    assert routes[record.zookeeper_port].target == ZOOKEEPER


def test_file_of_a_broker_without_faults_has_no_key_of_them(tmp_path: Path):
    launcher = LocalCluster(1, data=tmp_path)._launcher()
    launcher.write(launcher.plan(None))

    text = launcher.directory.broker_file(1).read_text()

    assert "source.address" not in text
    assert "advertised.listeners" not in text
    assert launcher.record.proxy is None
