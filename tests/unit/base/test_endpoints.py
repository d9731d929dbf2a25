"""Listeners and connect strings, as Kafka writes them."""

from __future__ import annotations

import pytest

from minikafka.base.endpoints import Endpoint, check_connect, kafka_and_control, parse_endpoint
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
def test_a_listener_has_a_name_a_host_and_a_port(text, endpoint):
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
def test_what_is_no_listener_is_refused(text):
    with pytest.raises(ConfigError, match="NAME://host:port"):
        parse_endpoint(text)


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [
        ("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True),
        ("", False), ("0.0.0.0", False), ("192.0.2.1", False), ("example.org", False), ("::", False),
    ],
)  # fmt: skip
def test_only_addresses_of_this_machine_alone_are_loopback(host, is_loopback):
    assert Endpoint("A", host, 1).is_loopback is is_loopback


def test_the_control_listener_is_told_from_the_kafka_one_by_name_in_any_order():
    kafka, control = kafka_and_control(("C://h:2", "A://h:1"), "c")

    assert kafka == Endpoint("A", "h", 1)
    assert control == Endpoint("C", "h", 2)
    assert kafka_and_control(("A://h:1",), "C")[1] is None


@pytest.mark.parametrize(
    "listeners", [(), ("C://h:1",), ("A://h:1", "B://h:2"), ("A://h:1", "C://h:2", "C://h:3")]
)
def test_a_broker_has_one_kafka_listener_and_at_most_one_for_control(listeners):
    with pytest.raises(ConfigError, match="one entry for Kafka clients"):
        kafka_and_control(listeners, "C")


@pytest.mark.parametrize("connect", ["", "h:2181", "h", "a:1,b:2,[::1]:3/chroot/deep", "h:2181/x"])
def test_a_connect_string_is_servers_and_a_chroot(connect):
    check_connect(connect)


@pytest.mark.parametrize(
    "connect",
    [
        "/x",
        "h:1,,h:2",
        "h:port",
        "h:99999,i:1",
        "h:0",
        "h:1/",
        "h:1/x/",
        "h:1//x",
        "h:1/x/../y",
        "h:1/./x",
        "h:1 h:2",
        ":2181",
    ],
)
def test_what_zookeeper_would_not_understand_is_refused(connect):
    with pytest.raises(ConfigError, match=r"zookeeper\.connect"):
        check_connect(connect)
