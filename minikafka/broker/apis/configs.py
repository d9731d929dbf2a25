"""Settings of brokers and topics.

DescribeConfigs 32, versions 1–4.
- Resource type 2 is a topic (answered by any broker), 4 is this broker; the empty broker name stands
  for settings of all brokers, of which there are none. Other types, and another broker's id, are
  INVALID_REQUEST, an unknown topic UNKNOWN_TOPIC_OR_PARTITION.
- Each key with source and, where asked for, synonyms, type and documentation; no or an empty list of
  keys means all. Values of sensitive keys are null.
- `inter.broker.protocol.version` and `delete.topic.enable` are among a broker's keys: UIs read them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from minikafka.base.config import TopicConfig
from minikafka.base.errors import CoordinationError, ErrorCode, KafkaError
from minikafka.broker.config_entries import ConfigEntry, broker_entries, topic_entries
from minikafka.broker.services import Entity, Handler, Services
from minikafka.wire.codec import response
from minikafka.wire.versions import DESCRIBE_CONFIGS

logger = logging.getLogger(__name__)

TOPIC: Final = 2
BROKER: Final = 4


async def describe_configs(services: Services, request: Entity, version: int) -> Entity:
    """Handle DescribeConfigs."""
    topics = {item.resource_name for item in request.resources if item.resource_type == TOPIC}
    known = sorted(topic for topic in topics if topic in services.metadata.topics)
    try:
        configs = await services.admin.topic_configs(known)
    except CoordinationError as error:
        logger.warning("topic settings cannot be read: %s: %s", type(error).__name__, error)
        configs = {}
    results = [_result(services, request, item, configs) for item in request.resources]
    return response(DESCRIBE_CONFIGS, version, results=results)


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
    wanted = resource.configuration_keys
    documented = getattr(request, "include_documentation", False)
    result["configs"] = [
        _shown(entry, request.include_synonyms, documented)
        for entry in entries
        if not wanted or entry.key.name in wanted
    ]
    return result


def _entries(
    services: Services, resource: Entity, configs: Mapping[str, TopicConfig]
) -> list[ConfigEntry]:
    """Raises KafkaError for a resource that cannot be described."""
    name = resource.resource_name
    if resource.resource_type == TOPIC:
        return _topic(services, name, configs)
    if resource.resource_type == BROKER:
        if name == "":
            return []
        if name == str(services.broker_id):
            return broker_entries(services.config)
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"this is broker {services.broker_id}, ask broker {name}"
        )
    raise KafkaError(
        ErrorCode.INVALID_REQUEST, f"resource type {resource.resource_type} has no settings here"
    )


def _topic(services: Services, name: str, configs: Mapping[str, TopicConfig]) -> list[ConfigEntry]:
    if name in configs:
        return topic_entries(configs[name], services.config)
    if name in services.metadata.topics:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "ZooKeeper cannot be asked just now")
    raise KafkaError(services.admin.error_for_unknown(name), f"there is no topic {name}")


def _shown(entry: ConfigEntry, with_synonyms: bool, documented: bool) -> dict[str, Any]:
    synonyms = entry.synonyms if with_synonyms else ()
    return {
        "name": entry.key.name,
        "value": entry.value,
        "read_only": entry.read_only,
        "config_source": entry.source,
        "is_sensitive": entry.key.sensitive,
        "synonyms": [synonym._asdict() for synonym in synonyms],
        "config_type": entry.key.kind,
        "documentation": entry.key.doc if documented else None,
    }


HANDLERS: Final[dict[int, Handler]] = {DESCRIBE_CONFIGS: describe_configs}
