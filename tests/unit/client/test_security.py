"""How a client connects and logs in, from Kafka's configuration keys; errors of TLS for people."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from support.security.certificates import Authority

from minikafka.base.config.client import ClientConfig
from minikafka.base.errors import ConfigError
from minikafka.client.login import LoginFailed, TlsFailed
from minikafka.client.security import aiokafka_arguments, connector_from, login_from
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.security.jaas import MODULES

SECRET = "secret of alice"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
REAL = SystemRng(), SystemClock()


def config(mechanism: str = "PLAIN", protocol: str = "SASL_PLAINTEXT", **rest: str) -> ClientConfig:
    jaas = f'{MODULES.get(mechanism, "x")} required username="alice" password="{SECRET}";'
    values = {"sasl_jaas_config": jaas, **rest}
    return ClientConfig(security_protocol=protocol, sasl_mechanism=mechanism, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_login_has_the_user_of_the_login_module(mechanism: str) -> None:
    login = login_from(config(mechanism))
    assert login is not None
    assert (login.mechanism, login.user, login.password) == (mechanism, "alice", SECRET)


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_without_sasl_there_is_no_login(protocol: str) -> None:
    assert login_from(config(protocol=protocol)) is None


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (config("GSSAPI"), "sasl.mechanism must be one of PLAIN, .*got GSSAPI"),
        (ClientConfig(security_protocol="SASL_SSL", sasl_mechanism="PLAIN"), "is not set"),
        (config(sasl_jaas_config="x required;"), "sasl.jaas.config names another login module"),
        (config(sasl_jaas_config=f"{MODULES['PLAIN']} required;"), "has no username"),
        (config(sasl_jaas_config="nothing"), "does not end with a semicolon"),
    ],
)
def test_wrong_login_is_an_error_that_names_the_key(wrong: ClientConfig, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        login_from(wrong)
    assert SECRET not in str(caught.value)


def test_connector_encrypts_only_under_tls(tmp_path: Path) -> None:
    trust = {"ssl_truststore_location": str(Authority(tmp_path).pem)}
    assert connector_from(config(protocol="SASL_SSL", **trust), *REAL).tls is not None
    assert connector_from(config(protocol="SASL_PLAINTEXT", **trust), *REAL).tls is None


def test_connector_checks_the_host_name_unless_the_algorithm_is_empty() -> None:
    contexts = [
        aiokafka_arguments(ClientConfig(security_protocol="SSL", **chosen), *REAL)["ssl_context"]
        for chosen in ({}, {"ssl_endpoint_identification_algorithm": ""})
    ]
    assert [context.check_hostname for context in contexts] == [True, False]
    assert {context.verify_mode for context in contexts} == {ssl.CERT_REQUIRED}


def test_aiokafka_logs_in_as_the_same_user() -> None:
    assert aiokafka_arguments(config(), *REAL) == {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "alice",
        "sasl_plain_password": SECRET,
    }


def test_member_of_a_group_cannot_log_in_with_a_delegation_token() -> None:
    module = MODULES["SCRAM-SHA-256"]
    jaas = f'{module} required username="id" password="hmac" tokenauth="true";'
    with pytest.raises(ConfigError, match="delegation token"):
        aiokafka_arguments(config("SCRAM-SHA-256", sasl_jaas_config=jaas), *REAL)


def test_refused_login_and_refused_certificate_have_an_exit_code_of_their_own() -> None:
    refusals = (LoginFailed("wrong"), TlsFailed(ssl.SSLError()))
    assert {refusal.exit_code for refusal in refusals} == {3}
    assert not any(refusal.code.retriable for refusal in refusals)


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("WRONG_VERSION_NUMBER", "the listener does not use TLS"),
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "refused the client: .* \\(ssl.keystore.location\\)"),
        ("NO_SHARED_CIPHER", "no connection by TLS: NO_SHARED_CIPHER"),
    ],
)
def test_failed_handshake_names_the_key_that_mends_it(reason: str, shown: str) -> None:
    error = ssl.SSLError()
    error.reason = reason
    with pytest.raises(TlsFailed, match=shown):
        raise TlsFailed(error)
