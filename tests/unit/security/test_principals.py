from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from minikafka.security.principals import (
    InvalidCertificate,
    InvalidRule,
    NoRuleApplies,
    PrincipalRules,
    split_principal,
    subject_of,
)

HERE = Path(__file__).parent
NAMES = [
    line.split(" ", 1)
    for line in (HERE / "java_distinguished_names.txt").read_text().splitlines()[1:]
]
RULES = [
    json.loads(line) for line in (HERE / "kafka_principal_rules.txt").read_text().splitlines()[1:]
]
KEY = ec.generate_private_key(ec.SECP256R1())


def certificate(subject: x509.Name) -> bytes:
    day = datetime(2026, 1, 1, tzinfo=UTC)
    builder = x509.CertificateBuilder(
        issuer_name=x509.Name.from_rfc4514_string("CN=CA"),
        subject_name=subject,
        public_key=KEY.public_key(),
        serial_number=7,
        not_valid_before=day,
        not_valid_after=day.replace(year=2027),
    )
    return builder.sign(KEY, hashes.SHA256()).public_bytes(Encoding.DER)


def element(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    size = len(content)
    return bytes([tag, *([size] if size < 128 else [0x82, size >> 8, size & 0xFF])]) + content


def around(subject: bytes) -> bytes:
    """Return the frame of a certificate with this subject, in DER."""
    empty = element(0x30)
    version = element(0xA0, element(2, b"\2"))
    return element(0x30, element(0x30, version, element(2, b"\1"), empty, empty, empty, subject))


def test_name_of_a_real_certificate_begins_with_the_last_attribute():
    subject = x509.Name.from_rfc4514_string("CN=Duke\\, the 1st,OU=Ops+L=Bonn,O=Org,C=DE")

    text = subject_of(certificate(subject))

    assert text in (
        "CN=Duke\\, the 1st,OU=Ops+L=Bonn,O=Org,C=DE",
        "CN=Duke\\, the 1st,L=Bonn+OU=Ops,O=Org,C=DE",
    )


def test_attribute_without_a_name_in_rfc_2253_is_written_as_number_and_bytes():
    subject = x509.Name(
        [
            x509.NameAttribute(x509.NameOID.COMMON_NAME, "a"),
            x509.NameAttribute(x509.NameOID.EMAIL_ADDRESS, "a@b"),
        ]
    )

    assert subject_of(certificate(subject)) == "1.2.840.113549.1.9.1=#1603614062,CN=a"


def test_certificate_without_a_subject_has_an_empty_name():
    assert subject_of(certificate(x509.Name([]))) == ""


def test_distinguished_names_are_written_as_java_writes_them():
    for der, text in NAMES:
        assert subject_of(around(bytes.fromhex(der))) == json.loads(text)


def test_bytes_that_are_no_certificate_are_refused():
    cut = certificate(x509.Name([]))[:200]

    for text in (b"", b"\x30", b"\x30\x05\x30", b"not a certificate", cut):
        with pytest.raises(InvalidCertificate):
            subject_of(text)


def test_rules_map_names_as_kafka_does():
    for rules, name, expected in RULES:
        try:
            mapped = PrincipalRules(rules).name_of(name)
        except NoRuleApplies:
            mapped = None
        assert mapped == expected, rules


def test_principal_of_a_certificate_is_the_mapped_name_of_a_user():
    rules = PrincipalRules("RULE:^CN=([^,]+),OU=Ops.*$/$1/L, DEFAULT")
    ops, other = (
        certificate(x509.Name.from_rfc4514_string(f"CN=Duke,OU={unit}")) for unit in ("Ops", "Dev")
    )

    assert [rules.principal_of(ops), rules.principal_of(other)] == [
        "User:duke",
        "User:CN=Duke,OU=Dev",
    ]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("default", "must be DEFAULT or RULE:PATTERN"),
        ("DEFAULT/L", "must be DEFAULT or RULE:PATTERN"),
        ("RULE:CN=(.*?),OU=ServiceUsers.*/$1", "must be DEFAULT or RULE:PATTERN"),
        ("RULE:CN=(.*)/$1/L/U", "must be DEFAULT or RULE:PATTERN"),
        ("RULE:CN=(.*/$1/", "malformed pattern"),
        ("RULE:CN=.*/$1/", "without the number or name of a group"),
        ("RULE:CN=(.*)/$/", "without the number or name of a group"),
        ("RULE:CN=(.*)/$x/", "without the number or name of a group"),
        ("RULE:CN=(.*)/${x}/", "without the number or name of a group"),
        ("DEFAULT, RULE:CN=(.*)/a$/", "without the number or name of a group"),
    ],
)
def test_malformed_rule_is_refused_when_it_is_read(rules, expected):
    with pytest.raises(InvalidRule, match=expected):
        PrincipalRules(rules)


def test_empty_rules_apply_to_no_name():
    with pytest.raises(NoRuleApplies, match="'CN=Duke'"):
        PrincipalRules(" , ,").name_of("CN=Duke")


def test_principal_is_split_at_its_first_colon():
    assert split_principal("User:CN=a:b") == ("User", "CN=a:b")
    with pytest.raises(ValueError, match="TYPE:NAME"):
        split_principal("alice")
