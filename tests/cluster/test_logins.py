"""Real clients that log in with SCRAM and OAUTHBEARER, between brokers that use SCRAM too."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import aiokafka
import jwt
import kafka
import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm
from kafka.net.sasl.oauth import AbstractTokenProvider
from kazoo.client import KazooClient
from support.security.secured_brokers import SecuredBrokers

from minikafka.security import scram

KEY: Final = ec.generate_private_key(ec.SECP256R1())
SCRAMS: Final = {
    "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
    "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
}
MECHANISMS: Final = ("PLAIN", *SCRAMS, "OAUTHBEARER")


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBrokers]:
    directory = tmp_path_factory.mktemp("logins")
    keys = {"keys": [{**json.loads(ECAlgorithm.to_jwk(KEY.public_key())), "kid": "k"}]}
    (directory / "keys of the issuer.json").write_text(json.dumps(keys))
    changes = {
        "sasl.enabled.mechanisms": list(MECHANISMS),
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{directory}/keys%20of%20the%20issuer.json",
        "sasl.oauthbearer.expected.audience": ["brokers"],
        "min.insync.replicas": 1,
    }
    with SecuredBrokers(directory, "SASL_PLAINTEXT", brokers=2, changes=changes) as started:
        yield started


def admin(brokers: SecuredBrokers) -> AdminClient:
    return AdminClient(brokers.properties("SASL_PLAINTEXT"))


def alter(brokers: SecuredBrokers, *alterations: Any) -> None:
    client = admin(brokers)
    for outcome in client.alter_user_scram_credentials(list(alterations)).values():
        outcome.result(30)


def upsertion(user: str, mechanism: str, password: str) -> UserScramCredentialUpsertion:
    info = ScramCredentialInfo(SCRAMS[mechanism], 4096)
    return UserScramCredentialUpsertion(user, info, password.encode())


def properties(brokers: SecuredBrokers, mechanism: str, user: str, password: str) -> dict[str, Any]:
    given = brokers.properties("SASL_SSL") | {"sasl.mechanism": mechanism, "log_level": 0}
    return given | {"sasl.username": user, "sasl.password": password}


def failure(given: dict[str, Any]) -> str | None:
    """Return why a client cannot log in, or None if it can."""
    errors: list[str] = []
    client = Producer({**given, "error_cb": lambda error: errors.append(error.str())})
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        client.poll(0.1)
        if refused := [error for error in errors if "uthentication" in error]:
            return refused[0].partition(": ")[2].partition(" (after")[0]
        with suppress(KafkaException):
            client.list_topics(timeout=0.5)
            return None
    raise AssertionError(errors[:3])


@pytest.mark.parametrize("mechanism", SCRAMS)
def test_user_logs_in_at_every_broker_as_soon_as_the_credential_is_written(
    brokers: SecuredBrokers, mechanism: str
) -> None:
    alter(brokers, upsertion("carol", mechanism, "carol-secret"))
    for bootstrap in brokers.bootstrap("SASL_SSL").split(","):
        given = properties(brokers, mechanism, "carol", "carol-secret")
        assert failure({**given, "bootstrap.servers": bootstrap}) is None


@pytest.mark.parametrize("mechanism", SCRAMS)
def test_wrong_password_and_unknown_user_get_the_same_text(
    brokers: SecuredBrokers, mechanism: str
) -> None:
    alter(brokers, upsertion("dave", mechanism, "dave-secret"))
    texts = {failure(properties(brokers, mechanism, user, "wrong")) for user in ("dave", "nobody")}
    [text] = texts
    assert text is not None
    assert "due to invalid credentials with SASL mechanism" in text


def test_deleted_user_logs_in_no_longer(brokers: SecuredBrokers) -> None:
    given = properties(brokers, "SCRAM-SHA-256", "erin", "erin-secret")
    alter(brokers, upsertion("erin", "SCRAM-SHA-256", "erin-secret"))
    assert failure(given) is None
    alter(brokers, UserScramCredentialDeletion("erin", ScramMechanism.SCRAM_SHA_256))
    deadline = time.monotonic() + 30
    while failure(given) is None:
        assert time.monotonic() < deadline


def test_kafka_python_writes_and_aiokafka_reads_with_scram(brokers: SecuredBrokers) -> None:
    alter(brokers, upsertion("frank, the=1st", "SCRAM-SHA-512", "frank-secret"))
    alter(brokers, upsertion("frank", "SCRAM-SHA-256", "frank-secret"))
    client = admin(brokers)
    [made] = client.create_topics([NewTopic("scram", 1)]).values()
    made.result(30)
    login: dict[str, Any] = {
        "bootstrap_servers": brokers.bootstrap("SASL_PLAINTEXT"),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_plain_password": "frank-secret",
    }
    writer = kafka.KafkaProducer(
        **login, sasl_mechanism="SCRAM-SHA-256", sasl_plain_username="frank", acks="all"
    )
    writer.send("scram", b"x").get(30)
    writer.close()

    async def read() -> bytes:
        reader = aiokafka.AIOKafkaConsumer(
            "scram",
            **login,
            sasl_mechanism="SCRAM-SHA-512",
            sasl_plain_username="frank, the=1st",
            auto_offset_reset="earliest",
        )
        await reader.start()
        try:
            return (await reader.getone()).value
        finally:
            await reader.stop()

    assert asyncio.run(read()) == b"x"


def token(**changes: Any) -> str:
    claims = {"sub": "olga", "iat": time.time(), "exp": time.time() + 600, "aud": "brokers"}
    return jwt.encode({**claims, **changes}, KEY, "ES256", {"kid": "k"})


def with_token(brokers: SecuredBrokers, text: str) -> dict[str, Any]:
    return {
        **brokers.properties("SASL_SSL"),
        "sasl.mechanism": "OAUTHBEARER",
        "log_level": 0,
        "oauth_cb": lambda _: (text, time.time() + 600),
    }


def test_client_with_a_signed_token_logs_in(brokers: SecuredBrokers) -> None:
    assert failure(with_token(brokers, token())) is None


@pytest.mark.parametrize("changes", [{"aud": "web"}, {"exp": time.time() - 60}, {"sub": ""}])
def test_client_with_another_token_is_refused(
    brokers: SecuredBrokers, changes: dict[str, Any]
) -> None:
    text = failure(with_token(brokers, token(**changes)))
    assert text == 'SASL authentication error: {"status":"invalid_token"}'


def test_kafka_python_logs_in_with_a_signed_token(brokers: SecuredBrokers) -> None:
    class Provider(AbstractTokenProvider):
        def token(self) -> str:
            return token()

    client = kafka.KafkaAdminClient(
        bootstrap_servers=brokers.bootstrap("SASL_PLAINTEXT"),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Provider(),
    )
    assert isinstance(client.list_topics(), list)
    client.close()


def test_secrets_are_neither_in_a_log_nor_in_a_ledger(brokers: SecuredBrokers) -> None:
    texts = [brokers.log(id_) for id_ in (1, 2)]
    texts += [path.read_text() for path in brokers.directory.glob("*-ledger/*")]
    assert any("/config/users/carol" in text for text in texts)
    for text in texts:
        assert "-secret" not in text
        assert "stored_key" not in text
        assert ".eyJ" not in text


def test_brokers_log_in_to_each_other_as_a_user_from_before_the_first_start(tmp_path: Path) -> None:
    mechanism = scram.BY_NAME["SCRAM-SHA-512"]
    credential = scram.new_credential(mechanism, "broker-secret", 4096, b"salt")
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    changes = {
        "sasl.enabled.mechanisms": ["PLAIN", mechanism.name],
        "sasl.mechanism.inter.broker.protocol": mechanism.name,
        "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": (
            f'{module} required username="broker" password="broker-secret";'
        ),
    }
    brokers = SecuredBrokers(tmp_path, "SASL_PLAINTEXT", brokers=2, changes=changes)
    brokers.start_zookeeper()
    try:
        zookeeper = KazooClient(
            f"127.0.0.1:{brokers._zookeeper}", connection_retry={"max_tries": -1}
        )
        zookeeper.start(30)
        config = {"version": 1, "config": {mechanism.name: scram.encode_credential(credential)}}
        zookeeper.create("/config/users/broker", json.dumps(config).encode(), makepath=True)
        zookeeper.stop()
        zookeeper.close()
        for id_ in (1, 2):
            brokers.write_file(id_)
            brokers.start(id_)
        for id_ in (1, 2):
            brokers.wait_until_ready(id_)
        client = admin(brokers)
        [made] = client.create_topics([NewTopic("copied", 1, 2)]).values()
        made.result(30)
        acked: list[Any] = []
        producer = Producer({**brokers.properties("SASL_PLAINTEXT"), "acks": "all"})
        producer.produce("copied", b"x", on_delivery=lambda error, _: acked.append(error))
        producer.flush(30)
        assert acked == [None]  # min.insync.replicas is 2, so the follower has fetched the record
    finally:
        brokers.__exit__()
