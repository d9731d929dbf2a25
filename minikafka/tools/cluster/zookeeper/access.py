"""What a broker's configuration says about its connections to ZooKeeper: TLS, login, and rights on new nodes."""

from __future__ import annotations

import ssl
from contextlib import suppress
from functools import partial
from typing import Final

from minikafka.base.config import BrokerConfig
from minikafka.base.config.zookeeper import ZOOKEEPER_JAAS
from minikafka.base.encryption import Tls
from minikafka.base.errors import ConfigError
from minikafka.base.ports import Rng
from minikafka.runtime.tls import RenewableTls
from minikafka.security.jaas import DIGEST_MODULE, InvalidJaas, JaasEntry, parse, parse_section
from minikafka.tools.cluster.directory import ClusterDirectory, ClusterRecord
from minikafka.zookeeper.client.access import OPEN_ACCESS, ZooKeeperAccess, ZooKeeperLogin
from minikafka.zookeeper.nodes.secure_nodes import secure_acl

__all__ = ["OPEN_ACCESS", "ZooKeeperAccess", "access_of", "access_of_cluster"]

_KEYS: Final = "zookeeper.ssl"
_SECTION: Final = "Client"


def access_of(config: BrokerConfig, rng: Rng) -> ZooKeeperAccess:
    """Return how the broker reaches ZooKeeper. Raises ConfigError, which names the key."""
    return ZooKeeperAccess(
        _tls(config) if config.zookeeper_ssl_client_enable else None,
        _login(config.minikafka_zookeeper_jaas_config, rng),
        secure_acl if config.zookeeper_set_acl else OPEN_ACCESS.acl_of,
    )


def access_of_cluster(
    directory: ClusterDirectory, record: ClusterRecord, rng: Rng
) -> ZooKeeperAccess:
    """Return how the first broker of a cluster in a directory reaches ZooKeeper. Raises ConfigError."""
    config = None
    for broker in record.brokers[:1]:
        with suppress(OSError, UnicodeDecodeError, ConfigError):
            config = BrokerConfig.parse(directory.broker_file(broker.id).read_text())
    return OPEN_ACCESS if config is None else access_of(config, rng)


def _tls(config: BrokerConfig) -> Tls:
    stores = (config.zookeeper_ssl_keystore_location, config.zookeeper_ssl_truststore_location)
    return RenewableTls(
        partial(_client_context, config), [file for file in stores if file is not None]
    )


def _client_context(config: BrokerConfig) -> ssl.SSLContext:
    from minikafka.runtime import tls_files  # cryptography takes 30 ms

    identity = trust = None
    if config.zookeeper_ssl_keystore_location is not None:
        identity = tls_files.load_identity(
            f"{_KEYS}.keystore",
            config.zookeeper_ssl_keystore_location,
            config.zookeeper_ssl_keystore_password or "",
            kind=config.zookeeper_ssl_keystore_type or "",
        )
    if config.zookeeper_ssl_truststore_location is not None:
        trust = tls_files.load_trust(
            f"{_KEYS}.truststore",
            config.zookeeper_ssl_truststore_location,
            config.zookeeper_ssl_truststore_password or "",
            config.zookeeper_ssl_truststore_type or "",
        )
    return tls_files.client_context(
        _KEYS,
        identity,
        trust,
        check_hostname=bool(config.zookeeper_ssl_endpoint_identification_algorithm),
        protocols=config.zookeeper_ssl_enabled_protocols or (config.zookeeper_ssl_protocol,),
        cipher_suites=config.zookeeper_ssl_cipher_suites or (),
    )


def _login(value: str | None, rng: Rng) -> ZooKeeperLogin | None:
    """Return the login of `minikafka.zookeeper.jaas.config`: a module, the text of a JAAS file, or its name."""
    if value is None:
        return None
    try:
        entry = _entry(value if ";" in value else _content(value))
    except InvalidJaas as error:
        raise ConfigError(f"{ZOOKEEPER_JAAS} {error}") from error
    if entry is None:
        raise ConfigError(f"{ZOOKEEPER_JAAS} has no section {_SECTION}")
    if entry.module != DIGEST_MODULE:
        raise ConfigError(f"{ZOOKEEPER_JAAS} must have the module {DIGEST_MODULE}")
    user, password = entry.options.get("username"), entry.options.get("password")
    if not user or password is None:
        raise ConfigError(f"{ZOOKEEPER_JAAS} must have the options username and password")
    return ZooKeeperLogin(user, password, ZOOKEEPER_JAAS, rng.bytes)


def _entry(text: str) -> JaasEntry | None:
    return parse_section(text, _SECTION) if "{" in text.partition('"')[0] else parse(text)


def _content(name: str) -> str:
    try:
        with open(name, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError(f"{ZOOKEEPER_JAAS} names a file that cannot be read: {reason}") from error
