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
- If authorized operations are requested, all operations are returned, because there is no authorizer.
- A broker that has no metadata from a controller yet delays the response. Otherwise the response would list no
  broker and no topic, and librdkafka forgets every broker that is not listed.

DescribeCluster 60, versions 0–1.
- Returns the same brokers and controller as Metadata, with the same delay. A request of version 1 for the endpoints
  of controllers (KIP-919) gets MISMATCHED_ENDPOINT_TYPE, because only a cluster without ZooKeeper has such endpoints.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator, Sequence
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

TOPIC_OPERATIONS: Final = 0b1101_1111_1000
"""ACL operation bits: Read, Write, Create, Delete, Alter, Describe, DescribeConfigs, AlterConfigs."""
CLUSTER_OPERATIONS: Final = 0b1_1111_1010_0000
"""ACL operation bits: Create, Alter, Describe, ClusterAction, DescribeConfigs, AlterConfigs,
IdempotentWrite."""

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
        for name in snapshot.topics:
            topics.append(_known(snapshot, name, request, context))
            yield
    else:
        topics = yield from _asked(services, snapshot, request, context)
    cluster_operations = NOT_ASKED
    if request.include_cluster_authorized_operations:
        cluster_operations = CLUSTER_OPERATIONS
    nodes = snapshot.nodes(context.connection.listener)
    return encode(
        context.version,
        nodes,
        services.cluster_id,
        _controller_id(services, nodes),
        topics,
        cluster_operations,
    )


def _asked(
    services: Services, snapshot: MetadataSnapshot, request: Entity, context: RequestContext
) -> Generator[None, None, list[bytes]]:
    version = context.version
    topics: dict[Any, bytes] = {}
    missing: dict[str, None] = {}
    for topic in request.topics:
        topic_id = topic.topic_id
        if version < _IDS_ASKED_SINCE and (topic.name is None or topic_id != NULL_UUID):
            name = topic.name or ""
            topics[name] = _failed(version, name, ErrorCode.INVALID_REQUEST, topic_id)
        elif topic.name is None or topic_id != NULL_UUID:
            topics[topic_id] = _by_id(snapshot, topic_id, request, context)
        elif topic.name in snapshot.topics:
            topics[topic.name] = _known(snapshot, topic.name, request, context)
        else:
            missing[topic.name] = None
        yield
    created = yield from _created(services, version, request, missing)
    for name in missing:
        error = created[name] if name in created else error_for_unknown(name)
        topics[name] = _failed(version, name, error)
        yield
    return list(topics.values())


def _by_id(
    snapshot: MetadataSnapshot, topic_id: bytes, request: Entity, context: RequestContext
) -> bytes:
    name = snapshot.topic_names.get(topic_id)
    if name is None:
        return _failed(context.version, None, ErrorCode.UNKNOWN_TOPIC_ID, topic_id)
    return _known(snapshot, name, request, context)


def _created(
    services: Services, version: int, request: Entity, names: dict[str, None]
) -> Generator[None, None, dict[str, ErrorCode]]:
    """Begin to create these topics and return their error codes.

    Return {} if the request or the broker's settings do not allow automatic creation.
    """
    may_create = version < _AUTO_CREATE_ASKED_SINCE or request.allow_auto_topic_creation
    if names and may_create and services.config.auto_create_topics_enable:
        return (yield from services.admin.auto_create.start_all(names))
    return {}


def _known(
    snapshot: MetadataSnapshot, name: str, request: Entity, context: RequestContext
) -> bytes:
    with_operations = request.include_topic_authorized_operations
    operations = TOPIC_OPERATIONS if with_operations else NOT_ASKED
    key = (context.version, name, operations, context.connection.listener)
    encoded = snapshot.encoded.get(key)
    if encoded is None:
        encoded = snapshot.encoded[key] = _encode_known(snapshot, *key)
    return encoded


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
    version: int, name: str | None, error: ErrorCode, topic_id: bytes | None = None
) -> bytes:
    return encode_topic(version, name, topic_id, error, (), ())


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
        operations = CLUSTER_OPERATIONS
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
