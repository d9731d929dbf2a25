"""Requests that need the cluster's metadata, in a mode in which the metadata may be older than the cluster.

The mode's `MetadataSource` is called before each such request is handled, and may let it wait: without the wait,
a client would get an error or an old leader, and ask again only after a pause (100 ms by default). Some clients would
not ask again at all, for example a consumer whose coordinator does not know a new topic. Invariant: a request waits at
most `WAIT_MS`, and the attempt of the mode continues when the wait is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from functools import partial
from inspect import isawaitable
from typing import Any, Final

from minikafka.base.names import GROUP_TOPIC, TRANSACTION_TOPIC
from minikafka.broker.capabilities import MetadataSource
from minikafka.broker.metadata import MetadataCache
from minikafka.broker.services import Entity, Handler, RequestContext, Services
from minikafka.kafka.messages.table import NULL_UUID
from minikafka.kafka.wire import versions

WAIT_MS: Final = 1_000
NAMES_MAX: Final = 1_000
"""A request that names more topics counts as a request for all topics: looking up each name would take too long."""
_TOPIC_RESOURCE: Final = 2
_TRANSACTION_KEY: Final = 1
"""The type of a transactional id as the key of a coordinator."""
_NAMED: Final = {
    versions.METADATA: "topics",
    versions.CREATE_TOPICS: "topics",
    versions.CREATE_PARTITIONS: "topics",
    versions.DELETE_TOPICS: "topics",
    versions.DELETE_RECORDS: "topics",
    versions.OFFSET_COMMIT: "topics",
    versions.OFFSET_DELETE: "topics",
    versions.ALTER_PARTITION_REASSIGNMENTS: "topics",
    versions.ELECT_LEADERS: "topic_partitions",
    versions.DESCRIBE_CONFIGS: "resources",
    versions.ALTER_CONFIGS: "resources",
    versions.INCREMENTAL_ALTER_CONFIGS: "resources",
    versions.ADD_PARTITIONS_TO_TXN: "v3_and_below_topics",
}
"""API → the field with the topics of a request. The field is None, or absent in old versions, if it names none."""
_OTHERS: Final[Mapping[int, Callable[[Entity], Sequence[str]]]] = {
    versions.DESCRIBE_CLUSTER: lambda request: (),
    versions.FIND_COORDINATOR: lambda request: (
        (TRANSACTION_TOPIC,) if request.key_type == _TRANSACTION_KEY else (GROUP_TOPIC,)
    ),
}
"""API → a function that returns the topics that a request needs."""
_MISSING_ONLY: Final = frozenset({versions.ADD_PARTITIONS_TO_TXN})
"""APIs whose requests wait only for topics that are missing: every transaction begins with such a request."""


def with_fresh_metadata(
    handlers: Mapping[int, Handler], source: MetadataSource
) -> dict[int, Handler]:
    """Return handlers of the APIs that need metadata, which tell `source` of each request first."""
    return {api: _Asking(handlers[api], api, source) for api in (*_NAMED, *_OTHERS)}


class _Asking:
    """The handler of one API, which tells the source of each request before it is handled."""

    def __init__(self, handler: Handler, api: int, source: MetadataSource) -> None:
        self._handler = handler
        self._api = api
        self._source = source

    def __call__(self, services: Services, request: Entity, context: RequestContext) -> Any:
        topics = topics_of(self._api, request, context.version)
        missing = topics is not None and any(_is_missing(services.metadata, one) for one in topics)
        if not missing and self._api in _MISSING_ONLY:
            return self._handler(services, request, context)
        names = None if topics is None else [one for one in topics if isinstance(one, str)]
        waited = self._source.asked(names, is_missing=missing)
        if waited is None:
            return self._handler(services, request, context)
        return _Begun(partial(self._handle_later, waited, services, request, context))

    async def _handle_later(
        self,
        waited: asyncio.Future[bool],
        services: Services,
        request: Entity,
        context: RequestContext,
    ) -> Any:
        # `wait` neither cancels the attempt, which other requests share, nor raises its errors.
        await asyncio.wait([waited], timeout=WAIT_MS / 1_000)
        result = self._handler(services, request, context)
        return await result if isawaitable(result) else result


class _Begun:
    """An awaitable that calls `begin` when it is awaited: if it never is, no coroutine is left behind."""

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._begin = begin

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._begin().__await__()


def topics_of(api: int, request: Entity, version: int) -> list[str | bytes] | None:
    """Return the names and ids of the topics that a request needs; None if it needs all topics."""
    if api in _OTHERS:
        return list(_OTHERS[api](request))
    named: Iterable[Any] | None
    named = getattr(request, _NAMED[api], None) or getattr(request, "topic_names", None)
    if not named:
        needs_all = api == versions.METADATA and (request.topics is None or version == 0)
        return None if needs_all else []
    if len(list(named)) > NAMES_MAX:
        return None
    return [one for one in map(_topic, named) if one is not None]


def _topic(named: Any) -> str | bytes | None:
    """Return the name or the id of a topic in a request; None for a resource that is no topic."""
    if isinstance(named, str):
        return named
    if getattr(named, "resource_type", _TOPIC_RESOURCE) != _TOPIC_RESOURCE:
        return None
    for field in ("name", "topic", "resource_name"):
        name = getattr(named, field, None)
        if name is not None:
            return str(name)
    topic_id = getattr(named, "topic_id", NULL_UUID)
    return None if topic_id == NULL_UUID else topic_id


def _is_missing(metadata: MetadataCache, topic: str | bytes) -> bool:
    snapshot = metadata.snapshot
    return topic not in (snapshot.topics if isinstance(topic, str) else snapshot.topic_names)
