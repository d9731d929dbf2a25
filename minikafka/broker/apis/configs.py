"""Settings of brokers and topics.

DescribeConfigs 32, versions 0–4.
- Resource type 2 is a topic, which any broker describes. Type 4 is this broker or, with an empty name, the dynamic
  defaults of all brokers. Type 8 is this broker too: its keys are its loggers, with their levels (KIP-412). Other
  types, and the id of another broker, get INVALID_REQUEST. An unknown topic gets UNKNOWN_TOPIC_OR_PARTITION.
- The response has each key with its value and its source; version 0 says instead whether the value
  is the default. From version 3 it has the type of each key. If
  requested, it has synonyms and documentation. A null or empty list of keys requests all keys. Values of
  sensitive keys are null.
- A resource that the request names twice is described once.
- A broker's keys include `inter.broker.protocol.version` and `delete.topic.enable`, which UIs read.

AlterConfigs 33, versions 0–2, and IncrementalAlterConfigs 44, versions 0–1.
- Any broker alters topics and the dynamic defaults of all brokers (the empty name). Only the broker itself alters its
  own settings. Each resource is altered as a whole or not at all. The message of INVALID_CONFIG names the key and its
  valid values. A key that only the configuration file can set gets INVALID_CONFIG too.
- IncrementalAlterConfigs also changes the levels of this broker's loggers (type 8) until the broker restarts. Type 8 in
  AlterConfigs, and other types in both, get INVALID_REQUEST.
- More than 1,000 changes of one resource get INVALID_REQUEST.
- A key that brokers do not know can be set for a broker, but has no effect. DescribeConfigs shows it as a
  user-defined key, which is sensitive and read-only and has no type and no value.
- AlterConfigs replaces all settings of the resource; IncrementalAlterConfigs sets and deletes keys, and appends to
  and subtracts from lists. `validate_only` writes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from minikafka.base.config import TopicConfig
from minikafka.base.errors import CoordinationError, ErrorCode, KafkaError
from minikafka.broker.admin.configs import (
    CHANGES_MAX,
    Alteration,
    AlterResult,
    Change,
    ResourceType,
    broker_id,
    type_name,
)
from minikafka.broker.admin.names import error_for_unknown
from minikafka.broker.services import Entity, Handler, RequestContext, Services, Steps
from minikafka.broker.settings.config_entries import (
    ConfigEntry,
    ConfigSource,
    broker_entries,
    cluster_entries,
    logger_entries,
    topic_entries,
)
from minikafka.kafka.messages.encoder import PAUSE, Row
from minikafka.kafka.wire.codec import response_in_steps
from minikafka.kafka.wire.versions import ALTER_CONFIGS, DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS
from minikafka.security.acls import AclOperation, AclResourceType
from minikafka.security.operations import CLUSTER, Need, need

logger = logging.getLogger(__name__)

_DESCRIBE_TOPIC: Final = need(
    "DescribeConfigs", AclOperation.DESCRIBE_CONFIGS, AclResourceType.TOPIC
)
_DESCRIBE_BROKER: Final = need("DescribeConfigs", AclOperation.DESCRIBE_CONFIGS, CLUSTER)
TOPIC: Final = ResourceType.TOPIC
BROKER: Final = ResourceType.BROKER


async def describe_configs(services: Services, request: Entity, context: RequestContext) -> Steps:
    """Return the response to a DescribeConfigs request as `Steps`, one step for each resource."""
    topics = services.metadata.topics
    described = services.access.allowed(context.connection, _DESCRIBE_TOPIC)
    named = {
        item.resource_name
        async for item in services.pauses.each(request.resources)
        if item.resource_type == TOPIC
        and item.resource_name in topics
        and item.resource_name in described
    }
    try:
        configs = await services.admin.configs.topic_configs(sorted(named))
    except CoordinationError as error:
        logger.warning("cannot read topic settings: %s: %s", type(error).__name__, error)
        configs = {}
    results = _results(services, request, context, configs, described)
    return response_in_steps(DESCRIBE_CONFIGS, context.version, results=results)


def _results(
    services: Services,
    request: Entity,
    context: RequestContext,
    configs: Mapping[str, TopicConfig],
    described: Container[str],
) -> Iterator[Row | None]:
    """Yield the result of each resource. A resource that the request names again has one result.

    `described`: the topics whose settings the client may see.
    """
    named: set[tuple[int, str]] = set()
    for item in request.resources:
        resource = item.resource_type, item.resource_name
        if resource in named:
            yield PAUSE
        else:
            named.add(resource)
            code = None
            if item.resource_type != TOPIC:
                code = _refusal(services, context, _DESCRIBE_BROKER, item.resource_type)
            elif item.resource_name not in described:
                code = _DESCRIBE_TOPIC.error
            if code is None:
                yield _result(services, request, item, configs)
            else:
                yield {
                    "resource_type": item.resource_type,
                    "resource_name": item.resource_name,
                    "error_code": code,
                    "error_message": _message(code),
                }


def _refusal(
    services: Services, context: RequestContext, need: Need, resource_type: int
) -> ErrorCode | None:
    """Return the error code of a resource that is no topic, if the client has no right on the cluster; else None."""
    is_known = resource_type in (BROKER, ResourceType.BROKER_LOGGER, ResourceType.CLIENT_METRICS)
    if not is_known or services.access.allows(context.connection, need):
        return None
    return need.error


def _message(code: ErrorCode) -> str:
    return (_DESCRIBE_TOPIC if code == _DESCRIBE_TOPIC.error else _DESCRIBE_BROKER).message


def _result(
    services: Services, request: Entity, resource: Entity, configs: Mapping[str, TopicConfig]
) -> dict[str, Any]:
    result = {
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
    }
    try:
        entries = _entries(services, resource, configs)
    except KafkaError as error:
        return {**result, "error_code": error.code, "error_message": error.detail}
    wanted = frozenset(resource.configuration_keys or ())
    result["configs"] = [
        _shown(entry, request.include_synonyms, request.include_documentation)
        for entry in entries
        if not wanted or entry.key.name in wanted
    ]
    return result


def _entries(
    services: Services, resource: Entity, configs: Mapping[str, TopicConfig]
) -> list[ConfigEntry]:
    """Return the entries of all keys of a resource. Raises KafkaError if this broker cannot describe the resource."""
    name = resource.resource_name
    if resource.resource_type == TOPIC:
        return _topic(services, name, configs)
    if resource.resource_type == BROKER:
        if name == "":
            return cluster_entries(services.settings)
        if broker_id(name) == services.broker_id:
            return broker_entries(services.settings)
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {services.broker_id} or empty string, "
            f"but received {name}",
        )
    if resource.resource_type == ResourceType.BROKER_LOGGER:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
        if broker_id(name) == services.broker_id:
            return logger_entries()
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {services.broker_id} but received {name}",
        )
    raise KafkaError(
        ErrorCode.INVALID_REQUEST,
        f"Unsupported resource type: {type_name(resource.resource_type)}",
    )


def _topic(services: Services, name: str, configs: Mapping[str, TopicConfig]) -> list[ConfigEntry]:
    if name in configs:
        return topic_entries(configs[name], services.settings)
    if name in services.metadata.topics:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "ZooKeeper does not respond")
    raise KafkaError(error_for_unknown(name), f"topic {name!r} does not exist")


def _shown(entry: ConfigEntry, with_synonyms: bool, documented: bool) -> dict[str, Any]:
    synonyms = entry.synonyms if with_synonyms else ()
    return {
        "name": entry.key.name,
        "value": entry.value,
        "read_only": entry.read_only,
        "config_source": entry.source,
        "is_default": entry.source is ConfigSource.DEFAULT,
        "is_sensitive": entry.key.sensitive,
        "synonyms": [synonym._asdict() for synonym in synonyms],
        "config_type": entry.key.kind,
        "documentation": entry.key.meaning if documented else None,
    }


async def alter_configs(services: Services, request: Entity, context: RequestContext) -> Steps:
    """Return the response to an AlterConfigs request as `Steps`."""
    each = services.pauses.each
    alterations = [
        Alteration(
            resource.resource_type,
            resource.resource_name,
            tuple([Change(item.name, item.value) async for item in each(_changes(resource))]),
            replaces=True,
        )
        async for resource in each(request.resources)
    ]
    refused = partial(_altering_refused, services, context, "AlterConfigs")
    results = await services.admin.configs.alter(alterations, request.validate_only, refused)
    return response_in_steps(ALTER_CONFIGS, context.version, responses=map(_altered, results))


async def incremental_alter_configs(
    services: Services, request: Entity, context: RequestContext
) -> Steps:
    """Return the response to an IncrementalAlterConfigs request as `Steps`."""
    each = services.pauses.each
    alterations = [
        Alteration(
            resource.resource_type,
            resource.resource_name,
            tuple(
                [
                    Change(item.name, item.value, item.config_operation)
                    async for item in each(_changes(resource))
                ]
            ),
        )
        async for resource in each(request.resources)
    ]
    refused = partial(_altering_refused, services, context, "IncrementalAlterConfigs")
    results = await services.admin.configs.alter(alterations, request.validate_only, refused)
    return response_in_steps(
        INCREMENTAL_ALTER_CONFIGS, context.version, responses=map(_altered, results)
    )


def _altering_refused(
    services: Services, context: RequestContext, api: str, item: Alteration
) -> ErrorCode | None:
    """Return the error code if the client may not alter the resource, else None."""
    operation = AclOperation.ALTER_CONFIGS
    if item.type != TOPIC:
        return _refusal(services, context, need(api, operation, CLUSTER), item.type)
    wanted = need(api, operation, AclResourceType.TOPIC)
    is_allowed = services.access.allows(context.connection, wanted, item.name)
    return None if is_allowed else wanted.error


def _changes(resource: Entity) -> Sequence[Entity]:
    """Return the changes of one resource, cut to the first `CHANGES_MAX` + 1 changes.

    `ConfigAdmin` refuses a resource with more than `CHANGES_MAX` changes.
    """
    changes: Sequence[Entity] = resource.configs[: CHANGES_MAX + 1]
    return changes


def _altered(result: AlterResult) -> dict[str, Any]:
    return {
        "resource_type": result.type,
        "resource_name": result.name,
        "error_code": result.error,
        "error_message": result.message,
    }


HANDLERS: Final[dict[int, Handler]] = {
    DESCRIBE_CONFIGS: describe_configs,
    ALTER_CONFIGS: alter_configs,
    INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs,
}
