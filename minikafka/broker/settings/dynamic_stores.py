"""Keys and certificates of listeners that are changed while the broker runs (KIP-226).

Only `listener.name.NAME.ssl.keystore.…`, `….ssl.truststore.…` and `….ssl.key.password` of one broker are dynamic.
Their passwords are encrypted with `password.encoder.secret` before they are stored. Invariant: a change is stored only
if the listener can use it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from minikafka.base.config import BrokerConfig
from minikafka.base.config.security import (
    PREFIX,
    SecurityKeys,
    listener_key,
    listener_part,
    security_of,
)
from minikafka.base.encryption import ListenerTls
from minikafka.base.errors import ConfigError
from minikafka.security.secrets import InvalidSecret, PasswordEncoder

logger = logging.getLogger(__name__)

STORE_KEYS: Final = frozenset(
    (
        "ssl.keystore.type",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.key",
        "ssl.keystore.certificate.chain",
        "ssl.key.password",
        "ssl.truststore.type",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.certificates",
    )
)


def is_store_key(name: str) -> bool:
    """True for a key of the stores of one listener, such as `listener.name.out.ssl.keystore.location`."""
    return name.startswith(PREFIX) and listener_part(name)[1] in STORE_KEYS


class DynamicStores:
    """The stores of a broker's listeners: from its file, and as altered at run time.

    `in_use`: for each listener with TLS, by its name in lower case, what encrypts its connections.
    """

    def __init__(self, static: BrokerConfig, random_bytes: Callable[[int], bytes]) -> None:
        self._static = static
        self._random_bytes = random_bytes
        self._encoder = _encoder_of(static)
        self._applied: dict[str, SecurityKeys] = {}
        self._is_serving = False
        self.in_use: dict[str, list[ListenerTls]] = {}

    def encoded(self, name: str, value: str) -> str:
        """Return the value to store: passwords are encrypted. Raises ConfigError."""
        row = listener_key(name) if is_store_key(name) else None
        if row is None or not row.sensitive:
            return value
        if self._encoder is None:
            raise ConfigError(
                f"{name} is a password: set password.encoder.secret in the broker's file, with which it is encrypted"
            )
        return self._encoder.encode(value, self._random_bytes)

    def check(self, values: Mapping[str, str]) -> None:
        """Raise ConfigError if a listener could not use these stored values, or has no TLS."""
        for listener, keys in self._keys(values).items():
            if listener not in self.in_use:
                raise ConfigError(f"{PREFIX}{listener}: this broker has no such listener with TLS")
            self.in_use[listener][0].check(keys)

    def apply(self, values: Mapping[str, str]) -> None:
        """Use stored values for new connections. A listener that cannot use them keeps what it has.

        The first time, when the broker starts, the values need not resemble those of the broker's file.
        """
        is_serving, self._is_serving = self._is_serving, True
        try:
            wanted = self._keys(values)
        except ConfigError as error:
            logger.error("the stored keys and certificates are not used: %s", error)
            return
        for listener in self.in_use:
            static = self._static.security_of(listener)
            keys, before = wanted.get(listener, static), self._applied.get(listener, static)
            if keys == before:
                continue
            try:
                self._replace(listener, keys, is_serving=is_serving)
            except ConfigError as error:
                logger.error("listener %s keeps its keys and certificates: %s", listener, error)
            else:
                self._applied[listener] = keys
                logger.info("new connections of %s use other keys and certificates", listener)

    def _replace(self, listener: str, keys: SecurityKeys, *, is_serving: bool) -> None:
        """Use these keys for all connections of a listener. Raises ConfigError."""
        if is_serving:
            for tls in self.in_use[listener]:
                tls.check(keys)
        for tls in self.in_use[listener]:
            tls.use(keys)

    def _keys(self, values: Mapping[str, str]) -> dict[str, SecurityKeys]:
        """Return the keys of each listener that has stored values. Raises ConfigError."""
        stored = {
            name: self._decoded(name, text) for name, text in values.items() if is_store_key(name)
        }
        prefixed = {**self._static.listener_keys, **stored}
        return {
            listener: security_of(self._static, prefixed, listener)
            for listener in {listener_part(name)[0] for name in stored}
        }

    def _decode(self, text: str) -> str:
        """Decrypt a password, with the old secret if the new one does not fit. Raises InvalidSecret."""
        assert self._encoder is not None
        old = self._static.password_encoder_old_secret
        try:
            return self._encoder.decode(text)
        except InvalidSecret:
            if old is None:
                raise
        return replace(self._encoder, secret=old).decode(text)

    def _decoded(self, name: str, text: str) -> object:
        row = listener_key(name)
        assert row is not None
        if row.sensitive:
            if self._encoder is None:
                raise ConfigError(f"{name} is encrypted: set password.encoder.secret")
            try:
                text = self._decode(text)
            except InvalidSecret as error:
                raise ConfigError(f"{name} {error}") from None
        return row.parse(text)


def _encoder_of(config: BrokerConfig) -> PasswordEncoder | None:
    if config.password_encoder_secret is None:
        return None
    return PasswordEncoder(
        config.password_encoder_secret,
        config.password_encoder_keyfactory_algorithm,
        config.password_encoder_cipher_algorithm,
        config.password_encoder_key_length,
        config.password_encoder_iterations,
    )
