"""A broker as a service: when it is ready, how it stops, and the exit codes that say whether a restart helps."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands.commands import NEW_INTERPRETER, run

from minikafka import LocalCluster
from minikafka.client import Client, NewTopic, Record

pytestmark = pytest.mark.cluster
OWN = 9
LIMIT = 30.0


class Service:
    """A broker that is started by hand, with a socket in the place of a service manager."""

    def __init__(self, cluster: LocalCluster, directory: Path) -> None:
        self.directory = directory
        self.file = directory / "broker.toml"
        self.secret = (cluster.directory.path / "secret").read_text().strip()
        self.zookeeper = cluster.zookeeper
        self.configure()
        self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.manager.bind(f"{directory}/notify")
        self.manager.settimeout(LIMIT)
        self.process: subprocess.Popen[str] | None = None

    def configure(
        self, *, log_dir: str = "data", port: int = 0, zookeeper: str = "", more: str = ""
    ) -> None:
        lines = (
            "[broker]",
            f"broker.id = {OWN}",
            f'zookeeper.connect = "{zookeeper or self.zookeeper}"',
            f'minikafka.cluster.secret = "{self.secret}"',
            f'log.dirs = "{self.directory}/{log_dir}"',
            f'listeners = "PLAINTEXT://127.0.0.1:{port}"',
            more,
        )
        self.file.write_text("\n".join(lines))

    def start(self) -> str:
        """Start the broker; return its address when it has said that it is ready."""
        command = [*NEW_INTERPRETER, "broker", "--config", str(self.file), "--log-format", "json"]
        self.process = subprocess.Popen(
            command,
            env={**os.environ, "NOTIFY_SOCKET": f"{self.directory}/notify"},
            stdout=subprocess.PIPE,
            text=True,
        )
        ready, status = self.manager.recv(1_000).decode().split("\n")
        assert ready == "READY=1"
        return status.removeprefix("STATUS=serves on ")

    def signal(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)

    def end(self) -> tuple[int, list[str]]:
        """Wait for the end; return the exit code and the messages of the log."""
        assert self.process is not None
        out, _ = self.process.communicate(timeout=LIMIT)
        return self.process.returncode, [json.loads(line)["message"] for line in out.splitlines()]

    def exit_code(self) -> int | None:
        """Run the broker with its configuration, which must end by itself; return the exit code."""
        return run("broker", "--config", str(self.file), cwd=self.directory).code


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=1, config={"num.partitions": 1}) as made:
        yield made


@pytest.fixture
def service(cluster: LocalCluster, tmp_path: Path) -> Iterator[Service]:
    made = Service(cluster, tmp_path)
    yield made
    made.manager.close()
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.communicate()


async def test_broker_is_ready_when_clients_can_use_it_and_sigterm_moves_its_leaderships(
    cluster: LocalCluster, service: Service
) -> None:
    address = service.start()
    async with Client(address) as client:
        assert OWN in (await client.admin.describe_cluster()).brokers
        topic = NewTopic("moved", assignment={0: (OWN, 1)})
        [outcome] = (await client.admin.create_topics([topic])).values()
        assert outcome.ok
        await client.produce("moved", [Record(value=b"one")])
    service.signal()
    assert service.manager.recv(1_000).startswith(b"STOPPING=1\n")
    code, messages = service.end()
    assert code == 0
    assert messages[-1] == f"broker {OWN} has stopped"
    moved = f"[Broker id={OWN}] partition moved-0 is follower leader=1 epoch=1 isr=[1]"
    assert moved in messages


def test_second_sigterm_ends_the_broker_at_once(cluster: LocalCluster, service: Service) -> None:
    service.start()
    cluster.pause(1)  # the controller, whose answer a controlled shutdown needs
    try:
        service.signal()
        assert service.manager.recv(1_000).startswith(b"STOPPING=1\n")
        service.signal()
        code, messages = service.end()
    finally:
        cluster.resume(1)
    assert code == 130
    assert "second signal" in messages[-1]


def test_exit_code_says_whether_a_restart_can_help(
    cluster: LocalCluster, service: Service, tmp_path: Path
) -> None:
    used = int(cluster.bootstrap.rpartition(":")[2])
    service.configure(log_dir="other", port=used)
    assert service.exit_code() == 1, "the other process may end"
    service.configure(log_dir="file/below")
    (tmp_path / "file").write_text("")
    assert service.exit_code() == 1, "the disk may be repaired"
    service.configure(zookeeper="127.0.0.1:1", more="zookeeper.connection.timeout.ms = 300")
    assert service.exit_code() == 1, "ZooKeeper may come back"
    service.configure(more="log.retention.byte = 1")
    assert service.exit_code() == 2, "the key stays wrong"
    properties = tmp_path / "foreign" / "meta.properties"
    properties.parent.mkdir()
    properties.write_text("version=0\nbroker.id=8\n")
    service.configure(log_dir="foreign")
    assert service.exit_code() == 2, "the data stay those of another broker"
