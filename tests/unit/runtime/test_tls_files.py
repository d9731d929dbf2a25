"""Keys and certificates from files, and the contexts that are made of them (runtime/tls_files.py)."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from support.security.certificates import PASSWORD, Authority, Certificate

from minikafka.base.errors import ConfigError
from minikafka.runtime.tls_files import (
    OwnIdentity,
    client_context,
    identity_of_pem,
    load_identity,
    load_trust,
    server_context,
    trust_of_pem,
)

ALL_1_3 = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


def handshake(
    client: ssl.SSLContext, server: ssl.SSLContext, name: str = "localhost"
) -> ssl.SSLObject:
    """Carry out a handshake in memory; return the server's side. Raises the error of either side."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server, server_hostname=name)
    far = server.wrap_bio(to_server, to_client, server_side=True)
    is_done = {near: False, far: False}
    for _ in range(10):
        for side in (near, far):
            try:
                side.do_handshake()
                is_done[side] = True
            except ssl.SSLWantReadError:
                continue
    assert all(is_done.values())
    return far


def own(certificate: Certificate) -> OwnIdentity:
    return load_identity("ssl.keystore", str(certificate.pem))


@pytest.mark.parametrize(
    "load",
    [
        pytest.param(lambda c: load_identity("k", str(c.pem)), id="PEM"),
        pytest.param(lambda c: load_identity("k", str(c.pem), kind="PEM"), id="PEM-named"),
        pytest.param(
            lambda c: load_identity("k", str(c.locked_pem), key_password=PASSWORD), id="PEM-locked"
        ),
        pytest.param(lambda c: load_identity("k", str(c.pkcs12), PASSWORD), id="PKCS12"),
        pytest.param(
            lambda c: load_identity("k", str(c.pkcs12), PASSWORD, kind="JKS"), id="PKCS12-as-JKS"
        ),
        pytest.param(
            lambda c: identity_of_pem("k", "k.key", c.locked_key_pem + c.chain_pem, PASSWORD),
            id="inline",
        ),
    ],
)
def test_server_with_a_key_of_any_format_is_known_to_a_client(
    authority: Authority, load: Callable[[Certificate], OwnIdentity]
) -> None:
    server = server_context(
        "ssl", load(authority.server("broker.example")), None, verify=ssl.CERT_NONE
    )
    for trust in (
        load_trust("ssl.truststore", str(authority.pem)),
        load_trust("ssl.truststore", str(authority.pkcs12), PASSWORD),
        trust_of_pem("ssl.truststore", "ssl.truststore.certificates", authority.pem_text.encode()),
    ):
        client = client_context("ssl", None, trust, check_hostname=True)
        assert handshake(client, server, "broker.example").version() == "TLSv1.3"
        with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
            handshake(client, server, "other.example")
        lenient = client_context("ssl", None, trust, check_hostname=False)
        assert handshake(lenient, server, "other.example")


def test_server_sees_the_certificate_of_a_client(authority: Authority) -> None:
    trust = load_trust("ssl.truststore", str(authority.pem))
    alice = authority.client("alice")
    server = server_context("ssl", own(authority.server()), trust, verify=ssl.CERT_REQUIRED)
    client = client_context("ssl", own(alice), trust, check_hostname=True)
    assert handshake(client, server).getpeercert(binary_form=True) == alice.der
    assert alice.distinguished_name == "CN=alice,OU=Data,O=Example"


@pytest.mark.parametrize("what", ["none", "expired", "foreign"])
def test_server_refuses_a_client_without_a_valid_certificate(
    authority: Authority, tmp_path: Path, what: str
) -> None:
    trust = load_trust("ssl.truststore", str(authority.pem))
    certificate = {
        "none": None,
        "expired": authority.expired_client("alice"),
        "foreign": Authority(tmp_path, "foreign").client("alice"),
    }[what]
    server = server_context("ssl", own(authority.server()), trust, verify=ssl.CERT_REQUIRED)
    mine = None if certificate is None else own(certificate)
    client = client_context("ssl", mine, trust, check_hostname=True)
    with pytest.raises(ssl.SSLError, match=r"verify failed|did not return a certificate"):
        handshake(client, server)


@pytest.mark.parametrize("what", ["expired", "foreign"])
def test_client_refuses_a_server_without_a_valid_certificate(
    authority: Authority, tmp_path: Path, what: str
) -> None:
    certificate = (
        authority.expired_server() if what == "expired" else Authority(tmp_path, "foreign").server()
    )
    server = server_context("ssl", own(certificate), None, verify=ssl.CERT_NONE)
    trust = load_trust("ssl.truststore", str(authority.pem))
    with pytest.raises(ssl.SSLCertVerificationError, match="verify failed"):
        handshake(client_context("ssl", None, trust, check_hostname=False), server)


def test_chain_of_a_pkcs12_file_begins_with_the_own_certificate(authority: Authority) -> None:
    found = load_identity("k", str(authority.server().pkcs12), PASSWORD)
    assert [item.subject.rfc4514_string().split(",")[0] for item in found.certificates] == [
        "CN=server"
    ]


def test_private_key_is_in_no_repr(authority: Authority) -> None:
    assert "PRIVATE" not in repr(own(authority.server()))


@pytest.mark.parametrize(
    ("suites", "protocols", "version"),
    [
        (ALL_1_3, ("TLSv1.2", "TLSv1.3"), "TLSv1.3"),
        (("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",), ("TLSv1.2", "TLSv1.3"), "TLSv1.2"),
        (("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", *ALL_1_3), ("TLSv1.2",), "TLSv1.2"),
        (("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",), ("TLSv1.2",), "TLSv1.2"),
        (("TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384",), ("TLSv1.2",), "TLSv1.2"),
    ],
)
def test_cipher_suites_and_protocols_have_their_names_in_java(
    authority: Authority, suites: tuple[str, ...], protocols: tuple[str, ...], version: str
) -> None:
    server = server_context(
        "ssl",
        own(authority.server()),
        None,
        verify=ssl.CERT_NONE,
        protocols=protocols,
        cipher_suites=suites,
    )
    trust = load_trust("ssl.truststore", str(authority.pem))
    client = client_context("ssl", None, trust, check_hostname=True)
    assert handshake(client, server).version() == version


def test_protocol_that_is_not_enabled_is_refused(authority: Authority) -> None:
    server = server_context(
        "ssl", own(authority.server()), None, verify=ssl.CERT_NONE, protocols=("TLSv1.3",)
    )
    trust = load_trust("ssl.truststore", str(authority.pem))
    client = client_context("ssl", None, trust, check_hostname=True, protocols=("TLSv1.2",))
    with pytest.raises(ssl.SSLError, match=r"protocol version|unsupported protocol"):
        handshake(client, server)


def refusals(authority: Authority, path: Path) -> dict[str, Callable[[], object]]:
    """Return what is refused, by the text of the refusal."""
    server, other = authority.server(), authority.server()
    jks, text = path / "server.jks", path / "text"
    jks.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    text.write_text("no certificate")
    mixed = identity_of_pem("ssl.keystore", "mixed", server.key_pem + other.chain_pem)

    def suites(*names: str) -> object:
        return server_context("ssl", own(server), None, verify=ssl.CERT_NONE, cipher_suites=names)

    return {
        rf"k\.location: {path}/missing cannot be read: No such file": lambda: load_identity(
            "k", str(path / "missing")
        ),
        rf"Java keystore.*keytool -importkeystore -srckeystore {jks} -destkeystore {path}/server.p12 "
        r"-deststoretype PKCS12": lambda: load_identity("k", str(jks)),
        r"Java keystore": lambda: load_trust("k", str(jks)),
        r"k\.type is PKCS12, but .* its format is PEM": lambda: load_identity(
            "k", str(server.pem), kind="PKCS12"
        ),
        r"k\.password: .* the password is wrong": lambda: load_identity(
            "k", str(server.pkcs12), "wrong"
        ),
        r"k\.password: .* the password is not set": lambda: load_trust("k", str(authority.pkcs12)),
        r"k\.location: the private key of .* does not open with k\.password: it is not set": lambda: (
            load_identity("k", str(server.locked_pem))
        ),
        r"k\.location: the private key of .* with k\.password: it is wrong": lambda: load_identity(
            "k", str(server.locked_pem), key_password="wrong"
        ),
        r"k\.location: the private key of .* with k\.password: .* not encrypted": lambda: (
            load_identity("k", str(server.pem), PASSWORD)
        ),
        r"k\.location: .*text has no block BEGIN PRIVATE KEY": lambda: load_identity(
            "k", str(text)
        ),
        r"k\.location: .*text has no certificate": lambda: load_trust("k", str(text)),
        r"k\.location: .*key has no certificate": lambda: load_identity("k", str(server.key_file)),
        r"k\.location: .* contains no private key": lambda: load_identity(
            "k", str(authority.pkcs12), PASSWORD
        ),
        r"ssl\.keystore: mixed cannot be used: the private key does not belong": lambda: (
            server_context("ssl", mixed, None, verify=ssl.CERT_NONE)
        ),
        r"ssl: no truststore is set": lambda: server_context(
            "ssl", own(server), None, verify=ssl.CERT_OPTIONAL
        ),
        r"ssl\.enabled\.protocols: TLSv1\.1 is not one of": lambda: client_context(
            "ssl", None, None, check_hostname=True, protocols=("TLSv1.1",)
        ),
        r"ssl\.cipher\.suites: RC4 is not a cipher suite": lambda: suites("RC4"),
        r"ssl\.cipher\.suites: of TLS 1\.3, name all": lambda: suites("TLS_AES_256_GCM_SHA384"),
        r"ssl\.cipher\.suites: OpenSSL has none": lambda: suites("TLS_RSA_WITH_RC4_128_MD5"),
    }


def test_unusable_file_password_or_name_is_refused_with_the_key(
    authority: Authority, tmp_path: Path
) -> None:
    for text, attempt in refusals(authority, tmp_path).items():
        with pytest.raises(ConfigError, match=text) as refusal:
            attempt()
        assert PASSWORD not in str(refusal.value), text
