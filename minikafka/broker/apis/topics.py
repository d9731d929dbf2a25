"""Creation and deletion of topics, and addition of partitions. Only the active controller handles these requests.

CreateTopics 19, versions 0–7.
- -1 for partitions or replication factor means the broker's default (KIP-464). A manual assignment needs
  neither number. The response has one error code and message per topic. A name that is given twice gets
  INVALID_REQUEST. The response is sent when this broker knows the leaders. After the request's timeout, it is
  sent with REQUEST_TIMED_OUT, although the topic exists. `validate_only` (from version 1) creates nothing.
- Version 1 adds error messages to the response, version 5 partitions, replication factor and settings (KIP-525),
  version 7 the topic id.

DeleteTopics 20, versions 0–6.
- Topics are given by name, from version 6 also by id. A topic is marked for deletion. The response is sent when this
  broker's metadata no longer has the topic. After the request's timeout, it is sent with REQUEST_TIMED_OUT, although
  the topic stays marked. Files are deleted later.
- TOPIC_DELETION_DISABLED (before version 3 INVALID_REQUEST) if `delete.topic.enable` is false.

CreatePartitions 37, versions 0–3.
- The request has the new number of partitions, with or without a manual assignment of the added partitions.
  `validate_only` adds nothing. The response waits for leaders, as in CreateTopics.
- POLICY_VIOLATION if one request adds more than 10,000 partitions. INVALID_PARTITIONS if the number does not grow.
  REASSIGNMENT_IN_PROGRESS for a topic that is being reassigned. INVALID_TOPIC_EXCEPTION for a topic that is marked
  for deletion.
- INVALID_PARTITIONS always for `__consumer_offsets`, because its number of partitions determines the partition of
  each group. (Kafka adds partitions to it. After their next start, Kafka's brokers look for a group in a partition
  that does not hold the group's offsets.)

A client that exceeds its quota `controller_mutation_rate` gets THROTTLING_QUOTA_EXCEEDED for a topic (CreateTopics from
version 6, DeleteTopics 5, CreatePartitions 3), or only the time to wait (before).

Other brokers return NOT_CONTROLLER for every topic, and clients find the controller with Metadata.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Final

from minikafka.base.errors import ErrorCode
from minikafka.base.model import RequestedTopic
from minikafka.broker.admin.partitions import MorePartitions
from minikafka.broker.admin.topics import TopicResult
from minikafka.broker.clients.access import EVERYTHING
from minikafka.broker.clients.quotas import Mutations
from minikafka.broker.services import Entity, Handler, RequestContext, Services, Steps
from minikafka.broker.settings.config_entries import topic_entries
from minikafka.kafka.messages.table import NULL_UUID
from minikafka.kafka.wire.codec import response_in_steps
from minikafka.kafka.wire.versions import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from minikafka.security.operations import (
    ALTER,
    CLUSTER,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    TOPIC,
    need,
)

_CREATE_ALL: Final = need("CreateTopics", CREATE, CLUSTER)
_CREATE: Final = need("CreateTopics", CREATE, TOPIC)
_DESCRIBE_CONFIGS: Final = need("CreateTopics", DESCRIBE_CONFIGS, TOPIC)
_DELETE: Final = need("DeleteTopics", DELETE, TOPIC)
_DESCRIBE: Final = need("DeleteTopics", DESCRIBE, TOPIC)
_ALTER: Final = need("CreatePartitions", ALTER, TOPIC)
_DETAILS_SINCE: Final = 5
_BY_ID_SINCE: Final = 6
_DISABLED_SINCE: Final = 3
_CREATE_STRICT_SINCE: Final = 6
_DELETE_STRICT_SINCE: Final = 5
_ADD_STRICT_SINCE: Final = 3
"""The three constants are the first versions with THROTTLING_QUOTA_EXCEEDED."""


async def create_topics(services: Services, request: Entity, context: RequestContext) -> Steps:
    """Return the response to a CreateTopics request as `Steps`, one step for each topic."""
    topics = [_requested(topic) async for topic in services.pauses.each(request.topics)]
    validate_only = request.validate_only
    client, access = context.connection, services.access
    allowed = EVERYTHING
    if not access.allows(client, _CREATE_ALL):
        allowed = access.allowed(client, _CREATE)
    mutations = _mutations(services, context, _CREATE_STRICT_SINCE)
    results = await services.admin.topics.create_topics(
        topics, request.timeout_ms, validate_only, allowed, mutations.record
    )
    context.throttle_ms = mutations.throttle_ms
    shows_settings = access.allowed(client, _DESCRIBE_CONFIGS)
    shown = (
        _created(services, result, context.version, validate_only, shows_settings)
        for result in results
    )
    return response_in_steps(CREATE_TOPICS, context.version, topics=shown)


def _mutations(services: Services, context: RequestContext, strict_since: int) -> Mutations:
    """Return what counts the changes of topics in a request."""
    user, client_id = context.connection.user, context.client_id or ""
    strict = context.version >= strict_since
    return services.quotas.mutations(user, client_id, strict=strict)


def _requested(topic: Entity) -> RequestedTopic:
    return RequestedTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        tuple((item.partition_index, item.broker_ids) for item in topic.assignments),
        {item.name: item.value for item in topic.configs},
    )


def _created(
    services: Services,
    result: TopicResult,
    version: int,
    validate_only: bool,
    shows_settings: Container[str],
) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "name": result.name,
        "error_code": result.error,
        "error_message": result.message,
    }
    if version < _DETAILS_SINCE:
        return shown
    shown["configs"] = []
    plan = result.plan
    is_denied = result.error == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if (not result.error or is_denied) and result.name not in shows_settings:
        shown["topic_config_error_code"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return shown
    if plan is None or result.error:
        return shown
    shown["topic_id"] = None if validate_only else plan.topic_id
    shown["num_partitions"] = len(plan.assignment)
    shown["replication_factor"] = len(plan.assignment[0])
    shown["configs"] = [
        {
            "name": entry.key.name,
            "value": entry.value,
            "read_only": entry.read_only,
            "config_source": entry.source,
            "is_sensitive": entry.key.sensitive,
        }
        for entry in topic_entries(plan.config, services.settings)
    ]
    return shown


async def delete_topics(services: Services, request: Entity, context: RequestContext) -> Steps:
    """Return the response to a DeleteTopics request as `Steps`, one step for each topic."""
    each = services.pauses.each
    if context.version >= _BY_ID_SINCE:
        asked = [_asked_by_id(services, topic) async for topic in each(request.topics)]
    else:
        names_asked = each(request.topic_names)
        asked = [(name, NULL_UUID, ErrorCode.NONE, True) async for name in names_asked]
    named: dict[str, None] = {}
    repeated: set[str] = set()
    async for name, _, error, _ in each(asked):
        if name is None or error:
            continue
        if name in named:
            repeated.add(name)
        named[name] = None
    names = [name async for name in each(named) if name not in repeated]
    access, client = services.access, context.connection
    mutations = _mutations(services, context, _DELETE_STRICT_SINCE)
    results = await services.admin.topics.delete_topics(
        names, request.timeout_ms, access.allowed(client, _DELETE), mutations.record
    )
    context.throttle_ms = mutations.throttle_ms
    described = access.allowed(client, _DESCRIBE)

    def result_of(name: str | None, error: ErrorCode) -> TopicResult:
        if name is not None and name in repeated:
            return TopicResult(name, ErrorCode.INVALID_REQUEST, "the topic is named twice")
        if error or name is None:
            return TopicResult(name or "", error)
        return results[name]

    shown = (
        _deleted(
            result_of(name, error),
            name if is_named or name in described else None,
            topic_id,
            context.version,
        )
        for name, topic_id, error, is_named in asked
    )
    return response_in_steps(DELETE_TOPICS, context.version, responses=shown)


def _asked_by_id(services: Services, topic: Entity) -> tuple[str | None, bytes, ErrorCode, bool]:
    """Return (name, id, error, whether the client gave the name) of a requested topic.

    A missing name is taken from the metadata.
    """
    snapshot = services.metadata.snapshot
    name, topic_id = topic.name, topic.topic_id
    if name is None:
        name = snapshot.topic_names.get(topic_id)
        return name, topic_id, ErrorCode.NONE if name else ErrorCode.UNKNOWN_TOPIC_ID, False
    if topic_id != NULL_UUID:
        return name, topic_id, ErrorCode.INVALID_REQUEST, True
    return name, NULL_UUID, ErrorCode.NONE, True


def _deleted(
    result: TopicResult, name: str | None, topic_id: bytes, version: int
) -> dict[str, Any]:
    error = result.error
    if error == ErrorCode.TOPIC_DELETION_DISABLED and version < _DISABLED_SINCE:
        error = ErrorCode.INVALID_REQUEST
    return {
        "name": name,
        "topic_id": topic_id,
        "error_code": error,
        "error_message": result.message,
    }


async def create_partitions(services: Services, request: Entity, context: RequestContext) -> Steps:
    """Return the response to a CreatePartitions request as `Steps`, one step for each topic."""
    asked = [_more_partitions(topic) async for topic in services.pauses.each(request.topics)]
    allowed = services.access.allowed(context.connection, _ALTER)
    mutations = _mutations(services, context, _ADD_STRICT_SINCE)
    results = await services.admin.partitions.create_partitions(
        asked, request.timeout_ms, request.validate_only, allowed, mutations.record
    )
    context.throttle_ms = mutations.throttle_ms
    shown = (
        {"name": result.topic, "error_code": result.error, "error_message": result.message}
        for result in results
    )
    return response_in_steps(CREATE_PARTITIONS, context.version, results=shown)


def _more_partitions(topic: Entity) -> MorePartitions:
    given = topic.assignments
    by_hand = None if given is None else tuple(tuple(item.broker_ids) for item in given)
    return MorePartitions(topic.name, topic.count, by_hand)


HANDLERS: Final[dict[int, Handler]] = {
    CREATE_TOPICS: create_topics,
    DELETE_TOPICS: delete_topics,
    CREATE_PARTITIONS: create_partitions,
}
