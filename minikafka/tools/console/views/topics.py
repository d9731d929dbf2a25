"""Topics: their partitions, sizes and settings."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from minikafka.base.config.keys import table
from minikafka.base.config.topic import TopicConfig
from minikafka.base.errors import KafkaError
from minikafka.base.names import is_internal
from minikafka.client.administration.results import (
    ConfigSource,
    Resource,
    ResourceType,
    Settings,
)
from minikafka.tools.console.context import Asked, Console
from minikafka.tools.console.errors import unknown
from minikafka.tools.console.observation.grid import REPLICAS, topic_of

READ_S: Final = 2
CONFIGS_MAX: Final = 200
"""Maximum number of topics whose own settings the list shows."""
_DOCS: Final = {name: row.doc for name, row in table(TopicConfig).items()}


async def list_topics(console: Console, asked: Asked) -> list[dict[str, Any]]:
    """Return all topics, sorted by name. Ids, sizes and settings are None while no broker tells them."""
    await console.watch.ready()
    grid = console.watch.grid
    found: dict[str, dict[str, Any]] = {}
    for name, row in grid.rows.items():
        topic = topic_of(name)
        one = found.setdefault(topic, _topic(topic))
        one["partitions"] += 1
        one["replication_factor"] = max(one["replication_factor"], len(row[REPLICAS]))
        if name in grid.sizes:
            one["bytes"] = (one["bytes"] or 0) + grid.sizes[name]
    ids, settings = await asyncio.gather(_ids(console), _settings(console, found))
    for name, one in found.items():
        one["id"] = ids.get(name)
        if name in settings:
            one["configs"] = {
                entry.name: entry.value for entry in settings[name].entries if _is_own(entry.source)
            }
    return [found[name] for name in sorted(found)]


def _topic(name: str) -> dict[str, Any]:
    return {
        "topic": name,
        "id": None,
        "partitions": 0,
        "replication_factor": 0,
        "internal": is_internal(name),
        "bytes": None,
        "configs": None,
    }


def _is_own(source: ConfigSource) -> bool:
    return source is ConfigSource.DYNAMIC_TOPIC_CONFIG


async def _ids(console: Console) -> dict[str, str]:
    with suppress(KafkaError, TimeoutError):
        async with asyncio.timeout(READ_S):
            _, topics = await console.client.admin.describe()
            return {topic.name: topic.topic_id.hex() for topic in topics}
    return {}


async def _settings(console: Console, names: Iterable[str]) -> Mapping[str, Settings]:
    """Return the settings of at most CONFIGS_MAX topics of users."""
    chosen = sorted(name for name in names if not is_internal(name))[:CONFIGS_MAX]
    resources = [Resource(ResourceType.TOPIC, name) for name in chosen]
    if resources:
        with suppress(KafkaError, TimeoutError):
            async with asyncio.timeout(READ_S):
                found = await console.client.admin.describe_configs(resources)
                return {one.name: some for one, some in found.items() if some.outcome.ok}
    return {}


async def show_configs(console: Console, asked: Asked) -> list[dict[str, Any]]:
    """Return all settings of a topic, its own ones first."""
    name = asked.path["topic"]
    resource = Resource(ResourceType.TOPIC, name)
    found = (await console.client.admin.describe_configs([resource]))[resource]
    if not found.outcome.ok:
        if str(found.outcome.code.name).startswith("UNKNOWN_TOPIC"):
            raise unknown(f"topic {name}")
        raise KafkaError(found.outcome.code, found.outcome.reason)
    rows = [
        {
            "name": entry.name,
            "value": entry.value,
            "source": entry.source.name,
            "is_default": not _is_own(entry.source),
            "is_read_only": entry.read_only,
            "doc": _DOCS.get(entry.name, ""),
        }
        for entry in found.entries
    ]
    return sorted(rows, key=lambda row: (row["is_default"], row["name"]))
