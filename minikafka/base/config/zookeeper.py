"""The configuration keys of a broker's connections to ZooKeeper: encryption, authentication, and rights on nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from minikafka.base.config.authorizer import AuthorizerKeys
from minikafka.base.config.keys import ConfigType, key
from minikafka.base.endpoints import check_connect
from minikafka.base.errors import ConfigError

_, BOOLEAN, STRING, INT, _, _, LIST, PASSWORD = ConfigType

NETTY: Final = "org.apache.zookeeper.ClientCnxnSocketNetty"
NIO: Final = "org.apache.zookeeper.ClientCnxnSocketNIO"
ZOOKEEPER_JAAS: Final = "minikafka.zookeeper.jaas.config"
_STORES: Final = ("JKS", "PKCS12", "PEM")
_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperKeys(AuthorizerKeys):
    """The keys of the connections to ZooKeeper, a part of `BrokerConfig`."""

    zookeeper_connect: str = key(
        STRING, "", "ZooKeeper servers as host:port,host:port, with an optional /chroot at the end."
    )
    zookeeper_session_timeout_ms: int = key(
        INT,
        18_000,
        "Time without a heartbeat after which ZooKeeper considers the broker dead.",
        low=1,
    )
    zookeeper_connection_timeout_ms: int = key(
        INT, 18_000, "Maximum time for which a starting broker waits for ZooKeeper.", low=1
    )
    zookeeper_set_acl: bool = key(
        BOOLEAN,
        False,
        "If true, only brokers may change the nodes that the broker creates, and only they read nodes with secrets. "
        "All brokers then need the same user or certificate at ZooKeeper.",
    )
    zookeeper_ssl_client_enable: bool = key(BOOLEAN, False, "Whether to use TLS to ZooKeeper.")
    zookeeper_clientCnxnSocket: str | None = key(
        STRING,
        None,
        f"Kafka's class of connections to ZooKeeper. TLS needs {NETTY}, which is also the default here.",
        choices=(NETTY, NIO),
    )
    zookeeper_ssl_keystore_location: str | None = key(
        STRING,
        None,
        "File with the private key and the certificates for ZooKeeper, PKCS12 or PEM; not set: no certificate.",
    )
    zookeeper_ssl_keystore_password: str | None = key(
        PASSWORD, None, "Password of a PKCS12 keystore, or of the private key of a PEM keystore."
    )
    zookeeper_ssl_keystore_type: str | None = key(
        STRING, None, "Format of the keystore; not set: that of the file.", choices=_STORES
    )
    zookeeper_ssl_truststore_location: str | None = key(
        STRING,
        None,
        "File with the certificates of the authorities that are trusted, PKCS12 or PEM; not set: those of the system.",
    )
    zookeeper_ssl_truststore_password: str | None = key(
        PASSWORD, None, "Password of a PKCS12 truststore."
    )
    zookeeper_ssl_truststore_type: str | None = key(
        STRING, None, "Format of the truststore; not set: that of the file.", choices=_STORES
    )
    zookeeper_ssl_protocol: str = key(
        STRING,
        "TLSv1.2",
        "Version of TLS to ZooKeeper, if zookeeper.ssl.enabled.protocols is not set.",
        choices=_VERSIONS,
    )
    zookeeper_ssl_enabled_protocols: tuple[str, ...] | None = key(
        LIST, None, "Versions of TLS to ZooKeeper.", choices=_VERSIONS
    )
    zookeeper_ssl_cipher_suites: tuple[str, ...] | None = key(
        LIST, None, "Cipher suites to ZooKeeper by Java's names; not set: those of OpenSSL."
    )
    zookeeper_ssl_endpoint_identification_algorithm: str = key(
        STRING,
        "HTTPS",
        "Whether the certificate of ZooKeeper must have the host name of zookeeper.connect; empty: it need not.",
        choices=("HTTPS", "https", ""),
    )
    minikafka_zookeeper_jaas_config: str | None = key(
        PASSWORD,
        None,
        "User and password for SASL DIGEST-MD5 at ZooKeeper: the module "
        "org.apache.zookeeper.server.auth.DigestLoginModule with the options username and password, or the name of a "
        "JAAS file with a section Client, which Kafka reads from java.security.auth.login.config.",
        low=1,
    )


def check_zookeeper(config: ZooKeeperKeys) -> None:
    """Check the form of `zookeeper.connect`, and the rules that involve several keys. Raises ConfigError."""
    check_connect(config.zookeeper_connect)
    if config.zookeeper_ssl_client_enable and config.zookeeper_clientCnxnSocket == NIO:
        raise ConfigError(f"zookeeper.clientCnxnSocket must be {NETTY} for TLS, got {NIO!r}")
    has_certificate = (
        config.zookeeper_ssl_client_enable and config.zookeeper_ssl_keystore_location is not None
    )
    if (
        config.zookeeper_set_acl
        and not has_certificate
        and not config.minikafka_zookeeper_jaas_config
    ):
        raise ConfigError(
            "zookeeper.set.acl is true, but the broker has no identity at ZooKeeper: set "
            f"zookeeper.ssl.client.enable and zookeeper.ssl.keystore.location, or {ZOOKEEPER_JAAS}"
        )
