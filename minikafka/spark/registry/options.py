"""The options of records with a schema registry. Their names are those of Confluent's serializers where these have one.

Invariant: no text that these classes return or raise contains a password or a token.
"""

from __future__ import annotations

import base64
import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import unquote, urlsplit

from minikafka.base.errors import ConfigError

FORMATS: Final = ("confluent_avro", "confluent_protobuf", "confluent_json")
TYPES: Final = dict(zip(FORMATS, ("AVRO", "PROTOBUF", "JSON"), strict=True))
"""The registry's names of the types of schemas."""
URL: Final = "schema.registry.url"
USER: Final = "basic.auth.user.info"
TOKEN: Final = "bearer.auth.token"  # noqa: S105  the name of an option
CA: Final = "ssl.ca.location"
CERTIFICATE: Final = "ssl.certificate.location"
KEY: Final = "ssl.key.location"
KEY_PASSWORD: Final = "ssl.key.password"  # noqa: S105  the name of an option
STRATEGY: Final = "subject.name.strategy"
SUBJECT: Final = "subject"
TOPIC: Final = "topic"
RECORD: Final = "record.name"
VERSION: Final = "version"
SCHEMA: Final = "schema"
MODE: Final = "mode"
VALIDATE: Final = "validate"
REGISTER: Final = "auto.register.schemas"
_STRATEGIES: Final = ("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy")
_MODES: Final = ("failfast", "permissive")
_TLS: Final = (CA, CERTIFICATE, KEY, KEY_PASSWORD)
_COMMON: Final = (URL, USER, TOKEN, *_TLS, STRATEGY, SUBJECT, TOPIC, RECORD, VERSION, SCHEMA)
DECODE: Final = (*_COMMON, MODE, VALIDATE)
"""The options of decoding."""
ENCODE: Final = (*_COMMON, REGISTER)
"""The options of encoding."""


@dataclass(frozen=True)
class RegistryAddress:
    """Where the registry is, and how a client logs in. `authorization`: the value of the header, "" without one.

    `urls`: the addresses of the registry's servers without credentials. `ca`: the path of a PEM file with the
    certificates that sign the registry's certificate; "" for those of the system. `certificate` and `key`: the paths of
    PEM files with the certificate of the client and its key; "" without one, or if the first file has the key.
    """

    urls: tuple[str, ...]
    authorization: str = field(default="", repr=False)
    ca: str = ""
    certificate: str = ""
    key: str = ""
    key_password: str = field(default="", repr=False)

    def __str__(self) -> str:
        return ",".join(self.urls)


@dataclass(frozen=True)
class SchemaOptions:
    """Which schema of a registry records are decoded to, or encoded with.

    `subject`: its subject, or None if `schema` alone names it. `version`: the version of the subject, None for the
    latest. `schema`: the text of the schema, None if the registry has it. `message`: the full name of a Protobuf
    message or "" for the first message of the file. `is_permissive`: records that cannot be decoded become null.
    `part`: "key" or "value", the part of records that has the schema.
    """

    format: str
    address: RegistryAddress
    subject: str | None
    version: int | None = None
    schema: str | None = None
    message: str = ""
    is_permissive: bool = False
    is_validated: bool = False
    registers: bool = True
    part: str = "value"

    @property
    def type(self) -> str:
        """The registry's name of the type of the schema."""
        return TYPES[self.format]


def with_topic(given: Mapping[str, str], topic: str | None) -> dict[str, str]:
    """Return the options with the topic of a source or sink, unless they name a topic or a subject themselves."""
    names = {name.lower() for name in given}
    return {**given, **({TOPIC: topic} if topic and not names & {TOPIC, SUBJECT} else {})}


def parse_decode(kind: str, given: Mapping[str, str], part: str = "value") -> SchemaOptions:
    """Return the options of decoding. `part`: "key" or "value". Raises ConfigError."""
    options = _known(given, DECODE)
    mode = _choice(options, MODE, _MODES)
    found = _parsed(kind, options, part)
    is_validated = _truth(options, VALIDATE, default=False)
    if is_validated and kind != "confluent_json":
        raise ConfigError(f"{VALIDATE} has an effect with confluent_json only: remove it")
    return replace(found, is_permissive=mode == "permissive", is_validated=is_validated)


def parse_encode(kind: str, given: Mapping[str, str], part: str = "value") -> SchemaOptions:
    """Return the options of encoding. `part`: "key" or "value". Raises ConfigError."""
    options = _known(given, ENCODE)
    found = _parsed(kind, options, part)
    if REGISTER in options and SCHEMA not in options:
        raise ConfigError(
            f"{REGISTER} has an effect with {SCHEMA} only: name a schema, or remove it"
        )
    return replace(found, registers=_truth(options, REGISTER, default=True))


def _parsed(kind: str, options: Mapping[str, str], part: str) -> SchemaOptions:
    if kind not in FORMATS:
        raise ConfigError(f"the format must be one of {', '.join(FORMATS)}, not {kind}")
    if URL not in options:
        raise ConfigError(f"{URL} is missing: name the address of the schema registry")
    schema = options.get(SCHEMA)
    if schema is not None and VERSION in options:
        raise ConfigError(f"{SCHEMA} and {VERSION} exclude each other: remove one")
    message = options.get(RECORD, "")
    return SchemaOptions(
        kind,
        _address(options),
        _subject(options, part),
        _version(options),
        schema,
        message,
        part=part,
    )


def _known(given: Mapping[str, str], known: tuple[str, ...]) -> dict[str, str]:
    """Return the options with lower-case names. Raises ConfigError for an unknown name."""
    found = {name.lower(): str(text) for name, text in given.items()}
    for name in found:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the options are {', '.join(known)}"
            raise ConfigError(f"unknown option {name}: {hint}")
        if not found[name].strip():
            raise ConfigError(f"{name} is empty: give it a value, or remove it")
    return found


def _address(options: Mapping[str, str]) -> RegistryAddress:
    parts = [urlsplit(text.strip()) for text in options[URL].split(",")]
    urls, logins = [], []
    for one in parts:
        if one.scheme not in ("http", "https") or not one.hostname:
            raise ConfigError(f"{URL} must be an address such as http://HOST:8081")
        try:
            port = "" if one.port is None else f":{one.port}"
        except ValueError:
            raise ConfigError(f"{URL}: the port of {one.hostname} must be a number") from None
        host = f"[{one.hostname}]" if ":" in one.hostname else one.hostname
        urls.append(f"{one.scheme}://{host}{port}{one.path.rstrip('/')}")
        if one.username:
            logins.append(f"{unquote(one.username)}:{unquote(one.password or '')}")
    if CERTIFICATE not in options and (alone := {KEY, KEY_PASSWORD} & options.keys()):
        raise ConfigError(f"{min(alone)} needs {CERTIFICATE}: name the certificate of the client")
    files = (options.get(name, "") for name in _TLS)
    return RegistryAddress(tuple(urls), _authorization(options, logins), *files)


def _authorization(options: Mapping[str, str], of_urls: list[str]) -> str:
    ways = [name for name in (USER, TOKEN) if name in options] + ([URL] if of_urls else [])
    if len(ways) > 1:
        raise ConfigError(f"{' and '.join(ways)} both log in: remove one")
    if TOKEN in options:
        token = options[TOKEN].strip()
        if not (token.isascii() and token.isprintable()):
            raise ConfigError(
                f"{TOKEN} must have only printable ASCII characters, without line ends"
            )
        return f"Bearer {token}"
    login = options.get(USER) or (of_urls[0] if of_urls else "")
    if not login:
        return ""
    if ":" not in login:
        raise ConfigError(f"{USER} must be USER:PASSWORD: it has no colon")
    return "Basic " + base64.b64encode(login.encode()).decode()


def _subject(options: Mapping[str, str], part: str) -> str | None:
    """Return the subject that the options name; None if they do not name one."""
    if subject := options.get(SUBJECT):
        if STRATEGY in options:
            raise ConfigError(f"{SUBJECT} and {STRATEGY} exclude each other: remove one")
        return subject
    strategy = _choice(options, STRATEGY, _STRATEGIES)
    topic, record = options.get(TOPIC), options.get(RECORD)
    if strategy == "TopicNameStrategy":
        return f"{topic}-{part}" if topic else None
    if not record:
        raise ConfigError(f"{STRATEGY} {strategy} needs {RECORD}: the full name of the record")
    if strategy == "RecordNameStrategy":
        return record
    if not topic:
        raise ConfigError(f"{STRATEGY} {strategy} needs {TOPIC}: name the topic, or set {SUBJECT}")
    return f"{topic}-{record}"


def _version(options: Mapping[str, str]) -> int | None:
    text = options.get(VERSION, "latest")
    if text == "latest":
        return None
    if not text.isdecimal() or int(text) == 0:
        raise ConfigError(f"{VERSION} must be latest, or a number from 1, not {text}")
    return int(text)


def _choice(options: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    """Return one of the allowed words. The name of a Java class may stand for its last part."""
    text = options.get(name, allowed[0])
    words = {word.lower(): word for word in allowed}
    last = text.rpartition(".")[2].lower()
    if last not in words:
        raise ConfigError(f"{name} must be one of {', '.join(allowed)}, not {text}")
    return words[last]


def _truth(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{name} must be true or false, not {text}")
    return text == "true"
