"""Kafka's command line tools that log in with SCRAM, a delegation token and a bearer token.

Runs only where MINIKAFKA_KAFKA_JARS names a directory with the jars of Kafka 3.9, and a `java` is on the path.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm
from support.security.secured_brokers import SecuredBrokers

JARS: Final = os.environ.get("MINIKAFKA_KAFKA_JARS", "")
CONFIGS: Final = "kafka.admin.ConfigCommand"
TOKENS: Final = "org.apache.kafka.tools.DelegationTokenCommand"
TOPICS: Final = "org.apache.kafka.tools.TopicCommand"
PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
BEARER: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
KEY: Final = ec.generate_private_key(ec.SECP256R1())

pytestmark = pytest.mark.skipif(
    not JARS or shutil.which("java") is None or not any(Path(JARS).glob("kafka-tools-3*.jar")),
    reason="MINIKAFKA_KAFKA_JARS names no directory with the jars of Kafka's tools",
)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBrokers]:
    directory = tmp_path_factory.mktemp("logins")
    keys = {"keys": [{**json.loads(ECAlgorithm.to_jwk(KEY.public_key())), "kid": "k"}]}
    (directory / "keys.json").write_text(json.dumps(keys))
    changes = {
        "sasl.enabled.mechanisms": ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"],
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{directory}/keys.json",
        "delegation.token.secret.key": "the secret of tokens",
        "min.insync.replicas": 1,
    }
    with SecuredBrokers(directory, "SASL_PLAINTEXT", brokers=2, changes=changes) as started:
        yield started


def run(
    brokers: SecuredBrokers, main: str, login: dict[str, str], *arguments: str, bootstrap: str = ""
) -> str:
    """Run a tool that logs in with these properties; return its standard output and error."""
    file = brokers.directory / "client.properties"
    properties = {"security.protocol": "SASL_PLAINTEXT", **login}
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    command = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", f"{JARS}/*", main]
    to = bootstrap or brokers.bootstrap("SASL_PLAINTEXT")
    command += ["--bootstrap-server", to, "--command-config", str(file), *arguments]
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout


def jaas(module: str, user: str, password: str, more: str = "") -> dict[str, str]:
    mechanism = "PLAIN" if module == PLAIN else "SCRAM-SHA-256"
    text = f'{module} required username="{user}" password="{password}"{more};'
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": text}


ADMIN: Final = jaas(PLAIN, "alice", "alice-secret")


def test_user_that_kafka_configs_has_added_logs_in(brokers: SecuredBrokers) -> None:
    add = ("--add-config", "SCRAM-SHA-256=[password=carol-secret]")
    added = run(
        brokers, CONFIGS, ADMIN, "--alter", *add, "--entity-type", "users", "--entity-name", "carol"
    )
    assert "Completed updating config for user carol" in added
    carol = jaas(SCRAM, "carol", "carol-secret")
    assert "Created topic of-carol" in run(
        brokers, TOPICS, carol, "--create", "--topic", "of-carol"
    )
    assert "due to invalid credentials" in run(
        brokers, TOPICS, jaas(SCRAM, "carol", "wrong"), "--list"
    )


def test_delegation_token_is_used_at_every_broker_until_it_is_removed(
    brokers: SecuredBrokers,
) -> None:
    created = run(
        brokers,
        TOKENS,
        ADMIN,
        "--create",
        "--max-life-time-period",
        "-1",
        "--renewer-principal",
        "User:bob",
    )
    [(token_id, hmac)] = re.findall(r"(?m)^([\w-]{22})\s+(\S{88})\s+User:alice", created)
    login = jaas(SCRAM, token_id, hmac, ' tokenauth="true"')
    for bootstrap in brokers.bootstrap("SASL_PLAINTEXT").split(","):
        listed = run(brokers, TOPICS, login, "--list", bootstrap=bootstrap)
        assert "Exception" not in listed, listed
    refused = run(brokers, TOKENS, login, "--describe")
    assert "Delegation Token requests are not allowed" in refused
    renewed = run(brokers, TOKENS, ADMIN, "--renew", "--renew-time-period", "-1", "--hmac", hmac)
    assert "Completed renew operation" in renewed
    described = run(brokers, TOKENS, ADMIN, "--describe", "--owner-principal", "User:alice")
    assert token_id in described
    removed = run(brokers, TOKENS, ADMIN, "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    assert "Completed expire operation" in removed
    assert "due to invalid credentials" in run(brokers, TOPICS, login, "--list")


def test_java_client_logs_in_with_a_bearer_token(brokers: SecuredBrokers) -> None:
    claims = {"sub": "olga", "iat": time.time(), "exp": time.time() + 600}
    file = brokers.directory / "token.jwt"
    file.write_text(jwt.encode(claims, KEY, "ES256", {"kid": "k"}))
    login = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{BEARER} required;",
        "sasl.login.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
        ),
        "sasl.oauthbearer.token.endpoint.url": f"file://{file}",
    }
    listed = run(brokers, TOPICS, login, "--list")
    assert "Exception" not in listed, listed
    file.write_text(jwt.encode({**claims, "aud": "web"}, KEY, "ES256", {"kid": "k"}))
    assert "invalid_token" in run(brokers, TOPICS, login, "--list")
