"""Requests of every API by users with and without rights, and what their responses say about the rights.

`scripts/record_rights.py` sends them to Apache Kafka 3.9 and writes the facts to `kafka_rights.txt`, one per line. A
test sends the same requests to a broker in memory.

The topics `open` and `shut` exist, and so do two topics `victim-…` for each user that deletes topics. The group `group`
has an offset in `open` and one in `shut`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from minikafka.kafka.messages.table import NULL_UUID
from minikafka.kafka.records.batch import Record, build
from minikafka.kafka.records.header import TRANSACTIONAL
from minikafka.kafka.wire import versions as v
from minikafka.kafka.wire.codec import decode_response, encode_request, request
from minikafka.security.acls import CLUSTER_NAME, SUPPORTED, AclOperation, AclResourceType
from minikafka.security.operations import NEEDS

FILE: Final = Path(__file__).with_name("kafka_rights.txt")
OPEN, SHUT, GHOST = "open", "shut", "ghost"
TRANSACTION, GROUP = "transaction", "group"
BROKER_ID: Final = 1
ADMIN: Final = "admin"
OWNER: Final = "owner"
"""The user for whom others create delegation tokens."""
TOKEN_SECRET: Final = "the secret of tokens"
_ALL: Final = AclOperation.ALL
_RESOURCES: Final = (
    (AclResourceType.TOPIC, "*"),
    (AclResourceType.GROUP, "*"),
    (AclResourceType.TRANSACTIONAL_ID, "*"),
    (AclResourceType.CLUSTER, CLUSTER_NAME),
    (AclResourceType.DELEGATION_TOKEN, "*"),
    (AclResourceType.USER, "*"),
)
Right = tuple[AclResourceType, str, AclOperation]


def name_of(api: int) -> str:
    return v.NAMES[api]


def _rows_of(api: str) -> dict[str, list[Right]]:
    """Return the users that have exactly one of the rights of the API, for all resources, each with this right."""
    names = dict(_RESOURCES)
    return {
        f"only-{one.operation.name}-{one.resource.name}": [
            (one.resource, names[one.resource], one.operation)
        ]
        for one in NEEDS
        if one.api == api
    }


SHARED: Final[dict[str, list[Right]]] = {
    "none": [],
    "describe": [
        (kind, name, AclOperation.DESCRIBE)
        for kind, name in _RESOURCES
        if AclOperation.DESCRIBE in SUPPORTED[kind]
    ],
    "half": [
        (kind, OPEN if kind is AclResourceType.TOPIC else name, _ALL) for kind, name in _RESOURCES
    ],
    "all": [(kind, name, _ALL) for kind, name in _RESOURCES],
}
"""Users that send the requests of every API, with their rights. `half` has no rights to other topics than `open`."""
USERS: Final[dict[str, list[Right]]] = SHARED | {
    user: rights for api in v.NAMES.values() for user, rights in _rows_of(api).items()
}


def users_of(api: str) -> list[str]:
    return [*SHARED, *_rows_of(api)]


class Scene(NamedTuple):
    """One request. `values(user, ids)` returns its fields; `ids` are the ids of the topics by name."""

    name: str
    api: int
    version: int
    values: Callable[[str, Mapping[str, bytes]], dict[str, Any]]

    def frame(self, user: str, ids: Mapping[str, bytes]) -> bytes:
        body = request(self.api, self.version, **self.values(user, ids))
        return encode_request(self.api, self.version, 7, "scene", body)


def _fixed(name: str, api: int, version: int, **values: Any) -> Scene:
    return Scene(name, api, version, lambda user, ids: values)


def victim(user: str, api: str = "") -> str:
    return f"victim-{user}{api}"


PLAIN: Final = build([Record(timestamp=1_700_000_000_000, value=b"v")])
IN_TRANSACTION: Final = build(
    [Record(timestamp=1_700_000_000_000, value=b"v")],
    attributes=TRANSACTIONAL,
    producer_id=77,
    producer_epoch=0,
    base_sequence=0,
)


def _produce(name: str, batch: bytes, transactional_id: str | None, version: int = 9) -> Scene:
    topics = [
        {"name": topic, "partition_data": [{"index": 0, "records": batch}]}
        for topic in (OPEN, SHUT, GHOST)
    ]
    return _fixed(
        name,
        v.PRODUCE,
        version,
        transactional_id=transactional_id,
        acks=1,
        timeout_ms=5_000,
        topic_data=topics,
    )


def _fetch(name: str, version: int, *topics: str, **rest: Any) -> Scene:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}

    def values(user: str, ids: Mapping[str, bytes]) -> dict[str, Any]:
        named = [
            {"topic_id": ids.get(topic, b"\7" * 16), "partitions": [partition]}
            if version >= 13
            else {"topic": topic, "partitions": [partition]}
            for topic in topics
        ]
        return {"max_wait_ms": 0, "min_bytes": 0, "topics": named, "forgotten_topics_data": []} | {
            "rack_id": "",
            **rest,
        }

    return Scene(name, v.FETCH, version, values)


def _metadata(name: str, version: int, topics: Any, **rest: Any) -> Scene:
    def values(user: str, ids: Mapping[str, bytes]) -> dict[str, Any]:
        named = topics
        if topics is not None:
            named = [
                {"name": None, "topic_id": ids[topic[3:]]}
                if topic.startswith("id:")
                else {"name": topic}
                for topic in topics
            ]
        return {"topics": named, "allow_auto_topic_creation": False, **rest}

    return Scene(name, v.METADATA, version, values)


def _partitions(key: str = "name", **row: Any) -> list[dict[str, Any]]:
    return [{key: topic, "partitions": [row]} for topic in (OPEN, SHUT, GHOST)]


def _commit(version: int) -> Scene:
    rows = _partitions(partition_index=0, committed_offset=1, committed_metadata="")
    return _fixed(
        f"v{version}", v.OFFSET_COMMIT, version, group_id=GROUP, member_id="", topics=rows
    )


def _fetch_offsets(name: str, version: int, topics: Any) -> Scene:
    if version >= 8:
        groups = [{"group_id": group, "topics": topics} for group in (GROUP, "other")]
        return _fixed(name, v.OFFSET_FETCH, version, groups=groups, require_stable=False)
    return _fixed(name, v.OFFSET_FETCH, version, group_id=GROUP, topics=topics)


_NAMED_OFFSETS: Final = [{"name": topic, "partition_indexes": [0]} for topic in (OPEN, SHUT, GHOST)]
_ADDED: Final = [{"name": topic, "partitions": [0]} for topic in (OPEN, SHUT, GHOST)]
_EXISTING: Final = [{"name": topic, "partitions": [0]} for topic in (OPEN, SHUT)]
_PRODUCER: Final = {"producer_id": 77, "producer_epoch": 0}


def _configs(api: int, version: int, config: dict[str, Any] | None, *, loggers: bool) -> Scene:
    named = [(2, OPEN), (2, SHUT), (2, GHOST), (4, ""), (4, str(BROKER_ID))]
    if loggers:
        named.append((8, str(BROKER_ID)))
    set_to = {"config_operation": 0} if api == v.INCREMENTAL_ALTER_CONFIGS else {}
    logger = {"name": "root", "value": "INFO", **set_to}
    broker = {"name": "log.cleaner.threads", "value": "1", **set_to}
    resources: list[dict[str, Any]] = []
    for kind, name in named:
        resource: dict[str, Any] = {"resource_type": kind, "resource_name": name}
        if config is None:
            resource["configuration_keys"] = ["cleanup.policy"]
        else:
            resource["configs"] = [logger if kind == 8 else broker if kind == 4 else config]
        resources.append(resource)
    rest = {} if config is None else {"validate_only": True}
    return _fixed(f"v{version}", api, version, resources=resources, **rest)


def _delete_by_name(user: str, ids: Mapping[str, bytes]) -> dict[str, Any]:
    names = [victim(user), GHOST] if user != "half" else [victim(user), GHOST, SHUT]
    topics = [{"name": name, "topic_id": NULL_UUID} for name in names]
    return {"topics": topics, "timeout_ms": 10_000}


def _delete_by_id(user: str, ids: Mapping[str, bytes]) -> dict[str, Any]:
    known = {"name": None, "topic_id": ids[victim(user, "-id")]}
    return {"topics": [known, {"name": None, "topic_id": b"\7" * 16}], "timeout_ms": 10_000}


_EVERY_ACL: Final = {
    "resource_name_filter": "nothing",
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
    "resource_type_filter": 1,
    "pattern_type_filter": 1,
}
_NEW_ACL: Final = {
    "resource_type": 2,
    "resource_name": "elsewhere",
    "resource_pattern_type": 3,
    "principal": "User:nobody",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
_FIND: Final = {"key_type": 0, "key": GROUP}

SCENES: Final = (
    _produce("plain", PLAIN, None),
    _produce("old", PLAIN, None, version=3),
    _produce("no-id", IN_TRANSACTION, None),
    _produce("plain-with-id", PLAIN, TRANSACTION),
    _produce("in-transaction", IN_TRANSACTION, TRANSACTION),
    _fetch("names", 11, OPEN, SHUT, GHOST),
    _fetch("old", 4, OPEN, SHUT, GHOST),
    _fetch("ids", 13, OPEN, SHUT, GHOST),
    _fetch("follower", 12, OPEN, SHUT, replica_id=BROKER_ID + 1, session_epoch=0),
    _fetch("replica-of-old-version", 11, OPEN, SHUT, replica_id=BROKER_ID + 1),
    _fixed(
        "v0",
        v.LIST_OFFSETS,
        0,
        replica_id=-1,
        topics=_partitions(partition_index=0, timestamp=-1, max_num_offsets=1),
    ),
    _fixed(
        "v7",
        v.LIST_OFFSETS,
        7,
        replica_id=-1,
        isolation_level=0,
        topics=_partitions(partition_index=0, timestamp=-2),
    ),
    _metadata("named", 9, (OPEN, SHUT, GHOST, "bad name", "__consumer_offsets")),
    _metadata("named-v1", 1, (OPEN, SHUT)),
    _metadata("all", 9, None),
    _metadata("all-v0", 0, ()),
    _metadata("ids", 12, ("id:open", "id:shut")),
    _metadata(
        "operations",
        9,
        (OPEN, SHUT, GHOST),
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    ),
    _commit(2),
    _commit(8),
    _fetch_offsets("v1", 1, _NAMED_OFFSETS),
    _fetch_offsets("v5", 5, _NAMED_OFFSETS),
    _fetch_offsets("v5-all", 5, None),
    _fetch_offsets("v9", 9, _NAMED_OFFSETS),
    _fetch_offsets("v9-all", 9, None),
    _fixed("group-v0", v.FIND_COORDINATOR, 0, key=GROUP),
    _fixed("group-v3", v.FIND_COORDINATOR, 3, key_type=0, key=GROUP),
    _fixed("transaction-v3", v.FIND_COORDINATOR, 3, key_type=1, key=TRANSACTION),
    _fixed("group-v4", v.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[GROUP, "other"]),
    _fixed("transaction-v4", v.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=[TRANSACTION]),
    _fixed(
        "v5",
        v.JOIN_GROUP,
        5,
        group_id="joined",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b""}],
    ),
    _fixed(
        "v5",
        v.SYNC_GROUP,
        5,
        group_id=GROUP,
        generation_id=1,
        member_id="m",
        protocol_type="consumer",
        protocol_name="range",
        assignments=[],
    ),
    _fixed("v3", v.HEARTBEAT, 3, group_id=GROUP, generation_id=1, member_id="m"),
    _fixed("v2", v.LEAVE_GROUP, 2, group_id=GROUP, member_id="m"),
    _fixed("v4", v.LEAVE_GROUP, 4, group_id=GROUP, members=[{"member_id": "m"}]),
    _fixed("v5", v.DESCRIBE_GROUPS, 5, groups=[GROUP, "other"], include_authorized_operations=True),
    _fixed("v4", v.LIST_GROUPS, 4, states_filter=[]),
    _fixed("v2", v.DELETE_GROUPS, 2, groups_names=["other"]),
    _fixed("v0", v.OFFSET_DELETE, 0, group_id="other", topics=_partitions(partition_index=0)),
    *(
        _fixed(
            f"v{version}",
            v.CREATE_TOPICS,
            version,
            topics=[
                {
                    "name": name,
                    "num_partitions": 1,
                    "replication_factor": 1,
                    "assignments": [],
                    "configs": [],
                }
                for name in (OPEN, GHOST)
            ],
            timeout_ms=5_000,
            validate_only=True,
        )
        for version in (4, 5)
    ),
    Scene("names", v.DELETE_TOPICS, 6, _delete_by_name),
    Scene("ids", v.DELETE_TOPICS, 6, _delete_by_id),
    _fixed("v1", v.DELETE_TOPICS, 1, topic_names=[GHOST], timeout_ms=5_000),
    _fixed(
        "v3",
        v.CREATE_PARTITIONS,
        3,
        topics=[{"name": name, "count": 3, "assignments": None} for name in (OPEN, SHUT, GHOST)],
        timeout_ms=5_000,
        validate_only=True,
    ),
    _fixed(
        "v2",
        v.DELETE_RECORDS,
        2,
        topics=_partitions(partition_index=0, offset=0),
        timeout_ms=5_000,
    ),
    _fixed(
        "v3",
        v.OFFSET_FOR_LEADER_EPOCH,
        3,
        replica_id=-1,
        topics=_partitions("topic", partition=0, leader_epoch=0),
    ),
    _fixed(
        "idempotent",
        v.INIT_PRODUCER_ID,
        4,
        transactional_id=None,
        transaction_timeout_ms=10_000,
    ),
    _fixed(
        "transactional",
        v.INIT_PRODUCER_ID,
        4,
        transactional_id=TRANSACTION,
        transaction_timeout_ms=10_000,
    ),
    _fixed(
        "v3",
        v.ADD_PARTITIONS_TO_TXN,
        3,
        v3_and_below_transactional_id="nothing",
        v3_and_below_producer_id=77,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=_ADDED,
    ),
    _fixed(
        "v3-existing",
        v.ADD_PARTITIONS_TO_TXN,
        3,
        v3_and_below_transactional_id="nothing",
        v3_and_below_producer_id=77,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[*_EXISTING, {"name": "__consumer_offsets", "partitions": [0]}],
    ),
    _fixed(
        "v4",
        v.ADD_PARTITIONS_TO_TXN,
        4,
        transactions=[
            {"transactional_id": "nothing", **_PRODUCER, "verify_only": True, "topics": _EXISTING}
        ],
    ),
    _fixed("v3", v.ADD_OFFSETS_TO_TXN, 3, transactional_id="nothing", group_id=GROUP, **_PRODUCER),
    _fixed("v3", v.END_TXN, 3, transactional_id="nothing", committed=True, **_PRODUCER),
    _fixed(
        "v3",
        v.TXN_OFFSET_COMMIT,
        3,
        transactional_id="nothing",
        group_id=GROUP,
        member_id="",
        topics=_partitions(
            partition_index=0, committed_offset=1, committed_metadata="", committed_leader_epoch=-1
        ),
        **_PRODUCER,
    ),
    _fixed(
        "v1",
        v.WRITE_TXN_MARKERS,
        1,
        markers=[
            {
                "producer_id": 88,
                "producer_epoch": 0,
                "transaction_result": False,
                "coordinator_epoch": 0,
                "topics": [{"name": OPEN, "partition_indexes": [0]}],
            }
        ],
    ),
    _fixed("v2", v.DESCRIBE_ACLS, 2, **_EVERY_ACL),
    _fixed(
        "v2",
        v.CREATE_ACLS,
        2,
        creations=[
            _NEW_ACL,
            {**_NEW_ACL, "resource_name": "a/b"},
            {**_NEW_ACL, "resource_name": ""},
            {**_NEW_ACL, "resource_type": 4},
            {**_NEW_ACL, "operation": 99},
            {**_NEW_ACL, "principal": "nobody"},
        ],
    ),
    _fixed("v2-any", v.CREATE_ACLS, 2, creations=[_NEW_ACL, {**_NEW_ACL, "operation": 1}]),
    _fixed("v2", v.DELETE_ACLS, 2, filters=[_EVERY_ACL]),
    _fixed("v2-missing", v.DELETE_ACLS, 2, filters=[{**_EVERY_ACL, "operation": 99}]),
    _configs(v.DESCRIBE_CONFIGS, 4, None, loggers=True),
    _configs(v.ALTER_CONFIGS, 2, {"name": "retention.ms", "value": "86400000"}, loggers=False),
    _configs(
        v.INCREMENTAL_ALTER_CONFIGS,
        1,
        {"name": "retention.ms", "config_operation": 0, "value": "86400000"},
        loggers=True,
    ),
    _fixed(
        "v2",
        v.ALTER_REPLICA_LOG_DIRS,
        2,
        dirs=[{"path": "/nowhere", "topics": [{"name": OPEN, "partitions": [0]}]}],
    ),
    _fixed("v3", v.DESCRIBE_LOG_DIRS, 3, topics=[]),
    _fixed(
        "v2",
        v.ELECT_LEADERS,
        2,
        election_type=0,
        topic_partitions=[{"topic": topic, "partitions": [0]} for topic in (OPEN, GHOST)],
        timeout_ms=5_000,
    ),
    _fixed(
        "v0",
        v.ALTER_PARTITION_REASSIGNMENTS,
        0,
        timeout_ms=5_000,
        topics=[
            {"name": topic, "partitions": [{"partition_index": 0, "replicas": None}]}
            for topic in (OPEN, SHUT)
        ],
    ),
    _fixed("v0", v.LIST_PARTITION_REASSIGNMENTS, 0, timeout_ms=5_000, topics=None),
    _fixed(
        "v1",
        v.UPDATE_FEATURES,
        1,
        timeout_ms=5_000,
        feature_updates=[{"feature": "none", "max_version_level": 1, "upgrade_type": 1}],
        validate_only=False,
    ),
    _fixed("v0", v.DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=True),
    _fixed("v0", v.DESCRIBE_CLIENT_QUOTAS, 0, components=[], strict=False),
    _fixed(
        "v1",
        v.ALTER_CLIENT_QUOTAS,
        1,
        entries=[
            {
                "entity": [{"entity_type": "user", "entity_name": "nobody"}],
                "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": False}],
            }
        ],
        validate_only=True,
    ),
    _fixed("v0", v.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=[{"name": "nobody"}]),
    _fixed(
        "v0",
        v.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        deletions=[{"name": "nobody", "mechanism": 1}],
        upsertions=[],
    ),
    _fixed(
        "own",
        v.CREATE_DELEGATION_TOKEN,
        2,
        renewers=[{"principal_type": "User", "principal_name": "renewer"}],
        max_lifetime_ms=-1,
    ),
    _fixed(
        "other",
        v.CREATE_DELEGATION_TOKEN,
        3,
        owner_principal_type="User",
        owner_principal_name=OWNER,
        renewers=[],
        max_lifetime_ms=-1,
    ),
    _fixed(
        "of-others",
        v.DESCRIBE_DELEGATION_TOKEN,
        3,
        owners=[{"principal_type": "User", "principal_name": OWNER}],
    ),
    _fixed("v2", v.RENEW_DELEGATION_TOKEN, 2, hmac=b"none", renew_period_ms=-1),
    _fixed("v2", v.EXPIRE_DELEGATION_TOKEN, 2, hmac=b"none", expiry_time_period_ms=-1),
    _fixed(
        "v0",
        v.DESCRIBE_PRODUCERS,
        0,
        topics=[
            {"name": topic, "partition_indexes": [0]} for topic in (OPEN, SHUT, GHOST, "bad name")
        ],
    ),
    _fixed("v0", v.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[TRANSACTION, "nothing"]),
    _fixed("v0", v.LIST_TRANSACTIONS, 0, state_filters=[], producer_id_filters=[]),
    _fixed(
        "v3",
        v.API_VERSIONS,
        3,
        client_software_name="scene",
        client_software_version="1",
    ),
    _fixed("existing", v.OFFSET_DELETE, 0, group_id=GROUP, topics=_partitions(partition_index=0)),
    # The highest versions.
    _produce("newest", PLAIN, None, version=11),
    _fetch("newest", 17, OPEN, SHUT, GHOST),
    _fixed(
        "v9",
        v.LIST_OFFSETS,
        9,
        replica_id=-1,
        isolation_level=0,
        topics=_partitions(partition_index=0, timestamp=-1),
    ),
    _commit(9),
    _fixed("groups-v6", v.FIND_COORDINATOR, 6, key_type=0, coordinator_keys=[GROUP, "other", ""]),
    _fixed(
        "v4",
        v.OFFSET_FOR_LEADER_EPOCH,
        4,
        replica_id=-1,
        topics=_partitions("topic", partition=0, leader_epoch=0),
    ),
    Scene(  # the last one, because nobody knows when the topics exist
        "create",
        v.METADATA,
        9,
        lambda user, ids: {"topics": [{"name": f"new-{user}"}], "allow_auto_topic_creation": True},
    ),
)


# ---- the state before the first request


def topic_names() -> list[str]:
    """Return the names of the topics that exist."""
    users = users_of("DeleteTopics")
    victims = [victim(user, suffix) for user in users for suffix in ("", "-id")]
    return [OPEN, SHUT, *victims]


def acls(principals: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the ACLs of all users, for CreateAcls. `principals`: the name of each user."""
    return [
        {
            "resource_type": kind,
            "resource_name": name,
            "resource_pattern_type": 3,
            "principal": f"User:{principals[user]}",
            "host": "*",
            "operation": operation,
            "permission_type": 3,
        }
        for user, rights in USERS.items()
        for kind, name, operation in rights
    ]


async def prepare(
    ask: Callable[..., Awaitable[Any]], principals: Mapping[str, str]
) -> dict[str, bytes]:
    """Create the ACLs, topics, group and transactional id; return the ids of the topics.

    `ask(api, version, **values)` sends a request of the administrator.
    """
    created = await ask(v.CREATE_ACLS, 1, creations=acls(principals))
    assert not any(row.error_code for row in created.results), created
    names = topic_names()
    rest = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    topics = [{"name": name, **rest} for name in names]
    made = await ask(v.CREATE_TOPICS, 5, topics=topics, timeout_ms=30_000)
    assert not any(row.error_code for row in made.topics), made
    asked = [
        {"name": name, "partitions": [{"partition_index": 0, "timestamp": -2}]} for name in names
    ]
    while any(  # noqa: ASYNC110  the state of a broker has no event here
        part.error_code
        for topic in (await ask(v.LIST_OFFSETS, 1, replica_id=-1, topics=asked)).topics
        for part in topic.partitions
    ):
        await asyncio.sleep(0.05)
    await _settle(ask)
    known = await ask(v.METADATA, 12, topics=[{"name": name} for name in names])
    return {row.name: row.topic_id for row in known.topics}


async def _settle(ask: Callable[..., Awaitable[Any]]) -> None:
    """Create the group and the transactional id. `ask(api, version, **values)` sends a request of the administrator."""
    for _ in range(600):
        await ask(v.FIND_COORDINATOR, 1, key_type=0, key=GROUP)
        await ask(v.FIND_COORDINATOR, 1, key_type=1, key=TRANSACTION)
        commit = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
        topics = [{"name": topic, "partitions": [commit]} for topic in (OPEN, SHUT)]
        done = await ask(v.OFFSET_COMMIT, 2, group_id=GROUP, member_id="", topics=topics)
        begun = await ask(
            v.INIT_PRODUCER_ID, 1, transactional_id=TRANSACTION, transaction_timeout_ms=10_000
        )
        codes = {row.error_code for topic in done.topics for row in topic.partitions}
        if codes == {0} and not begun.error_code:
            return
        await asyncio.sleep(0.1)
    raise TimeoutError("the coordinators did not load")


# ---- what a response says

_LABELS: Final = (
    "name",
    "topic",
    "topic_name",
    "topic_id",
    "key",
    "group_id",
    "group",
    "transactional_id",
    "producer_id",
    "resource_type",
    "resource_name",
    "partition_index",
    "partition",
    "partition_id",
    "index",
    "feature",
)
_FACTS: Final = ("error", "authorized_operations")
_SKIPPED: Final = frozenset(
    ("brokers", "configs", "api_keys", "members", "node_endpoints", "acls", "results_of_log_dirs")
)


def facts(scene: Scene, frame: bytes, ids: Mapping[str, bytes]) -> list[str]:
    """Return what the response says: each error code and set of operations, and each listed item, in sorted order."""
    names = {topic_id: name for name, topic_id in ids.items()} | {NULL_UUID: "-"}
    entity = decode_response(scene.api, scene.version, frame)
    return sorted(_facts(entity, "", names))


def _facts(entity: Any, path: str, names: Mapping[bytes, str]) -> Iterator[str]:
    for field in entity._fields:
        value = getattr(entity, field)
        if field.endswith(("error_code", "authorized_operations")):
            yield f"{path}{field}={value}"
        elif isinstance(value, tuple | list) and field not in _SKIPPED:
            for number, item in enumerate(value):
                if hasattr(item, "_fields"):
                    label = _label(item, number, names)
                    yield f"{path}{field}[{label}]"
                    yield from _facts(item, f"{path}{field}[{label}].", names)


def _label(item: Any, number: int, names: Mapping[bytes, str]) -> str:
    found = []
    for field in item._fields:
        value = getattr(item, field)
        if field not in _LABELS:
            continue
        if isinstance(value, bytes):
            value = names.get(value, "?")
        found.append(f"{field}:{value}".replace(" ", "_"))
    return ",".join(found) or str(number)


def lines(scene: Scene, user: str, found: list[str]) -> list[str]:
    """Return the facts as lines of the file."""
    head = f"{name_of(scene.api)} {scene.name} {user}"
    return [f"{head} {fact}" for fact in found]
