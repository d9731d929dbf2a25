"""Java clients of ZooKeeper with certificates and passwords, on minikafka's own server and on Apache ZooKeeper.

Where MINIKAFKA_KAFKA_JARS names a directory with the jars of Kafka 3.9, a broker of Kafka with `zookeeper.set.acl` runs
on each server too.
"""

from __future__ import annotations

import asyncio
import os
import re
from functools import partial
from pathlib import Path
from typing import Final

import pyspark
import pytest
from support.clusters.apache_kafka import JARS, QUICK, _wait_until_registered, needs_kafka, run_java
from support.security.certificates import PASSWORD, Certificate
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

from minikafka.client import Client, NewTopic
from minikafka.runtime.clock import SystemRng
from minikafka.runtime.spawning import die_with
from minikafka.tools.cluster import LocalCluster
from minikafka.tools.cluster.ports import free_ports
from minikafka.zookeeper.nodes.secure_nodes import secure_acl
from minikafka.zookeeper.processes.apache import find_java

MAIN: Final = "org.apache.zookeeper.ZooKeeperMain"
CLASS_PATH: Final = os.pathsep.join(
    str(jar)
    for name in ("zookeeper", "slf4j-api", "commons-cli", "netty")
    for jar in (Path(pyspark.__file__).parent / "jars").glob(f"{name}-*.jar")
)
COMMANDS: Final = """\
create /own x auth::cdrwa
getAcl /own
set /own y
whoami
create /reader x world:anyone:r
set /reader y
delete /reader
quit
"""
ALICE: Final = ("x509", "CN=alice,OU=Data,O=Example")
_NOISE: Final = re.compile("WATCHER|Watched|^WARNING|io[.]netty")
SERVERS: Final = (SecureApache, SecureEmbedded)


def jaas(directory: Path, user: str, password: str) -> Path:
    path = directory / f"{user}.conf"
    path.write_text(
        f'Client {{ {DIGEST_MODULE} required username="{user}" password="{password}"; }};\n'
    )
    return path


def tls_flags(material: Material, certificate: Certificate) -> list[str]:
    return [
        "-Dzookeeper.client.secure=true",
        "-Dzookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty",
        f"-Dzookeeper.ssl.keyStore.location={certificate.pkcs12}",
        f"-Dzookeeper.ssl.keyStore.password={PASSWORD}",
        f"-Dzookeeper.ssl.trustStore.location={material.authority.pkcs12}",
        f"-Dzookeeper.ssl.trustStore.password={PASSWORD}",
    ]


async def printed(connect: str, *flags: str, commands: str = COMMANDS) -> list[str]:
    """Run the commands with ZooKeeper's command-line client; return the sorted lines that it prints to both outputs."""
    process = await asyncio.create_subprocess_exec(
        str(find_java()), *QUICK, "-Dzookeeper.fips-mode=false", *flags, "-cp", CLASS_PATH, MAIN, "-server", connect,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await process.communicate(commands.encode())
    text = re.sub(r"([cm]time =).*", r"\1", output.decode().replace(connect, "SERVER"))
    lines = [line.strip() for line in text.splitlines()]
    start = next(i for i, line in enumerate(lines) if line.startswith("JLine")) + 1
    return sorted(line for line in lines[start:] if line and not _NOISE.search(line))


@pytest.mark.parametrize("how", ["certificate", "password", "both", "wrong password"])
async def test_java_client_prints_the_same_as_on_apache_zookeeper(tmp_path: Path, how: str):
    found = []
    for kind in SERVERS:
        directory = tmp_path / kind.__name__
        material = Material(directory / "ca")
        server = secure_server(kind, directory / "server", material)
        flags, port = [], server.port
        if how in ("certificate", "both"):
            flags += tls_flags(material, material.authority.client("alice"))
            port = server.secure_port
        if how != "certificate":
            password = "wrong" if how == "wrong password" else USERS["alice"]
            file = jaas(directory, "alice", password)
            flags.append(f"-Djava.security.auth.login.config={file}")
        await server.start()
        try:
            found.append(await printed(f"{HOST}:{port}", *flags))
        finally:
            await server.stop()
    apache, embedded = found
    text = "\n".join(embedded)
    if how == "wrong password":
        assert not any("Created" in line for line in (*apache, *embedded))
        return
    assert embedded == apache
    assert "Insufficient permission : /reader" in text
    assert ("'x509,'CN=alice" in text) == (how != "password")
    assert ("'sasl,'alice" in text) == (how != "certificate")


def acls_of(port: int) -> dict[str, tuple[tuple[int, str, str], ...]]:
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
            found[path] = tuple(client.request(1, wire.GET_ACL, wire.text(path)).body[0])
    client.close()
    return found


@needs_kafka
@pytest.mark.parametrize("kind", SERVERS)
async def test_kafka_gives_its_nodes_the_lists_that_minikafka_gives(tmp_path: Path, kind: type):
    material = Material(tmp_path / "ca")
    server = secure_server(kind, tmp_path / "server", material)
    [port] = free_ports(1, SystemRng())
    keys = {
        "broker.id": 1,
        "listeners": f"PLAINTEXT://{HOST}:{port}",
        "log.dirs": tmp_path / "logs",
        "offsets.topic.replication.factor": 1,
        "delegation.token.secret.key": "a-secret-of-tokens",
        "zookeeper.connect": f"{HOST}:{server.secure_port}",
        "zookeeper.set.acl": "true",
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
        "zookeeper.ssl.keystore.location": material.authority.client("alice").pkcs12,
        "zookeeper.ssl.keystore.password": PASSWORD,
        "zookeeper.ssl.truststore.location": material.authority.pkcs12,
        "zookeeper.ssl.truststore.password": PASSWORD,
    }
    properties = tmp_path / "server.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    file = jaas(tmp_path, "alice", USERS["alice"])
    login = f"-Djava.security.auth.login.config={file}"
    await server.start()
    try:
        with (tmp_path / "kafka.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                "java", *QUICK, login, "-cp", f"{JARS}/*", "kafka.Kafka", str(properties),
                stdout=log, stderr=log, preexec_fn=partial(die_with, os.getpid()),
            )  # fmt: skip
        try:
            await _wait_until_registered(f"{HOST}:{port}", process)
            for entity, name in (("users", "alice"), ("brokers", "1"), ("clients", "c")):
                setting = (
                    "log.cleaner.threads=1" if entity == "brokers" else "producer_byte_rate=1024"
                )
                await run_java(
                    "kafka.admin.ConfigCommand", "--bootstrap-server", f"{HOST}:{port}", "--alter",
                    "--entity-type", entity, "--entity-name", name, "--add-config", setting,
                )  # fmt: skip
        finally:
            process.kill()
            await process.wait()
        found = acls_of(server.port)
    finally:
        await server.stop()
    assert {"/config/users/alice", "/brokers/ids", "/delegation_token/tokens"} <= found.keys()
    own = {(31, *ALICE), (31, "sasl", "alice")}
    for path, acl in found.items():
        expected = {
            entry
            for bits, scheme, name in secure_acl(path)
            for entry in (own if scheme == "auth" else [(bits, scheme, name)])
        }
        assert set(acl) == expected, path


@needs_kafka
async def test_nodes_of_a_cluster_are_closed_by_kafkas_migrator_and_set_acl(tmp_path: Path):
    """Kafka's tool does not know the nodes below /leaders and /minikafka."""
    material = Material(tmp_path / "ca")
    server = secure_server(SecureEmbedded, tmp_path / "server", material)
    alice, connect = material.authority.client("alice"), f"{HOST}:{server.secure_port}"
    keys = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
        "zookeeper.ssl.keystore.location": str(alice.pkcs12),
        "zookeeper.ssl.keystore.password": PASSWORD,
        "zookeeper.ssl.truststore.location": str(material.authority.pkcs12),
        "zookeeper.ssl.truststore.password": PASSWORD,
    }
    file = tmp_path / "tls.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    await server.start()
    cluster = LocalCluster(
        1, data=tmp_path / "cluster", config=keys, coordination="leaders", zookeeper=connect
    )
    try:
        await cluster.start()
        assert set(acls_of(server.port).values()) == {((31, "world", "anyone"),)}
        await run_java(
            "kafka.admin.ZkSecurityMigrator", "--zookeeper.acl=secure",
            "--zookeeper.connect", connect, "--zk-tls-config-file", str(file),
        )  # fmt: skip
        commands = "".join(
            f"setAcl -R /{own} auth::cdrwa,world:anyone:r\n" for own in ("leaders", "minikafka")
        )
        await printed(connect, *tls_flags(material, alice), commands=f"{commands}quit\n")
        found = acls_of(server.port)
        async with Client(cluster.bootstrap) as client:
            await client.create_topics(NewTopic("orders", 1))
    finally:
        await cluster.stop()
        await server.stop()
    assert {"/leaders/brokers/ids/1", "/config/users", "/brokers"} <= found.keys()
    for path, acl in found.items():
        expected = {
            (bits, *(ALICE if scheme == "auth" else (scheme, name)))
            for bits, scheme, name in secure_acl(path)
        }
        assert set(acl) == expected, path
