"""The configuration file of a server: the keys of Apache ZooKeeper, and what is refused."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ConfigError
from minikafka.zookeeper.server.config import authentication_of, parse

MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
TLS = "secureClientPort=2182\nssl.keyStore.location=server.p12\n"
JAAS = "java.security.auth.login.config=jaas.conf\n"
SECRET = "alice-secret"
USERS = f'Server {{ {MODULE} required user_alice="{SECRET}" user_super="x"; }};'


def test_keys_have_their_names_in_zoo_cfg_or_as_properties_of_java() -> None:
    keys = parse(
        "# a comment\n"
        "secureClientPort = 2182\n"
        "zookeeper.ssl.keyStore.location=server.p12\n"
        f"ssl.keyStore.password={SECRET}=\n"
        "ssl.clientAuth=WANT\n"
        "zookeeper.DigestAuthenticationProvider.superDigest=super:aGFzaA==\n"
    )
    assert keys.secureClientPort == 2182
    assert keys.ssl_keyStore_location == "server.p12"
    assert keys.ssl_keyStore_password == f"{SECRET}="
    assert keys.ssl_clientAuth == "WANT"
    assert authentication_of(keys, None).super_digest == "super:aGFzaA=="
    assert SECRET not in repr(keys)


def test_certificates_of_clients_are_needed_by_default() -> None:
    assert parse(TLS).ssl_clientAuth == "need"


@pytest.mark.parametrize(
    ("text", "schemes", "required"),
    [
        ("", {"digest", "ip"}, set()),
        (TLS, {"digest", "ip", "x509"}, set()),
        (TLS + JAAS, {"digest", "ip", "x509", "sasl"}, set()),
        (
            JAAS + "enforce.auth.enabled=true\nenforce.auth.schemes=sasl,digest",
            {"digest", "ip", "sasl"},
            {"sasl", "digest"},
        ),
        (JAAS + "sessionRequireClientSASLAuth=true", {"digest", "ip", "sasl"}, {"sasl"}),
        ("enforce.auth.schemes=digest", {"digest", "ip"}, set()),
    ],
)
def test_server_has_the_schemes_that_its_file_makes_possible(
    text: str, schemes: set[str], required: set[str]
) -> None:
    found = authentication_of(parse(text), USERS if JAAS in text else None)
    assert (found.schemes, found.required) == (schemes, required)


def test_users_of_sasl_are_those_of_the_jaas_file() -> None:
    found = authentication_of(parse(JAAS + "superUser=chief"), USERS)
    assert found.users == {"alice": SECRET, "super": "x"}
    assert found.sasl_supers == {"chief"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("secureClientPort", "secureClientPort must be a whole number"),
        ("ssl.keystore.location=x", r"unknown key .* did you mean ssl\.keyStore\.location"),
        ("secureClientPort=70000", "secureClientPort must be from 0 to 65535"),
        ("secureClientPort=1", r"ssl\.keyStore\.location is not set"),
        ("ssl.keyStore.location=x", "secureClientPort is not"),
        ("secureClientPortAddress=x", "secureClientPort is not"),
        (TLS + TLS, "secureClientPort is given twice"),
        (TLS + "ssl.clientAuth=maybe", r"ssl\.clientAuth must be one of need"),
        (TLS + "ssl.enabledProtocols=TLSv1.1", r"ssl\.enabledProtocols must be"),
        ("enforce.auth.enabled=true", r"enforce\.auth\.schemes is empty"),
        ("enforce.auth.enabled=true\nenforce.auth.schemes=sasl", "SASL is required, but java"),
        ("sessionRequireClientSASLAuth=true", "SASL is required, but java"),
        ("enforce.auth.enabled=true\nenforce.auth.schemes=x509", "secureClientPort is not set"),
        (f"DigestAuthenticationProvider.superDigest={SECRET}", "superDigest must be USER:HASH"),
    ],
)
def test_file_that_contradicts_itself_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as refused:
        parse(text)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("jaas", "reason"),
    [
        ("", "the section Server is missing"),
        (USERS.replace("Server", "Client"), "the section Server is missing"),
        (USERS.replace(MODULE, "x.Krb5LoginModule"), "must have the module"),
        (f"Server {{ {MODULE} required; }};", "names no user"),
        (USERS.replace(" required", ""), "the file has no control flag"),
    ],
)
def test_jaas_file_without_users_is_refused(jaas: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=rf"java\.security\.auth\.login\.config.*{reason}") as no:
        authentication_of(parse(JAAS), jaas)
    assert SECRET not in str(no.value)
