"""Wrong values of the keys of listeners, TLS, SASL and ACLs: they stop a broker before it calls ZooKeeper."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from support.security.certificates import PASSWORD, Authority

from minikafka.base.errors import ConfigError
from minikafka.tools.cli.foreground import broker_process

LISTENER: Final = "listener.name.sasl_ssl."
JAAS: Final = f"{LISTENER}plain.sasl.jaas.config"
MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
LOGIN: Final = f'{MODULE} required username="b" password="p" user_b="p";'
JWKS: Final = f"{LISTENER}oauthbearer.sasl.oauthbearer.jwks.endpoint.url"
KEYSTORE: Final = "ssl.keystore.location"
TRUSTSTORE: Final = "ssl.truststore.location"
PKCS12: Final = {KEYSTORE: "DIR/own.p12", "ssl.keystore.password": PASSWORD}
ACL_AUTHORIZER: Final = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with files to name in the keys."""
    found = tmp_path_factory.mktemp("keys")
    authority, foreign = Authority(found / "ca"), Authority(found / "foreign", "foreign")
    own, other = authority.server("localhost"), authority.server("example.org")
    expired, untrusted = authority.expired_server("localhost"), foreign.server("localhost")
    files = {
        "own.p12": own.pkcs12,
        "own.pem": own.pem,
        "other.pem": other.pem,
        "expired.pem": expired.pem,
        "untrusted.pem": untrusted.pem,
        "ca.pem": authority.pem,
        "locked.pem": own.locked_pem,
    }
    for name, file in files.items():
        (found / name).symlink_to(file)
    (found / "text").write_text("text")
    (found / "mixed").write_bytes(own.key_pem + other.chain_pem)
    return found


def run(directory: Path, changes: Mapping[str, str | None]) -> None:
    """Run a broker with these keys. `None`: without the key; `DIR` in a value: the directory of the files."""
    keys = {
        "broker.id": "1",
        "zookeeper.connect": "127.0.0.1:1",
        "minikafka.cluster.secret": "0123456789abcdef",
        "log.dirs": "DIR/log",
        "listeners": "SASL_SSL://localhost:0",
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        JAAS: LOGIN,
        KEYSTORE: "DIR/own.pem",
        TRUSTSTORE: "DIR/ca.pem",
        **changes,
    }
    file = directory / "broker.toml"
    lines = [f"{key} = {json.dumps(text)}" for key, text in keys.items() if text is not None]
    file.write_text("\n".join(["[broker]", *lines]).replace("DIR", str(directory)))
    broker_process.run_broker(str(file), "text", None)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        # The keystore.
        ({KEYSTORE: "/missing"}, f"{KEYSTORE}: /missing cannot be read: No such file"),
        ({KEYSTORE: "DIR"}, "cannot be read: Is a directory"),
        ({KEYSTORE: "DIR/text"}, f"{KEYSTORE}: DIR/text has no block BEGIN PRIVATE KEY"),
        ({KEYSTORE: None}, f"{KEYSTORE} is not set: name a PKCS12 or PEM file"),
        (
            {**PKCS12, "ssl.keystore.password": "wrong"},
            "ssl.keystore.password: DIR/own.p12 does not open",
        ),
        ({KEYSTORE: "DIR/own.p12"}, "does not open: the password is not set"),
        (
            {**PKCS12, "ssl.keystore.type": "PEM"},
            "ssl.keystore.type is PEM, but DIR/own.p12 is not",
        ),
        ({"ssl.keystore.type": "BKS"}, "ssl.keystore.type must be one of JKS, PKCS12, PEM"),
        (
            {KEYSTORE: "DIR/locked.pem", "ssl.key.password": "wrong"},
            "does not open with ssl.key.password: it is wrong",
        ),
        ({KEYSTORE: "DIR/mixed"}, f"{KEYSTORE}: DIR/mixed cannot"),
        ({KEYSTORE: None, "ssl.keystore.key": "text"}, "ssl.keystore.certificate.chain is not set"),
        ({"ssl.keystore.key": "text"}, f"set {KEYSTORE} or ssl.keystore.key, not both"),
        # The truststore.
        ({TRUSTSTORE: "/missing"}, f"{TRUSTSTORE}: /missing cannot be read"),
        ({TRUSTSTORE: "DIR/text"}, f"{TRUSTSTORE}: DIR/text has no certificate in PEM format"),
        ({TRUSTSTORE: None, "ssl.client.auth": "required"}, f"{TRUSTSTORE} is not set: name"),
        ({"ssl.truststore.certificates": "text"}, "or ssl.truststore.certificates, not both"),
        # What other brokers would refuse.
        (
            {KEYSTORE: "DIR/other.pem"},
            "it must be for localhost, where they listen",
        ),
        ({KEYSTORE: "DIR/untrusted.pem"}, f"of an authority in {TRUSTSTORE}"),
        ({KEYSTORE: "DIR/expired.pem"}, "certificate has expired"),
        # Other keys of TLS.
        ({"ssl.client.auth": "always"}, "ssl.client.auth must be one of none, requested, required"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "a list of words from TLSv1.2, TLSv1.3, got"),
        ({"ssl.enabled.protocols": ""}, "ssl.enabled.protocols is empty: name TLSv1.2 or TLSv1.3"),
        ({"ssl.cipher.suites": "RC4"}, "ssl.cipher.suites: RC4 is not a cipher suite"),
        (
            {"ssl.endpoint.identification.algorithm": "http"},
            "ssl.endpoint.identification.algorithm must be one of https, empty, got 'http'",
        ),
        ({"ssl.principal.mapping.rules": "RULE:a"}, "ssl.principal.mapping.rules: must be DEFAULT"),
        ({"ssl.principal.mapping.rules": "RULE:(/$1/"}, "has a malformed pattern in 'RULE:(/$1/'"),
        # SASL.
        ({"sasl.enabled.mechanisms": "NTLM"}, "sasl.enabled.mechanisms of listener SASL_SSL: NTLM"),
        ({"sasl.enabled.mechanisms": None}, "GSSAPI is not implemented; use PLAIN or SCRAM"),
        ({"sasl.enabled.mechanisms": ""}, "sasl.enabled.mechanisms of listener SASL_SSL is empty"),
        (
            {"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"},
            "sasl.mechanism.inter.broker.protocol must be one of sasl.enabled.mechanisms (PLAIN)",
        ),
        ({JAAS: None}, f"{JAAS} is not set: write the login module of PLAIN"),
        ({JAAS: LOGIN[:-1]}, f"{JAAS} does not end with a semicolon"),
        ({JAAS: "text;"}, f"{JAAS} has no control flag after the login module"),
        ({JAAS: LOGIN.replace("Plain", "Scram")}, f"{JAAS} names another login module than"),
        ({JAAS: f"{MODULE} required username=b!;"}, "values must be in quotes"),
        ({JAAS: f'{MODULE} required user_b="p";'}, f'{JAAS} has no username="…"'),
        ({JAAS: None, "sasl.jaas.config": LOGIN}, f"sasl.jaas.config is for clients: write {JAAS}"),
        (
            {"sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER", JWKS: "ftp://h"},
            "sasl.oauthbearer.jwks.endpoint.url must be file:///PATH",
        ),
        ({"connections.max.reauth.ms": "1h"}, "connections.max.reauth.ms must be a whole number"),
        ({"sasl.server.max.receive.size": "0"}, "sasl.server.max.receive.size must be at least 1"),
        (
            {"password.encoder.key.length": "129"},
            "password.encoder.key.length must be 128, 192 or 256",
        ),
        # The listeners.
        (
            {"listeners": "SASL_SSL://localhost"},
            "listeners: 'SASL_SSL://localhost' is not a listener",
        ),
        ({"listeners": "localhost:9092"}, "write NAME://host:port"),
        (
            {"listeners": "SASL_SSL://localhost:1,SSL://localhost:1"},
            "Each listener must have a different port, listeners:",
        ),
        (
            {"listeners": "SASL_SSL://localhost:1,OUT://localhost:2"},
            "No security protocol defined for listener OUT: add OUT:PROTOCOL to listener.security.pro",
        ),
        (
            {"listener.security.protocol.map": "SASL_SSL:TLS"},
            "Invalid security protocol `TLS` defined in listener.security.protocol.map: must be one",
        ),
        (
            {"security.inter.broker.protocol": "SSL"},
            "must be a listener name defined in advertised.listeners. Found SSL.",
        ),
        ({f"{LISTENER}ssl.keystor.location": "f"}, f"did you mean {LISTENER}{KEYSTORE}?"),
        # ACLs.
        (
            {"super.users": "admin"},
            "super.users must be a list of TYPE:NAME separated by semicolons",
        ),
        ({"super.users": "User:a,User:b"}, "separated by semicolons, such as User:admin, got"),
        ({"authorizer.class.name": "Own"}, "must be empty or kafka.security.authorizer.AclAuthori"),
        (
            {**ACL_AUTHORIZER, "allow.everyone.if.no.acl.found": "often"},
            "allow.everyone.if.no.acl.found must be true or false, got 'often'",
        ),
    ],
)
def test_wrong_value_stops_the_start_with_the_key_and_the_file(
    directory: Path,
    changes: Mapping[str, str | None],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    began = time.process_time()
    with pytest.raises(ConfigError) as caught:
        run(directory, changes)
    text = str(caught.value)
    assert reason.replace("DIR", str(directory)) in text
    assert text.startswith(f"{directory}/broker.toml: ")
    assert PASSWORD not in text
    assert time.process_time() - began < 1.0
    assert not (directory / "log").exists()
