"""The cells of the client matrix over TLS and SASL: what one client does on brokers with users and certificates."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, Final, Self

import jwt
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm
from support.clients.client_drivers import CLIENTS, Driver, Running
from support.security.client_logins import Login
from support.security.secured_brokers import SecuredBrokers

RECORDS: Final = 50
PARTITIONS: Final = 3
SECONDS: Final = 60.0
SCRAMS: Final = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
REAUTH_MS: Final = 2_000
_REFUSAL: Final = re.compile("(?i)authentic|certificate|SSL|tls|token|oauth|closed|disconnected")
"""What an error says if TLS or SASL has failed. aiokafka, kafka-python and kafkajs may know only that the broker has
closed the connection."""


class Place:
    """Brokers with the users alice, of every mechanism, and their logins. SASL_PLAINTEXT wants re-authentication."""

    def __init__(self, directory: Path, brokers: int = 3, coordination: str = "controller") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._names = count()
        keys = {"keys": [{**json.loads(ECAlgorithm.to_jwk(self._key.public_key())), "kid": "k"}]}
        (directory / "keys.json").write_text(json.dumps(keys))
        changes = {
            "minikafka.coordination": coordination,
            "sasl.enabled.mechanisms": ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"],
            "sasl.oauthbearer.jwks.endpoint.url": f"file://{directory}/keys.json",
            "listener.name.sasl_plaintext.connections.max.reauth.ms": REAUTH_MS,
            "delegation.token.secret.key": "the secret of tokens",
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:broker;User:alice;User:ANONYMOUS",
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]+),.*$/$1/,DEFAULT",
            "offsets.topic.num.partitions": 3,
            "offsets.topic.replication.factor": brokers,
            "min.insync.replicas": max(1, brokers - 1),
            "group.initial.rebalance.delay.ms": 0,
        }
        self.brokers = SecuredBrokers(directory, "SASL_SSL", brokers=brokers, changes=changes)

    def __enter__(self) -> Self:
        self.brokers.__enter__()
        users = [
            UserScramCredentialUpsertion("alice", ScramCredentialInfo(one, 4096), b"alice-secret")
            for one in SCRAMS
        ]
        for user in users:
            for outcome in self._admin.alter_user_scram_credentials([user]).values():
                outcome.result(SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self.brokers.__exit__()

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient({**self.brokers.properties("PLAINTEXT"), "log_level": 0})

    def certificate(self) -> Login:
        """Return the login with a certificate of the trusted authority."""
        own = self.brokers.authority.client("alice")
        return Login("SSL", self.brokers.authority, own=own)

    def foreign_certificate(self) -> Login:
        """Return the login with a certificate that the brokers do not trust."""
        own = self.brokers.foreign.client("alice")
        return Login("SSL", self.brokers.authority, own=own)

    def sasl(
        self,
        mechanism: str,
        password: str = "alice-secret",
        protocol: str = "SASL_SSL",
        token_s: float = 600,
    ) -> Login:
        """Return alice's login with a mechanism. Without the password, the bearer token is refused.

        `token_s`: the seconds after which the bearer token expires.
        """
        trusted = self.brokers.authority
        if mechanism != "OAUTHBEARER":
            return Login(protocol, trusted, mechanism=mechanism, user="alice", password=password)
        lifetime = token_s if password == "alice-secret" else -600
        claims = {"sub": "alice", "iat": time.time() - 1_000, "exp": time.time() + lifetime}
        bearer = jwt.encode(claims, self._key, "ES256", {"kid": "k"})
        return Login(protocol, trusted, mechanism=mechanism, bearer=bearer)

    @asynccontextmanager
    async def driver(
        self, command: list[str], login: Login | None, bootstrap: str = ""
    ) -> AsyncIterator[Driver]:
        """Yield the driver of a client with a login; None: over PLAINTEXT."""
        path = login and login.write(self._directory, f"login-{next(self._names)}")
        address = bootstrap or self.brokers.bootstrap(login.protocol if login else "PLAINTEXT")
        driver = Driver(command, address, path)
        try:
            yield driver
        finally:
            await driver.close()

    async def topic(self) -> str:
        """Create a topic; return its name once all replicas are in sync."""
        name = f"topic-{next(self._names)}"
        [made] = self._admin.create_topics([NewTopic(name, PARTITIONS)]).values()
        await asyncio.to_thread(made.result, SECONDS)
        await self.wait_until_in_sync(name)
        return name

    async def wait_until_in_sync(self, topic: str) -> None:
        """Wait until all replicas of a topic are in sync."""

        def holds() -> bool:
            found = self._admin.list_topics(topic, timeout=SECONDS).topics[topic].partitions
            size = len(self.brokers.ids)
            return len(found) == PARTITIONS and all(len(p.isrs) == size for p in found.values())

        await _wait(holds)

    async def replace_certificate(self) -> None:
        """Replace the certificate of all brokers; return once new connections get the new one."""
        new = self.brokers.authority.server("localhost")
        self.brokers.replace_certificate(new)
        ports = [int(one.partition(":")[2]) for one in self.brokers.bootstrap("SSL").split(",")]
        await _wait(lambda: all(self.brokers.served(port) == new.der for port in ports))

    async def leader_of(self, topic: str) -> int:
        """Return the leader of the topic's first partition."""
        found = await asyncio.to_thread(self._admin.list_topics, topic, timeout=SECONDS)
        return int(found.topics[topic].partitions[0].leader)

    async def count(self, topic: str) -> int:
        """Return the number of records of a topic."""
        consumer = Consumer({**self.brokers.properties("PLAINTEXT"), "group.id": "count"})
        try:
            parts = [TopicPartition(topic, number) for number in range(PARTITIONS)]
            ends = [await asyncio.to_thread(consumer.get_watermark_offsets, p) for p in parts]
            return sum(end for _, end in ends)
        finally:
            consumer.close()


class UnfitServer:
    """A broker whose listener SSL has an expired certificate, and whose listener SASL_SSL has a foreign one."""

    def __init__(self, directory: Path) -> None:
        self.brokers = SecuredBrokers(directory, "PLAINTEXT", brokers=1)

    def __enter__(self) -> Self:
        brokers = self.brokers
        brokers.start_zookeeper()
        location = "listener.name.{}.ssl.keystore.location"
        changes = {
            location.format("ssl"): str(brokers.authority.expired_server("localhost").pkcs12),
            location.format("sasl_ssl"): str(brokers.foreign.server("localhost").pkcs12),
        }
        brokers.write_file(1, changes)
        brokers.start(1)
        brokers.wait_until_ready(1)
        return self

    def __exit__(self, *_: object) -> None:
        self.brokers.__exit__()

    @property
    def expired(self) -> tuple[Login, str]:
        """The login and the address at which a client meets the expired certificate."""
        own = self.brokers.authority.client("alice")
        return Login("SSL", self.brokers.authority, own=own), self.brokers.bootstrap("SSL")

    @property
    def foreign(self) -> tuple[Login, str]:
        """The login and the address at which a client meets the foreign certificate."""
        trusted = self.brokers.authority
        login = Login("SASL_SSL", trusted, None, "PLAIN", "alice", "alice-secret")
        return login, self.brokers.bootstrap("SASL_SSL")


async def _wait(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not await asyncio.to_thread(holds):  # noqa: ASYNC110  what is watched has no event
            await asyncio.sleep(0.05)


async def exchange(place: Place, command: list[str], login: Login) -> str:
    """Let a client write records and read them in a group; return what happened."""
    topic = await place.topic()
    async with place.driver(command, login) as driver:
        await driver.run("produce", topic, "none", 0, RECORDS)
        reader = await driver.start("consume", topic, topic, "eager", "")
        await reader.until(lambda: len(reader.values) >= RECORDS)
        await reader.stop()
    assert sorted(reader.values) == list(range(RECORDS))
    return f"{RECORDS} records written and read"


async def refused(
    place: Place, command: list[str], login: Login, bootstrap: str = ""
) -> dict[str, Any]:
    """Return the error with which a client is refused, or refuses the server itself."""
    topic = await place.topic()
    async with place.driver(command, login, bootstrap) as driver:
        [fact] = await driver.run("attempt", topic)
    assert _REFUSAL.search(f"{fact.get('error')}: {fact.get('text')}"), fact
    assert await place.count(topic) == 0
    return fact


async def killed(place: Place, command: list[str], login: Login) -> str:
    """Kill a leader with SIGKILL while a client writes with acks=all. Another client reads what was acknowledged."""
    topic = await place.topic()
    async with place.driver(command, login) as driver:
        producer = await driver.start("stream", topic)
        await producer.until(lambda: len(producer.facts) > RECORDS)
        async with _leader_killed(place, topic):
            await _write_more(producer, 2 * RECORDS)
            await producer.stop()
    assert len(producer.acked) > 2 * RECORDS, len(producer.acked)
    return await read_back(place, topic, producer)


async def _write_more(producer: Running, count: int) -> None:
    """Wait until a producer has written more records."""
    before = len(producer.facts)
    await producer.until(lambda: len(producer.facts) > before + count)


async def read_back(place: Place, topic: str, producer: Running) -> str:
    """Read what was acknowledged with another client, which connects to the listener without TLS."""
    acked = set(producer.acked)
    async with place.driver(CLIENTS[0].build(Path()), None) as reader:
        running = await reader.start("consume", topic, f"back-{topic}", "eager", "")
        await running.until(lambda: acked <= set(running.values))
    return f"{len(acked)} acknowledged, none lost"


@asynccontextmanager
async def _leader_killed(place: Place, topic: str) -> AsyncIterator[None]:
    """Kill the leader of the topic's first partition with SIGKILL. It starts again when the block has ended."""
    victim = await place.leader_of(topic)
    place.brokers.kill(victim)
    try:
        yield
    finally:
        place.brokers.start(victim)
        await asyncio.to_thread(place.brokers.wait_until_ready, victim)
        await place.wait_until_in_sync(topic)


async def reauthenticated(place: Place, command: list[str], mechanism: str) -> str:
    """Let a client write for three times the lifetime of its session; every record must be acknowledged."""
    topic = await place.topic()
    async with place.driver(command, place.sasl(mechanism, protocol="SASL_PLAINTEXT")) as driver:
        producer = await driver.start("stream", topic)
        await producer.until(lambda: bool(producer.facts))
        await asyncio.sleep(3.5 * REAUTH_MS / 1_000)
        await _write_more(producer, 1)
        await producer.stop()
    assert sorted(producer.acked) == list(range(len(producer.acked)))
    return await read_back(place, topic, producer)


async def replaced(place: Place, command: list[str], login: Login) -> str:
    """Replace the brokers' certificate while a client writes, then kill a leader, so that the client connects again."""
    topic = await place.topic()
    async with place.driver(command, login) as driver:
        producer = await driver.start("stream", topic)
        await producer.until(lambda: len(producer.facts) > RECORDS)
        await place.replace_certificate()
        await _write_more(producer, RECORDS)
        async with _leader_killed(place, topic):
            await _write_more(producer, 2 * RECORDS)
            await producer.stop()
    return await read_back(place, topic, producer)


async def with_token(place: Place, command: list[str]) -> str:
    """Let a client make a delegation token, and write and read with it."""
    async with place.driver(command, place.sasl("SCRAM-SHA-512")) as driver:
        [made] = await driver.run("token")
    trusted = place.brokers.authority
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        login = Login("SASL_SSL", trusted, None, mechanism, made["id"], made["hmac"], is_token=True)
        text = await exchange(place, command, login)
    return text


async def administrated(place: Place, command: list[str], names: tuple[str, ...]) -> str:
    """Let a client change and read ACLs, users, quotas and authorized operations."""
    topic = await place.topic()
    async with place.driver(command, place.sasl("SCRAM-SHA-512")) as driver:
        facts = await driver.run("rights", topic)
    found = {name: value for fact in facts for name, value in fact.items()}
    assert found == {name: _RIGHTS[name] for name in names}, found
    return ", ".join(names)


_TOPIC_OPERATIONS: Final = [
    "ALTER",
    "ALTER_CONFIGS",
    "CREATE",
    "DELETE",
    "DESCRIBE",
    "DESCRIBE_CONFIGS",
    "READ",
    "WRITE",
]
_CLUSTER_OPERATIONS: Final = [
    "ALTER",
    "ALTER_CONFIGS",
    "CLUSTER_ACTION",
    "CREATE",
    "DESCRIBE",
    "DESCRIBE_CONFIGS",
    "IDEMPOTENT_WRITE",
]
_RIGHTS: Final[dict[str, Any]] = {
    "acls": ["User:bob"],
    "deleted": ["User:bob"],
    "scram": ["SCRAM-SHA-512 4096"],
    "quota": 1e6,
    "operations": _TOPIC_OPERATIONS,
    "cluster": _CLUSTER_OPERATIONS,
}
