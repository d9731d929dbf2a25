"""Commands with `--command-config` against real brokers, over each security protocol."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from support.commands.commands import Ended
from support.commands.commands import run as command
from support.security.certificates import PASSWORD
from support.security.metrics_page import read_page
from support.security.secured_brokers import LISTENERS, SecuredBrokers

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


USERS = (
    f'{MODULE} required username="broker" password="broker-secret" user_broker="broker-secret" '
    'user_alice="alice-secret" user_bob="bob-secret";'
)


class OneBroker(SecuredBrokers):
    """A single broker, which can hold groups. With SASL, alice is a super user, and bob has no rights."""

    def write_file(self, id_: int, changes: Mapping[str, object] = {}) -> None:
        alone = {
            "min.insync.replicas": 1,
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "group.initial.rebalance.delay.ms": 0,
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:broker;User:alice;User:ANONYMOUS;User:CN=alice,OU=Data,O=Example",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": USERS,
            "listener.name.sasl_ssl.plain.sasl.jaas.config": USERS,
            "listener.name.sasl_ssl.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
        }
        super().write_file(id_, {**alone, **changes})


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBrokers]:
    with OneBroker(tmp_path_factory.mktemp("commands"), "SASL_SSL", 1) as started:
        yield started


def properties(brokers: SecuredBrokers, listener: str) -> dict[str, str]:
    """Return what a user of Kafka's tools writes for a listener."""
    found = {"security.protocol": listener}
    if listener.endswith("SSL"):
        found["ssl.truststore.location"] = str(brokers.authority.pkcs12)
        found["ssl.truststore.password"] = PASSWORD
    if listener == "SSL":
        found["ssl.keystore.location"] = str(brokers.authority.client("alice").pkcs12)
        found["ssl.keystore.password"] = PASSWORD
    if listener.startswith("SASL"):
        found["sasl.mechanism"] = "PLAIN"
        found["sasl.jaas.config"] = (
            f'{MODULE} required \\\n  username="alice" password="alice-secret";'
        )
    return found


def run(
    brokers: SecuredBrokers,
    listener: str,
    *arguments: str,
    given: str = "",
    **changes: str | None,
) -> Ended:
    """Run a command over a listener. `changes`: key with `_` → value, None to leave it out."""
    values: dict[str, str | None] = {**properties(brokers, listener)}
    values |= {name.replace("_", "."): value for name, value in changes.items()}
    file = brokers.directory / "client.properties"
    file.write_text(
        "".join(f"{name}={value}\n" for name, value in values.items() if value is not None)
    )
    where = ["--bootstrap", brokers.bootstrap(listener), "--command-config", str(file)]
    return command(*arguments, *where, cwd=brokers.directory, stdin=given)


@pytest.mark.parametrize("listener", LISTENERS)
def test_commands_work_over_each_listener(brokers: SecuredBrokers, listener: str) -> None:
    topic = f"topic-{listener}"
    for arguments, given, expected in [
        (("topics", "create", topic), "", f"Created topic {topic}.\n"),
        (("produce", topic), "hello\n", ""),
        (("consume", topic, "-e", "-q"), "", "hello\n"),
        (("consume", topic, "-e", "-q", "--group", f"group-{listener}"), "", "hello\n"),
        (("groups", "list"), "", f"group-{listener}\n"),
    ]:
        done = run(brokers, listener, *arguments, given=given)
        assert done.code == 0, (arguments, done.err)
        assert done.out == expected or expected in done.out, arguments
    health = run(brokers, listener, "cluster", "health", "--json")
    assert json.loads(health.out)["healthy"] is True


@pytest.mark.parametrize(
    "arguments",
    [
        ("topics", "list"),
        ("cluster", "health"),
        ("produce", "t"),
        ("consume", "t", "--group", "g"),
    ],
)
def test_wrong_password_ends_a_command_at_once_with_code_3(
    brokers: SecuredBrokers, arguments: tuple[str, ...]
) -> None:
    jaas = f'{MODULE} required username="alice" password="guessed";'
    done = run(brokers, "SASL_SSL", *arguments, given="x\n", sasl_jaas_config=jaas)
    assert done.code == 3
    assert done.err == (
        "minikafka: SASL_AUTHENTICATION_FAILED: Authentication failed: Invalid username or password;"
        " check sasl.jaas.config\n"
    )


def test_broker_that_the_client_does_not_trust_ends_a_command_with_code_3(
    brokers: SecuredBrokers,
) -> None:
    foreign = {
        "ssl_truststore_location": str(brokers.foreign.pem),
        "ssl_truststore_password": None,
    }
    done = run(brokers, "SASL_SSL", "topics", "list", **foreign)
    assert done.code == 3
    assert "the certificate of the broker is not trusted: unable to get local" in done.err


def test_broker_with_another_host_name_ends_a_command_with_code_3(
    brokers: SecuredBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_address = brokers.bootstrap("SASL_SSL").replace("localhost", "127.0.0.1")
    monkeypatch.setattr(brokers, "bootstrap", lambda listener: by_address)
    done = run(brokers, "SASL_SSL", "topics", "list")
    assert done.code == 3
    assert "IP address mismatch" in done.err
    unchecked = run(brokers, "SASL_SSL", "topics", "list", ssl_endpoint_identification_algorithm="")
    assert unchecked.code == 0, unchecked.err


def test_client_without_a_certificate_is_told_that_the_broker_refuses_it(
    brokers: SecuredBrokers,
) -> None:
    without = {"ssl_keystore_location": None, "ssl_keystore_password": None}
    done = run(brokers, "SSL", "topics", "list", **without)
    assert done.code == 3
    assert "the broker has refused the client: TLSV13_ALERT_CERTIFICATE_REQUIRED" in done.err


def test_command_without_a_file_is_asked_whether_the_listener_demands_a_login(
    brokers: SecuredBrokers,
) -> None:
    arguments = ["topics", "list", "--bootstrap", brokers.bootstrap("SASL_SSL"), "--timeout", "4"]
    done = command(*arguments, cwd=brokers.directory)
    assert done.code == 1
    assert "Does the listener demand TLS or a login?" in done.err


def test_wrong_file_is_an_error_that_names_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\n\nssl.truststore.location=/nowhere\n")
    arguments = ["topics", "list", "--bootstrap", "localhost:1", "--command-config", str(file)]
    done = command(*arguments, cwd=tmp_path)
    assert done.code == 1
    assert done.err == (
        f"minikafka: {file}: line 3: ssl.truststore.location: /nowhere cannot be read: No such file or directory\n"
    )


WRONG = f'{MODULE} required username="alice" password="wrong-secret";'
BOB = f'{MODULE} required username="bob" password="bob-secret";'


def test_a_user_may_do_what_acls_allow_until_they_are_removed(brokers: SecuredBrokers) -> None:
    def admin(*arguments: str) -> Ended:
        done = run(brokers, "SASL_SSL", *arguments)
        assert done.code == 0, done.err
        return done

    def bob(*arguments: str, given: str = "") -> Ended:
        return run(brokers, "SASL_SSL", *arguments, given=given, sasl_jaas_config=BOB)

    admin("topics", "create", "orders")
    denied = bob("produce", "orders", given="v")
    assert denied.code == 1
    assert "TOPIC_AUTHORIZATION_FAILED" in denied.err

    allowed = ("--allow-principal", "User:bob", "--producer", "--topic", "orders")
    admin("acls", "add", *allowed)
    assert bob("produce", "orders", given="v").code == 0
    assert "User:bob" in admin("acls", "list", "--topic", "orders").out
    assert "CLUSTER_AUTHORIZATION_FAILED" in bob("acls", "list").err

    admin("acls", "remove", *allowed)
    assert bob("produce", "orders", given="v").code == 1
    assert admin("acls", "list").out == "There are no such ACLs.\n"


def test_a_user_can_log_in_until_it_is_removed(brokers: SecuredBrokers) -> None:
    def log_in(password: str) -> int:
        login = f'{SCRAM} required username="carol" password="{password}";'
        wanted = {"sasl_mechanism": "SCRAM-SHA-512", "sasl_jaas_config": login}
        return run(brokers, "SASL_SSL", "topics", "list", **wanted).code

    assert log_in("first") == 3
    for password in ("first", "second"):
        added = run(brokers, "SASL_SSL", "users", "add", "carol", given=f"{password}\n")
        assert added.out == "carol can log in with SCRAM-SHA-512.\n", added.err
        assert log_in(password) == 0
    assert log_in("first") == 3
    assert "carol" in run(brokers, "SASL_SSL", "users", "list").out
    assert run(brokers, "SASL_SSL", "users", "remove", "carol").code == 0
    assert log_in("second") == 3


def test_why_names_the_rule_and_the_command_that_grants_a_right(brokers: SecuredBrokers) -> None:
    def why(*arguments: str) -> dict[str, Any]:
        named = ("why", "--principal", "User:bob", "--topic", "why-orders", "--operation", "write")
        done = run(brokers, "SASL_SSL", *named, *arguments, "--json")
        assert done.code == 0, done.err
        [answer] = json.loads(done.out)["operations"]
        return answer

    denied = why()
    assert (denied["allowed"], denied["reason"]) == (False, "no ACL allows it")
    program, *words = shlex.split(denied["remedy"])
    assert (program, words[:2]) == ("minikafka", ["acls", "add"])
    assert "--command-config" in words
    granted = command(*words, cwd=brokers.directory)
    assert granted.code == 0, granted.err
    allowed = why()
    assert allowed["allowed"]
    assert allowed["acl"] == "ALLOW User:bob Write on Topic:LITERAL:why-orders from host *"
    shown = run(brokers, "SASL_SSL", "why", "--principal", "User:alice", "--cluster").out
    assert "User:alice may Alter on the cluster: the principal is a super user" in shown
    forbidden = run(
        brokers,
        "SASL_SSL",
        *("why", "--principal", "User:bob", "--topic", "t"),
        sasl_jaas_config=BOB,
    )
    assert forbidden.code == 1
    assert "CLUSTER_AUTHORIZATION_FAILED" in forbidden.err
    admin = ("acls", "remove", "--allow-principal", "User:bob", "--operation", "Write")
    assert run(brokers, "SASL_SSL", *admin, "--topic", "why-orders").code == 0


def test_metrics_page_has_what_an_operator_of_a_secured_cluster_watches(
    brokers: SecuredBrokers,
) -> None:
    assert run(brokers, "SASL_SSL", "topics", "list", sasl_jaas_config=WRONG).code == 3
    url = f"https://localhost:{brokers.control_port(1)}/metrics"
    page = read_page(url, brokers.authority, "alice:alice-secret")
    for name in (
        "kafka_server_socket_server_metrics_failed_authentication_total",
        "kafka_server_socket_server_metrics_successful_authentication_total",
        "kafka_security_aclauthorizer_denied_total",
        "kafka_network_requestmetrics_throttletimems",
        "kafka_server_kafkaserver_certificateexpiryms",
    ):
        assert f"\n{name}" in page, name
    with pytest.raises(HTTPError, match="403"):
        read_page(url, brokers.authority, "bob:bob-secret")
    assert "for request = /metrics" in brokers.verdicts(1)
