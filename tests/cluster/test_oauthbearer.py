"""Brokers and commands that log in with tokens of an identity provider, which dies for a while. Tokens end, too."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.commands.commands import Ended
from support.commands.commands import run as command
from support.security.secured_brokers import SecuredBrokers
from support.security.token_server import TokenServer

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
LISTENER = "SASL_PLAINTEXT"
LIFE = 6
"""Seconds for which a token is valid."""


@pytest.fixture(scope="module")
def server() -> Iterator[TokenServer]:
    with TokenServer(LIFE) as started:
        yield started


@pytest.fixture(scope="module")
def brokers(
    tmp_path_factory: pytest.TempPathFactory, server: TokenServer
) -> Iterator[SecuredBrokers]:
    changes = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": server.keys_url,
        "sasl.oauthbearer.clock.skew.seconds": 0,
        "sasl.oauthbearer.token.endpoint.url": server.token_url,
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": module("broker"),
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 1,
        "group.initial.rebalance.delay.ms": 0,
    }
    directory = tmp_path_factory.mktemp("bearers")
    with SecuredBrokers(directory, LISTENER, 2, (LISTENER,), changes) as started:
        yield started


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def module(user: str, secret: str = "") -> str:
    return f'{MODULE} required clientId="{user}" clientSecret="{secret or f"{user}-secret"}";'


def run(
    brokers: SecuredBrokers, server: TokenServer, *arguments: str, given: str = "", secret: str = ""
) -> Ended:
    """Run a command as alice."""
    file = brokers.directory / "client.properties"
    lines = {
        "security.protocol": LISTENER,
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": server.token_url,
        "sasl.login.retry.backoff.max.ms": "200",
        "sasl.jaas.config": module("alice", secret),
    }
    file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    where = ["--bootstrap", brokers.bootstrap(LISTENER), "--command-config", str(file)]
    return command(*arguments, *where, cwd=brokers.directory, stdin=given)


def test_commands_and_members_of_groups_log_in_with_tokens(
    brokers: SecuredBrokers, server: TokenServer
) -> None:
    for arguments, given, expected in [
        (("topics", "create", "t", "--replication-factor", "2"), "", "Created topic t.\n"),
        (("produce", "t"), "hello\n", ""),
        (("consume", "t", "-e", "-q"), "", "hello\n"),
        (("consume", "t", "-e", "-q", "--group", "g"), "", "hello\n"),
    ]:
        done = run(brokers, server, *arguments, given=given)
        assert (done.code, done.out) == (0, expected), done.err


def test_followers_go_on_while_tokens_end_and_the_token_server_is_dead_for_a_while(
    brokers: SecuredBrokers, server: TokenServer
) -> None:
    server.stop()
    until(lambda: any("logins use the token that ends soon" in brokers.log(id_) for id_ in (1, 2)))
    asked = len(server.requests)
    server.start()
    until(lambda: len(server.requests) > asked + 1)
    done = run(brokers, server, "produce", "t", given="world\n")
    assert done.code == 0, done.err
    for id_ in brokers.ids:
        log = brokers.log(id_)
        assert "failed authentication" not in log
        assert "-secret" not in log
        assert "eyJ" not in log


def test_client_that_gets_no_token_ends_with_the_reason(
    brokers: SecuredBrokers, server: TokenServer
) -> None:
    refused = run(brokers, server, "topics", "list", secret="wrong")
    assert refused.code == 3
    assert "refuses a token with HTTP status 401: invalid_client" in refused.err
    server.stop()
    try:
        dead = run(brokers, server, "topics", "list")
    finally:
        server.start()
    assert dead.code == 1
    assert f"no token from {server.token_url}" in dead.err


def test_wrong_login_module_stops_the_start_with_its_key(
    tmp_path: Path, server: TokenServer
) -> None:
    key = "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config"
    changes = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": server.keys_url,
        "sasl.oauthbearer.token.endpoint.url": server.token_url,
        key: f'{MODULE} required clientId="broker";',
    }
    broker = SecuredBrokers(tmp_path, LISTENER, 1, (LISTENER,), changes)
    broker.write_file(1)
    broker.start(1)
    try:
        assert broker.wait(1) != 0
    finally:
        broker.__exit__()
    assert f"{key} has no clientSecret" in broker.log(1)
