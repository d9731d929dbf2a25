"""parse_listeners: Kafka's rules for the keys that describe a broker's listeners."""

from __future__ import annotations

import pytest

from minikafka.base.config.listeners import Listeners, parse_listeners
from minikafka.base.endpoints import Endpoint
from minikafka.base.errors import ConfigError

MAP = "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SSL"


def parse(
    listeners: str,
    advertised: str = "",
    protocols: str = MAP,
    control: str = "CONTROLLER",
    inter_broker: str = "PLAINTEXT",
) -> Listeners:
    def words(text: str) -> list[str]:
        return text.split(",") if text else []

    return parse_listeners(
        words(listeners), words(advertised), words(protocols), control, inter_broker
    )


def test_listeners_are_split_into_control_listener_and_kafka_listeners_in_order() -> None:
    found = parse("inside://h:1,CONTROLLER://h:2,OUTSIDE://h:3", inter_broker="inside")
    assert found.kafka == (Endpoint("INSIDE", "h", 1), Endpoint("OUTSIDE", "h", 3))
    assert found.control == Endpoint("CONTROLLER", "h", 2)
    assert found.inter_broker == "INSIDE"


def test_listeners_are_registered_at_bound_addresses_without_advertised_listeners() -> None:
    found = parse("PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:2")
    assert found.registered({"PLAINTEXT": 9, "CONTROLLER": 2}) == (
        Endpoint("PLAINTEXT", "127.0.0.1", 9),
        Endpoint("CONTROLLER", "127.0.0.1", 2),
    )


@pytest.mark.key("advertised.listeners")
def test_kafka_listener_missing_from_advertised_listeners_is_not_registered() -> None:
    found = parse(
        "PLAINTEXT://0.0.0.0:1,INSIDE://0.0.0.0:2,CONTROLLER://h:3", "PLAINTEXT://a.example:11"
    )
    assert found.registered({"PLAINTEXT": 1, "INSIDE": 2, "CONTROLLER": 3}) == (
        Endpoint("PLAINTEXT", "a.example", 11),
        Endpoint("CONTROLLER", "h", 3),
    )


def test_control_listener_is_advertised_at_its_address_in_advertised_listeners() -> None:
    found = parse("PLAINTEXT://h:1,CONTROLLER://h:2", "PLAINTEXT://a:1,CONTROLLER://b:3")
    assert found.advertised == (Endpoint("PLAINTEXT", "a", 1), Endpoint("CONTROLLER", "b", 3))


def test_default_control_listener_has_the_inter_broker_host_and_a_free_port() -> None:
    found = parse("OUTSIDE://h:1,PLAINTEXT://0.0.0.0:2", "PLAINTEXT://a.example:2")
    assert found.control == Endpoint("CONTROLLER", "0.0.0.0", 0)
    assert found.registered({"CONTROLLER": 7}) == (
        Endpoint("PLAINTEXT", "a.example", 2),
        Endpoint("CONTROLLER", "a.example", 7),
    )


def test_two_listeners_may_share_a_port_when_one_is_ipv6() -> None:
    found = parse("PLAINTEXT://127.0.0.1:1,INSIDE://[::1]:1")
    assert [item.port for item in found.kafka] == [1, 1]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"listeners": ""}, "listeners needs a listener besides CONTROLLER, got ''"),
        ({"listeners": "CONTROLLER://h:1"}, "needs a listener besides CONTROLLER"),
        (
            {"listeners": "PLAINTEXT://h:1,PLAINTEXT://h:2"},
            "Each listener must have a different name, listeners: PLAINTEXT://h:1,PLAINTEXT://h:2",
        ),
        (
            {"listeners": "PLAINTEXT://h:1,INSIDE://i:1"},
            "Each listener must have a different port, listeners: PLAINTEXT://h:1,INSIDE://i:1",
        ),
        (
            {"listeners": "PLAINTEXT://h:1,OTHER://h:2"},
            "No security protocol defined for listener OTHER",
        ),
        (
            {"listeners": "INSIDE://h:1,OUTSIDE://h:2"},
            "Found PLAINTEXT. The valid options based on currently configured listeners are INSIDE,OUTSIDE",
        ),
        (
            {"listeners": "PLAINTEXT://h:1", "inter_broker": "OTHER"},
            "Listener with name OTHER defined in inter.broker.listener.name not found",
        ),
        (
            {"listeners": "INSIDE://h:1", "control": "inside", "inter_broker": "INSIDE"},
            "Currently they both have the value INSIDE",
        ),
        (
            {"listeners": "PLAINTEXT://h:1", "advertised": "OTHER://h:1"},
            "Found OTHER. The valid options based on the current configuration are PLAINTEXT",
        ),
        (
            {"listeners": "PLAINTEXT://h:1", "advertised": "PLAINTEXT://a:1,PLAINTEXT://b:1"},
            "Each listener must have a different name, advertised.listeners: PLAINTEXT://a:1",
        ),
        (
            {"listeners": "PLAINTEXT://h:1,INSIDE://h:2", "advertised": "INSIDE://h:2"},
            "inter.broker.listener.name must be a listener name defined in advertised.listeners",
        ),
        (
            {"listeners": "PLAINTEXT://0.0.0.0:1"},
            "cannot use the nonroutable meta-address of PLAINTEXT://0.0.0.0:1",
        ),
        ({"listeners": "PLAINTEXT://:1"}, "nonroutable meta-address of PLAINTEXT://:1"),
        (
            {"listeners": "PLAINTEXT://h:1,CONTROLLER://[::]:2"},
            "nonroutable meta-address of CONTROLLER://[::]:2",
        ),
        (
            {"listeners": "PLAINTEXT://h:1", "advertised": "PLAINTEXT://h:0"},
            "needs a port that others can reach, got PLAINTEXT://h:0",
        ),
        (
            {"listeners": "PLAINTEXT://h:1", "protocols": "PLAINTEXT"},
            "'PLAINTEXT': write each name once, as NAME:PROTOCOL",
        ),
        (
            {"listeners": "PLAINTEXT://h:1", "protocols": "PLAINTEXT:PLAINTEXT,plaintext:SSL"},
            "'plaintext:SSL': write each name once",
        ),
        (
            {"listeners": "PLAINTEXT://h:1", "protocols": "PLAINTEXT:TLS"},
            "Invalid security protocol `TLS` defined in listener.security.protocol.map",
        ),
        (
            {"listeners": "PLAINTEXT://h:1", "control": "SECURE"},
            "the control listener SECURE has the security protocol PLAINTEXT, because the one between brokers is "
            "PLAINTEXT; remove its entry",
        ),
    ],
)
def test_invalid_listener_settings_are_refused_with_the_reason(
    arguments: dict[str, str], reason: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(**arguments)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("between", "control"),
    [
        ("PLAINTEXT", "PLAINTEXT"),
        ("SASL_PLAINTEXT", "PLAINTEXT"),
        ("SSL", "SSL"),
        ("SASL_SSL", "SSL"),
    ],
)
@pytest.mark.parametrize("listed", [",CONTROLLER://h:2", ""])
def test_control_listener_is_encrypted_if_the_inter_broker_listener_is(
    between: str, control: str, listed: str
) -> None:
    found = parse(f"BETWEEN://h:1{listed}", protocols=f"BETWEEN:{between}", inter_broker="BETWEEN")
    assert found.kafka[0].security.value == between
    assert found.control.security.value == control
    assert {item.name: item.security.value for item in found.advertised} == {
        "BETWEEN": between,
        "CONTROLLER": control,
    }
