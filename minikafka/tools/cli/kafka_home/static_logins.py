"""The JAAS file that `-Djava.security.auth.login.config` names: logins of a broker, outside of its `server.properties`.

Kafka looks up the login of a mechanism in the section `LISTENER.KafkaServer`, else `KafkaServer`, unless the
configuration has `listener.name.NAME.MECHANISM.sasl.jaas.config`. The section `Client` is the login at ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from minikafka.base.config import BrokerConfig
from minikafka.base.config.security import JAAS, PREFIX
from minikafka.base.config.zookeeper import ZOOKEEPER_JAAS
from minikafka.base.errors import ConfigError
from minikafka.base.properties import Property
from minikafka.security.jaas import MODULES, InvalidJaas, JaasEntry, format_entry, parse_file

LOGIN_CONFIG: Final = "java.security.auth.login.config"
_SERVER: Final = "KafkaServer"
_CLIENT: Final = "Client"


def logins_of(file: str, values: Mapping[str, str]) -> list[Property]:
    """Return the keys that the JAAS file stands for. `values`: the broker's own keys. Raises ConfigError."""
    try:
        sections = parse_file(Path(file).read_text("utf-8"))
    except (OSError, UnicodeDecodeError, InvalidJaas) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"{LOGIN_CONFIG}: {file}: {reason}") from None
    found = {}
    for listener in _sasl_listeners(values):
        modules = sections.get(f"{listener.lower()}.{_SERVER}", sections.get(_SERVER, []))
        for mechanism in _mechanisms(listener, values):
            entry = _entry(modules, mechanism)
            key = f"{PREFIX}{listener.lower()}.{mechanism.lower()}.{JAAS}"
            if entry is not None and key not in values:
                found[key] = format_entry(entry)
    if sections.get(_CLIENT) and ZOOKEEPER_JAAS not in values:
        found[ZOOKEEPER_JAAS] = file
    return [Property(name, value, 0) for name, value in found.items()]


def _entry(modules: Sequence[JaasEntry], mechanism: str) -> JaasEntry | None:
    wanted = MODULES.get(mechanism)
    return next((entry for entry in modules if entry.module == wanted), None)


def _sasl_listeners(values: Mapping[str, str]) -> list[str]:
    keys = BrokerConfig.keys()
    names = _words(values.get("listeners", keys["listeners"].default))
    pairs = _words(values.get("listener.security.protocol.map", ""))
    protocols = {name.upper(): kind for name, _, kind in (pair.partition(":") for pair in pairs)}
    found = [name.partition("://")[0].upper() for name in names]
    return [name for name in found if protocols.get(name, name).upper().startswith("SASL_")]


def _mechanisms(listener: str, values: Mapping[str, str]) -> list[str]:
    key = "sasl.enabled.mechanisms"
    return _words(values.get(f"{PREFIX}{listener.lower()}.{key}", values.get(key, "")))


def _words(text: str | Sequence[str]) -> list[str]:
    parts = text.split(",") if isinstance(text, str) else text
    return [word.strip() for word in parts if word.strip()]
