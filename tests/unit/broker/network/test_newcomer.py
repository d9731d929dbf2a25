"""Clients that must authenticate: by SASL/PLAIN over listeners in memory, at first and again."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any

import pytest
from support.kafka.silent_client import Reader
from support.until import until

from minikafka.base.errors import ConfigError, ErrorCode
from minikafka.client import Client, NewTopic, Record
from minikafka.client.login import Connector, LoginFailed
from minikafka.kafka.wire.codec import decode_response, encode_request, request
from minikafka.kafka.wire.versions import (
    API_VERSIONS,
    METADATA,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
)
from minikafka.security.sasl_client import Login
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded

USERS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="broker" password="broker-secret" user_broker="broker-secret" user_alice="alice-secret";'
)
KEYS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,GUARDED://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,GUARDED:SASL_PLAINTEXT",
    "listener.name.guarded.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.guarded.plain.sasl.jaas.config": USERS,
}
ALICE = b"\0alice\0alice-secret"
DELAY_MS = 100
SESSION = {"listener.name.guarded.plain.connections.max.reauth.ms": 10_000}


def port(cluster: MemoryCluster, number: int = 0, listener: str = "GUARDED") -> int:
    endpoint = cluster.brokers[number].info.endpoint(listener)
    assert endpoint is not None
    return endpoint.port


class Caller(Reader):
    """A client that sends single requests and bare bytes to a listener."""

    def __init__(self, cluster: MemoryCluster) -> None:
        super().__init__()
        self._clock = cluster.clock

    async def call(self, api: int, version: int, **values: Any) -> Any:
        """Send a request; return the response, or None if the connection is closed without one."""
        known = len(self.responses())
        self.send(api, version, **values)
        await until(lambda: len(self.responses()) > known or self.is_closed)
        found = self.responses()[known:]
        return decode_response(api, version, memoryview(found[0])) if found else None

    def send(self, api: int, version: int, **values: Any) -> None:
        self.link.send([encode_request(api, version, 0, "test", request(api, version, **values))])

    async def log_in(self, token: bytes = ALICE, version: int = 1, mechanism: str = "PLAIN") -> Any:
        """Return the response to the last request of a login."""
        found = await self.call(SASL_HANDSHAKE, 1, mechanism=mechanism)
        if found is None or found.error_code:
            return found
        return await self.call(SASL_AUTHENTICATE, version, auth_bytes=token)


async def join(cluster: MemoryCluster, listener: str = "GUARDED") -> Caller:
    caller = Caller(cluster)
    await cluster.transport.connect(lambda: caller, "127.0.0.1", port(cluster, listener=listener))
    caller.link.resume_reading()
    return caller


def simulated(**more: object) -> Callable[[Callable[..., Awaitable[None]]], Callable[[], None]]:
    """Return a decorator: the test runs on a cluster of one broker, in virtual time."""

    def decorate(scenario: Callable[..., Awaitable[None]]) -> Callable[[], None]:
        @wraps(scenario)
        def test() -> None:
            async def scene() -> None:
                async with MemoryCluster(1, **KEYS | more) as cluster:
                    await scenario(cluster)

            run_seeded(1, scene())

        del test.__wrapped__  # type: ignore[attr-defined]  # pytest would ask for the argument
        return test

    return decorate


def newcomers(cluster: MemoryCluster) -> int:
    return len(cluster.brokers[0].listener._newcomers)


@pytest.mark.key("sasl.jaas.config", "sasl.enabled.mechanisms")
@simulated()
async def test_client_with_the_right_password_is_served(cluster: MemoryCluster) -> None:
    login = Login("PLAIN", "alice", "alice-secret")
    async with Client(
        f"127.0.0.1:{port(cluster)}", connector=Connector(cluster.transport, login=login)
    ) as client:
        await client.create_topics(NewTopic("t", partitions=1, replication_factor=1))
        await client.produce("t", [Record(value=b"v")])
    connections = cluster.brokers[0].listener._connections
    assert {one.client.principal for one in connections} <= {"User:alice"}
    assert newcomers(cluster) == 0


@pytest.mark.parametrize(
    "login", [Login("PLAIN", "alice", "wrong"), Login("PLAIN", "nobody", "alice-secret")]
)
def test_own_client_fails_at_once_with_the_reason(login: Login) -> None:
    async def scenario() -> None:
        async with (
            MemoryCluster(1, **KEYS) as cluster,
            Client(
                f"127.0.0.1:{port(cluster)}", connector=Connector(cluster.transport, login=login)
            ) as client,
        ):
            with pytest.raises(LoginFailed, match="Invalid username or password"):
                await client.describe_cluster()

    run_seeded(1, scenario())


@pytest.mark.key("connection.failed.authentication.delay.ms")
@simulated(connection_failed_authentication_delay_ms=700)
async def test_unknown_user_gets_the_same_answer_at_the_same_time_as_a_wrong_password(
    cluster: MemoryCluster,
) -> None:
    seen = []
    for token in (b"\0alice\0wrong", b"\0nobody\0wrong", b"\0alice\0"):
        caller, began = await join(cluster), cluster.clock.now()
        answer = await caller.log_in(token)
        took = round((cluster.clock.now() - began) / 10) * 10  # the transport takes a millisecond
        seen.append((answer.error_code, answer.error_message, took))
        await until(lambda caller=caller: caller.is_closed)
    code = ErrorCode.SASL_AUTHENTICATION_FAILED
    assert seen[:2] == [(code, "Authentication failed: Invalid username or password", 700)] * 2
    assert seen[2] == (code, "Authentication failed: password not specified", 700)


@simulated()
async def test_unknown_mechanism_is_answered_with_those_that_are_served(
    cluster: MemoryCluster,
) -> None:
    caller = await join(cluster)
    answer = await caller.log_in(mechanism="GSSAPI")
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert list(answer.mechanisms) == ["PLAIN"]
    await cluster.clock.sleep(60)
    assert caller.is_closed


@simulated()
async def test_nothing_but_api_versions_is_answered_before_authentication(
    cluster: MemoryCluster,
) -> None:
    caller = await join(cluster)
    versions = await caller.call(
        API_VERSIONS, 3, client_software_name="a", client_software_version="1"
    )
    assert versions.error_code == 0
    assert await caller.call(METADATA, 9, topics=None) is None
    assert caller.is_closed
    again = await join(cluster)
    await again.call(SASL_HANDSHAKE, 1, mechanism="PLAIN")
    assert await again.call(METADATA, 9, topics=None) is None


@simulated()
async def test_tokens_without_a_header_follow_the_oldest_handshake(cluster: MemoryCluster) -> None:
    caller = await join(cluster)
    await caller.call(SASL_HANDSHAKE, 0, mechanism="PLAIN")
    caller.link.send([len(ALICE).to_bytes(4), ALICE])
    await until(lambda: len(caller.responses()) == 2)
    assert caller.responses()[1] == b""
    assert (await caller.call(METADATA, 9, topics=None)).brokers


@simulated()
async def test_requests_sent_together_with_the_last_token_are_served(
    cluster: MemoryCluster,
) -> None:
    caller = await join(cluster)
    caller.send(SASL_HANDSHAKE, 1, mechanism="PLAIN")
    caller.send(SASL_AUTHENTICATE, 1, auth_bytes=ALICE)
    caller.send(METADATA, 9, topics=None)
    await until(lambda: len(caller.responses()) == 3)
    assert decode_response(METADATA, 9, memoryview(caller.responses()[2])).brokers


@pytest.mark.key("sasl.server.max.receive.size")
@simulated(**{"listener.name.guarded.sasl.server.max.receive.size": 1_000})
async def test_request_above_the_maximum_before_authentication_closes_the_connection(
    cluster: MemoryCluster,
) -> None:
    caller = await join(cluster)
    await caller.call(SASL_HANDSHAKE, 1, mechanism="PLAIN")
    assert await caller.call(SASL_AUTHENTICATE, 1, auth_bytes=bytes(1_001)) is None
    bare = await join(cluster)
    await bare.call(SASL_HANDSHAKE, 0, mechanism="PLAIN")
    bare.link.send([(1_001).to_bytes(4)])
    await until(lambda: bare.is_closed)


@pytest.mark.key("minikafka.handshake.timeout.ms")
@simulated(minikafka_handshake_timeout_ms=2_000)
async def test_client_that_does_not_authenticate_in_time_is_disconnected(
    cluster: MemoryCluster,
) -> None:
    silent, slow, quick = [await join(cluster) for _ in range(3)]
    await slow.call(SASL_HANDSHAKE, 1, mechanism="PLAIN")
    assert (await quick.log_in()).error_code == 0
    await cluster.clock.sleep(4_000)
    assert (silent.is_closed, slow.is_closed, quick.is_closed) == (True, True, False)
    assert newcomers(cluster) == 0


@simulated()
async def test_failures_are_counted_and_logged_once_for_an_address_and_second(
    cluster: MemoryCluster,
) -> None:
    lines: list[str] = []
    log = logging.getLogger("minikafka.broker.network.admission")
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        for _ in range(3):
            await (await join(cluster)).log_in(b"\0alice\0wrong")
        assert len(lines) == 1
        await cluster.clock.sleep(1_000)
        await (await join(cluster)).log_in(b"\0alice\0wrong")
    finally:
        log.removeHandler(handler)
    assert len(lines) == 2
    assert lines[0].endswith(" on GUARDED: Authentication failed: Invalid username or password")
    assert await (await join(cluster)).log_in()
    totals = cluster.brokers[0].metrics.totals()
    assert totals["failed-authentication-total"] == 4
    assert totals["successful-authentication-total"] == 1


@simulated()
async def test_refused_client_can_read_the_reason_before_its_connection_ends(
    cluster: MemoryCluster,
) -> None:
    """kafka-python reads until nothing is left, and forgets the response if it then sees the end of the connection."""
    caller = await join(cluster)
    answer = await caller.log_in(b"\0alice\0wrong")
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    answered = cluster.clock.now()
    assert not caller.is_closed
    await until(lambda: caller.is_closed)
    assert 50 <= cluster.clock.now() - answered < 60


@simulated()
async def test_plain_listener_answers_that_the_state_is_wrong(cluster: MemoryCluster) -> None:
    caller = await join(cluster, "PLAINTEXT")
    code = ErrorCode.ILLEGAL_SASL_STATE
    assert (await caller.call(SASL_HANDSHAKE, 1, mechanism="PLAIN")).error_code == code
    assert (await caller.call(SASL_AUTHENTICATE, 1, auth_bytes=ALICE)).error_code == code
    assert (await caller.call(METADATA, 9, topics=None)).brokers


@pytest.mark.key("connections.max.reauth.ms")
@simulated(**SESSION)
async def test_session_ends_unless_the_client_authenticates_again(cluster: MemoryCluster) -> None:
    once, again = await join(cluster), await join(cluster)
    for caller in (once, again):
        assert (await caller.log_in()).session_lifetime_ms == 10_000
    for _ in range(3):
        await cluster.clock.sleep(6_000)
        assert (await again.log_in()).session_lifetime_ms == 10_000
        await cluster.clock.sleep(5_000)  # the session that was renewed would be over
        assert (await again.call(METADATA, 9, topics=None)).brokers
    assert not once.is_closed
    assert await once.call(METADATA, 9, topics=None) is None
    assert once.is_closed


@simulated(**SESSION)
async def test_client_whose_session_is_over_may_still_authenticate(cluster: MemoryCluster) -> None:
    caller = await join(cluster)
    await caller.log_in()
    await cluster.clock.sleep(20_000)
    assert (await caller.log_in()).session_lifetime_ms == 10_000
    assert (await caller.call(METADATA, 9, topics=None)).brokers


@simulated(**SESSION)
async def test_lifetime_is_told_only_to_clients_that_can_read_it(cluster: MemoryCluster) -> None:
    caller = await join(cluster)
    assert (await caller.log_in(version=0)).error_code == 0
    await cluster.clock.sleep(20_000)
    assert await caller.call(METADATA, 9, topics=None) is None


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (
            b"\0broker\0broker-secret",
            "Cannot change principals during re-authentication from User.alice: User.broker",
        ),
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
    ],
)
def test_client_that_authenticates_again_as_another_is_disconnected(
    token: bytes, reason: str
) -> None:
    async def scenario() -> None:
        async with MemoryCluster(1, **KEYS, **SESSION) as cluster:
            caller = await join(cluster)
            await caller.log_in()
            await cluster.clock.sleep(2_000)
            began = cluster.clock.now()
            answer = await caller.log_in(token)
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert answer.error_message == reason
            assert DELAY_MS <= cluster.clock.now() - began < DELAY_MS + 10
            await until(lambda: caller.is_closed)

    run_seeded(1, scenario())


@simulated(**SESSION)
async def test_client_may_authenticate_again_at_once_and_then_once_a_second(
    cluster: MemoryCluster,
) -> None:
    """kafkajs authenticates again with its first request, if sessions are short."""
    caller = await join(cluster)
    await caller.log_in()
    assert (await caller.log_in()).error_code == 0
    early = await caller.call(SASL_HANDSHAKE, 1, mechanism="PLAIN")
    assert early.error_code == ErrorCode.ILLEGAL_SASL_STATE
    await cluster.clock.sleep(1_000)
    assert (await caller.log_in()).error_code == 0


@simulated()
async def test_client_may_not_authenticate_again_if_its_session_has_no_end(
    cluster: MemoryCluster,
) -> None:
    caller = await join(cluster)
    await caller.log_in()
    await cluster.clock.sleep(2_000)
    again = await caller.call(SASL_HANDSHAKE, 1, mechanism="PLAIN")
    assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert (await caller.call(METADATA, 9, topics=None)).brokers


@pytest.mark.key("sasl.mechanism.inter.broker.protocol")
def test_followers_log_in_and_authenticate_again_without_losing_the_connection() -> None:
    async def scenario() -> None:
        keys = {
            "listeners": "PLAINTEXT://127.0.0.1:0,GUARDED://127.0.0.1:0",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,GUARDED:SASL_PLAINTEXT",
            "inter.broker.listener.name": "GUARDED",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.guarded.plain.sasl.jaas.config": USERS,
            "connections.max.reauth.ms": 10_000,
        }
        async with MemoryCluster(2, **keys) as cluster:
            bootstrap = f"127.0.0.1:{port(cluster, listener='PLAINTEXT')}"
            async with Client(bootstrap, transport=cluster.transport) as client:
                await client.create_topics(NewTopic("t", assignment={0: (0, 1)}))
                await client.produce("t", [Record(value=b"v")])
                [fetcher] = cluster.brokers[1].replicas.fetchers._fetchers.values()
                connection = fetcher.connection
                await cluster.clock.sleep(60_000)
                assert fetcher.connection is connection
                assert connection is not None
                assert not connection.lost.is_set()
                await client.produce("t", [Record(value=b"v")])
            followers = [
                one.client.principal
                for one in cluster.brokers[0].listener._connections
                if one.fetch.session is not None
            ]
            assert followers == ["User:broker"]

    run_seeded(1, scenario())


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        (
            {"listener.name.guarded.sasl.enabled.mechanisms": "GSSAPI"},
            "sasl.enabled.mechanisms of listener GUARDED: GSSAPI is not implemented; use PLAIN",
        ),
        (
            {"listener.name.guarded.sasl.enabled.mechanisms": "PLAINS"},
            "sasl.enabled.mechanisms of listener GUARDED: PLAINS is unknown; use PLAIN",
        ),
        (
            {"listener.name.guarded.sasl.enabled.mechanisms": ""},
            "sasl.enabled.mechanisms of listener GUARDED is empty",
        ),
        (
            {"listener.name.guarded.plain.sasl.jaas.config": "PlainLoginModule required"},
            "listener.name.guarded.plain.sasl.jaas.config does not end with a semicolon",
        ),
        (
            {"inter.broker.listener.name": "GUARDED"},
            "sasl.mechanism.inter.broker.protocol: GSSAPI is not implemented; use PLAIN",
        ),
    ],
)
async def test_broker_with_a_listener_that_cannot_authenticate_does_not_start(
    keys: dict[str, str], reason: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        async with MemoryCluster(1, **KEYS | keys):
            pass
    assert reason in str(caught.value)
    assert "secret" not in str(caught.value)


async def test_mechanism_without_a_login_module_is_refused_with_the_key() -> None:
    keys = {name: value for name, value in KEYS.items() if not name.endswith("jaas.config")}
    with pytest.raises(ConfigError) as caught:
        async with MemoryCluster(1, **keys):
            pass
    assert "listener.name.guarded.plain.sasl.jaas.config is not set" in str(caught.value)
