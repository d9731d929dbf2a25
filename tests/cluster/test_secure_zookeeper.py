"""Real brokers at a ZooKeeper that lets in only them: certificates, logins, and nodes that only brokers change."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from support.commands.commands import call
from support.rows import proof
from support.security.certificates import PASSWORD
from support.security.secure_zookeepers import (
    DIGEST_MODULE,
    HOST,
    USERS,
    Material,
    SecureApache,
    SecureEmbedded,
    secure_server,
)
from support.zookeeper import bytes as wire
from support.zookeeper.bytes import Wire

from minikafka.tools.cluster import LocalCluster
from minikafka.zookeeper.nodes.secure_nodes import secure_acl

CERTIFICATE = ("x509", "CN=broker,OU=Data,O=Example")
USER = ("sasl", "alice")
RECORDS = 200


def broker_keys(material: Material) -> dict[str, object]:
    return {
        "default.replication.factor": 3,
        "min.insync.replicas": 2,
        "offsets.topic.num.partitions": 1,
        "zookeeper.session.timeout.ms": 10_000,
        "zookeeper.connection.timeout.ms": 40_000,
        "zookeeper.set.acl": True,
        "zookeeper.ssl.client.enable": True,
        "zookeeper.ssl.keystore.location": str(material.authority.client("broker").pkcs12),
        "zookeeper.ssl.keystore.password": PASSWORD,
        "zookeeper.ssl.truststore.location": str(material.authority.pem),
        "minikafka.zookeeper.jaas.config": (
            f'{DIGEST_MODULE} required username="alice" password="{USERS["alice"]}";'
        ),
    }


def acls(port: int) -> dict[str, set[tuple[int, str, str]]]:
    """Return the lists of all nodes but the server's own, as the super user reads them."""
    client = Wire(port)
    client.connect(10_000)
    client.request(1, wire.AUTH, wire.integer(0) + wire.text("digest") + wire.data(b"super:admin"))
    found, waiting = {}, ["/"]
    while waiting:
        path = waiting.pop()
        children = client.request(1, wire.CHILDREN, wire.text(path) + b"\0").body[0]
        waiting += [f"{path.rstrip('/')}/{name}" for name in children if name != "zookeeper"]
        if path != "/":
            found[path] = set(client.request(1, wire.GET_ACL, wire.text(path)).body[0])
    client.close()
    return found


def expected(path: str) -> set[tuple[int, str, str]]:
    found: set[tuple[int, str, str]] = set()
    for bits, scheme, name in secure_acl(path):
        found |= (
            {(bits, *CERTIFICATE), (bits, *USER)} if scheme == "auth" else {(bits, scheme, name)}
        )
    return found


def stranger(port: int, path: str) -> int:
    """Return the error of a write by a client that has no identity."""
    client = Wire(port)
    client.connect(10_000)
    record = wire.text(path) + wire.data(b"forged") + wire.integer(-1)
    error = client.request(1, wire.SET, record).error
    client.close()
    return error


def produce(bootstrap: str, first: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(first, first + RECORDS):
        producer.produce("orders", b"%d" % number)
    assert producer.flush(60) == 0


def consume(bootstrap: str, count: int) -> set[int]:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "readers",
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 6_000,
    }
    consumer, found = Consumer(settings), set[int]()
    consumer.subscribe(["orders"])
    end = time.monotonic() + 60
    while len(found) < count and time.monotonic() < end:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.add(int(message.value()))
    consumer.close()
    return found


@pytest.mark.parametrize("mode", ["controller", "leaders"])
@pytest.mark.parametrize("kind", [SecureApache, SecureEmbedded])
async def test_brokers_own_all_their_nodes_and_survive_restarts(
    tmp_path: Path, kind: type[SecureApache] | type[SecureEmbedded], mode: str
) -> None:
    proof.note(proof.Level.REAL, mode)
    material = Material(tmp_path / "ca")
    server = secure_server(kind, tmp_path / "server", material)
    server.client_auth = "need"
    await server.start()
    cluster = LocalCluster(
        3,
        data=tmp_path / "cluster",
        config=broker_keys(material),
        coordination=mode,
        zookeeper=f"{HOST}:{server.secure_port}",
    )
    try:
        await cluster.start()
        bootstrap = cluster.bootstrap
        admin = AdminClient({"bootstrap.servers": bootstrap})
        await asyncio.to_thread(
            lambda: admin.create_topics([NewTopic("orders", 3)])["orders"].result(60)
        )
        await asyncio.to_thread(produce, bootstrap, 0)
        await cluster.kill(1)
        await asyncio.to_thread(produce, bootstrap, RECORDS)
        await server.stop()
        await server.start()
        await cluster.start(1)
        await asyncio.to_thread(produce, bootstrap, 2 * RECORDS)
        assert await asyncio.to_thread(consume, bootstrap, 3 * RECORDS) == set(range(3 * RECORDS))
        found = acls(server.port)
        assert len(found) > 20
        for path, acl in found.items():
            assert acl == expected(path), path
        assert {stranger(server.port, path) for path in found if path != "/consumers"} == {-102}
    finally:
        await cluster.stop()
        await server.stop()


async def test_commands_connect_as_the_brokers_or_as_a_file_says(tmp_path: Path) -> None:
    proof.note(proof.Level.REAL, "leaders")
    material = Material(tmp_path / "ca")
    server = secure_server(SecureEmbedded, tmp_path / "server", material)
    server.client_auth = "need"
    await server.start()
    keys = broker_keys(material) | {"default.replication.factor": 1, "min.insync.replicas": 1}
    data, connect = tmp_path / "cluster", f"{HOST}:{server.secure_port}"
    cluster = LocalCluster(1, data=data, config=keys, coordination="leaders", zookeeper=connect)
    file = tmp_path / "zookeeper.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    wrong = tmp_path / "wrong.properties"
    wrong.write_text(file.read_text().replace(USERS["alice"], "wrong-secret"))
    try:
        await cluster.start()
        as_brokers = await call("brokers", "add", "7", "--data", str(data))
        assert (as_brokers.code, as_brokers.out) == (0, "broker 7 was added\n")
        add = ("brokers", "add", "8", "--zookeeper", connect)
        assert (await call(*add, "--zk-tls-config-file", str(file))).out == "broker 8 was added\n"
        assert (await call("brokers", "remove", "8", "--data", str(data))).code == 0
        refused = await call(*add, "--zk-tls-config-file", str(wrong))
        assert refused.code == 1
        assert "alice of minikafka.zookeeper.jaas.config" in refused.err
        assert (await call(*add)).code == 1
    finally:
        await cluster.stop()
        await server.stop()


def logs_with(directory: Path, text: str) -> list[Path]:
    return [log for log in directory.rglob("*.log") if text in log.read_text(errors="replace")]


async def test_broker_with_a_wrong_password_ends_with_the_key(tmp_path: Path) -> None:
    material = Material(tmp_path / "ca")
    server = secure_server(SecureEmbedded, tmp_path / "server", material)
    await server.start()
    keys = broker_keys(material)
    keys["minikafka.zookeeper.jaas.config"] = str(keys["minikafka.zookeeper.jaas.config"]).replace(
        USERS["alice"], "wrong-secret"
    )
    cluster = LocalCluster(
        1, data=tmp_path / "cluster", config=keys, zookeeper=f"{HOST}:{server.secure_port}"
    )
    try:
        with pytest.raises(
            Exception, match=r"alice of minikafka\.zookeeper\.jaas\.config"
        ) as ended:
            await cluster.start()
        assert "wrong-secret" not in str(ended.value)
        assert logs_with(tmp_path, "wrong-secret") == []
    finally:
        await cluster.stop()
        await server.stop()
