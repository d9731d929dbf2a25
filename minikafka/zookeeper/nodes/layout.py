"""The paths and the JSON of Kafka 3's znodes.

This module does no I/O. Invariant: an Apache Kafka 3 cluster in ZooKeeper mode can read all data that this
module encodes, and this module can decode all data of such a cluster. The JSON has only Kafka's fields, and
`PROTOCOL_VERSIONS` in a registration. Anyone may write to ZooKeeper, so every field is checked (names and numbers
by `base/names.py`). Malformed data raises ValueError; the message describes the fault, and the caller adds the
path. In a node that lists partitions, an entry with an invalid topic name or partition number is skipped, as in
Kafka, and `skip` is called with the fault. Without `skip`, one invalid entry makes the whole node invalid.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias, TypeGuard
from urllib.parse import quote, unquote

from minikafka.base.config.keys import INT_MAX, LONG_MAX
from minikafka.base.endpoints import PLAINTEXT, Endpoint, SecurityProtocol, parse_endpoint
from minikafka.base.errors import ConfigError
from minikafka.base.model import (
    Broker,
    BrokerId,
    LeaderAndIsr,
    ReplicaAssignment,
    TopicPartition,
    topic_id_text,
    version_4_uuid,
)
from minikafka.base.names import (
    parse_cluster_id,
    parse_json,
    parse_number,
    parse_text,
    parse_topic,
    parse_topic_id,
)
from minikafka.base.ports import Stat
from minikafka.base.protocol_versions import UNVERSIONED, parse_versions

CONTROLLER: Final = "/controller"
"""Ephemeral node with the id of the active controller (A7)."""
CONTROLLER_EPOCH: Final = "/controller_epoch"
"""Persistent node that counts elections (A8). Every write of the controller checks its version."""
BROKER_IDS: Final = "/brokers/ids"
"""Parent of the registrations of brokers in the controller mode. The name of each is the broker id."""
TOPICS: Final = "/brokers/topics"
"""Parent of the topic nodes. The name of each is the topic's name."""
CLUSTER_ID: Final = "/cluster/id"
TOPIC_CONFIGS: Final = "/config/topics"
BROKER_CONFIGS: Final = "/config/brokers"
USER_CONFIGS: Final = "/config/users"
"""Parent of the nodes with the SCRAM credentials and quotas of users. The name of each is `sanitized(user)`."""
CLIENT_CONFIGS: Final = "/config/clients"
"""Parent of the nodes with the quotas of client ids. The name of each is `sanitized(client id)`."""
IP_CONFIGS: Final = "/config/ips"
"""Parent of the nodes with the quotas of addresses."""
DEFAULT_USER: Final = "<default>"
"""Name of the node under `/config/users` with the quotas of all users without quotas of their own."""
ALL_BROKERS: Final = "<default>"
"""Name of the node under `/config/brokers` with the settings of all brokers."""
CONFIG_CHANGES: Final = "/config/changes"
"""Parent of the notifications that settings have changed."""
CONFIG_CHANGE_PREFIX: Final = "/config/changes/config_change_"
"""Path of a sequential node; ZooKeeper adds ten digits."""
DELETE_TOPICS: Final = "/admin/delete_topics"
"""Parent of the nodes that mark topics for deletion. Each has the name of the topic (A13)."""
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"
"""Node with the target replicas of partitions to reassign (A11)."""
PREFERRED_ELECTION: Final = "/admin/preferred_replica_election"
"""Node with the partitions for which a preferred leader election is requested (A12)."""
ISR_CHANGES: Final = "/isr_change_notification"
ISR_CHANGE_PREFIX: Final = "/isr_change_notification/isr_change_"
"""Path of a sequential node; ZooKeeper adds ten digits."""
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX: Final = "/log_dir_event_notification/log_dir_event_"
"""Path of a sequential node; ZooKeeper adds ten digits."""
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"
PROTOCOL_VERSIONS: Final = "minikafka_protocol_versions"
"""Field of a broker's registration with the versions of the protocol between brokers. Kafka ignores it."""
COORDINATION: Final = "/minikafka/coordination"
"""The name of the cluster's coordination mode. Kafka has no such node."""

PERSISTENT: Final = (
    "/consumers",
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    "/brokers/seqid",
    ISR_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
    TOPIC_CONFIGS,
    CLIENT_CONFIGS,
    USER_CONFIGS,
    BROKER_CONFIGS,
    IP_CONFIGS,
)
"""Nodes that every broker of the controller mode creates at its start if absent. Kafka creates the same nodes."""
SHARED: Final = (
    CONFIG_CHANGES,
    PRODUCER_ID_BLOCK,
    TOPIC_CONFIGS,
    BROKER_CONFIGS,
    USER_CONFIGS,
    CLIENT_CONFIGS,
    IP_CONFIGS,
)
"""The nodes among `PERSISTENT` that every coordination mode uses."""

_LOG_DIR_FAILURE: Final = 1
_HOST: Final = re.compile(r"[a-zA-Z0-9._:%-]{1,255}")


Skip: TypeAlias = Callable[[ValueError], None]


def _refuse(fault: ValueError) -> NoReturn:
    raise fault


def broker_path(broker_id: BrokerId, directory: str = BROKER_IDS) -> str:
    """Return the path of a broker's ephemeral registration (A1)."""
    return f"{directory}/{broker_id}"


def topic_path(topic: str) -> str:
    """Return the path of the node with a topic's id and assignment (A9)."""
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    """Return the path of the parent of a topic's partition nodes, which is created with the first of them."""
    return f"{TOPICS}/{topic}/partitions"


def partition_path(tp: TopicPartition) -> str:
    """Return the path of the parent of a partition's state node."""
    return f"{TOPICS}/{tp.topic}/partitions/{tp.partition}"


def state_path(tp: TopicPartition) -> str:
    """Return the path of the node with a partition's leader and ISR (A10)."""
    return f"{TOPICS}/{tp.topic}/partitions/{tp.partition}/state"


def delete_topic_path(topic: str) -> str:
    """Return the path of the node that marks a topic for deletion (A13)."""
    return f"{DELETE_TOPICS}/{topic}"


def topic_config_path(topic: str) -> str:
    """Return the path of the node with a topic's settings (A15)."""
    return f"{TOPIC_CONFIGS}/{topic}"


def broker_config_path(name: str) -> str:
    """Return the path of a broker's dynamic settings (R71). `name`: the decimal broker id, or `ALL_BROKERS`."""
    return f"{BROKER_CONFIGS}/{name}"


def encode_broker(broker: Broker, wall_ms: int = -1) -> bytes:
    """Return the data of a broker's registration in Kafka's JSON version 5.

    The fields `host` and `port` contain the first PLAINTEXT endpoint.
    """
    plain = next((item for item in broker.endpoints if item.security is PLAINTEXT), None)
    fields: dict[str, Any] = {
        "features": {},
        "listener_security_protocol_map": {
            item.name: item.security.value for item in broker.endpoints
        },
        "endpoints": list(map(str, broker.endpoints)),
        "jmx_port": -1,
        "port": plain.port if plain else -1,
        "host": plain.host if plain else None,
        "version": 5,
        "timestamp": str(wall_ms),
    }
    if broker.rack is not None:
        fields["rack"] = broker.rack
    fields[PROTOCOL_VERSIONS] = list(broker.versions)
    return _encode(fields)


def decode_broker(broker_id: BrokerId, data: bytes, stat: Stat) -> Broker:
    """Return the broker of a registration. The broker epoch is the node's czxid (R5). Raises ValueError."""
    if broker_id > INT_MAX:
        raise ValueError(f"broker id {broker_id} is above {INT_MAX}")
    fields = parse_json(data)
    protocols = fields.get("listener_security_protocol_map")
    endpoints = tuple(_endpoint(text, protocols) for text in _list(fields, "endpoints"))
    if not endpoints or len({item.name for item in endpoints}) < len(endpoints):
        raise ValueError("endpoints must name at least one listener, each once")
    rack = fields.get("rack")
    if rack is not None and not (type(rack) is str and rack.isprintable() and len(rack) < 256):
        raise ValueError("rack is not a printable string of at most 255 characters")
    versions = parse_versions(fields.get(PROTOCOL_VERSIONS, [UNVERSIONED]))
    return Broker(broker_id, endpoints, epoch=stat.czxid, rack=rack, versions=versions)


def topic_id_of_node(topic: str, czxid: int) -> bytes:
    """Return a topic id for a topic node that has no id, derived from the topic's name and the node's czxid.

    Every broker derives the same id, until the controller writes one. The id is a version 4 UUID. Its text does not
    start with "-", because tools would read the id as an option.
    """
    digest = bytearray(hashlib.blake2b(f"{topic} {czxid}".encode(), digest_size=16).digest())
    digest[0] &= 0x7F
    return version_4_uuid(bytes(digest))


def encode_topic(topic_id: bytes | None, assignment: Mapping[int, ReplicaAssignment]) -> bytes:
    """Return the data of a topic's node in Kafka's JSON version 3. If `topic_id` is None, omit the id."""
    adding = {str(p): a.adding for p, a in assignment.items() if a.adding}
    removing = {str(p): a.removing for p, a in assignment.items() if a.removing}
    fields: dict[str, Any] = {
        "removing_replicas": removing,
        "partitions": {str(p): a.replicas for p, a in assignment.items()},
        "adding_replicas": adding,
        "version": 3,
    }
    if topic_id is not None:
        fields["topic_id"] = topic_id_text(topic_id)
    return _encode(fields)


def decode_topic(data: bytes) -> tuple[bytes | None, dict[int, ReplicaAssignment]]:
    """Return the topic id (None if the node has none) and the assignment by partition. Raises ValueError."""
    fields = parse_json(data)
    text = fields.get("topic_id")
    if text is not None and type(text) is not str:
        raise ValueError("topic_id is not a string")
    replicas = _replica_lists(fields, "partitions")
    adding = _replica_lists(fields, "adding_replicas") if "adding_replicas" in fields else {}
    removing = _replica_lists(fields, "removing_replicas") if "removing_replicas" in fields else {}
    for partition, brokers in replicas.items():
        if not brokers or len(set(brokers)) != len(brokers):
            raise ValueError(f"partition {partition} has no replicas, or lists a replica twice")
    assignment = {
        partition: ReplicaAssignment(
            replicas[partition], adding.get(partition, ()), removing.get(partition, ())
        )
        for partition in sorted(replicas)
    }
    return None if text is None else parse_topic_id(text), assignment


def encode_state(state: LeaderAndIsr) -> bytes:
    """Return the data of a partition's state node. The data does not contain `state_version`."""
    isr = ",".join(map(str, state.isr))
    return (
        f'{{"controller_epoch":{state.controller_epoch},"leader":{state.leader},"version":1,'
        f'"leader_epoch":{state.leader_epoch},"isr":[{isr}]}}'
    ).encode()


def decode_state(data: bytes, state_version: int) -> LeaderAndIsr:
    """Return the leader and ISR in the data of a partition's state node. Raises ValueError.

    `state_version`: the version of the node.
    """
    return LeaderAndIsr(*_state_fields(data), state_version)


@lru_cache(maxsize=4096)
def _state_fields(data: bytes) -> tuple[int, int, tuple[BrokerId, ...], int]:
    """Decode the fields of a `LeaderAndIsr`, except the last field `state_version`. Raises ValueError.

    The result is cached, because most state nodes have equal data.
    """
    fields = parse_json(data)
    isr = _ids(_list(fields, "isr"), "isr")
    leader, epoch = _int(fields, "leader"), _int(fields, "leader_epoch")
    controller_epoch = _int(fields, "controller_epoch")
    if leader < -1 or min(epoch, controller_epoch) < 0:
        raise ValueError("leader is below -1, or an epoch is negative")
    return leader, epoch, isr, controller_epoch


def encode_controller(broker_id: BrokerId, wall_ms: int) -> bytes:
    """Return the data of `/controller` (A7)."""
    return _encode({"version": 1, "brokerid": broker_id, "timestamp": str(wall_ms)})


def decode_controller(data: bytes) -> BrokerId:
    """Return the id of the active controller from the data of `/controller`. Raises ValueError."""
    return _id(parse_json(data), "brokerid")


def decode_controller_epoch(data: bytes) -> int:
    """Return the number of the last controller election from the data of `/controller_epoch`. Raises ValueError."""
    return parse_number(data.decode("ascii", "replace"), INT_MAX - 1)


def user_config_path(node: str) -> str:
    """Return the path of the node with a user's credentials and quotas. `node`: its name, `sanitized(user)`."""
    return f"{USER_CONFIGS}/{node}"


def has_secrets(path: str) -> bool:
    """Return True if the data of this node must not be shown."""
    return path.startswith(f"{USER_CONFIGS}/")


def sanitized(name: str) -> str:
    """Return the name of a user as the name of a node: URL-encoded as Kafka's Sanitizer does."""
    return quote(name, safe="").replace("~", "%7E")


def desanitized(node: str) -> str:
    """Return the user whose node has this name. Raises ValueError if no user's node has it."""
    name = unquote(node)
    if sanitized(name) != node or node in ("", ".", ".."):
        raise ValueError(f"{node!r} is no URL-encoded name of a user")
    return name


def encode_config(overrides: Mapping[str, str]) -> bytes:
    """Return the data of a settings node. `overrides`: setting -> value."""
    return _encode({"version": 1, "config": dict(overrides)})


def decode_config(data: bytes) -> dict[str, str]:
    """Return the overridden settings in a settings node, {} for an empty node. Raises ValueError."""
    if not data:
        return {}
    config = parse_json(data).get("config")
    if type(config) is not dict:
        raise ValueError("config is not an object of strings")
    return {parse_text(name): parse_text(value) for name, value in config.items()}


def encode_config_change(kind: str, name: str) -> bytes:
    """Return the data of a notification that a settings node was written (R71).

    `kind`: `topics`, `brokers` or `users`. `name`: the name of the settings node.
    """
    return _encode({"version": 2, "entity_path": f"{kind}/{name}"})


def decode_config_change(data: bytes) -> tuple[str, str]:
    """Return the (kind, name) of the settings node in a notification of version 1 or 2. Raises ValueError.

    The name is checked only for the kinds `topics` and `brokers`.
    """
    fields = parse_json(data)
    parts: list[Any] = [fields.get("entity_type"), fields.get("entity_name")]
    if "entity_path" in fields:
        parts = str(fields["entity_path"]).split("/", 1)
    if len(parts) != 2 or not all(type(part) is str and part for part in parts):
        raise ValueError("neither entity_path nor entity_type and entity_name name a settings node")
    kind, name = parts
    if kind == "topics":
        parse_topic(name)
    elif kind == "brokers" and name != ALL_BROKERS:
        parse_number(name)
    return kind, name


def encode_isr_change(changed: Sequence[TopicPartition]) -> bytes:
    """Return the data of a notification that a leader has written the ISRs of these partitions (A14)."""
    partitions = [{"topic": tp.topic, "partition": tp.partition} for tp in changed]
    return _encode({"version": 1, "partitions": partitions})


def decode_isr_change(data: bytes, skip: Skip = _refuse) -> list[TopicPartition]:
    """Return the partitions in a notification about written ISRs. Raises ValueError."""
    return [tp for tp, _ in _partition_rows(data, skip)]


def encode_reassignments(targets: Mapping[TopicPartition, Sequence[BrokerId]]) -> bytes:
    """Return the data of `/admin/reassign_partitions` for these target replicas (A11)."""
    partitions = [
        {"topic": tp.topic, "partition": tp.partition, "replicas": list(replicas)}
        for tp, replicas in targets.items()
    ]
    return _encode({"version": 1, "partitions": partitions})


def decode_reassignments(
    data: bytes, skip: Skip = _refuse
) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    """Return the target replicas by partition in `/admin/reassign_partitions`. Raises ValueError.

    Kafka's field `log_dirs` is ignored.
    """
    return {tp: _ids(row.get("replicas"), "replicas") for tp, row in _partition_rows(data, skip)}


def decode_preferred_election(data: bytes, skip: Skip = _refuse) -> list[TopicPartition]:
    """Return the partitions in `/admin/preferred_replica_election` (A12). Raises ValueError."""
    return [tp for tp, _ in _partition_rows(data, skip)]


def _partition_rows(data: bytes, skip: Skip) -> list[tuple[TopicPartition, dict[str, Any]]]:
    """Return a (partition, entry) pair for each valid entry of the JSON list `partitions`. Raises ValueError."""
    rows = []
    for row in _list(parse_json(data), "partitions"):
        if type(row) is not dict or type(row.get("topic")) is not str:
            raise ValueError("a row of partitions names no topic")
        number = _int(row, "partition")
        try:
            rows.append((TopicPartition(parse_topic(row["topic"]), _natural(number)), row))
        except ValueError as fault:
            skip(fault)
    return rows


def _natural(number: int) -> int:
    if number < 0:
        raise ValueError(f"{number} is not a partition number")
    return number


def encode_log_dir_event(broker_id: BrokerId) -> bytes:
    """Return the data of a notification that a log directory of a broker has failed (R67)."""
    return _encode({"version": 1, "broker": broker_id, "event": _LOG_DIR_FAILURE})


def decode_log_dir_event(data: bytes) -> BrokerId:
    """Return the broker id in a notification about a failed log directory. Raises ValueError."""
    return _id(parse_json(data), "broker")


def encode_cluster_id(cluster_id: str) -> bytes:
    """Return the data of `/cluster/id`. The version is a string, as in Kafka."""
    return _encode({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    """Return the cluster id from the data of `/cluster/id`. Raises ValueError."""
    return parse_cluster_id(parse_json(data).get("id"))


class ProducerIdBlock(NamedTuple):
    """A block of producer ids, from `first` to `last` inclusive, and the broker that has claimed the block."""

    broker_id: BrokerId
    first: int
    last: int


def encode_producer_ids(broker_id: BrokerId, first: int, last: int) -> bytes:
    """Return the data of `/latest_producer_id_block` for the ids `first` to `last` inclusive (R72)."""
    block = {"block_start": str(first), "block_end": str(last)}
    return _encode({"version": 1, "broker": broker_id, **block})


def decode_producer_ids(data: bytes) -> ProducerIdBlock:
    """Return the block in the data of `/latest_producer_id_block`. Raises ValueError."""
    fields = parse_json(data)
    bounds = fields.get("block_start"), fields.get("block_end")
    if not all(type(bound) is str for bound in bounds):
        raise ValueError("block_start and block_end are not numbers in text")
    first, last = (parse_number(str(bound), LONG_MAX) for bound in bounds)
    return ProducerIdBlock(_id(fields, "broker"), first, last)


def _encode(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def _int(fields: dict[str, Any], name: str) -> int:
    value = fields.get(name)
    if not _is_int(value):
        raise ValueError(f"{name} is not a whole number of 32 bits")
    return value


def _list(fields: dict[str, Any], name: str) -> list[Any]:
    value = fields.get(name)
    if type(value) is not list:
        raise ValueError(f"{name} is not a list")
    return value


def _id(fields: dict[str, Any], name: str) -> BrokerId:
    value = _int(fields, name)
    if value < 0:
        raise ValueError(f"{name} is negative")
    return value


def _ids(values: Any, name: str) -> tuple[BrokerId, ...]:
    if type(values) is not list or not all(map(_is_int, values)):
        raise ValueError(f"{name} is not a list of whole numbers of 32 bits")
    if min(values, default=0) < 0:
        raise ValueError(f"{name} has a negative id")
    return tuple(values)


def _is_int(value: Any) -> TypeGuard[int]:
    return type(value) is int and -INT_MAX <= value <= INT_MAX


def _replica_lists(fields: dict[str, Any], name: str) -> dict[int, tuple[BrokerId, ...]]:
    rows = fields.get(name)
    if type(rows) is not dict:
        raise ValueError(f"{name} is not an object of partition numbers")
    return {parse_number(key): _ids(brokers, name) for key, brokers in rows.items()}


def _endpoint(text: Any, protocols: Any) -> Endpoint:
    """Return an endpoint of a broker's registration.

    `text`: NAME://host:port. `protocols`: security protocol by listener name. Raises ValueError.
    """
    try:
        endpoint = parse_endpoint(str(text))
        protocol = SecurityProtocol(protocols[endpoint.name])
    except (ConfigError, LookupError, TypeError, ValueError):
        raise ValueError("an endpoint is not NAME://host:port with a protocol") from None
    if not _HOST.fullmatch(endpoint.host) or not endpoint.port:
        raise ValueError(f"the endpoint of {endpoint.name} has no valid host and port")
    return endpoint._replace(security=protocol)
