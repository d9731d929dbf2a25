"""The configuration keys with which dynamic passwords are encrypted in ZooKeeper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from minikafka.base.config.keys import ConfigType, key
from minikafka.base.config.tokens import DelegationTokenKeys
from minikafka.base.errors import ConfigError

_, _, STRING, INT, _, _, _, PASSWORD = ConfigType

_KEY_LENGTHS: Final = (128, 192, 256)


@dataclass(frozen=True, slots=True, kw_only=True)
class PasswordKeys(DelegationTokenKeys):
    """The keys of the encoder of passwords, a part of `BrokerConfig`."""

    password_encoder_secret: str | None = key(
        PASSWORD,
        None,
        "Secret with which dynamic passwords are encrypted before they are stored.",
        low=1,
    )
    password_encoder_old_secret: str | None = key(
        PASSWORD,
        None,
        "Former password.encoder.secret, with which stored passwords are decrypted if the new one does not fit.",
    )
    password_encoder_keyfactory_algorithm: str = key(
        STRING,
        "PBKDF2WithHmacSHA512",
        "Java's name of the algorithm that makes a key of the secret.",
        choices=tuple(f"PBKDF2WithHmacSHA{size}" for size in (1, 224, 256, 384, 512)),
    )
    password_encoder_cipher_algorithm: str = key(
        STRING,
        "AES/CBC/PKCS5Padding",
        "Java's name of the cipher of dynamic passwords.",
        choices=("AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"),
    )
    password_encoder_key_length: int = key(
        INT, 128, "Length in bits of the key of the cipher: 128, 192 or 256.", low=128, high=256
    )
    password_encoder_iterations: int = key(
        INT, 4_096, "Iterations with which the key is made.", low=1_024, high=1_000_000
    )


def check_passwords(config: PasswordKeys) -> None:
    """Raise ConfigError for a length of the key that AES does not have."""
    length = config.password_encoder_key_length
    if length not in _KEY_LENGTHS:
        raise ConfigError(f"password.encoder.key.length must be 128, 192 or 256, got {length}")
