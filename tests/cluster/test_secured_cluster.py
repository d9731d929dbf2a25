"""A cluster whose brokers encrypt and authenticate, started by LocalCluster and watched by the tools."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from support.commands.commands import Ended
from support.commands.commands import run as command
from support.security.certificates import PASSWORD, Authority
from support.security.metrics_page import read_page
from support.security.secured_brokers import USERS

from minikafka.runtime.clock import SystemClock
from minikafka.tools.cli.cluster.certificates import certificate_notes
from minikafka.tools.cluster import ClusterError, LocalCluster
from minikafka.tools.cluster.local import BlockingCluster

CONFIG = {
    "security.inter.broker.protocol": "SASL_SSL",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.sasl_ssl.plain.sasl.jaas.config": USERS,
    "ssl.keystore.password": PASSWORD,
    "default.replication.factor": 2,
    "min.insync.replicas": 2,
}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def cluster(authority: Authority) -> Iterator[BlockingCluster]:
    """Yield two brokers without a listener PLAINTEXT, whose certificate ends in ten days."""
    files = {
        "ssl.keystore.location": str(authority.ending("broker", 10, "127.0.0.1").pkcs12),
        "ssl.truststore.location": str(authority.pem),
    }
    listeners = {"SASL_SSL": 0, "SSL": 0}
    with LocalCluster(brokers=2, config={**CONFIG, **files}, listeners=listeners) as started:
        yield started


def properties(cluster: BlockingCluster, authority: Authority) -> dict[str, object]:
    return {
        "bootstrap.servers": cluster.bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(authority.pem),
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "alice-secret",
    }


def test_clients_and_tools_use_a_cluster_without_plaintext(
    cluster: BlockingCluster, authority: Authority
) -> None:
    assert cluster.record.listener_names == ("SASL_SSL", "SSL")
    assert cluster.bootstrap == cluster.bootstrap_of("SASL_SSL") != cluster.bootstrap_of("SSL")
    found = properties(cluster, authority)
    admin = AdminClient(found)
    admin.create_topics([NewTopic("events", 2)])["events"].result(30)
    producer = Producer({**found, "acks": "all"})
    for number in range(10):
        producer.produce("events", b"%d" % number)
    assert producer.flush(30) == 0
    cluster.wait_for_isr("events", [1, 2])
    assert cluster.leader_of("events", 0) in (1, 2)
    before = cluster.record.brokers
    cluster.restart(2)
    cluster.wait_until_in_sync()
    assert [broker.ports for broker in cluster.record.brokers] == [one.ports for one in before]


def test_brokers_are_asked_about_an_unknown_topic_as_brokers_ask_each_other(
    cluster: BlockingCluster,
) -> None:
    with pytest.raises(ClusterError, match=r"^there is no partition never-made-0$"):
        cluster.leader_of("never-made", 0)


def test_control_listener_is_encrypted_if_brokers_encrypt_between_each_other(
    cluster: BlockingCluster, authority: Authority
) -> None:
    assert [broker.control.security.value for broker in cluster.record.brokers] == ["SSL", "SSL"]
    for url in cluster.metrics_urls.values():
        assert url.startswith("https://127.0.0.1:")
        text = read_page(url, authority, "alice:alice-secret")
        assert 'kafka_server_kafkaserver_certificateexpiryms{file="' in text


def test_certificate_that_expires_soon_is_reported_with_its_file(cluster: BlockingCluster) -> None:
    notes = certificate_notes(cluster.state().answers, SystemClock().wall_ms())
    [note] = notes
    assert note.startswith("the certificate CN=broker,OU=Data,O=Example in ")
    assert "-broker.p12 expires in 9 days, on " in note
    assert "(brokers 1, 2)" in note


def minikafka(cluster: BlockingCluster, *words: str) -> Ended:
    """Run a command on the cluster."""
    return command(*words, "--data", str(cluster.directory.path), cwd=cluster.directory.path)


def test_commands_that_examine_the_cluster_need_no_file_with_a_login(
    cluster: BlockingCluster,
) -> None:
    health = minikafka(cluster, "cluster", "health")
    assert health.out.startswith("healthy\n"), health
    status = minikafka(cluster, "status")
    assert cluster.bootstrap in status.out, status
    why = minikafka(cluster, "why", "--group", "nobody")
    assert "there is no group nobody" in why.err, why


def test_other_commands_say_that_they_need_a_file_with_a_login(
    cluster: BlockingCluster, authority: Authority, tmp_path: Path
) -> None:
    refused = minikafka(cluster, "groups", "list")
    assert (refused.code, refused.out) == (1, "")
    assert "security.protocol=SASL_SSL (--command-config FILE)" in refused.err
    file = tmp_path / "client.properties"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    login = f'{module} username="alice" password="alice-secret";'
    file.write_text(
        f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config={login}\n"
        f"ssl.truststore.location={authority.pem}\n"
    )
    listed = minikafka(cluster, "groups", "list", "--command-config", str(file))
    assert listed.code == 0, listed


def test_secrets_are_in_no_log(cluster: BlockingCluster) -> None:
    for log in cluster.directory.logs.iterdir():
        assert "-secret" not in log.read_text()
    assert PASSWORD not in "".join(log.read_text() for log in cluster.directory.logs.iterdir())


def test_wrong_certificate_is_named_when_the_cluster_does_not_start(
    authority: Authority, tmp_path: Path
) -> None:
    config = {
        **CONFIG,
        "ssl.keystore.location": str(tmp_path / "missing.p12"),
        "ssl.truststore.location": str(authority.pem),
    }
    cluster = LocalCluster(brokers=2, config=config, listeners={"SASL_SSL": 0})
    with pytest.raises(ClusterError, match=r"ssl\.keystore\.location: .*missing\.p12 cannot be"):
        cluster.__enter__()
