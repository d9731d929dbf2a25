"""Encrypted passwords. `kafka_passwords.txt`: secret, password and text, from Kafka's own encoder."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from minikafka.security.secrets import (
    CIPHERS,
    GCM_CIPHER,
    KEY_FACTORIES,
    KEY_LENGTHS,
    InvalidSecret,
    PasswordEncoder,
)

FACTS = (Path(__file__).parent / "kafka_passwords.txt").read_text().splitlines()[1:]
PASSWORD = "with,comma:colon=\n\u00fc\U0001f389"
TEXT = PasswordEncoder("secret").encode(PASSWORD, random.Random(1).randbytes)


def test_passwords_that_kafka_has_encrypted_are_decrypted():
    assert len(FACTS) > 30
    for secret, password, text in map(json.loads, FACTS):
        assert PasswordEncoder(secret).decode(text) == password


@pytest.mark.parametrize("cipher", CIPHERS)
@pytest.mark.parametrize("key_length", KEY_LENGTHS)
def test_encrypted_password_is_decrypted_again(cipher: str, key_length: int):
    for key_factory in KEY_FACTORIES:
        encoder = PasswordEncoder("secret", key_factory, cipher, key_length, 1024)
        text = encoder.encode(PASSWORD, random.Random(1).randbytes)

        assert PasswordEncoder("secret").decode(text) == PASSWORD


def test_text_has_kafkas_fields_and_defaults_and_not_the_password():
    fields = dict(part.partition(":")[::2] for part in TEXT.split(","))

    assert fields.keys() == {
        "keyFactoryAlgorithm",
        "cipherAlgorithm",
        "keyLength",
        "salt",
        "iterations",
        "encryptedPassword",
        "passwordLength",
        "initializationVector",
    }
    assert fields["keyFactoryAlgorithm"] == "PBKDF2WithHmacSHA512"
    assert (fields["keyLength"], fields["iterations"]) == ("128", "4096")
    assert (fields["cipherAlgorithm"], fields["passwordLength"]) == ("AES/CBC/PKCS5Padding", "21")
    assert "comma" not in TEXT


def test_same_password_is_encrypted_differently_each_time():
    source = random.Random(1).randbytes

    assert len({PasswordEncoder("secret").encode("x", source) for _ in range(3)}) == 3


@pytest.mark.parametrize("cipher", CIPHERS)
def test_another_secret_decrypts_nothing(cipher: str):
    text = PasswordEncoder("secret", cipher=cipher).encode(PASSWORD, random.Random(1).randbytes)

    with pytest.raises(InvalidSecret):
        PasswordEncoder("Secret").decode(text)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("keyFactoryAlgorithm", "PBKDF2WithHmacMD5"),
        ("cipherAlgorithm", "DES/CBC/PKCS5Padding"),
        ("keyLength", "64"),
        ("keyLength", "x"),
        ("salt", "!"),
        ("iterations", "0"),
        ("iterations", "1000001"),
        ("iterations", "-1"),
        ("encryptedPassword", "AAAA"),
        ("encryptedPassword", ""),
        ("passwordLength", "20"),
        ("initializationVector", "AAAA"),
    ],
)
def test_malformed_text_is_refused_without_repeating_it(field: str, value: str):
    text = re.sub(rf"{field}:[^,]*", f"{field}:{value}", TEXT)

    with pytest.raises(InvalidSecret, match=r"another password\.encoder\.secret$"):
        PasswordEncoder("secret").decode(text)


@pytest.mark.parametrize("text", ["", "x", "plain-password", TEXT.replace("salt", "pepper")])
def test_text_without_the_fields_is_refused(text: str):
    with pytest.raises(InvalidSecret) as refused:
        PasswordEncoder("secret").decode(text)

    assert "plain-password" not in str(refused.value)


def test_changed_text_of_gcm_is_refused():
    encoder = PasswordEncoder("secret", cipher=GCM_CIPHER)
    text = encoder.encode(PASSWORD, random.Random(1).randbytes)

    with pytest.raises(InvalidSecret):
        encoder.decode(text.replace("authenticationTagLength:128", "authenticationTagLength:32"))


def test_repr_of_an_encoder_has_no_secret():
    assert "secret" not in repr(PasswordEncoder("my-secret")).replace("PasswordEncoder", "")
