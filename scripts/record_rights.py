"""Record what Apache Kafka 3.9 answers to users with and without rights, as facts for the tests.

    MINIKAFKA_KAFKA_JARS=DIR record_rights.py

Starts one broker of Kafka with AclAuthorizer and SASL PLAIN, and a ZooKeeper; sends every request of
`tests/support/security/right_scenes.py`; and writes `tests/support/security/kafka_rights.txt`. It takes about a minute.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support.clusters.apache_kafka import HOST, JARS, QUICK
from support.security import right_scenes as scenes

from minikafka.kafka.wire import versions
from minikafka.kafka.wire.codec import decode_response, encode_request, request
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.runtime.spawning import die_with
from minikafka.tools.cluster.ports import free_ports
from minikafka.zookeeper.processes.apache import ApacheZooKeeper

SECRET = "secret"
START_SECONDS = 60
ANSWER_SECONDS = 10
PRINCIPALS = {user: f"u{number}" for number, user in enumerate(scenes.USERS)}


def main() -> None:
    """Record the answers of Kafka."""
    if not JARS:
        sys.exit("MINIKAFKA_KAFKA_JARS must name a directory with the jars of Apache Kafka 3.9")
    with tempfile.TemporaryDirectory() as directory:
        found = asyncio.run(record(Path(directory)))
    scenes.FILE.write_text("".join(f"{line}\n" for line in found))
    print(f"{len(found)} facts in {scenes.FILE}")


async def record(directory: Path) -> list[str]:
    """Run Kafka and return the facts about its answers."""
    port, own = free_ports(2, SystemRng())
    zookeeper = ApacheZooKeeper(directory / "zookeeper", port, clock=SystemClock())
    await zookeeper.start()
    try:
        properties = directory / "server.properties"
        properties.write_text(settings(directory, zookeeper.connect, own))
        command = ("java", *QUICK, "-cp", f"{JARS}/*", "kafka.Kafka", str(properties))
        with (directory / "server.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *command, stdout=log, stderr=log, preexec_fn=partial(die_with, os.getpid())
            )
        try:
            return await asyncio.to_thread(recorded, own)
        except BaseException:
            print((directory / "server.log").read_text()[-4_000:], file=sys.stderr)
            raise
        finally:
            process.kill()
            await process.wait()
    finally:
        await zookeeper.kill()


def settings(directory: Path, connect: str, port: int) -> str:
    """Return the text of the properties of the broker."""
    users = " ".join(f'user_{name}="{SECRET}"' for name in (scenes.ADMIN, *PRINCIPALS.values()))
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    jaas = f'{module} required username="{scenes.ADMIN}" password="{SECRET}" {users};'
    keys = {
        "broker.id": scenes.BROKER_ID,
        "listeners": f"SASL_PLAINTEXT://{HOST}:{port}",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": f"User:{scenes.ADMIN}",
        "log.dirs": directory / "logs",
        "zookeeper.connect": connect,
        "offsets.topic.num.partitions": 1,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
        "delegation.token.secret.key": scenes.TOKEN_SECRET,
    }
    return "".join(f"{key}={value}\n" for key, value in keys.items())


class Session:
    """An authenticated connection of one user."""

    def __init__(self, port: int, user: str) -> None:
        self.socket = socket.create_connection((HOST, port), timeout=ANSWER_SECONDS)
        self.send(struct.pack(">hhih", 17, 1, 1, -1) + struct.pack(">h", 5) + b"PLAIN")
        token = f"\0{user}\0{SECRET}".encode()
        answer = self.send(
            struct.pack(">hhih", 36, 0, 2, -1) + struct.pack(">i", len(token)) + token
        )
        if answer[4:6] != b"\0\0":
            raise OSError(f"{user} was refused: {answer!r}")

    def send(self, frame: bytes) -> bytes:
        """Send a request without its length; return the response without its length."""
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)
        return self.receive()

    def receive(self) -> bytes:
        """Return the next response."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise ConnectionResetError("the broker has closed the connection")
            data += piece
        return data

    def ask(self, api: int, version: int, **values: Any) -> Any:
        """Send a request and return the decoded response."""
        frame = encode_request(api, version, 7, "admin", request(api, version, **values))
        self.socket.sendall(frame)
        return decode_response(api, version, self.receive())


def recorded(port: int) -> list[str]:
    """Return the facts about the answers of the broker."""
    admin = started(port)

    async def ask(api: int, version: int, **values: Any) -> Any:
        return admin.ask(api, version, **values)

    ids = asyncio.run(scenes.prepare(ask, PRINCIPALS))
    found: list[str] = []
    for scene in scenes.SCENES:
        for user in scenes.users_of(scenes.name_of(scene.api)):
            session = Session(port, PRINCIPALS[user])
            session.socket.sendall(scene.frame(user, ids))
            try:
                facts = scenes.facts(scene, session.receive(), ids)
            except ConnectionResetError:
                facts = ["closed"]
            except TimeoutError:
                facts = ["silent"]
                print(f"no answer: {scene.name} {scenes.name_of(scene.api)} {user}")
            found += scenes.lines(scene, user, facts)
            session.socket.close()
    return found


def started(port: int) -> Session:
    """Return a connection of the administrator, when the broker is the controller."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        try:
            session = Session(port, scenes.ADMIN)
            known = session.ask(versions.METADATA, 1, topics=[])
            if known.controller_id == scenes.BROKER_ID:
                return session
        except OSError:
            pass
        time.sleep(0.2)
    raise TimeoutError("Kafka did not start")


if __name__ == "__main__":
    main()
