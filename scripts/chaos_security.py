"""What `chaos --secure` changes while brokers fail: certificates, passwords, and the rights of a second user.

The first user sends the records of the run. The second user, Bob, also sends all the time, but may write only now and
then: his right is removed or denied, and granted again. A broker may use an earlier state for `PROPAGATION_SECONDS`
after a change, or after a pause that kept the broker from hearing of the change. Later, nothing that Bob sends may be
acknowledged until his right is granted, and a replaced password must be refused.
"""

from __future__ import annotations

import asyncio
import math
import random
import secrets
import ssl
import time
from array import array
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from display import Display
from load import ADMIN_SECONDS, Login, Stream, create_topic, read_back
from threads import in_thread
from verdict import show_verdict

from minikafka.checks.delivery import verdict
from minikafka.tools.cluster import LocalCluster
from minikafka.tools.cluster.directory import HOST, write_private
from minikafka.tools.cluster.secure.authority import Authority
from minikafka.tools.cluster.secure.files import ADMIN, BROKER, FIRST_USER

SECOND_USER = "bob"
TOPIC = "chaos-second-user"
PARTITIONS = 2
TOPIC_CONFIG = {"min.insync.replicas": "2"}
RATE = 50.0
PROPAGATION_SECONDS = 5.0
"""Maximum time until all brokers use a changed right or password."""
CERTIFICATE_SECONDS = 15.0
"""Maximum time until all brokers use a changed certificate: they look at its file every 5 s."""
QUIET_SECONDS = (1.0, 5.0)
"""Range of the time between two changes of one kind."""
ITERATIONS = 4_096
PERSIST_SECONDS = 120.0
"""Maximum time to make one change. Brokers that fail delay it."""
HOSTS = (HOST, "::1", "localhost")
"""Names in the certificates of brokers: as in Kafka, a broker refuses one that lacks a name of the former one."""
LOOK_SECONDS = 5.0
"""Maximum time to connect to a broker."""
METADATA_MS = 500
"""Time until the second user's producer asks again whether the topic may be used."""
POLL_SECONDS = 0.1


class Propagation:
    """The time that brokers need until they use a change."""

    def __init__(self) -> None:
        self._calm_since = 0.0

    @contextmanager
    def fault(self, kind: str) -> Iterator[None]:
        """Note a fault that lasts as long as the `with` body."""
        if kind == "pause":
            self._calm_since = math.inf
        yield
        if kind == "pause":
            self._calm_since = time.monotonic()

    def ends(self, changed_at: float) -> float:
        """Return when all brokers use a change that was made at `changed_at`; infinite while a broker is paused."""
        return max(changed_at, self._calm_since) + PROPAGATION_SECONDS

    async def wait(self, changed_at: float) -> None:
        """Wait until all brokers use the change."""
        while time.monotonic() <= self.ends(changed_at):  # noqa: ASYNC110
            await asyncio.sleep(POLL_SECONDS)


class Visitor(Stream):
    """The producer of the second user. `shut_since`: when the right to write was removed; infinite if it is granted."""

    PACE_EVERY = 1

    def __init__(self, bootstrap: str, login: Login, propagation: Propagation) -> None:
        settings = {**login, "topic.metadata.refresh.interval.ms": METADATA_MS}
        super().__init__(bootstrap, TOPIC, _records(), RATE, settings)
        self.denied = 0
        self.trespasses: list[str] = []
        self.shut_since = math.inf
        self._propagation = propagation
        self._sent_at = array("d")

    def _send(
        self, key: bytes, value: bytes, report: Callable[[KafkaError | None, Message], None]
    ) -> None:
        """Send a record. After a refusal, librdkafka itself refuses records until it has asked for metadata again."""
        self._sent_at.append(time.monotonic())
        try:
            super()._send(key, value, report)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise
            self.history.failed(len(self.history) - 1)
            self._serve_until(time.monotonic())

    def _on_report(self, ticket: int, error: KafkaError | None, message: Message) -> None:
        super()._on_report(ticket, error, message)
        if error is not None:
            self.denied += error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
            return
        late = self._sent_at[ticket] - self._propagation.ends(self.shut_since)
        if late > 0:
            place = f"{message.topic()}-{message.partition()} at offset {message.offset()}"
            allowed = PROPAGATION_SECONDS + late
            self.trespasses.append(f"to {place}, {allowed:.1f} s after the removal")


class Changes:
    """The changes of one run, and the producer of the second user. `stream`: the producer of the first user."""

    def __init__(self, display: Display, cluster: LocalCluster, stream: Stream, seed: int) -> None:
        self._display = display
        self._cluster = cluster
        self._stream = stream
        self._chance = random.Random(seed)
        self._passwords = {SECOND_USER: secrets.token_hex(16)}
        self._admin = AdminClient({**login_of(cluster, ADMIN), "log_level": 2})
        self._counts: Counter[str] = Counter()
        self._problems: list[str] = []
        self._ending = False
        self._certificate = ""
        self.propagation = Propagation()
        self._visitor: Visitor

    async def prepare(self) -> None:
        """Create the second user, and the topic that this user may describe."""
        await self._set_password(SECOND_USER, self._passwords[SECOND_USER])
        admin = login_of(self._cluster, ADMIN)
        arguments = (self._cluster.bootstrap, TOPIC, PARTITIONS, TOPIC_CONFIG, admin)
        await in_thread(create_topic, *arguments)
        for operation, kind, name in (
            (AclOperation.DESCRIBE, ResourceType.TOPIC, TOPIC),
            (AclOperation.IDEMPOTENT_WRITE, ResourceType.BROKER, "kafka-cluster"),
        ):
            await self._grant(_binding(AclPermissionType.ALLOW, operation, kind, name))
        await self._grant(ALLOWED)
        self._visitor = Visitor(self._cluster.bootstrap, self.login(SECOND_USER), self.propagation)

    def login(self, user: str, password: str = "") -> Login:
        """Return how a user logs in; without `password`, with the current one."""
        found = login_of(self._cluster, FIRST_USER)
        current = self._passwords.get(user) or found["sasl.password"]
        return {**found, "sasl.username": user, "sasl.password": password or current}

    async def run(self) -> None:
        """Make changes until `finish` is called."""
        self._visitor.start()
        await asyncio.gather(
            self._repeat(self._change_right),
            self._repeat(self._change_password),
            self._repeat(self._change_certificate),
        )

    def end(self) -> None:
        """Let `run` return after the changes that are in progress."""
        self._ending = True

    async def finish(self) -> bool:
        """After the last fault: check the last states, and all records of the second user. True if all is right."""
        await self._check_rights()
        await self._check_certificates()
        visitor = self._visitor
        visitor.stop()
        await asyncio.to_thread(visitor.join)
        if visitor.error is not None:
            raise RuntimeError(f"the producer of {SECOND_USER} failed: {visitor.error}")
        arguments = (self._cluster.bootstrap, TOPIC, PARTITIONS, lambda done, total: None)
        login = self.login(FIRST_USER)
        reading = await in_thread(lambda: read_back(*arguments, login=login))
        self._show()
        result = verdict([visitor.history], reading)
        show_verdict(self._display, result)
        return result.ok and not self._problems and not visitor.trespasses

    def abandon(self) -> None:
        """End the producer of the second user."""
        if self._visitor.is_alive():
            self._visitor.abandon()

    def _show(self) -> None:
        counts = ", ".join(f"{count} × {kind}" for kind, count in sorted(self._counts.items()))
        refused = f"{self._visitor.denied:,} records of {SECOND_USER} were refused"
        self._display.say(f"changes: {counts}; {refused}")
        if trespasses := self._visitor.trespasses:
            text = f"{len(trespasses):,} records without a right, first"
            self._display.say(f"FAILED: {SECOND_USER} wrote {text} {trespasses[0]}")
        for problem in self._problems:
            self._display.say(f"FAILED: {problem}")

    async def _repeat(self, change: Callable[[], Any]) -> None:
        while not self._ending:
            await asyncio.sleep(self._chance.uniform(*QUIET_SECONDS))
            await change()

    async def _change_right(self) -> None:
        """Remove the right to write, or deny it; grant it again after some time without a right."""
        await self._shut(self._chance.choice((True, False)))
        await asyncio.sleep(self._chance.uniform(*QUIET_SECONDS))
        await self._open()

    async def _shut(self, is_denied: bool) -> None:
        await (self._grant(DENIED) if is_denied else self._remove(ALLOWED))
        self._counts["denied" if is_denied else "removed"] += 1
        self._visitor.shut_since = changed_at = time.monotonic()
        await self.propagation.wait(changed_at)

    async def _open(self) -> None:
        self._visitor.shut_since = math.inf
        await self._remove(DENIED)
        await self._grant(ALLOWED)
        self._counts["granted"] += 1

    async def _change_password(self) -> None:
        """Change the password of one of the users, and check that the earlier one is refused."""
        user = self._chance.choice((FIRST_USER, SECOND_USER))
        before = self.login(user)
        password = secrets.token_hex(16)
        await self._set_password(user, password)
        self._passwords[user] = password
        stream = self._visitor if user == SECOND_USER else self._stream
        stream.set_password(user, password)
        self._counts["password"] += 1
        changed_at = time.monotonic()
        await self.propagation.wait(changed_at)
        tried_at = time.monotonic()
        if await in_thread(accepts, before) and tried_at > self.propagation.ends(changed_at):
            seconds = tried_at - changed_at
            self._problems.append(f"the password of {user} worked {seconds:.1f} s after its change")

    async def _change_certificate(self) -> None:
        """Give all brokers a new key and certificate of the same authority."""
        directory = self._cluster.directory.security
        key, authority = directory / "ca.key", directory / "ca.pem"
        found = Authority.load(key.read_bytes(), authority.read_bytes())
        text = found.issue(BROKER, HOSTS, datetime.now(UTC))
        write_private(directory / "broker.pem", text)
        self._certificate = text
        self._counts["certificate"] += 1

    async def _check_rights(self) -> None:
        """Check that all brokers refuse the second user after a removal, and serve this user after the grant."""
        visitor = self._visitor
        await self._shut(is_denied=False)
        denied = visitor.denied
        await self._until("refuses", lambda: visitor.denied > denied)
        await self._open()
        acked = visitor.acked
        await self._until("serves", lambda: visitor.acked > acked)

    async def _until(self, what: str, is_reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + ADMIN_SECONDS
        while not is_reached():
            if time.monotonic() > deadline:
                self._problems.append(f"no broker {what} {SECOND_USER} after the last change")
                return
            await asyncio.sleep(POLL_SECONDS)

    async def _check_certificates(self) -> None:
        """Check that all brokers give new connections the newest certificate, on both listeners."""
        if not self._certificate:
            return
        ca = str(self._cluster.directory.security / "ca.pem")
        wanted = _first_certificate(self._certificate)
        deadline = time.monotonic() + CERTIFICATE_SECONDS
        for broker in self._cluster.record.brokers:
            for port in broker.ports.values():
                while await in_thread(_served, port, ca) != wanted:
                    if time.monotonic() > deadline:
                        old = f"port {port} of broker {broker.id} serves an old certificate"
                        self._problems.append(old)
                        break
                    await asyncio.sleep(POLL_SECONDS)

    async def _set_password(self, user: str, password: str) -> None:
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, ITERATIONS)
        change = UserScramCredentialUpsertion(user, info, password.encode())
        await self._persist(lambda: self._admin.alter_user_scram_credentials([change]))

    async def _grant(self, binding: AclBinding) -> None:
        await self._persist(lambda: self._admin.create_acls([binding]))

    async def _remove(self, binding: AclBinding) -> None:
        names = ("restype", "name", "resource_pattern_type", "principal", "host", "operation")
        values = (getattr(binding, name) for name in (*names, "permission_type"))
        wanted = AclBindingFilter(*values)
        await self._persist(lambda: self._admin.delete_acls([wanted]))

    async def _persist(self, change: Callable[[], Mapping[Any, Future[Any]]]) -> None:
        """Make a change, again if it fails, because the broker that makes it may be down."""

        def attempt() -> None:
            for future in change().values():
                future.result(ADMIN_SECONDS)

        deadline = time.monotonic() + PERSIST_SECONDS
        while True:
            try:
                await in_thread(attempt)
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(POLL_SECONDS)
            else:
                return


def login_of(cluster: LocalCluster, user: str) -> dict[str, Any]:
    """Return how librdkafka logs in as a user of whom the cluster keeps the password."""
    return dict(cluster.client_config("librdkafka", user))


def accepts(login: Login) -> bool:
    """True if a broker accepts the login. False if it is refused, or if no broker answers."""
    client = Producer({**login, "log_level": 0})
    try:
        client.list_topics(timeout=LOOK_SECONDS)
    except KafkaException:
        return False
    return True


@asynccontextmanager
async def changing(changes: Changes) -> AsyncIterator[None]:
    """Make changes during the `with` body, and until the changes in progress are complete."""
    task = asyncio.create_task(changes.run())
    try:
        yield
        changes.end()
        await task
    finally:
        task.cancel()
        await asyncio.wait([task])


def _binding(
    permission: AclPermissionType,
    operation: AclOperation = AclOperation.WRITE,
    kind: ResourceType = ResourceType.TOPIC,
    name: str = TOPIC,
) -> AclBinding:
    literal, user = ResourcePatternType.LITERAL, f"User:{SECOND_USER}"
    return AclBinding(kind, name, literal, user, "*", operation, permission)


ALLOWED = _binding(AclPermissionType.ALLOW)
"""The right of the second user to write, which is removed and granted."""
DENIED = _binding(AclPermissionType.DENY)


def _records() -> Iterable[tuple[bytes, bytes]]:
    number = 0
    while True:
        number += 1
        yield b"%d" % (number % 10), b"visit %d" % number


def _served(port: int, ca: str) -> bytes:
    """Return the certificate that a new connection gets."""
    arguments = ((HOST, port), ssl.PROTOCOL_TLS_CLIENT, ca, LOOK_SECONDS)
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(*arguments))


def _first_certificate(text: str) -> bytes:
    begin = text.index("-----BEGIN CERTIFICATE-----")
    end = text.index("-----END CERTIFICATE-----") + len("-----END CERTIFICATE-----")
    return ssl.PEM_cert_to_DER_cert(text[begin:end])
