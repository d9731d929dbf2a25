"""The certificate authority of a secure cluster, and the certificate that its brokers share."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_AUTHORITY_TIME: Final = timedelta(days=3650)
_BROKER_TIME: Final = timedelta(days=365)
_CLOCK_ERROR: Final = timedelta(days=1)
"""The clock of a client may be late by this."""


class Authority:
    """A private key with the certificate of an authority. Raises ValueError if they do not belong together."""

    def __init__(self, key: PrivateKeyTypes, certificate: x509.Certificate) -> None:
        if (
            not isinstance(key, ec.EllipticCurvePrivateKey)
            or key.public_key() != certificate.public_key()
        ):
            raise ValueError("the private key does not belong to the certificate")
        self._key = key
        self.certificate = certificate

    @classmethod
    def new(cls, name: str, now: datetime) -> Authority:
        """Return a new authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name)
        made = _certificate(subject, subject, key, now, now + _AUTHORITY_TIME)
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        made = made.add_extension(_usage(is_authority=True), critical=True)
        return cls(key, made.sign(key, hashes.SHA256()))

    @classmethod
    def load(cls, key: bytes, certificate: bytes) -> Authority:
        """Return the authority in two PEM texts. Raises ValueError."""
        own = _certificates(certificate)[0]
        try:
            private = serialization.load_pem_private_key(key, None)
        except (TypeError, ValueError) as error:
            raise ValueError("it has no private key in PEM format without a password") from error
        return cls(private, own)

    @property
    def expiry(self) -> datetime:
        """When the certificate expires. Certificates that it signs expire by then."""
        return self.certificate.not_valid_after_utc

    @property
    def key_pem(self) -> str:
        """The private key, without encryption."""
        return _pem(self._key)

    @property
    def pem(self) -> str:
        """The certificate."""
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def issue(self, name: str, hosts: Collection[str], now: datetime) -> str:
        """Return a new private key, its certificate for these hosts, and that of the authority, as PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        end = min(now + _BROKER_TIME, self.expiry)
        made = _certificate(_name(name), self.certificate.subject, key, now, end)
        names = x509.SubjectAlternativeName(list(map(_host, hosts)))
        own = self._key.public_key()
        for extension, is_critical in (
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (_usage(is_authority=False), True),
            (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
            (x509.AuthorityKeyIdentifier.from_issuer_public_key(own), False),
            (names, False),
        ):
            made = made.add_extension(extension, is_critical)
        signed = made.sign(self._key, hashes.SHA256())
        return _pem(key) + signed.public_bytes(serialization.Encoding.PEM).decode() + self.pem


def expiry(pem: bytes) -> datetime:
    """Return when the first certificate of a PEM text expires. Raises ValueError."""
    return _certificates(pem)[0].not_valid_after_utc


def _certificates(pem: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise ValueError("it has no certificate in PEM format") from error


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_ERROR)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str) -> x509.Name:
    names = ((NameOID.ORGANIZATION_NAME, "minikafka"), (NameOID.COMMON_NAME, common_name))
    return x509.Name([x509.NameAttribute(oid, text) for oid, text in names])


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
