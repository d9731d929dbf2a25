"""The keys of a properties file with which a client connects."""

from __future__ import annotations

import pytest

from minikafka.base.config.client import KEYS, ClientConfig, client_config
from minikafka.base.endpoints import SecurityProtocol
from minikafka.base.errors import ConfigError
from minikafka.base.properties import parse_properties

JAAS = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p w";'
)


def parsed(text: str) -> ClientConfig:
    return client_config(parse_properties(text))


def test_a_file_of_kafkas_tools_is_read() -> None:
    found = parsed(
        f"security.protocol=sasl_ssl\nsasl.mechanism=PLAIN \nsasl.jaas.config={JAAS}\n"
        "ssl.truststore.location=/ca.pem\nssl.enabled.protocols=TLSv1.3\n"
        "ssl.endpoint.identification.algorithm=\n"
    )
    assert found == ClientConfig(
        security_protocol="SASL_SSL",
        sasl_mechanism="PLAIN",
        sasl_jaas_config=JAAS,
        ssl_truststore_location="/ca.pem",
        ssl_enabled_protocols=("TLSv1.3",),
        ssl_endpoint_identification_algorithm="",
    )


def test_without_keys_a_client_connects_in_the_clear_and_would_check_host_names() -> None:
    found = parsed("")
    assert found.protocol is SecurityProtocol.PLAINTEXT
    assert found.ssl_endpoint_identification_algorithm == "https"


def test_secrets_are_not_in_the_repr() -> None:
    secrets = {
        name: f"secret-{index}" for index, (name, row) in enumerate(KEYS.items()) if row.sensitive
    }
    assert "sasl.jaas.config" in secrets
    shown = repr(parsed("\n".join(f"{name}={value}" for name, value in secrets.items())))
    assert "secret-" not in shown


@pytest.mark.parametrize(
    "line",
    [
        "bootstrap.servers=host:1",
        "client.id=tool",
        "request.timeout.ms=5000",
        "ssl.protocol=TLSv1.3",
        "sasl.login.refresh.window.factor=0.8",
        "sasl.kerberos.service.name=kafka",
        "ssl.client.auth=required",
        "ssl.provider=",
        "my.own.key=1",
    ],
)
def test_keys_that_do_not_concern_the_connection_are_ignored(line: str) -> None:
    assert parsed(line) == ClientConfig()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("securty.protocol=SSL", "unknown key securty.protocol; did you mean security.protocol?"),
        ("security_protocol=SSL", "did you mean security.protocol?"),
        ("ssl.truststore.path=x", "unknown key ssl.truststore.path"),
        ("sasl.whatever=x", "unknown key sasl.whatever; known keys are"),
        ("sasl.mechanisms=PLAIN", "did you mean sasl.mechanism?"),
        ("sasl.username=u", "write sasl.jaas.config"),
        ("ssl.ca.location=x", "write ssl.truststore.location"),
        ("ssl.engine.factory.class=org.Engine", "Java classes cannot be used"),
        ("security.providers=org.Provider", "providers cannot be used"),
        ("config.providers=file", "write them into the file"),
        ("security.protocol=TLS", "security.protocol must be one of PLAINTEXT, SSL"),
        ("ssl.endpoint.identification.algorithm=none", "must be one of https"),
        ("ssl.enabled.protocols=TLSv1.1", "TLSv1.2, TLSv1.3"),
    ],
)
def test_a_key_whose_loss_would_weaken_security_is_refused_with_its_line(
    line: str, reason: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parsed(f"# a file\n{line}\n")
    assert str(caught.value).startswith("line 2: ")
    assert reason in str(caught.value)
