"""The JAAS file that KAFKA_OPTS names for a broker."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ConfigError
from minikafka.security.jaas import parse
from minikafka.tools.cli.kafka_home.static_logins import logins_of

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
VALUES = {
    "listeners": "PLAINTEXT://a:1,INTERNAL://a:2",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
}


def found(tmp_path, text: str, **more: str) -> dict[str, str]:
    file = tmp_path / "jaas.conf"
    file.write_text(text)
    return {one.name: one.value for one in logins_of(str(file), {**VALUES, **more})}


def test_section_kafka_server_gives_each_mechanism_its_module(tmp_path):
    text = rf"""KafkaServer {{
        {PLAIN} required debug=true username="a" password="x\"y\\z" user_a="x";
        {SCRAM} required username="b" password="s"; }};
        Client {{}};"""
    logins = found(tmp_path, text)
    key = "listener.name.internal.{}.sasl.jaas.config"
    assert logins.keys() == {key.format("plain"), key.format("scram-sha-256")}
    assert parse(logins[key.format("plain")]).options["password"] == 'x"y\\z'
    assert parse(logins[key.format("scram-sha-256")]).options["username"] == "b"


def test_section_of_the_listener_precedes_kafka_server(tmp_path):
    module = f'{{ {PLAIN} required username="%s"; }};'
    text = f"KafkaServer {module % 'all'} internal.KafkaServer {module % 'one'}"
    [login] = found(tmp_path, text).values()
    assert parse(login).options == {"username": "one"}


def test_key_of_the_configuration_precedes_the_file(tmp_path):
    key = "listener.name.internal.plain.sasl.jaas.config"
    assert not found(tmp_path, f"KafkaServer {{ {PLAIN} required; }};", **{key: "x"})


def test_section_client_is_the_login_at_zookeeper(tmp_path):
    text = "Client { org.apache.zookeeper.server.auth.DigestLoginModule required username=a; };"
    assert found(tmp_path, text) == {"minikafka.zookeeper.jaas.config": str(tmp_path / "jaas.conf")}


def test_unreadable_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"java\.security\.auth\.login\.config: .*none: No such"):
        logins_of(str(tmp_path / "none"), VALUES)
