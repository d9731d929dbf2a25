"""Login and access control lists of the client, against minikafka's own server in memory."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import pytest

from minikafka.base.encryption import Tls
from minikafka.base.errors import NotConnected, ZooKeeperLoginRefused
from minikafka.base.ports import Create, Set, StreamHandler
from minikafka.runtime.tasks import TaskRegistry, ThreadExecutor
from minikafka.simulation.clocks import LoopClock
from minikafka.simulation.loop import run_seeded
from minikafka.simulation.ports import SeededRng
from minikafka.simulation.transport import MemoryTransport
from minikafka.zookeeper.client.access import ZooKeeperAccess, ZooKeeperLogin
from minikafka.zookeeper.client.client import ZooKeeperClient
from minikafka.zookeeper.messages.jute import ANYONE
from minikafka.zookeeper.nodes.secure_nodes import secure_acl
from minikafka.zookeeper.server.authentication import ClientAuthentication
from minikafka.zookeeper.server.connection import ServerConnection
from minikafka.zookeeper.server.server import ZooKeeperServer

HOST, PORT = "127.0.0.1", 2181
PASSWORD = "alice-secret"
KEY = "minikafka.zookeeper.jaas.config"
ALICE = ("sasl", "alice")
OWN = ((31, *ALICE), (1, "world", "anyone"))


class Scene:
    """A server, and clients of it. `requests`: the names of the requests of each connection."""

    def __init__(self, authentication: ClientAuthentication, transport: MemoryTransport) -> None:
        self.transport = transport
        self.failures: list[str] = []
        self.tasks = TaskRegistry()
        self.server = ZooKeeperServer(
            None,
            LoopClock(),
            SeededRng(1),
            self.transport,
            self.tasks,
            ThreadExecutor(),
            authentication=authentication,
            on_failure=self.failures.append,
        )

    def client(
        self, password: str = PASSWORD, chroot: str = "", ports: str = ""
    ) -> ZooKeeperClient:
        rng = SeededRng(2)
        login = ZooKeeperLogin("alice", password, KEY, rng.bytes)
        return ZooKeeperClient(
            f"{HOST}:{PORT}{ports}{chroot}",
            6_000,
            LoopClock(),
            rng,
            self.tasks,
            self.transport,
            access=ZooKeeperAccess(login=login, acl_of=secure_acl),
        )


def played(
    scenario: Callable[[Scene], Awaitable[None]],
    authentication: ClientAuthentication | None = None,
    network: type[MemoryTransport] = MemoryTransport,
) -> None:
    async def play() -> None:
        scene = Scene(authentication or ClientAuthentication(users={"alice": PASSWORD}), network())
        await scene.server.start(HOST, PORT)
        await scenario(scene)
        await scene.server.close()
        await scene.tasks.close()
        assert scene.failures == []

    run_seeded(1, play())


def test_every_creation_has_the_list_of_its_path() -> None:
    async def scenario(scene: Scene) -> None:
        client = scene.client(chroot="/config/users/x")
        await client.start()
        await client.create("/a", b"")
        await client.multi([Create("/b", b""), Set("/b", b"x", 0), Create("/consumers", b"")])
        await client.ensure("/config/brokers/1")
        nodes = scene.server.state.tree.nodes
        root = "/config/users/x"
        for path in ("/config", f"{root}/a", f"{root}/b", f"{root}/config"):
            assert nodes[path].acl == OWN, path
        for path in (root, f"{root}/config/brokers", f"{root}/config/brokers/1"):
            assert nodes[path].acl == ((31, *ALICE),), path
        assert nodes[f"{root}/consumers"].acl is ANYONE
        await client.close()

    played(scenario)


def test_every_new_connection_logs_in_before_anything_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps: list[str] = []
    for name in ("_begin", "_continue_exchange", "_serve"):
        original = getattr(ServerConnection, name)

        def spy(
            self: ServerConnection, *arguments: object, _own: object = original, _name: str = name
        ) -> None:
            steps.append(_name)
            _own(self, *arguments)  # type: ignore[operator]

        monkeypatch.setattr(ServerConnection, name, spy)

    async def scenario(scene: Scene) -> None:
        client = scene.client()
        await client.start()
        await client.create("/a", b"")
        for number in range(3):
            states, before = client.events(), client.connection
            steps.clear()
            for connection in tuple(scene.server.connections):
                connection.cut()
            while client.connection == before:
                await anext(states)
            await client.set("/a", b"x", number)  # only its user may
            login = ["_serve", "_continue_exchange"]
            assert steps[:5] == ["_begin", *login, *login]
        assert client.generation == 1
        await client.close()

    played(scenario)


def test_wrong_password_ends_the_start_with_the_key() -> None:
    async def scenario(scene: Scene) -> None:
        with pytest.raises(
            ZooKeeperLoginRefused, match=f"refuses the user alice of {KEY}"
        ) as ended:
            await scene.client("wrong-secret").start()
        assert "wrong-secret" not in str(ended.value)
        assert not any(name.startswith("/") for name in scene.tasks.names())

    played(scenario)


def test_server_without_sasl_ends_the_start_with_the_key() -> None:
    async def scenario(scene: Scene) -> None:
        with pytest.raises(
            ZooKeeperLoginRefused, match=f"the login of {KEY} as alice: the server sent no"
        ):
            await scene.client().start()

    played(scenario, ClientAuthentication())


def test_password_that_is_wrong_later_is_logged_once_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    users = {"alice": PASSWORD}

    async def scenario(scene: Scene) -> None:
        client = scene.client()
        await client.start()
        users["alice"] = "changed"
        with caplog.at_level(logging.ERROR, "minikafka.zookeeper.client"):
            states = client.events()
            for connection in tuple(scene.server.connections):
                connection.cut()
            await anext(states)
            await LoopClock().sleep(3_000)
        assert caplog.text.count(KEY) == 1
        users["alice"] = PASSWORD
        assert await client.connected() == 1
        await client.close()

    played(scenario, ClientAuthentication(users=users))


class _HalfDead(MemoryTransport):
    """A network on which the second server of a list does not answer."""

    async def connect(
        self,
        factory: Callable[[], StreamHandler],
        host: str,
        port: int,
        tls: Tls | None = None,
    ) -> StreamHandler:
        if port != PORT:
            raise ConnectionRefusedError(port)
        return await super().connect(factory, host, port, tls)


def test_start_goes_on_while_a_server_has_not_refused_the_password() -> None:
    """One server of an ensemble may have another file of users."""

    async def scenario(scene: Scene) -> None:
        with pytest.raises(NotConnected, match="no ZooKeeper server answers"):
            await scene.client("wrong", ports=f",{HOST}:{PORT + 1}").start()

    played(scenario, network=_HalfDead)
