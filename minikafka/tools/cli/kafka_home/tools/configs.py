"""`kafka-configs.sh`: settings of topics and brokers, quotas and SCRAM credentials of users."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import minikafka.client.administration.scram_admin as scram_admin
from minikafka.base.errors import MinikafkaError
from minikafka.base.properties import decode_properties
from minikafka.client import Client
from minikafka.client.administration.results import ConfigSource, Resource, ResourceType
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.security.quotas import DEFAULT, QuotaEntity, parse_quota
from minikafka.security.scram import BY_NAME, encode_credential, new_credential
from minikafka.tools.cli.execution.running import run
from minikafka.tools.cli.kafka_home.connection import connected, raise_first
from minikafka.tools.cli.kafka_home.options import Arguments
from minikafka.tools.cli.terminal.echo import echo
from minikafka.tools.cluster.zookeeper.session import zookeeper_session
from minikafka.tools.cluster.zookeeper.user_settings import alter_user, user_settings

TOPICS, BROKERS, USERS, CLIENTS, IPS = "topics", "brokers", "users", "clients", "ips"
_TYPES: Final = (TOPICS, BROKERS, USERS, CLIENTS, IPS)
_SHORT: Final = {"topic": TOPICS, "broker": BROKERS, "user": USERS, "client": CLIENTS, "ip": IPS}
_DEFAULTS: Final = {f"{name}-defaults": kind for name, kind in _SHORT.items() if name != "topic"}
_OUTSIDE_BRACKETS: Final = r"(?=[^\]]*(?:\[|$))"
_CREDENTIAL: Final = re.compile(r"(?:iterations=(-?[0-9]*),)?password=(.*)", re.DOTALL)
_ITERATIONS: Final = 4096
_SOURCES: Final = {
    TOPICS: ConfigSource.DYNAMIC_TOPIC_CONFIG,
    BROKERS: ConfigSource.DYNAMIC_BROKER_CONFIG,
}
_ZOOKEEPER_WARNING: Final = (
    "Warning: --zookeeper is deprecated and will be removed in a future version of Kafka.",
    "Use --bootstrap-server instead to specify a broker to connect to.",
)


class NamedEntity(NamedTuple):
    """One part of an entity: its type and its name; "" for the default, None for all of the type."""

    kind: str
    name: str | None


class Changes(NamedTuple):
    """The settings to add and to remove."""

    added: dict[str, str]
    removed: list[str]


def alter_or_describe(arguments: Arguments) -> None:
    """Describe or alter the settings of an entity. Raises MinikafkaError."""
    action = arguments.only_one_of(("describe", "alter"))
    entities = _entities(arguments)
    changes = _changes(arguments) if action == "alter" else Changes({}, [])
    if action == "alter" and not (changes.added or changes.removed):
        raise MinikafkaError(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter"
        )
    if action == "alter" and any(entity.name is None for entity in entities):
        raise MinikafkaError("An entity name must be specified for every entity type")
    if arguments.has("zookeeper"):
        _through_zookeeper(arguments, entities, changes, alters=action == "alter")
    elif action == "alter":
        connected(arguments, lambda client: _alter(client, entities, changes))
    else:
        has_all = arguments.has("all")
        connected(arguments, lambda client: _describe(client, entities, has_all=has_all))


def _entities(arguments: Arguments) -> list[NamedEntity]:
    """Return the entities in the order of the options. Raises MinikafkaError."""
    kinds: list[str] = []
    names: list[str] = []
    words = iter(arguments.words)
    for word in words:
        option, equals, value = word.removeprefix("--").partition("=")
        if option == "entity-type":
            kinds.append(value if equals else next(words))
        elif option == "entity-name":
            names.append(value if equals else next(words))
        elif option in _SHORT:
            kinds.append(_SHORT[option])
            names.append(value if equals else next(words))
        elif option in _DEFAULTS or option == "entity-default":
            kinds += [_DEFAULTS[option]] if option in _DEFAULTS else []
            names.append("")
    for kind in kinds:
        if kind not in _TYPES:
            raise MinikafkaError(
                f"Invalid entity type {kind}, the entity type must be one of {', '.join(_TYPES)}"
            )
    if not kinds:
        raise MinikafkaError("At least one entity type must be specified")
    if len(names) > len(kinds):
        raise MinikafkaError("More entity names specified than entity types")
    if len(kinds) > 1 and set(kinds) != {USERS, CLIENTS}:
        raise MinikafkaError("Only 'users' and 'clients' entity types may be specified together")
    return [NamedEntity(kind, names[n] if n < len(names) else None) for n, kind in enumerate(kinds)]


def _changes(arguments: Arguments) -> Changes:
    """Return the settings to change. A value with commas is in brackets. Raises MinikafkaError."""
    added = {}
    if (file := arguments.value("add-config-file")) is not None:
        try:
            added = {one.name: one.value for one in decode_properties(Path(file).read_bytes())}
        except OSError as error:
            raise MinikafkaError(f"{file}: {error.strerror}") from None
    if (text := arguments.value("add-config")) is not None:
        for pair in re.split(f",{_OUTSIDE_BRACKETS}", text):
            parts = re.split(rf"\s*=\s*{_OUTSIDE_BRACKETS}", pair)
            if len(parts) != 2:
                form = 'all configs to be added must be in the format "key=val".'
                raise MinikafkaError(f"requirement failed: Invalid entity config: {form}")
            added[parts[0].strip()] = re.sub(r"\[?\]?", "", parts[1]).strip()
    return Changes(added, arguments.words_of("delete-config"))


async def _alter(client: Client, entities: Sequence[NamedEntity], changes: Changes) -> None:
    kind, name = entities[0]
    if kind in _SOURCES:
        await _alter_resource(client, entities[0], changes)
    elif kind == USERS and len(entities) == 1 and _has_credentials(changes):
        if not name:
            raise MinikafkaError(
                "--entity-default cannot be used with SCRAM credentials: name the user"
            )
        new = [_new_password(name, *pair) for pair in changes.added.items()]
        old = [scram_admin.OldPassword(name, BY_NAME[one]) for one in changes.removed]
        raise_first((await client.users.alter(new, old)).values())
    else:
        values: dict[str, float | None] = {
            key: _quota(key, text) for key, text in changes.added.items()
        }
        values |= dict.fromkeys(changes.removed)
        raise_first([await client.quotas.alter(_owner(entities), values)])
    if name:
        echo(f"Completed updating config for {kind[:-1]} {name}.")
    else:
        echo(f"Completed updating default config for {kind} in the cluster.")


def _has_credentials(changes: Changes) -> bool:
    names = [*changes.added, *changes.removed]
    found = [name for name in names if name in BY_NAME]
    if found and len(found) < len(names):
        raise MinikafkaError(
            "Cannot alter both quota and SCRAM credential configs simultaneously for 'users'"
        )
    return bool(found)


def _quota(key: str, text: str) -> float:
    try:
        return parse_quota(key, text)
    except ValueError:
        raise MinikafkaError(f"Cannot parse quota configuration value for {key}: {text}") from None


def _credential(mechanism: str, text: str) -> tuple[int, str]:
    """Return the iterations and the password of `iterations=N,password=P`. Raises MinikafkaError."""
    match = _CREDENTIAL.fullmatch(text)
    if match is None:
        form = f"{mechanism}=[iterations=N,password=PASSWORD]"
        raise MinikafkaError(f"Invalid credential property {mechanism}: expected {form}")
    iterations = int(match[1]) if match[1] not in (None, "", "-1") else _ITERATIONS
    if iterations < _ITERATIONS:
        least = f"the minimum {_ITERATIONS} required for {mechanism}"
        raise MinikafkaError(f"Iterations {iterations} is less than {least}")
    return iterations, match[2]


def _new_password(user: str, mechanism: str, text: str) -> scram_admin.NewPassword:
    iterations, password = _credential(mechanism, text)
    salt = SystemRng().bytes(scram_admin.SALT_BYTES)
    return scram_admin.new_password(user, BY_NAME[mechanism], password, iterations, salt)


def _owner(entities: Sequence[NamedEntity]) -> QuotaEntity:
    parts = {kind: DEFAULT if name == "" else name for kind, name in entities if name is not None}
    return QuotaEntity(parts.get(USERS), parts.get(CLIENTS), parts.get(IPS))


def _resource(entity: NamedEntity) -> Resource:
    kind = ResourceType.TOPIC if entity.kind == TOPICS else ResourceType.BROKER
    name = entity.name or ""
    if entity.kind == BROKERS and name and not name.isdecimal():
        raise MinikafkaError(
            f"The entity name for brokers must be a valid integer broker id, found: {name}"
        )
    return Resource(kind, name)


async def _alter_resource(client: Client, entity: NamedEntity, changes: Changes) -> None:
    resource = _resource(entity)
    if changes.removed:
        held = (await client.admin.describe_configs([resource]))[resource]
        raise_first([held.outcome])
        own = {one.name for one in held.entries if one.source is _source(entity)}
        if missing := [name for name in changes.removed if name not in own]:
            raise MinikafkaError(f"Invalid config(s): {','.join(missing)}")
    values: Mapping[str, str | None] = {**changes.added, **dict.fromkeys(changes.removed)}
    raise_first((await client.admin.alter_configs({resource: values})).values())


def _source(entity: NamedEntity) -> ConfigSource:
    if entity.kind == BROKERS and not entity.name:
        return ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    return _SOURCES[entity.kind]


async def _describe(client: Client, entities: Sequence[NamedEntity], *, has_all: bool) -> None:
    kind = entities[0].kind
    if kind in _SOURCES:
        for entity in await _resources(client, entities[0]):
            await _describe_resource(client, entity, has_all=has_all)
        return
    for owner, values in (await client.quotas.describe(_owner(entities))).items():
        if _has_kinds(owner, entities):
            text = ", ".join(f"{key}={value}" for key, value in values.items())
            echo(f"Quota configs for {_owner_text(owner)} are {text}")
    if [entity.kind for entity in entities] == [USERS] and entities[0].name != "":
        named = entities[0].name
        users = await client.users.describe(None if named is None else [named])
        for user, found in users.items():
            infos = ", ".join(f"{c.mechanism}=iterations={c.iterations}" for c in found.credentials)
            if infos:
                echo(f"SCRAM credential configs for user-principal '{user}' are {infos}")


async def _resources(client: Client, entity: NamedEntity) -> list[NamedEntity]:
    if entity.name is not None:
        return [entity]
    if entity.kind == TOPICS:
        return [NamedEntity(TOPICS, name) for name in await client.list_topics()]
    brokers = (await client.describe_cluster()).brokers
    return [
        *(NamedEntity(BROKERS, str(broker)) for broker in sorted(brokers)),
        NamedEntity(BROKERS, ""),
    ]


async def _describe_resource(client: Client, entity: NamedEntity, *, has_all: bool) -> None:
    resource = _resource(entity)
    held = (await client.admin.describe_configs([resource], synonyms=True))[resource]
    raise_first([held.outcome])
    if entity.name:
        which = "All" if has_all else "Dynamic"
        echo(f"{which} configs for {entity.kind[:-1]} {entity.name} are:")
    else:
        echo(f"Default configs for {entity.kind} in the cluster are:")
    for one in sorted(held.entries):
        if has_all or one.source is _source(entity):
            synonyms = ", ".join(f"{s.source.name}:{s.name}={_null(s.value)}" for s in one.synonyms)
            sensitive = str(one.sensitive).lower()
            echo(f"  {one.name}={_null(one.value)} sensitive={sensitive} synonyms={{{synonyms}}}")


def _null(value: str | None) -> str:
    return "null" if value is None else value


def _has_kinds(owner: QuotaEntity, entities: Sequence[NamedEntity]) -> bool:
    """True if the owner of quotas has exactly the parts that were asked for."""
    kinds = {USERS: owner.user, CLIENTS: owner.client_id, IPS: owner.ip}
    return {kind for kind, name in kinds.items() if name is not None} == {e.kind for e in entities}


def _owner_text(owner: QuotaEntity) -> str:
    parts = (("user-principal", owner.user), ("client-id", owner.client_id), ("ip", owner.ip))
    return ", ".join(
        f"the default {what}" if name is DEFAULT else f"{what} '{name}'"
        for what, name in parts
        if name is not None
    )


def _through_zookeeper(
    arguments: Arguments, entities: Sequence[NamedEntity], changes: Changes, *, alters: bool
) -> None:
    """Describe or alter the SCRAM credentials of a user in ZooKeeper, also before a broker runs."""
    for line in _ZOOKEEPER_WARNING:
        echo(line)
    (kind, user), *others = entities
    if kind != USERS or others or not user:
        raise MinikafkaError(
            f"--bootstrap-server option must be specified to update {kind} configs"
        )
    if wrong := [name for name in (*changes.added, *changes.removed) if name not in BY_NAME]:
        raise MinikafkaError(
            f"{', '.join(wrong)}: User configuration updates using ZooKeeper are only supported for SCRAM credential "
            "updates."
        )
    written: dict[str, str | None] = dict.fromkeys(changes.removed)
    for mechanism, text in changes.added.items():
        iterations, password = _credential(mechanism, text)
        salt = SystemRng().bytes(scram_admin.SALT_BYTES)
        made = new_credential(BY_NAME[mechanism], password, iterations, salt)
        written[mechanism] = encode_credential(made)

    async def work() -> None:
        connect = arguments.required("zookeeper")
        async with zookeeper_session(connect, SystemClock(), SystemRng()) as zookeeper:
            if alters:
                await alter_user(zookeeper, user, written)
                echo(f"Completed updating config for entity: user-principal '{user}'.")
                return
            found = await user_settings(zookeeper, user)
            text = ",".join(f"{name}={value}" for name, value in found.items())
            echo(f"Configs for user-principal '{user}' are {text}")

    run(work())
