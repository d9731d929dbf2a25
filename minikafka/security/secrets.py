"""Encrypted passwords, as Kafka stores the dynamic passwords of brokers in ZooKeeper (`password.encoder.secret`).

The text of a password has everything but the secret: the algorithms, the salt and the number of iterations.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64decode, b64encode
from binascii import Error as InvalidBase64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC
from cryptography.hazmat.primitives.padding import PKCS7

CBC_CIPHER: Final = "AES/CBC/PKCS5Padding"
GCM_CIPHER: Final = "AES/GCM/NoPadding"
CIPHERS: Final = (CBC_CIPHER, GCM_CIPHER)
KEY_FACTORIES: Final = {
    f"PBKDF2WithHmacSHA{size}": f"sha{size}" for size in (1, 224, 256, 384, 512)
}
"""Java's name of each algorithm that makes a key of a secret → the hash."""
DEFAULT_KEY_FACTORY: Final = "PBKDF2WithHmacSHA512"
KEY_LENGTHS: Final = (128, 192, 256)
ITERATIONS_MAX: Final = 1_000_000
"""Anyone who may write to ZooKeeper names the iterations. This number takes about a second."""
_BLOCK_BITS: Final = 128
_SALT_BYTES: Final = 256
_TAG_BITS: Final = 128
_IV_BYTES: Final = {CBC_CIPHER: 16, GCM_CIPHER: 12}


class InvalidSecret(ValueError):
    """An encrypted password cannot be read. The text contains no part of it."""


@dataclass(frozen=True, slots=True)
class PasswordEncoder:
    """Encrypts and decrypts passwords. A password is decrypted with the algorithms that its text names."""

    secret: str = field(repr=False)
    key_factory: str = DEFAULT_KEY_FACTORY
    cipher: str = CBC_CIPHER
    key_length: int = 128
    iterations: int = 4096

    def encode(self, password: str, random_bytes: Callable[[int], bytes]) -> str:
        """Return the text of a password."""
        salt, iv = random_bytes(_SALT_BYTES), random_bytes(_IV_BYTES[self.cipher])
        key = self._key(self.key_factory, salt, self.iterations, self.key_length)
        encrypt = _encrypt_gcm if self.cipher == GCM_CIPHER else _encrypt_cbc
        fields = {
            "keyFactoryAlgorithm": self.key_factory,
            "cipherAlgorithm": self.cipher,
            "keyLength": self.key_length,
            "salt": b64encode(salt).decode(),
            "iterations": self.iterations,
            "encryptedPassword": b64encode(encrypt(key, iv, password.encode())).decode(),
            "passwordLength": _java_length(password),
            "initializationVector": b64encode(iv).decode(),
        }
        if self.cipher == GCM_CIPHER:
            fields["authenticationTagLength"] = _TAG_BITS
        return ",".join(f"{name}:{value}" for name, value in fields.items())

    def decode(self, text: str) -> str:
        """Return the password in a text. Raises InvalidSecret, also if the text was made with another secret."""
        fields = dict(part.strip().partition(":")[::2] for part in text.split(","))
        try:
            password = self._decrypt(fields)
        except (LookupError, ValueError, InvalidTag, InvalidBase64):
            raise InvalidSecret(
                "is no encrypted password, or was encrypted with another password.encoder.secret"
            ) from None
        return password

    def _decrypt(self, fields: Mapping[str, str]) -> str:
        cipher, iterations = fields["cipherAlgorithm"], _number(fields["iterations"])
        key_length = _number(fields["keyLength"])
        if cipher not in CIPHERS or key_length not in KEY_LENGTHS:
            raise InvalidSecret
        if not 1 <= iterations <= ITERATIONS_MAX:
            raise InvalidSecret
        salt, iv, encrypted = (
            b64decode(fields[name], validate=True)
            for name in ("salt", "initializationVector", "encryptedPassword")
        )
        key = self._key(fields["keyFactoryAlgorithm"], salt, iterations, key_length)
        if cipher == GCM_CIPHER:
            if _number(fields["authenticationTagLength"]) != _TAG_BITS:
                raise InvalidSecret
            password = AESGCM(key).decrypt(iv, encrypted, None).decode()
        else:
            password = _decrypt_cbc(key, iv, encrypted).decode()
        if _java_length(password) != _number(fields["passwordLength"]):
            raise InvalidSecret
        return password

    def _key(self, key_factory: str, salt: bytes, iterations: int, key_length: int) -> bytes:
        return hashlib.pbkdf2_hmac(
            KEY_FACTORIES[key_factory], self.secret.encode(), salt, iterations, key_length // 8
        )


def _encrypt_gcm(key: bytes, iv: bytes, password: bytes) -> bytes:
    return AESGCM(key).encrypt(iv, password, None)


def _encrypt_cbc(key: bytes, iv: bytes, password: bytes) -> bytes:
    padder, encryptor = PKCS7(_BLOCK_BITS).padder(), Cipher(AES(key), CBC(iv)).encryptor()
    padded = padder.update(password) + padder.finalize()
    return encryptor.update(padded) + encryptor.finalize()


def _decrypt_cbc(key: bytes, iv: bytes, encrypted: bytes) -> bytes:
    decryptor, unpadder = Cipher(AES(key), CBC(iv)).decryptor(), PKCS7(_BLOCK_BITS).unpadder()
    padded = decryptor.update(encrypted) + decryptor.finalize()
    return unpadder.update(padded) + unpadder.finalize()


def _number(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise InvalidSecret
    return int(text)


def _java_length(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2
