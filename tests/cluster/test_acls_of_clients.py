"""ACLs of users who log in with SASL, with the unmodified librdkafka: who may write, and who may read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from support.security.secured_brokers import SecuredBrokers

LISTENER = "SASL_PLAINTEXT"
SECONDS = 30
USERS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="broker" password="broker-secret" '
    + " ".join(f'user_{name}="{name}-secret"' for name in ("broker", "admin", "alice", "bob"))
    + ";"
)


class Brokers(SecuredBrokers):
    """Brokers with an authorizer. Their own user, and `admin`, are super users."""

    def write_file(self, id_: int, changes: Mapping[str, object] = {}) -> None:
        own = {
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:broker;User:admin",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": USERS,
            "offsets.topic.num.partitions": 1,
            "offsets.topic.replication.factor": 2,
        }
        super().write_file(id_, {**own, **changes})


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    directory: Path = tmp_path_factory.mktemp("acls")
    with Brokers(directory, LISTENER, brokers=2) as started:
        topic = NewTopic("orders", num_partitions=1, replication_factor=2)
        client = admin(started)
        created = client.create_topics([topic, NewTopic("other", 1, 2)])
        for done in created.values():
            done.result(SECONDS)
        yield started


def admin(brokers: Brokers) -> AdminClient:
    return AdminClient(brokers.properties(LISTENER, "admin"))


def binding(
    user: str, operation: AclOperation, kind: ResourceType, name: str, *, prefixed: bool = False
) -> AclBinding:
    pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
    allow = AclPermissionType.ALLOW
    return AclBinding(kind, name, pattern, f"User:{user}", "*", operation, allow)


def grant(brokers: Brokers, *bindings: AclBinding) -> None:
    client = admin(brokers)
    for done in client.create_acls(list(bindings)).values():
        done.result(SECONDS)


def produced(brokers: Brokers, user: str, topic: str = "orders") -> int:
    """Produce one record with acks=all; return the error code."""
    properties = brokers.properties(LISTENER, user) | {"message.timeout.ms": 15_000}
    codes: list[int] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        codes.append(0 if error is None else error.code())

    producer = Producer(properties)
    producer.produce(topic, b"value", on_delivery=delivered)
    producer.flush(SECONDS)
    return codes[0]


def consumed(brokers: Brokers, user: str, group: str) -> int | bytes:
    """Return the value of the first record that the user's group reads, or the error code."""
    properties = brokers.properties(LISTENER, user)
    properties |= {"group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer(properties)
    consumer.subscribe(["orders"])
    try:
        message = consumer.poll(SECONDS)
        assert message is not None
        error = message.error()
        return bytes(message.value() or b"") if error is None else error.code()
    except KafkaException as failure:
        return failure.args[0].code()
    finally:
        consumer.close()


def eventually(call: Callable[[], int | bytes], expected: int | bytes) -> int | bytes:
    """Repeat a call until its result is the expected one: the other broker learns an ACL a little later."""
    deadline = time.monotonic() + SECONDS
    while (found := call()) != expected and time.monotonic() < deadline:
        pass
    return found


def test_users_may_do_what_their_acls_allow_and_nothing_else(brokers: Brokers) -> None:
    topic, group = ResourceType.TOPIC, ResourceType.GROUP
    denied = KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert produced(brokers, "alice") == denied
    grant(brokers, binding("alice", AclOperation.WRITE, topic, "ord", prefixed=True))
    assert eventually(partial(produced, brokers, "alice"), 0) == 0
    assert produced(brokers, "alice", "other") == denied
    assert produced(brokers, "bob") == denied
    assert consumed(brokers, "alice", "readers") == KafkaError.GROUP_AUTHORIZATION_FAILED
    grant(brokers, binding("bob", AclOperation.READ, group, "readers"))
    bob_reads = partial(consumed, brokers, "bob", "readers")
    assert eventually(bob_reads, denied) == denied
    grant(brokers, binding("bob", AclOperation.READ, topic, "orders"))
    assert eventually(bob_reads, b"value") == b"value"


def test_users_without_rights_may_not_change_acls(brokers: Brokers) -> None:
    user = AdminClient(brokers.properties(LISTENER, "alice"))
    anything = (ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY)
    every = AclBindingFilter(*anything, AclPermissionType.ANY)
    own = binding("alice", AclOperation.ALL, ResourceType.TOPIC, "*")
    for request in (*user.create_acls([own]).values(), *user.delete_acls([every]).values()):
        with pytest.raises(KafkaException) as raised:
            request.result(SECONDS)
        assert raised.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED


def test_denied_request_is_in_the_log_of_the_authorizer_alone(brokers: Brokers) -> None:
    assert produced(brokers, "bob", "other") == KafkaError.TOPIC_AUTHORIZATION_FAILED
    denied = (
        "INFO    kafka.authorizer.logger: Principal = User:bob is Denied Operation = Describe from host = 127.0.0.1 on "
        "resource = Topic:LITERAL:other for request = Metadata"
    )
    assert any(denied in brokers.verdicts(id_) for id_ in (1, 2))
    for id_ in (1, 2):
        assert "is Denied" not in brokers.log(id_)
        assert "is Allowed" not in brokers.verdicts(id_)
