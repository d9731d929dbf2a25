"""A certificate authority for tests, with certificates in all formats: valid, expired and foreign ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Final

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

ORGANIZATION: Final = "Example"
UNIT: Final = "Data"
PASSWORD: Final = "change-me-now"
CLIENT_HOST: Final = ("client.example",)
"""Java cannot read a certificate without any name of a host, as trustme makes it."""


class Certificate:
    """A private key and its certificate, with the certificate of the authority that has signed it.

    The files are written into `directory` when they are first asked for.
    """

    def __init__(self, leaf: trustme.LeafCert, directory: Path, name: str) -> None:
        self.key_pem = leaf.private_key_pem.bytes()
        self.chain_pem = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
        self._directory = directory
        self._name = name

    @property
    def x509(self) -> x509.Certificate:
        """The certificate itself."""
        return x509.load_pem_x509_certificates(self.chain_pem)[0]

    @property
    def der(self) -> bytes:
        """The certificate itself, as it is sent."""
        return self.x509.public_bytes(serialization.Encoding.DER)

    @property
    def distinguished_name(self) -> str:
        """The subject as Java prints it: CN=alice,OU=Data,O=Example."""
        return self.x509.subject.rfc4514_string()

    @cached_property
    def pem(self) -> Path:
        """A file with the plain key and the certificates."""
        return self._written("pem", self.key_pem + self.chain_pem)

    @cached_property
    def chain_file(self) -> Path:
        """A file with the certificates alone."""
        return self._written("crt", self.chain_pem)

    @cached_property
    def key_file(self) -> Path:
        """A file with the plain key alone."""
        return self._written("key", self.key_pem)

    @property
    def locked_key_pem(self) -> bytes:
        """The key, encrypted with PASSWORD."""
        key = serialization.load_pem_private_key(self.key_pem, None)
        return key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(PASSWORD.encode()),
        )

    @cached_property
    def locked_pem(self) -> Path:
        """A file with the key, encrypted with PASSWORD, and the certificates."""
        return self._written("locked.pem", self.locked_key_pem + self.chain_pem)

    @cached_property
    def pkcs12(self) -> Path:
        """A PKCS12 file with the key and the certificates, encrypted with PASSWORD."""
        key = serialization.load_pem_private_key(self.key_pem, None)
        own, *others = x509.load_pem_x509_certificates(self.chain_pem)
        encryption = serialization.BestAvailableEncryption(PASSWORD.encode())
        data = pkcs12.serialize_key_and_certificates(b"own", key, own, others, encryption)  # type: ignore[arg-type]
        return self._written("p12", data)

    def _written(self, suffix: str, data: bytes) -> Path:
        path = self._directory / f"{self._name}.{suffix}"
        path.touch(mode=0o600)
        path.write_bytes(data)
        return path


class Authority:
    """A certificate authority. A second one is foreign to everybody who trusts the first."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._ca = trustme.CA(organization_name=f"{ORGANIZATION} {name}")
        self._directory = directory
        self._name = name
        self._count = 0

    @property
    def pem_text(self) -> str:
        """The certificate of the authority as text, for inline values."""
        return self._ca.cert_pem.bytes().decode()

    @cached_property
    def pem(self) -> Path:
        """A file with the certificate of the authority: a truststore."""
        path = self._directory / f"{self._name}.pem"
        path.write_bytes(self._ca.cert_pem.bytes())
        return path

    @cached_property
    def pkcs12(self) -> Path:
        """A PKCS12 truststore, encrypted with PASSWORD, which Java reads too."""
        certificate = x509.load_pem_x509_certificate(self._ca.cert_pem.bytes())
        trusted = pkcs12.PKCS12Certificate(certificate, b"authority")
        encryption = serialization.BestAvailableEncryption(PASSWORD.encode())
        path = self._directory / f"{self._name}.p12"
        path.write_bytes(pkcs12.serialize_java_truststore([trusted], encryption))
        return path

    def server(self, *hosts: str, name: str = "server") -> Certificate:
        """Return a certificate of a server with these names; without names, those of this machine."""
        return self._issue(name, hosts or ("localhost", "127.0.0.1"), timedelta(days=365))

    def client(self, user: str) -> Certificate:
        """Return a certificate of a client, whose subject is CN=user,OU=Data,O=Example."""
        return self._issue(user, CLIENT_HOST, timedelta(days=365))

    def expired_server(self, *hosts: str) -> Certificate:
        """Return a certificate of a server that ended yesterday."""
        return self._issue(
            "expired-server", hosts or ("localhost", "127.0.0.1"), timedelta(days=-1)
        )

    def expired_client(self, user: str) -> Certificate:
        """Return a certificate of a client that ended yesterday."""
        return self._issue(user, CLIENT_HOST, timedelta(days=-1))

    def ending(self, user: str, days: float, *hosts: str) -> Certificate:
        """Return a certificate that ends in so many days, of a client or of a server with these names."""
        return self._issue(user, hosts or CLIENT_HOST, timedelta(days=days))

    def _issue(self, name: str, hosts: tuple[str, ...], validity: timedelta) -> Certificate:
        now = datetime.now(UTC)
        self._count += 1
        leaf = self._ca.issue_cert(
            *hosts,
            common_name=name,
            organization_name=ORGANIZATION,
            organization_unit_name=UNIT,
            not_before=now - timedelta(days=30),
            not_after=now + validity,
        )
        return Certificate(leaf, self._directory, f"{self._name}-{self._count}-{name}")
