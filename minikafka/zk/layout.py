"""Where things are in ZooKeeper and what they look like: Kafka's own paths and JSON (rows A1–A14, X22).

Pure. Invariant: what an encoder here writes, Apache Kafka 3.9 reads, and the other way round. A decoder
raises ValueError for data that is not what the path promises; its text names what was wrong.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from minikafka.base.model import Broker, BrokerId, LeaderAndIsr, ReplicaAssignment, TopicPartition
from minikafka.base.ports import Stat

CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
BROKER_IDS: Final = "/brokers/ids"
TOPICS: Final = "/brokers/topics"
ISR_CHANGES: Final = "/isr_change_notification"
ISR_CHANGE_PREFIX: Final = f"{ISR_CHANGES}/isr_change_"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX: Final = f"{LOG_DIR_EVENTS}/log_dir_event_"
ADMIN: Final = "/admin"
DELETE_TOPICS: Final = f"{ADMIN}/delete_topics"
CONFIG_CHANGES: Final = "/config/changes"
TOPIC_CONFIGS: Final = "/config/topics"
CLUSTER_ID: Final = "/cluster/id"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"

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
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
)
"""What every broker creates at its start where it is absent, as Kafka does."""

_LOG_DIR_FAILURE: Final = 1


def broker_path(broker_id: BrokerId) -> str:
    """A broker's registration."""
    return f"{BROKER_IDS}/{broker_id}"


def topic_path(topic: str) -> str:
    """A topic's assignment."""
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    """Parent of a topic's partitions."""
    return f"{TOPICS}/{topic}/partitions"


def partition_path(tp: TopicPartition) -> str:
    """Parent of a partition's state."""
    return f"{TOPICS}/{tp.topic}/partitions/{tp.partition}"


def state_path(tp: TopicPartition) -> str:
    """A partition's leader and ISR (A10)."""
    return f"{TOPICS}/{tp.topic}/partitions/{tp.partition}/state"


def delete_topic_path(topic: str) -> str:
    """The mark that a topic is to be deleted (A13)."""
    return f"{DELETE_TOPICS}/{topic}"


def topic_config_path(topic: str) -> str:
    """A topic's settings (A15)."""
    return f"{TOPIC_CONFIGS}/{topic}"


def topic_id_text(topic_id: bytes) -> str:
    """A 16-byte id as Kafka writes it: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()


def topic_id_bytes(text: str) -> bytes:
    """The 16 bytes of an id as Kafka writes it. Raises ValueError."""
    try:
        topic_id = base64.urlsafe_b64decode(text + "==")
    except (binascii.Error, ValueError):
        topic_id = b""
    if len(topic_id) != 16:
        raise ValueError(f"{text!r} is not a topic id")
    return topic_id


def encode_broker(broker: Broker) -> bytes:
    """Registration of version 5: both listeners as endpoints."""
    return _json(
        {
            "version": 5,
            "host": broker.host,
            "port": broker.port,
            "jmx_port": -1,
            "timestamp": "-1",
            "endpoints": [
                f"PLAINTEXT://{broker.host}:{broker.port}",
                f"CONTROLLER://{broker.control_host}:{broker.control_port}",
            ],
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"},
            "features": {},
            **({"rack": broker.rack} if broker.rack is not None else {}),
        }
    )


def decode_broker(broker_id: BrokerId, data: bytes, stat: Stat) -> Broker:
    """The registered broker; its epoch is the node's czxid (R5)."""
    fields = _mapping(data, "endpoints")
    places: dict[str, tuple[str, int]] = {}
    for endpoint in fields["endpoints"]:
        name, _, address = str(endpoint).partition("://")
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(f"endpoint {endpoint!r} is not NAME://HOST:PORT")
        places[name] = (host, int(port))
    control = places.get("CONTROLLER", ("", 0))
    others = [place for name, place in places.items() if name != "CONTROLLER"]
    if not others:
        raise ValueError("a broker without a listener for clients")
    rack = fields.get("rack")
    return Broker(broker_id, *others[0], *control, epoch=stat.czxid, rack=None if rack is None else str(rack))


def encode_topic(topic_id: bytes | None, assignment: Mapping[int, ReplicaAssignment]) -> bytes:
    """Assignment of version 3, with topic id and with the replicas being added and removed."""
    rows = sorted(assignment.items())
    fields: dict[str, Any] = {
        "version": 3,
        "partitions": {str(number): list(row.replicas) for number, row in rows},
        "adding_replicas": {str(number): list(row.adding) for number, row in rows if row.adding},
        "removing_replicas": {str(number): list(row.removing) for number, row in rows if row.removing},
    }
    if topic_id is not None:
        fields["topic_id"] = topic_id_text(topic_id)
    return _json(fields)


def decode_topic(data: bytes) -> tuple[bytes | None, dict[int, ReplicaAssignment]]:
    """(topic id, partition → replicas) of any version from 1."""
    fields = _mapping(data, "partitions")
    adding, removing = fields.get("adding_replicas") or {}, fields.get("removing_replicas") or {}
    assignment = {
        int(number): ReplicaAssignment(
            _ids(replicas), _ids(adding.get(number, ())), _ids(removing.get(number, ()))
        )
        for number, replicas in fields["partitions"].items()
    }
    topic_id = fields.get("topic_id")
    return None if topic_id is None else topic_id_bytes(str(topic_id)), assignment


def encode_state(state: LeaderAndIsr) -> bytes:
    """Leader and ISR of version 1."""
    return _json(
        {
            "controller_epoch": state.controller_epoch,
            "leader": state.leader,
            "version": 1,
            "leader_epoch": state.leader_epoch,
            "isr": list(state.isr),
        }
    )


def decode_state(data: bytes, zk_version: int) -> LeaderAndIsr:
    """Leader and ISR as read at that version of the node."""
    fields = _mapping(data, "leader", "leader_epoch", "isr", "controller_epoch")
    return LeaderAndIsr(
        int(fields["leader"]),
        int(fields["leader_epoch"]),
        _ids(fields["isr"]),
        int(fields["controller_epoch"]),
        zk_version,
    )


def encode_controller(broker_id: BrokerId, wall_ms: int) -> bytes:
    """The active controller, nothing else (A7)."""
    return _json({"version": 1, "brokerid": broker_id, "timestamp": str(wall_ms)})


def decode_controller(data: bytes) -> BrokerId:
    """Id of the active controller."""
    return int(_mapping(data, "brokerid")["brokerid"])


def encode_config(config: Mapping[str, str]) -> bytes:
    """Overrides of a topic's or broker's settings."""
    return _json({"version": 1, "config": dict(config)})


def decode_config(data: bytes) -> dict[str, str]:
    """Overrides of a topic's or broker's settings; an empty node has none."""
    if not data:
        return {}
    return {str(name): str(value) for name, value in _mapping(data, "config")["config"].items()}


def encode_isr_change(partitions: Iterable[TopicPartition]) -> bytes:
    """Which partitions' ISR a leader changed (A14)."""
    return _json(
        {"version": 1, "partitions": [{"topic": tp.topic, "partition": tp.partition} for tp in partitions]}
    )


def decode_isr_change(data: bytes) -> list[TopicPartition]:
    """Which partitions' ISR a leader changed."""
    rows = _mapping(data, "partitions")["partitions"]
    return [TopicPartition(str(row["topic"]), int(row["partition"])) for row in rows]


def encode_log_dir_event(broker_id: BrokerId) -> bytes:
    """A broker lost a log directory (R67)."""
    return _json({"version": 1, "broker": broker_id, "event": _LOG_DIR_FAILURE})


def decode_log_dir_event(data: bytes) -> BrokerId:
    """Which broker lost a log directory."""
    return int(_mapping(data, "broker")["broker"])


def encode_cluster_id(cluster_id: str) -> bytes:
    """The cluster's id."""
    return _json({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    """The cluster's id."""
    return str(_mapping(data, "id")["id"])


def encode_producer_ids(broker_id: BrokerId, first: int, last: int) -> bytes:
    """A block of producer ids claimed by a broker (R72)."""
    return _json({"version": 1, "broker": broker_id, "block_start": str(first), "block_end": str(last)})


def decode_producer_ids(data: bytes) -> tuple[BrokerId, int, int]:
    """(broker, first, last) of the block claimed last."""
    fields = _mapping(data, "broker", "block_start", "block_end")
    return int(fields["broker"]), int(fields["block_start"]), int(fields["block_end"])


def _json(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def _mapping(data: bytes, *names: str) -> dict[str, Any]:
    try:
        fields = json.loads(data)
    except ValueError:
        raise ValueError("not JSON") from None
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")
    missing = [name for name in names if name not in fields]
    if missing:
        raise ValueError(f"has no {', '.join(missing)}")
    return fields


def _ids(values: Iterable[Any]) -> tuple[BrokerId, ...]:
    return tuple(int(value) for value in values)
