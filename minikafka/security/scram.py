"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): credentials, messages and proofs of both sides.

As in Kafka, passwords and names are UTF-8 without normalization, and there is no channel binding.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as InvalidBase64
from dataclasses import dataclass, field
from typing import Final, NamedTuple

MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384
_NONCE_BITS: Final = 130


class ScramMechanism(NamedTuple):
    """One SCRAM mechanism. `type` is its number in Kafka's protocol."""

    name: str
    type: int
    hash: str


MECHANISMS: Final = (
    ScramMechanism("SCRAM-SHA-256", 1, "sha256"),
    ScramMechanism("SCRAM-SHA-512", 2, "sha512"),
)
BY_NAME: Final = {mechanism.name: mechanism for mechanism in MECHANISMS}
BY_TYPE: Final = {mechanism.type: mechanism for mechanism in MECHANISMS}


class InvalidScram(ValueError):
    """A SCRAM message or credential is malformed. The text contains no part of it."""


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What a server stores instead of a password. The keys are not in `repr`."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


class ClientFirst(NamedTuple):
    """The first message of a client. `bare`: the part that is signed."""

    authorization_id: str
    user: str
    nonce: str
    extensions: dict[str, str]
    header: str
    bare: str


class ServerFirst(NamedTuple):
    """The challenge of the server."""

    nonce: str
    salt: bytes
    iterations: int


class ClientFinal(NamedTuple):
    """The proof of the client. `unproven`: the message up to the proof, which is signed."""

    header: str
    nonce: str
    proof: bytes
    unproven: str


_VALUE_SAFE: Final = r"[\x01-+\--<>-\x7f]"
_VALUE: Final = r"[\x01-+\--\x7f]"
_PRINTABLE: Final = r"[\x21-+\--\x7e]"
NAME: Final = rf"(?:{_VALUE_SAFE}|=2C|=3D)+"
_BASE64: Final = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_EXTENSIONS: Final = rf"(?:,[A-Za-z]+={_VALUE}+)*"
_CLIENT_FIRST: Final = re.compile(
    rf"(?P<header>n,(?:a=(?P<authzid>{NAME}))?,)"
    rf"(?P<bare>n=(?P<name>{NAME}),r=(?P<nonce>{_PRINTABLE}+)(?P<extensions>{_EXTENSIONS}))"
)
_SERVER_FIRST: Final = re.compile(
    rf"r=(?P<nonce>{_PRINTABLE}+),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,9}}){_EXTENSIONS}"
)
_CLIENT_FINAL: Final = re.compile(
    rf"(?P<unproven>c=(?P<channel>{_BASE64}),r=(?P<nonce>{_PRINTABLE}+){_EXTENSIONS}?),p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL: Final = re.compile(
    rf"(?:e=(?P<error>{_VALUE_SAFE}+)|v=(?P<signature>{_BASE64})){_EXTENSIONS}"
)
_FIELDS: Final = ("salt", "stored_key", "server_key", "iterations")


def new_credential(
    mechanism: ScramMechanism, password: str, iterations: int, salt: bytes
) -> ScramCredential:
    """Return the credential of a password."""
    return credential_of(
        mechanism, salt, salted_password(mechanism, password, salt, iterations), iterations
    )


def credential_of(
    mechanism: ScramMechanism, salt: bytes, salted: bytes, iterations: int
) -> ScramCredential:
    """Return the credential of a salted password."""
    stored_key = hashlib.new(mechanism.hash, _client_key(mechanism, salted)).digest()
    return ScramCredential(salt, stored_key, _server_key(mechanism, salted), iterations)


def decoy(mechanism: ScramMechanism, secret: bytes, user: str, iterations: int) -> ScramCredential:
    """Return the credential of a user that does not exist, so that its challenge looks like that of a real user.

    The salt is the same for each attempt, as that of a real user is. No password fits the keys.
    """
    seeds = [
        hmac.digest(secret, f"{part}:{mechanism.name}:{user}".encode(errors="replace"), "sha512")
        for part in ("salt", "stored", "server")
    ]
    size = hashlib.new(mechanism.hash).digest_size
    return ScramCredential(
        random_text(seeds[0]).encode(), seeds[1][:size], seeds[2][:size], iterations
    )


def is_password(mechanism: ScramMechanism, credential: ScramCredential, password: str) -> bool:
    """Return True if the credential is that of the password. This takes several milliseconds."""
    salted = salted_password(mechanism, password, credential.salt, credential.iterations)
    found = credential_of(mechanism, credential.salt, salted, credential.iterations)
    return hmac.compare_digest(found.stored_key, credential.stored_key)


def salted_password(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
) -> bytes:
    """Return the salted password of RFC 5802."""
    return hashlib.pbkdf2_hmac(mechanism.hash, password.encode(), salt, iterations)


def random_text(seed: bytes) -> str:
    """Return a salt or nonce of 130 bits as Kafka writes it, in base 36. `seed`: at least 17 random bytes."""
    number = int.from_bytes(seed[:17], "big") >> (17 * 8 - _NONCE_BITS)
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits or "0"


def encode_credential(credential: ScramCredential) -> str:
    """Return the text of a credential, as Kafka writes it to `/config/users/NAME`."""
    values: tuple[object, ...] = (
        b64encode(credential.salt).decode(),
        b64encode(credential.stored_key).decode(),
        b64encode(credential.server_key).decode(),
        credential.iterations,
    )
    return ",".join(f"{name}={value}" for name, value in zip(_FIELDS, values, strict=True))


def decode_credential(mechanism: ScramMechanism, text: str) -> ScramCredential:
    """Return the credential in the text. Raises InvalidScram."""
    parts = dict(part.partition("=")[::2] for part in text.split(","))
    if parts.keys() != set(_FIELDS):
        raise InvalidScram(
            f"a {mechanism.name} credential must have the fields {', '.join(_FIELDS)}"
        )
    try:
        salt, stored_key, server_key = (
            b64decode(parts[name], validate=True) for name in _FIELDS[:3]
        )
        iterations = int(parts["iterations"])
    except (InvalidBase64, ValueError):
        raise InvalidScram(f"a {mechanism.name} credential has a malformed field") from None
    size = hashlib.new(mechanism.hash).digest_size
    if len(stored_key) != size or len(server_key) != size or iterations < 1:
        raise InvalidScram(f"a {mechanism.name} credential has a key of the wrong size")
    return ScramCredential(salt, stored_key, server_key, iterations)


def client_first(user: str, nonce: str, extensions: dict[str, str]) -> ClientFirst:
    """Return the first message of a client."""
    name = user.replace("=", "=3D").replace(",", "=2C")
    fields = [f"n={name}", f"r={nonce}", *(f"{key}={value}" for key, value in extensions.items())]
    return ClientFirst("", user, nonce, extensions, "n,,", ",".join(fields))


def read_client_first(message: bytes) -> ClientFirst:
    """Read the first message of a client. Raises InvalidScram."""
    match = _match(_CLIENT_FIRST, message, "client first")
    pairs = (pair.partition("=") for pair in match["extensions"].split(",")[1:])
    extensions = {key: value for key, _, value in pairs}
    authorization_id = unescape(match["authzid"] or "")
    return ClientFirst(
        authorization_id,
        unescape(match["name"]),
        match["nonce"],
        extensions,
        match["header"],
        match["bare"],
    )


def server_first(challenge: ServerFirst) -> str:
    """Return the text of a challenge."""
    salt = b64encode(challenge.salt).decode()
    return f"r={challenge.nonce},s={salt},i={challenge.iterations}"


def read_server_first(message: bytes) -> ServerFirst:
    """Read a challenge. Raises InvalidScram."""
    match = _match(_SERVER_FIRST, message, "server first")
    return ServerFirst(match["nonce"], b64decode(match["salt"]), int(match["iterations"]))


def unproven(header: str, nonce: str) -> str:
    """Return the final message of a client up to the proof."""
    return f"c={b64encode(header.encode()).decode()},r={nonce}"


def client_final(unproven: str, proof: bytes) -> bytes:
    """Return the final message of a client."""
    return f"{unproven},p={b64encode(proof).decode()}".encode()


def read_client_final(message: bytes) -> ClientFinal:
    """Read the final message of a client. Raises InvalidScram."""
    match = _match(_CLIENT_FINAL, message, "client final")
    header = b64decode(match["channel"]).decode(errors="replace")
    return ClientFinal(header, match["nonce"], b64decode(match["proof"]), match["unproven"])


def server_final(signature: bytes) -> bytes:
    """Return the final message of a server."""
    return f"v={b64encode(signature).decode()}".encode()


def read_server_final(message: bytes) -> bytes:
    """Read the signature in the final message of a server. Raises InvalidScram, also for the server's error."""
    match = _match(_SERVER_FINAL, message, "server final")
    if match["error"] is not None:
        raise InvalidScram("the server answered with a SCRAM error")
    return b64decode(match["signature"])


def signed_text(first: ClientFirst, challenge: str, unproven: str) -> bytes:
    """Return the text that both sides sign: the messages of the exchange without the proof."""
    return f"{first.bare},{challenge},{unproven}".encode()


def client_proof(mechanism: ScramMechanism, salted: bytes, signed: bytes) -> bytes:
    """Return the proof that the client knows the salted password."""
    key = _client_key(mechanism, salted)
    stored_key = hashlib.new(mechanism.hash, key).digest()
    return _xor(key, hmac.digest(stored_key, signed, mechanism.hash))


def is_proven(
    mechanism: ScramMechanism, credential: ScramCredential, signed: bytes, proof: bytes
) -> bool:
    """Return True if the client that sent this proof knows the password of the credential."""
    signature = hmac.digest(credential.stored_key, signed, mechanism.hash)
    if len(proof) != len(signature):
        return False
    stored_key = hashlib.new(mechanism.hash, _xor(signature, proof)).digest()
    return hmac.compare_digest(stored_key, credential.stored_key)


def server_signature(mechanism: ScramMechanism, server_key: bytes, signed: bytes) -> bytes:
    """Return the proof that the server knows the credential."""
    return hmac.digest(server_key, signed, mechanism.hash)


def is_signed_by_server(
    mechanism: ScramMechanism, salted: bytes, signed: bytes, signature: bytes
) -> bool:
    """Return True if the server that sent this signature knows the credential of the salted password."""
    expected = server_signature(mechanism, _server_key(mechanism, salted), signed)
    return hmac.compare_digest(expected, signature)


def _client_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    return hmac.digest(salted, b"Client Key", mechanism.hash)


def _server_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    return hmac.digest(salted, b"Server Key", mechanism.hash)


def _xor(first: bytes, second: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(first, second, strict=True))


def unescape(name: str) -> str:
    """Return the user in an escaped name (`saslname` in RFC 5802)."""
    return name.replace("=2C", ",").replace("=3D", "=")


def _match(pattern: re.Pattern[str], message: bytes, name: str) -> re.Match[str]:
    match = pattern.fullmatch(message.decode(errors="replace"))
    if match is None:
        raise InvalidScram(f"malformed SCRAM {name} message")
    return match
