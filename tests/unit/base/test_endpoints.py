"""Endpoints and connect strings, as Kafka writes them."""

from __future__ import annotations

import pytest

from minikafka.base.endpoints import (
    Endpoint,
    check_connect,
    parse_endpoint,
)
from minikafka.base.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("PLAINTEXT://127.0.0.1:9092", Endpoint("PLAINTEXT", "127.0.0.1", 9092)),
        ("plaintext://:0", Endpoint("PLAINTEXT", "", 0)),
        ("IN_SIDE-1://[::1]:65535", Endpoint("IN_SIDE-1", "::1", 65535)),
        ("A://host.example:1", Endpoint("A", "host.example", 1)),
    ],
)
def test_endpoint_is_parsed_into_name_host_and_port(text, endpoint):
    assert parse_endpoint(text) == endpoint


@pytest.mark.parametrize(
    "text",
    [
        "",
        "127.0.0.1:9092",
        "A://h",
        "A://h:",
        "A://h:65536",
        "A://h:-1",
        "A://::1:9092",
        "A://a b:1",
        "A://h:1/x",
    ],
)
def test_endpoint_is_refused_when_malformed(text):
    with pytest.raises(ConfigError, match="NAME://host:port"):
        parse_endpoint(text)


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [
        ("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True),
        ("", False), ("0.0.0.0", False), ("192.0.2.1", False), ("example.org", False), ("::", False),
    ],
)  # fmt: skip
def test_endpoint_is_loopback_only_at_addresses_of_this_machine(host, is_loopback):
    assert Endpoint("A", host, 1).is_loopback is is_loopback


@pytest.mark.parametrize("text", ["A://h:1", "A://[::1]:0", "A://:9092"])
def test_endpoint_prints_as_it_is_written(text):
    assert str(parse_endpoint(text)) == text


@pytest.mark.parametrize(
    "connect", ["", "h:2181", "h", "a:1,b:2,[::1]:3/chroot/deep", "h:2181/x", "h:1/"]
)
def test_connect_string_holds_servers_and_a_chroot(connect):
    check_connect(connect)


@pytest.mark.parametrize(
    "connect",
    [
        "/x",
        "h:1,,h:2",
        "h:port",
        "h:99999,i:1",
        "h:0",
        "h:1/x/",
        "h:1//x",
        "h:1/x/../y",
        "h:1/./x",
        "h:1/x\n",
        "h:1 h:2",
        ":2181",
    ],
)
def test_connect_string_is_refused_when_malformed(connect):
    with pytest.raises(ConfigError, match=r"zookeeper\.connect"):
        check_connect(connect)


def test_chroot_after_each_server_is_refused_with_the_right_form():
    with pytest.raises(ConfigError) as refused:
        check_connect("a:1/kafka,b:2/kafka,c:3/kafka")
    assert str(refused.value) == (
        "zookeeper.connect has '/kafka,b:2/kafka,c:3/kafka' as the chroot: name it once, after the last server: "
        "a:1,b:2,c:3/kafka"
    )
