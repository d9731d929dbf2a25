"""Real brokers with one listener per security protocol, and the properties with which librdkafka connects to each."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from support.commands.forks import BROKER, ForkedProcess, fork, fork_server_of
from support.security.certificates import PASSWORD, Authority, Certificate

from minikafka.runtime.clock import SystemRng
from minikafka.tools.cluster.ports import free_ports

LISTENERS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
USERS: Final = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="broker" password="broker-secret" user_broker="broker-secret" user_alice="alice-secret";'
)
READY_SECONDS: Final = 60.0


class SecuredBrokers:
    """Processes of ZooKeeper and of brokers, used as `with SecuredBrokers(…)`. `between`: the inter-broker protocol.

    `changes`: keys of all brokers that differ from `write_file`.
    """

    def __init__(
        self,
        directory: Path,
        between: str,
        brokers: int = 3,
        listeners: tuple[str, ...] = LISTENERS,
        changes: Mapping[str, object] | None = None,
    ) -> None:
        self._changes = changes or {}
        self.directory = directory
        self.authority = Authority(directory / "ca")
        self.foreign = Authority(directory / "foreign", "foreign")
        self._between = between
        self._changes = changes or {}
        self.listeners = listeners
        """The listeners of a broker whose file is written next."""
        self._server = self.authority.server("localhost")
        zookeeper, *ports = free_ports(1 + 5 * brokers, SystemRng())
        self._zookeeper = zookeeper
        self._ports = {id_ + 1: ports[5 * id_ : 5 * id_ + 5] for id_ in range(brokers)}
        self._processes: dict[object, ForkedProcess] = {}

    def __enter__(self) -> Self:
        self.start_zookeeper()
        for id_ in self._ports:
            self.write_file(id_)
            self.start(id_)
        for id_ in self._ports:
            self.wait_until_ready(id_)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    def start_zookeeper(self) -> None:
        """Start ZooKeeper."""
        data, port = str(self.directory / "zookeeper"), str(self._zookeeper)
        self._run("zookeeper", "zookeeper", "--data", data, "--port", port)

    def wait(self, id_: int) -> int:
        """Wait until a broker has ended; return its exit code."""
        return self._processes[id_].wait(READY_SECONDS)

    def control_port(self, id_: int) -> int:
        """Return the port of a broker's control listener."""
        return self._ports[id_][-1]

    def start(self, id_: int) -> None:
        """Start a broker, or start it again."""
        self._run(id_, "broker", "--config", str(self._file(id_)))

    @property
    def ids(self) -> list[int]:
        """The ids of the brokers."""
        return list(self._ports)

    def stop(self, id_: int) -> None:
        """Stop a broker, which first hands over its leaderships."""
        self._processes[id_].terminate()
        assert self._processes.pop(id_).wait(READY_SECONDS) == 0

    def kill(self, id_: int) -> None:
        """Kill a broker."""
        self._processes[id_].send_signal(signal.SIGKILL)
        self._processes.pop(id_).wait()

    def log(self, id_: int) -> str:
        """Return what a broker has printed."""
        return (self.directory / f"{id_}.log").read_text()

    def verdicts(self, id_: int) -> str:
        """Return the log of a broker's authorizer, "" if there is none."""
        file = self.directory / f"data-{id_}-ledger" / "kafka-authorizer.log"
        return file.read_text() if file.exists() else ""

    def wait_until_ready(self, id_: int) -> None:
        """Wait until a broker serves."""
        deadline = time.monotonic() + READY_SECONDS
        while f"broker {id_} serves on" not in self.log(id_):
            assert self._processes[id_].poll() is None, self.log(id_)
            assert time.monotonic() < deadline, self.log(id_)
            time.sleep(0.05)

    def replace_certificate(self, new: Certificate) -> None:
        """Write another key and certificate into the keystore of the brokers, which they read while they run."""
        self._server.pkcs12.write_bytes(new.pkcs12.read_bytes())

    def served(self, port: int) -> bytes:
        """Return the certificate that new connections to a port get."""
        context = ssl.create_default_context(cafile=str(self.authority.pem))
        with (
            socket.create_connection(("localhost", port), timeout=READY_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secured,
        ):
            return secured.getpeercert(binary_form=True) or b""

    def bootstrap(self, listener: str) -> str:
        """Return the addresses of a listener of all brokers."""
        at = LISTENERS.index(listener)
        return ",".join(f"localhost:{ports[at]}" for ports in self._ports.values())

    def properties(self, listener: str, user: str = "alice") -> dict[str, Any]:
        """Return the configuration of librdkafka for a listener."""
        found: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap(listener),
            "security.protocol": listener,
        }
        if listener.endswith("SSL"):
            found["ssl.ca.location"] = str(self.authority.pem)
        if listener == "SSL":
            own = self.authority.client(user)
            found["ssl.certificate.location"] = str(own.chain_file)
            found["ssl.key.location"] = str(own.key_file)
        if listener.startswith("SASL"):
            found |= {"sasl.mechanism": "PLAIN", "sasl.username": user}
            found["sasl.password"] = f"{user}-secret"
        return found

    def _run(self, name: object, *arguments: str) -> None:
        with (
            (self.directory / f"{name}.log").open("w") as log,
            Path("/dev/null").open() as nothing,
        ):
            forked = fork(
                fork_server_of(BROKER),
                arguments,
                [nothing.fileno(), log.fileno(), log.fileno()],
                directory=Path.cwd(),
                environment=os.environ,
            )
        self._processes[name] = ForkedProcess(forked)

    def _file(self, id_: int) -> Path:
        return self.directory / f"{id_}.toml"

    def write_file(self, id_: int, changes: Mapping[str, object] = {}) -> None:
        """Write the configuration of a broker."""
        ports = zip((*LISTENERS, "CONTROLLER"), self._ports[id_], strict=True)
        served = {*self.listeners, "CONTROLLER"}
        keys = {
            "broker.id": id_,
            "zookeeper.connect": f"127.0.0.1:{self._zookeeper}",
            "minikafka.cluster.secret": "the secret of the test",
            "log.dir": str(self.directory / f"data-{id_}"),
            "listeners": ",".join(
                f"{name}://localhost:{port}" for name, port in ports if name in served
            ),
            "security.inter.broker.protocol": self._between,
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": USERS,
            "listener.name.sasl_ssl.plain.sasl.jaas.config": USERS,
            "ssl.keystore.location": str(self._server.pkcs12),
            "ssl.keystore.password": PASSWORD,
            "ssl.truststore.location": str(self.authority.pem),
            "listener.name.ssl.ssl.client.auth": "required",
            "default.replication.factor": len(self._ports),
            "min.insync.replicas": 2,
            "zookeeper.session.timeout.ms": 6_000,
        }
        changed = {**keys, **self._changes, **changes}
        lines = [f"{json.dumps(name)} = {json.dumps(value)}" for name, value in changed.items()]
        self._file(id_).write_text("\n".join(["[broker]", *lines, ""]))
