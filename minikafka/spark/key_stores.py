"""Keystores and truststores in the format PKCS12, which the driver converts to PEM for the executors.

Only files in this format need `cryptography`.
"""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType
from typing import Final, TypeVar

from minikafka.base.config.client import ClientConfig
from minikafka.base.errors import ConfigError
from minikafka.runtime.tls_contexts import content_of, is_pkcs12
from minikafka.spark.security_options import by_option
from minikafka.spark.sink.options import WriteOptions
from minikafka.spark.source.options import ReadOptions
from minikafka.spark.wire.security import check

Options = TypeVar("Options", ReadOptions, WriteOptions)

_PEM: Final = "PEM"


def prepared(options: Options) -> Options:
    """Return the options of a read or write as executors need them, after a check of those that protect connections.

    Runs on the driver. Raises ConfigError, which names the option.
    """
    config = options.security
    if config.protocol.is_encrypted:
        try:
            config = _with_pem_truststore(_with_pem_keystore(config))
        except ConfigError as error:
            raise ConfigError(f"option {by_option(str(error))}") from None
    check(config)
    return replace(options, security=config)


def _with_pem_keystore(config: ClientConfig) -> ClientConfig:
    path, kind = config.ssl_keystore_location, config.ssl_keystore_type
    if path is None or not _is_pkcs12("ssl.keystore", path, kind):
        return config
    password = config.ssl_keystore_password or ""
    found = _reader("ssl.keystore", path).load_identity("ssl.keystore", path, password, kind=kind)
    return replace(
        config,
        ssl_keystore_location=None,
        ssl_keystore_type=_PEM,
        ssl_keystore_password=None,
        ssl_keystore_key=found.key_pem.decode(),
        ssl_keystore_certificate_chain=found.pem().decode(),
        ssl_key_password=None,
    )


def _with_pem_truststore(config: ClientConfig) -> ClientConfig:
    path, kind = config.ssl_truststore_location, config.ssl_truststore_type
    if path is None or not _is_pkcs12("ssl.truststore", path, kind):
        return config
    password = config.ssl_truststore_password or ""
    found = _reader("ssl.truststore", path).load_trust("ssl.truststore", path, password, kind)
    return replace(
        config,
        ssl_truststore_location=None,
        ssl_truststore_type=_PEM,
        ssl_truststore_password=None,
        ssl_truststore_certificates=found.pem(),
    )


def _is_pkcs12(names: str, path: str, kind: str) -> bool:
    return is_pkcs12(content_of(names, path, kind))


def _reader(names: str, path: str) -> ModuleType:
    """Return the module that reads PKCS12. Raises ConfigError if `cryptography` is not installed."""
    try:
        from minikafka.runtime import tls_files  # only files in PKCS12 need cryptography
    except ModuleNotFoundError:
        pem = f"openssl pkcs12 -in {path} -out {path}.pem -nodes"
        raise ConfigError(
            f"{names}.location: {path} is in the format PKCS12, which the driver reads with cryptography: "
            f"pip install cryptography, or convert it: {pem}"
        ) from None
    return tls_files
