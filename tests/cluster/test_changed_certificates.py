"""Keys and certificates of a listener that are changed while the broker runs, by Kafka's AlterConfigs and by file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from support.security.certificates import PASSWORD, Certificate
from support.security.secured_brokers import SecuredBrokers

PREFIX = "listener.name.sasl_ssl.ssl."
SECONDS = 30.0


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBrokers]:
    directory = tmp_path_factory.mktemp("changed")
    changes = {"password.encoder.secret": "secret of the encoder"}
    with SecuredBrokers(directory, "SASL_SSL", brokers=1, changes=changes) as started:
        yield started


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def alter(brokers: SecuredBrokers, **values: str) -> None:
    """Set keys of the listener SASL_SSL; `keystore_location` is `….ssl.keystore.location`."""
    entries = [
        ConfigEntry(
            PREFIX + name.replace("_", "."),
            value,
            incremental_operation=AlterConfigOpType.SET,
        )
        for name, value in values.items()
    ]
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=entries)
    admin = AdminClient(brokers.properties("SASL_SSL"))
    [outcome] = admin.incremental_alter_configs([resource]).values()
    outcome.result(SECONDS)


def port(brokers: SecuredBrokers) -> int:
    return int(brokers.bootstrap("SASL_SSL").rpartition(":")[2])


def stored(brokers: SecuredBrokers, other: Certificate) -> dict[str, str]:
    return {"keystore_location": str(other.pkcs12), "keystore_password": PASSWORD}


@pytest.mark.key("password.encoder.secret")
def test_new_connections_get_the_certificate_of_an_altered_keystore(
    brokers: SecuredBrokers,
) -> None:
    other = brokers.authority.server("localhost")
    before = brokers.served(port(brokers))
    assert before != other.der
    alter(brokers, **stored(brokers, other))
    until(lambda: brokers.served(port(brokers)) == other.der)
    until(lambda: brokers.served(brokers.control_port(1)) == other.der)
    assert PASSWORD not in brokers.log(1)
    assert PASSWORD.encode() not in b"".join(
        path.read_bytes() for path in (brokers.directory / "zookeeper").rglob("*") if path.is_file()
    )


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"keystore_location": "/nowhere"}, "cannot be read"),
        ({"keystore_password": "wrong"}, "does not open"),
        ({"client_auth": "none"}, "Cannot update these configs dynamically"),
    ],
)
def test_change_that_the_listener_cannot_use_is_refused_and_changes_nothing(
    brokers: SecuredBrokers, values: dict[str, str], reason: str
) -> None:
    before = brokers.served(port(brokers))
    with pytest.raises(KafkaException, match=reason):
        alter(brokers, **values)
    assert brokers.served(port(brokers)) == before


def test_keystore_with_another_name_is_refused_and_changes_nothing(brokers: SecuredBrokers) -> None:
    before = brokers.served(port(brokers))
    with pytest.raises(KafkaException, match=r"ssl\.allow\.dn\.changes"):
        alter(brokers, **stored(brokers, brokers.authority.server("localhost", name="other")))
    assert brokers.served(port(brokers)) == before


def test_altered_keystore_is_used_after_a_restart_and_when_its_file_changes(
    brokers: SecuredBrokers, tmp_path: Path
) -> None:
    other, third = brokers.authority.server("localhost"), brokers.authority.server("localhost")
    file = tmp_path / "own.p12"
    file.write_bytes(other.pkcs12.read_bytes())
    alter(brokers, keystore_location=str(file), keystore_password=PASSWORD)
    brokers.stop(1)
    brokers.start(1)
    brokers.wait_until_ready(1)
    assert brokers.served(port(brokers)) == other.der
    file.write_bytes(third.pkcs12.read_bytes())
    until(lambda: brokers.served(port(brokers)) == third.der)
