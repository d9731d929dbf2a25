"""Brokers, topics and partitions, as clients see them.

Metadata 3, versions 0–12.
- Served from this broker's metadata snapshot. The controller is one of the listed brokers, or -1. The encoded bytes
  of a topic are cached until the topic or a broker changes.
- Brokers are listed with their endpoint on the client's listener. Brokers without this listener are omitted. A
  partition led by such a broker gets LISTENER_NOT_FOUND (before version 6: LEADER_NOT_AVAILABLE).
- A null list requests all topics. An empty list requests all topics in version 0, and no topic from version 1.
- An unknown topic is created in the background if `auto.create.topics.enable` and the request (from version 4)
  allow this. The topic gets LEADER_NOT_AVAILABLE until the controller's update arrives. If creation is not allowed,
  it gets UNKNOWN_TOPIC_OR_PARTITION. An invalid topic name gets INVALID_TOPIC_EXCEPTION.
- `__consumer_offsets` and `__transaction_state` are marked as internal. `__consumer_offsets` is created with
  the numbers of partitions and replicas that the `offsets.topic.*` keys set.
- Topic ids are in responses from version 10 and in requests from version 12 (UNKNOWN_TOPIC_ID); before
  version 12, a request by id or without a name is INVALID_REQUEST.
- Without the right to describe a topic, the topic gets TOPIC_AUTHORIZATION_FAILED, whether it exists or not. It is left
  out if all topics are requested. If authorized operations are requested, those of the client are returned.
- A broker that has no metadata from a controller yet delays the response. Otherwise the response would list no
  broker and no topic, and librdkafka forgets every broker that is not listed.

DescribeCluster 60, versions 0–1.
- Returns the same brokers and controller as Metadata, with the same delay. A request of version 1 for the endpoints
  of controllers (KIP-919) gets MISMATCHED_ENDPOINT_TYPE, because only a cluster without ZooKeeper has such endpoints.
"""

from __future__ import annotations

from collections.abc import Awaitable, Container, Generator, Sequence
from typing import Any, Final

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import Node
from minikafka.broker.admin.names import error_for_unknown
from minikafka.broker.metadata import MetadataSnapshot
from minikafka.broker.services import Entity, Handler, RequestContext, Services, Steps
from minikafka.kafka.messages.table import NULL_UUID
from minikafka.kafka.wire.codec import response
from minikafka.kafka.wire.metadata import NOT_ASKED, encode, encode_topic
from minikafka.kafka.wire.versions import DESCRIBE_CLUSTER, METADATA
from minikafka.security.acls import CLUSTER_NAME
from minikafka.security.operations import CLUSTER, CREATE, DESCRIBE, TOPIC, Need, need

_DESCRIBE: Final = need("Metadata", DESCRIBE, TOPIC)
_DESCRIBE_ALL: Final = _DESCRIBE._replace(is_logged=False)
_CREATE_ALL: Final = need("Metadata", CREATE, CLUSTER)
_CREATE: Final = need("Metadata", CREATE, TOPIC)
_DESCRIBE_CLUSTER: Final = need("Metadata", DESCRIBE, CLUSTER)
_DESCRIBE_IN_FULL: Final = need("DescribeCluster", DESCRIBE, CLUSTER)
_AUTO_CREATE_ASKED_SINCE: Final = 4
_IDS_ASKED_SINCE: Final = 12
_BROKER_ENDPOINTS: Final = 1
_FIRST_UPDATE_MS: Final = 30_000


def metadata(
    services: Services, request: Entity, context: RequestContext
) -> Steps | Awaitable[Steps]:
    """Return the response to a Metadata request as `Steps`, one step for each topic.

    If the broker has not received any metadata yet, return an awaitable of the `Steps` instead.
    """
    if not services.metadata.version:
        return _first_metadata(services, request, context)
    return _metadata(services, request, context)


async def _first_metadata(services: Services, request: Entity, context: RequestContext) -> Steps:
    await _first_update(services)
    return _metadata(services, request, context)


async def _first_update(services: Services) -> None:
    """Wait for the first metadata. After 30 s, raise KafkaError, which closes the connection."""
    if not await services.metadata.wait_until(
        lambda: services.metadata.version > 0, _FIRST_UPDATE_MS
    ):
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "no controller has sent metadata yet")


def _metadata(services: Services, request: Entity, context: RequestContext) -> Steps:
    snapshot = services.metadata.snapshot
    asked = request.topics
    if asked is None or (context.version == 0 and not asked):
        topics = []
        shown = services.access.allowed(context.connection, _DESCRIBE_ALL)
        for name in snapshot.topics:
            if name in shown:
                topics.append(_known(services, snapshot, name, request, context))
            yield
    else:
        topics = yield from _asked(services, snapshot, request, context)
    cluster_operations = NOT_ASKED
    if request.include_cluster_authorized_operations:
        cluster_operations = _cluster_operations(services, context, _DESCRIBE_CLUSTER)
    nodes = snapshot.nodes(context.connection.listener)
    return encode(
        context.version,
        nodes,
        services.cluster_id,
        _controller_id(services, nodes),
        topics,
        cluster_operations,
    )


def _cluster_operations(services: Services, context: RequestContext, wanted: Need) -> int:
    """Return what the client may do with the cluster, as bits; 0 if it may not know."""
    if not services.access.allows(context.connection, wanted):
        return 0
    return services.access.operations(context.connection, CLUSTER, CLUSTER_NAME)


def _asked(
    services: Services, snapshot: MetadataSnapshot, request: Entity, context: RequestContext
) -> Generator[None, None, list[bytes]]:
    version = context.version
    topics: dict[Any, bytes] = {}
    missing: dict[str, None] = {}
    shown = services.access.allowed(context.connection, _DESCRIBE)
    for topic in request.topics:
        topic_id = topic.topic_id
        if version < _IDS_ASKED_SINCE and (topic.name is None or topic_id != NULL_UUID):
            name = topic.name or ""
            topics[name] = _failed(version, name, ErrorCode.INVALID_REQUEST, topic_id)
        elif topic.name is None or topic_id != NULL_UUID:
            topics[topic_id] = _by_id(services, snapshot, topic_id, request, context, shown)
        elif topic.name not in shown:
            topics[topic.name] = _failed(version, topic.name, _DESCRIBE.error, is_internal=False)
        elif topic.name in snapshot.topics:
            topics[topic.name] = _known(services, snapshot, topic.name, request, context)
        else:
            missing[topic.name] = None
        yield
    created = yield from _created(services, request, context, missing)
    for name in missing:
        error = created[name] if name in created else error_for_unknown(name)
        operations = NOT_ASKED
        if error != _CREATE.error:
            operations = _topic_operations(services, name, request, context)
        topics[name] = _failed(version, name, error, operations=operations)
        yield
    return list(topics.values())


def _by_id(
    services: Services,
    snapshot: MetadataSnapshot,
    topic_id: bytes,
    request: Entity,
    context: RequestContext,
    shown: Container[str],
) -> bytes:
    """Return the topic with this id, or an error. The name of a topic that is not in `shown` is not told."""
    name = snapshot.topic_names.get(topic_id)
    if name is None:
        return _failed(context.version, None, ErrorCode.UNKNOWN_TOPIC_ID, topic_id)
    if name not in shown:
        return _failed(context.version, None, _DESCRIBE.error, topic_id)
    return _known(services, snapshot, name, request, context)


def _created(
    services: Services, request: Entity, context: RequestContext, names: dict[str, None]
) -> Generator[None, None, dict[str, ErrorCode]]:
    """Begin to create these topics and return their error codes.

    Return {} if the request or the broker's settings do not allow automatic creation.
    """
    may_create = context.version < _AUTO_CREATE_ASKED_SINCE or request.allow_auto_topic_creation
    if not (names and may_create and services.config.auto_create_topics_enable):
        return {}
    access, client = services.access, context.connection
    denied: dict[str, ErrorCode] = {}
    if not access.allows(client, _CREATE_ALL):
        for name in names:
            if not access.allows(client, _CREATE, name):
                denied[name] = _CREATE.error
            yield
    allowed = [name for name in names if name not in denied]
    mutations = services.quotas.mutations(client.user, context.client_id or "", strict=False)
    started = yield from services.admin.auto_create.start_all(allowed, mutations.record)
    return denied | started


def _known(
    services: Services,
    snapshot: MetadataSnapshot,
    name: str,
    request: Entity,
    context: RequestContext,
) -> bytes:
    operations = _topic_operations(services, name, request, context)
    key = (context.version, name, operations, context.connection.listener)
    encoded = snapshot.encoded.get(key)
    if encoded is None:
        encoded = snapshot.encoded[key] = _encode_known(snapshot, *key)
    return encoded


def _topic_operations(
    services: Services, name: str, request: Entity, context: RequestContext
) -> int:
    """Return what the client may do with a topic, as bits, if the request asks for it."""
    if not request.include_topic_authorized_operations:
        return NOT_ASKED
    return services.access.operations(context.connection, TOPIC, name)


def _encode_known(
    snapshot: MetadataSnapshot, version: int, name: str, operations: int, listener: str
) -> bytes:
    states = snapshot.topics[name]
    reachable = {node.id for node in snapshot.nodes(listener)}
    return encode_topic(
        version,
        name,
        snapshot.topic_ids.get(name),
        ErrorCode.NONE,
        [states[partition] for partition in sorted(states)],
        reachable,
        operations,
        snapshot.brokers.keys() - reachable,
    )


def _failed(
    version: int,
    name: str | None,
    error: ErrorCode,
    topic_id: bytes | None = None,
    *,
    operations: int = NOT_ASKED,
    is_internal: bool = True,
) -> bytes:
    """Return a topic with an error. `is_internal`: whether the response may tell that the topic is internal."""
    return encode_topic(
        version, name, topic_id, error, (), (), operations, may_be_internal=is_internal
    )


def _controller_id(services: Services, nodes: Sequence[Node]) -> int:
    """Return the controller's id, or -1 if the controller is not in `nodes`, the brokers listed in the response.

    Some clients fail if the response lists no broker with the controller's id.
    """
    listed = {node.id for node in nodes}
    for controller_id in (services.administration.controller_id, services.metadata.controller_id):
        if controller_id in listed:
            return controller_id
    return -1


async def describe_cluster(services: Services, request: Entity, context: RequestContext) -> bytes:
    """Return the response to a DescribeCluster request."""
    await _first_update(services)
    if request.endpoint_type != _BROKER_ENDPOINTS:
        return response(
            DESCRIBE_CLUSTER,
            context.version,
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="a cluster with ZooKeeper has no controller endpoints",
            endpoint_type=request.endpoint_type,
            cluster_id=services.cluster_id,
        )
    operations = NOT_ASKED
    if request.include_cluster_authorized_operations:
        operations = _cluster_operations(services, context, _DESCRIBE_IN_FULL)
    nodes = services.metadata.snapshot.nodes(context.connection.listener)
    return response(
        DESCRIBE_CLUSTER,
        context.version,
        cluster_id=services.cluster_id,
        controller_id=_controller_id(services, nodes),
        brokers=[
            {"broker_id": node.id, "host": node.host, "port": node.port, "rack": node.rack}
            for node in nodes
        ],
        cluster_authorized_operations=operations,
    )


HANDLERS: Final[dict[int, Handler]] = {METADATA: metadata, DESCRIBE_CLUSTER: describe_cluster}
