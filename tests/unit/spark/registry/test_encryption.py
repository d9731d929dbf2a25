"""A registry that encrypts connections, and one that asks its clients for a certificate."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("fastavro")
pytest.importorskip("google.protobuf")

from support.security.certificates import PASSWORD, Authority, Certificate
from support.spark.schema_registry import running_registry

from minikafka.base.errors import ConfigError
from minikafka.spark.registry import client
from minikafka.spark.registry.client import RegistryError
from minikafka.spark.registry.options import parse_decode
from minikafka.spark.registry.records import reading


@pytest.fixture(autouse=True)
def no_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "RETRY_SECONDS", 0.0)


@contextmanager
def encrypted(certificate: Certificate, clients: Authority | None = None) -> Iterator[str]:
    """Yield the URL of a registry. `clients`: the authority whose certificates it asks its clients for."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate.pem)
    if clients is not None:
        tls.verify_mode = ssl.CERT_REQUIRED
        tls.load_verify_locations(clients.pem)
    with running_registry(tls=tls) as registry:
        registry.add("t-value", {"type": "record", "name": "R", "fields": []})
        yield registry.url


def request(url: str, **files: Path | str) -> int | None:
    """Request a schema, and return its id. The options begin with `ssl`."""
    given = {f"ssl.{name.replace('_', '.')}": str(file) for name, file in files.items()}
    options = parse_decode("confluent_avro", {"schema.registry.url": url, "topic": "t", **given})
    assert PASSWORD not in repr(options)
    return reading(options).columns.id


def test_certificate_that_is_not_valid_is_refused_with_what_helps(tmp_path):
    authority = Authority(tmp_path)
    with encrypted(authority.server()) as url:
        assert request(url, ca_location=authority.pem) == 1
        with pytest.raises(RegistryError, match=r"; set ssl\.ca\.location to the PEM file of the"):
            request(url)
    with (
        encrypted(authority.server("other.example")) as url,
        pytest.raises(RegistryError, match="; name the registry as its certificate does"),
    ):
        request(url, ca_location=authority.pem)
    with (
        encrypted(authority.expired_server()) as url,
        pytest.raises(RegistryError, match=r"has expired.*; renew it, or check the clock"),
    ):
        request(url, ca_location=authority.pem)


def test_registry_that_asks_for_a_certificate_gets_that_of_the_options(tmp_path):
    authority = Authority(tmp_path)
    alice = authority.client("alice")
    with encrypted(authority.server(), authority) as url:
        files = {"ca_location": authority.pem, "certificate_location": alice.pem}
        assert request(url, **files) == 1
        apart = files | {"certificate_location": alice.chain_file}
        assert request(url, **apart, key_location=alice.key_file) == 1
        locked = files | {"certificate_location": alice.locked_pem}
        assert request(url, **locked, key_password=PASSWORD) == 1
        with pytest.raises(RegistryError, match=r"set ssl\.certificate\.location to one that"):
            request(url, ca_location=authority.pem)
        with pytest.raises(RegistryError, match=r"and ssl\.key\.password if the key is encrypted"):
            request(url, **locked)
        with pytest.raises(ConfigError, match=r"ssl\.key\.location needs ssl\.certificate\.loc"):
            request(url, ca_location=authority.pem, key_location=alice.key_file)
