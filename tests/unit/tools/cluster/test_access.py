"""A broker's keys of ZooKeeper: what they give the client, and what is refused with the name of the key."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from support.security.certificates import PASSWORD, Authority

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import ConfigError
from minikafka.runtime.tls import RenewableTls
from minikafka.simulation.ports import SeededRng
from minikafka.tools.cluster.zookeeper.access import access_of
from minikafka.zookeeper.client.access import OPEN_ACCESS, ZooKeeperAccess

MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
SECRET = "alice-secret"
JAAS = f'{MODULE} required username="alice" password="{SECRET}";'


def access(**keys: object) -> ZooKeeperAccess:
    """Return the access of a broker with these keys of ZooKeeper. In their names, `_` stands for `.`."""
    given = {f"zookeeper.{name.replace('_', '.')}": value for name, value in keys.items()}
    jaas = given.pop("zookeeper.jaas", None)
    own = {} if jaas is None else {"minikafka.zookeeper.jaas.config": jaas}
    return access_of(BrokerConfig.from_mapping({"broker.id": 1, **given, **own}), SeededRng(1))


def context(**keys: object) -> ssl.SSLContext:
    tls = access(ssl_client_enable="true", **keys).tls
    assert isinstance(tls, RenewableTls)
    return tls.context


def test_access_is_open_by_default() -> None:
    assert access() == OPEN_ACCESS


@pytest.mark.key("zookeeper.ssl.client.enable")
def test_files_are_read_only_with_tls(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    assert access(ssl_keystore_location=missing).tls is None
    with pytest.raises(ConfigError, match=r"zookeeper\.ssl\.keystore\.location: .* cannot be read"):
        access(ssl_client_enable=True, ssl_keystore_location=missing)


@pytest.mark.key(
    "zookeeper.ssl.keystore.location",
    "zookeeper.ssl.keystore.password",
    "zookeeper.ssl.keystore.type",
    "zookeeper.ssl.truststore.location",
    "zookeeper.ssl.truststore.password",
    "zookeeper.ssl.truststore.type",
)
def test_stores_need_their_password_and_format(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate = authority.client("alice")
    key = {"ssl_keystore_location": str(certificate.pkcs12)}
    trust = {"ssl_truststore_location": str(authority.pkcs12)}
    right = {"ssl_keystore_password": PASSWORD, "ssl_truststore_password": PASSWORD}
    types = {"ssl_keystore_type": "PKCS12", "ssl_truststore_type": "PKCS12"}
    trusted = context(**key, **trust, **right, **types).get_ca_certs()
    assert len(trusted) == 1
    assert len(context(ssl_truststore_location=str(authority.pem)).get_ca_certs()) == 1
    context(ssl_keystore_location=str(certificate.locked_pem), ssl_keystore_password=PASSWORD)
    for name in ("keystore", "truststore"):
        with pytest.raises(ConfigError, match=rf"zookeeper\.ssl\.{name}\.password"):
            context(**key, **trust, **{**right, f"ssl_{name}_password": "wrong"})
        with pytest.raises(ConfigError, match=rf"zookeeper\.ssl\.{name}\.type is PEM"):
            context(**key, **trust, **right, **{f"ssl_{name}_type": "PEM"})


@pytest.mark.key(
    "zookeeper.ssl.protocol",
    "zookeeper.ssl.enabled.protocols",
    "zookeeper.ssl.cipher.suites",
    "zookeeper.ssl.endpoint.identification.algorithm",
)
def test_protocols_suites_and_names_are_those_of_the_keys() -> None:
    def versions(**keys: object) -> tuple[int, int]:
        found = context(**keys)
        return found.minimum_version, found.maximum_version

    old, new = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
    assert versions() == (old, old)
    assert versions(ssl_protocol="TLSv1.3") == (new, new)
    assert versions(ssl_enabled_protocols="TLSv1.3,TLSv1.2") == (old, new)
    suites = context(ssl_cipher_suites="TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256").get_ciphers()
    assert [item["name"] for item in suites if item["protocol"] != "TLSv1.3"] == [
        "ECDHE-RSA-AES128-GCM-SHA256"
    ]
    assert context().check_hostname
    assert not context(ssl_endpoint_identification_algorithm="").check_hostname
    assert context(ssl_endpoint_identification_algorithm="").verify_mode is ssl.CERT_REQUIRED
    with pytest.raises(ConfigError, match=r"zookeeper\.ssl\.cipher\.suites: RC4"):
        context(ssl_cipher_suites="RC4")
    with pytest.raises(ConfigError, match=r"zookeeper\.ssl\.protocol must be one of"):
        context(ssl_protocol="TLSv1.1")


@pytest.mark.key("zookeeper.clientCnxnSocket")
def test_class_of_connections_must_be_one_with_tls() -> None:
    netty, nio = (f"org.apache.zookeeper.ClientCnxnSocket{name}" for name in ("Netty", "NIO"))
    assert access(clientCnxnSocket=nio).tls is None
    context(clientCnxnSocket=netty)
    with pytest.raises(ConfigError, match=r"zookeeper\.clientCnxnSocket must be .*Netty for TLS"):
        context(clientCnxnSocket=nio)


@pytest.mark.key("zookeeper.set.acl")
def test_rights_on_nodes_need_an_identity(tmp_path: Path) -> None:
    certificate = Authority(tmp_path).client("alice")
    keys = {"ssl_client_enable": "true", "ssl_keystore_location": str(certificate.pem)}
    for given in ({"jaas": JAAS}, keys):
        assert access(set_acl="true", **given).acl_of("/a") != OPEN_ACCESS.acl_of("/a")
        assert access(**given).acl_of is OPEN_ACCESS.acl_of
    for missing in ({}, {"ssl_client_enable": "true"}, keys | {"ssl_client_enable": "false"}):
        with pytest.raises(ConfigError, match=r"zookeeper\.set\.acl is true, but .* no identity"):
            access(set_acl="true", **missing)


@pytest.mark.key("minikafka.zookeeper.jaas.config")
def test_login_is_in_the_key_or_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "jaas.conf"
    file.write_text(f'Server {{ {MODULE} required user_a="b"; }};\nClient {{ {JAAS} }};\n')
    for value in (JAAS, f"Client {{ {JAAS} }};", str(file)):
        login = access(jaas=value).login
        assert login is not None
        assert (login.user, login.password) == ("alice", SECRET)
        assert SECRET not in repr(access(jaas=value))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("/not/there", "names a file that cannot be read: No such file"),
        (SECRET, "names a file that cannot be read"),
        (f"Server {{ {JAAS} }};", "has no section Client"),
        (
            JAAS.replace(MODULE, "com.sun.security.auth.module.Krb5LoginModule"),
            "must have the module",
        ),
        (f'{MODULE} required username="alice";', "options username and password"),
        (f'{MODULE} required password="{SECRET}";', "options username and password"),
        (f'{MODULE} username="alice" password="{SECRET}";', "has no control flag"),
    ],
)
def test_login_that_cannot_be_read_is_refused_without_the_password(value: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as refused:
        access(jaas=value)
    assert "minikafka.zookeeper.jaas.config" in str(refused.value)
    assert SECRET not in str(refused.value)
