"""Keys and certificates of listeners in the dynamic settings: which may change, and how passwords are stored."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.base.config import BrokerConfig
from minikafka.base.config.security import SecurityKeys
from minikafka.base.errors import ConfigError
from minikafka.broker.settings.dynamic_config import DynamicConfig
from minikafka.broker.settings.dynamic_stores import DynamicStores
from minikafka.runtime.clock import SystemRng
from minikafka.security.secrets import PasswordEncoder

PREFIX = "listener.name.out.ssl."
LOCATION, PASSWORD = f"{PREFIX}keystore.location", f"{PREFIX}keystore.password"
SECRET = "secret of the encoder"


class Encryption:
    """What encrypts a listener: it cannot use the file `bad`, does not let `other` follow, and records what it uses."""

    def __init__(self) -> None:
        self.used: list[tuple[str | None, str | None]] = []

    def check(self, keys: SecurityKeys) -> None:
        self._load(keys)
        if keys.ssl_keystore_location == "other":
            raise ConfigError("ssl.keystore: other has another name")

    def _load(self, keys: SecurityKeys) -> None:
        if keys.ssl_keystore_location == "bad":
            raise ConfigError("ssl.keystore.location: bad cannot be read")

    def use(self, keys: SecurityKeys) -> None:
        self._load(keys)
        self.used.append((keys.ssl_keystore_location, keys.ssl_keystore_password))

    def refresh(self) -> bool:
        return False


def stores(**keys: object) -> tuple[DynamicStores, Encryption]:
    given = {name.replace("_", "."): value for name, value in keys.items()}
    made = DynamicStores(BrokerConfig.from_mapping({"broker.id": 1, **given}), SystemRng().bytes)
    encryption = Encryption()
    made.in_use["out"] = [encryption]
    return made, encryption


@pytest.mark.key(
    "password.encoder.keyfactory.algorithm",
    "password.encoder.cipher.algorithm",
    "password.encoder.key.length",
    "password.encoder.iterations",
)
def test_password_is_stored_with_the_configured_algorithms_and_used_in_the_clear() -> None:
    made, encryption = stores(
        password_encoder_secret=SECRET,
        password_encoder_keyfactory_algorithm="PBKDF2WithHmacSHA256",
        password_encoder_cipher_algorithm="AES/GCM/NoPadding",
        password_encoder_key_length=256,
        password_encoder_iterations=1_024,
    )
    text = made.encoded(PASSWORD, "my-password")
    assert "my-password" not in text
    for part in ("SHA256", "AES/GCM/NoPadding", "keyLength:256", "iterations:1024"):
        assert part in text
    made.apply({LOCATION: "file", PASSWORD: text})
    assert encryption.used == [("file", "my-password")]


@pytest.mark.key("password.encoder.old.secret")
def test_password_of_the_old_secret_is_still_read() -> None:
    text = PasswordEncoder("the old one").encode("my-password", SystemRng().bytes)
    made, encryption = stores(
        password_encoder_secret=SECRET, password_encoder_old_secret="the old one"
    )
    made.apply({PASSWORD: text})
    assert encryption.used == [(None, "my-password")]


def test_password_without_a_secret_is_refused() -> None:
    made, _ = stores()
    with pytest.raises(ConfigError, match=r"set password\.encoder\.secret"):
        made.encoded(PASSWORD, "my-password")
    assert made.encoded(LOCATION, "file") == "file"


def test_only_values_that_the_listener_can_use_pass_the_check() -> None:
    made, _ = stores(password_encoder_secret=SECRET)
    made.check({LOCATION: "file"})
    for values, reason in (
        ({LOCATION: "bad"}, "cannot be read"),
        ({LOCATION.replace("out", "other"): "file"}, "no such listener"),
        ({PASSWORD: "not encrypted"}, "is no encrypted password"),
    ):
        with pytest.raises(ConfigError, match=reason):
            made.check(values)


def test_listener_keeps_what_it_has_if_stored_values_cannot_be_used() -> None:
    made, encryption = stores(password_encoder_secret=SECRET)
    made.apply({LOCATION: "file"})
    for values in ({LOCATION: "bad"}, {PASSWORD: "damaged"}):
        made.apply(values)
    assert encryption.used == [("file", None)]


def test_stored_values_are_compared_with_what_is_in_use_unless_the_broker_starts() -> None:
    for before in ({}, {LOCATION: "file"}):
        made, encryption = stores()
        made.apply(before)
        made.apply({LOCATION: "other"})
        assert ("other", None) not in encryption.used
    started, encryption = stores()
    started.apply({LOCATION: "other"})
    assert encryption.used == [("other", None)]


def test_listener_is_left_alone_by_other_settings_and_returns_to_its_file() -> None:
    made, encryption = stores()
    made.apply({"log.retention.ms": "1"})
    assert encryption.used == []
    for values in ({LOCATION: "file"}, {LOCATION: "file"}, {}):
        made.apply(values)
    assert encryption.used == [("file", None), (None, None)]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("ssl.keystore.location", "only per-listener using the listener prefix: ssl.keystore"),
        ("listener.name.out.ssl.client.auth", "Cannot update these configs dynamically"),
        ("listener.name.out.plain.sasl.jaas.config", "Cannot update these configs dynamically"),
    ],
)
def test_other_keys_of_security_cannot_be_altered(name: str, reason: str) -> None:
    settings = DynamicConfig(BrokerConfig.from_mapping({"broker.id": 1}))
    values: dict[str, Any] = {name: "none"}
    with pytest.raises(ConfigError, match=reason):
        settings.check(values)
