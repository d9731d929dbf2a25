"""Tokens from a file, and from a token endpoint over HTTP that answers, refuses, is slow or dead."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs

import pytest
import trustme
from support.security.token_server import TokenServer

from minikafka.base.config.client import client_config
from minikafka.base.errors import ConfigError
from minikafka.base.properties import Property
from minikafka.client.login import LoginFailed
from minikafka.client.security import aiokafka_arguments, login_from, tokens_from
from minikafka.client.token_endpoint import NoToken, token_origin
from minikafka.client.token_source import TokenSource
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.security.jaas import InvalidJaas, parse
from minikafka.security.sasl_client import new_client_exchange
from minikafka.spark.wire.tokens import current_token

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
URL = "sasl.oauthbearer.token.endpoint.url"
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
OPTIONS = 'clientId="alice" clientSecret="alice-secret"'


@pytest.fixture
def server() -> Iterator[TokenServer]:
    with TokenServer() as started:
        yield started


def keys(url: str, options: str = OPTIONS, **changes: str) -> dict[str, str]:
    """Return what a user writes into the file of a client of Kafka."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": HANDLER,
        "sasl.jaas.config": f"{MODULE} required {options};",
        URL: url,
        **{name.replace("_", "."): value for name, value in changes.items()},
    }


def fetch(values: dict[str, str], *, is_patient: bool = True) -> str:
    config = client_config(Property(name, value, 1) for name, value in values.items())
    assert config.sasl_jaas_config is not None
    origin = token_origin(config, parse(config.sasl_jaas_config).options, SystemClock())
    assert "secret" not in repr(origin)
    return asyncio.run(origin.fetch(is_patient=is_patient))


@pytest.mark.key("sasl.oauthbearer.token.endpoint.url")
def test_client_shows_its_id_and_secret_and_gets_a_token(server: TokenServer) -> None:
    assert fetch(keys(server.token_url)).count(".") == 2
    assert fetch(keys(server.token_url, f'{OPTIONS} scope=" a b "')).count(".") == 2
    assert [parse_qs(form) for form in server.requests] == [
        {"grant_type": ["client_credentials"]},
        {"grant_type": ["client_credentials"], "scope": ["a b"]},
    ]


@pytest.mark.key("sasl.oauthbearer.header.urlencode")
def test_id_and_secret_are_encoded_only_if_the_key_says_so(server: TokenServer) -> None:
    options = 'clientId="a%20b" clientSecret="a%20b-secret"'
    assert fetch(keys(server.token_url, options))
    options = 'clientId="a b" clientSecret="a+b-secret"'
    with pytest.raises(LoginFailed, match="401"):
        fetch(keys(server.token_url, options, sasl_oauthbearer_header_urlencode="true"))


def test_refusal_ends_at_once_and_shows_no_secret(server: TokenServer) -> None:
    with pytest.raises(LoginFailed) as caught:
        fetch(keys(server.token_url, 'clientId="alice" clientSecret="wrong-secret"'))
    assert str(caught.value).endswith(
        f"{server.token_url} refuses a token with HTTP status 401: invalid_client - no such one"
    )
    assert len(server.requests) == 1


@pytest.mark.key("sasl.login.retry.backoff.ms")
def test_failed_request_is_repeated(server: TokenServer) -> None:
    server.answers += [(503, ""), (302, server.keys_url), (200, "{}"), (200, "[]")]
    assert fetch(keys(server.token_url, sasl_login_retry_backoff_ms="1"))
    assert (len(server.requests), server.reads) == (5, 0)
    server.answers += [(500, json.dumps({"error": "\x1b[31mred"}))]
    with pytest.raises(NoToken, match=r"HTTP status 500: \\u001b\[31mred"):
        fetch(keys(server.token_url), is_patient=False)


@pytest.mark.key("sasl.login.retry.backoff.max.ms", "sasl.login.read.timeout.ms")
def test_silent_and_dead_endpoints_are_given_up(server: TokenServer) -> None:
    short = {"sasl_login_retry_backoff_max_ms": "50", "sasl_login_read_timeout_ms": "50"}
    server.is_silent.set()
    with pytest.raises(NoToken, match="no answer in time"):
        fetch(keys(server.token_url, **short))
    server.stop()
    with pytest.raises(NoToken, match=f"no token from {server.token_url}: "):
        fetch(keys(server.token_url, **short))


@pytest.mark.key("sasl.login.connect.timeout.ms")
def test_connection_that_is_not_accepted_is_given_up() -> None:
    short = {"sasl_login_retry_backoff_max_ms": "1", "sasl_login_connect_timeout_ms": "50"}
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        url = f"http://127.0.0.1:{full.getsockname()[1]}/token"
        with socket.create_connection(full.getsockname()), pytest.raises(NoToken):
            fetch(keys(url, **short), is_patient=False)


def fetch_in_a_task(values: dict[str, str]) -> str:
    """Return the token with which a task of Spark logs in."""
    return current_token(client_config(Property(name, value, 1) for name, value in values.items()))


@pytest.mark.parametrize("ask", [fetch, fetch_in_a_task])
def test_endpoint_with_https_needs_its_authority_in_the_login_module(
    tmp_path: Path, ask: Callable[[dict[str, str]], str]
) -> None:
    right, wrong = trustme.CA(), trustme.CA()
    for name, authority in (("right", right), ("wrong", wrong)):
        authority.cert_pem.write_to_path(tmp_path / name)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    right.issue_cert("127.0.0.1").configure_cert(tls)
    trusts = f'{OPTIONS} ssl.truststore.type="PEM" ssl.truststore.location="{tmp_path}/%s"'
    with TokenServer(tls=tls) as server:
        for options in (trusts % "wrong", OPTIONS):
            with pytest.raises((LoginFailed, ConfigError)) as caught:
                ask(keys(server.token_url, options))
            text = str(caught.value)
            assert f"the certificate of {server.token_url} is not valid (" in text
            assert "set ssl.truststore.location in sasl.jaas.config to the PEM file" in text
            assert "alice-secret" not in text
        assert server.requests == []
        assert ask(keys(server.token_url, trusts % "right")).count(".") == 2


def test_file_is_read_again_for_each_token(tmp_path: Path) -> None:
    file = tmp_path / "my token"
    for text in ("one", "two"):
        file.write_text(text)
        assert fetch(keys(f"file://{tmp_path}/my%20token", "")) == text
    file.unlink()
    with pytest.raises(NoToken, match="cannot be read: No such file"):
        fetch(keys(f"file://{tmp_path}/my%20token", ""))


@pytest.mark.parametrize(
    ("url", "options", "error", "reason"),
    [
        ("", OPTIONS, ConfigError, f"{URL} is not set"),
        ("ftp://host/token", OPTIONS, ConfigError, f"{URL} must be file:///PATH, http"),
        ("file://host/token", OPTIONS, ConfigError, f"{URL} must be file:///PATH, http"),
        (
            "http://a:hidden@h/token",
            OPTIONS,
            ConfigError,
            f"^{URL} must have no login before the host",
        ),
        ("http://h", 'clientId="a"', InvalidJaas, "has no clientSecret"),
        ("http://h", 'clientSecret="a"', InvalidJaas, "has no clientId"),
        ("http://h", f'{OPTIONS} ssl.no="x"', InvalidJaas, "has an unknown option ssl.no"),
        (
            "https://h",
            f'{OPTIONS} ssl.protocol="TLS" ssl.truststore.location="/none"',
            ConfigError,
            "ssl.truststore.location: /none cannot be read",
        ),
    ],
)
def test_wrong_key_is_an_error_that_names_it(
    url: str, options: str, error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason) as caught:
        fetch(keys(url, options))
    assert "alice-secret" not in str(caught.value)


def test_login_has_the_extensions_of_its_module() -> None:
    options = f'{OPTIONS} extension_cluster="lkc 1"'
    config = client_config(
        Property(name, value, 1) for name, value in keys("http://h", options).items()
    )
    login = login_from(config)
    assert login is not None
    exchange = new_client_exchange(login, bytes)
    assert exchange.step(b"") == b"n,,\1auth=Bearer \1cluster=lkc 1\1\1"
    wrong = keys("http://h", f'{OPTIONS} extension_auth="x"')
    with pytest.raises(ConfigError, match="extension_auth"):
        login_from(client_config(Property(name, value, 1) for name, value in wrong.items()))


def test_member_of_a_group_logs_in_with_the_same_tokens() -> None:
    config = client_config(Property(name, value, 1) for name, value in keys("http://h").items())
    found = aiokafka_arguments(config, SystemRng(), SystemClock())
    assert found["sasl_mechanism"] == "OAUTHBEARER"
    assert isinstance(found["sasl_oauth_token_provider"], TokenSource)
    assert isinstance(tokens_from(config, SystemRng(), SystemClock()), TokenSource)


def test_other_java_classes_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"sasl\.login\.callback\.handler\.class: Java classes"):
        fetch({**keys("http://h"), "sasl.login.callback.handler.class": "com.example.Own"})
