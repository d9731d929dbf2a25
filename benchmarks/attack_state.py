"""Bursts that fill a broker's lasting memory: group members, committed offsets, producer ids; for `benchmarks.attacks`.

Request `number` of a burst is sent by connection `number // requests`, after the response to the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from benchmarks.attack_bursts import TOPIC, Burst, Step, produce
from minikafka.base.errors import ErrorCode
from minikafka.kafka.records import batch
from minikafka.kafka.wire import codec
from minikafka.kafka.wire.versions import JOIN_GROUP, OFFSET_COMMIT, PRODUCE

Request = Callable[..., bytes]

PLAIN_JOIN: Final = 3
JOIN_WITH_ID: Final = 5
"""A version in which a new member first receives an id, and joins with its second request."""
SESSION_MS: Final = 1_800_000
REBALANCE_MS: Final = 10_000
LARGE_METADATA: Final = bytes(900_000)
COMMIT_PARTITIONS: Final = 1_000
COMMIT_METADATA: Final = "x" * 900
IDS_AT_ONCE: Final = 100
AT_ONCE: Final[Mapping[str, object]] = {"group.initial.rebalance.delay.ms": 0}
"""Each JoinGroup of a new group is answered at once."""


def _one_by_one(request: Request, requests: int, connection: int) -> Iterator[Step]:
    for number in range(connection * requests, (connection + 1) * requests):
        yield request(number), 1


def _join(
    group: str, version: int, number: int, *, metadata: bytes = b"", client: str = "attacker"
) -> bytes:
    """Return a JoinGroup request of a new member. `group` may have the place `{}` for the number."""
    body = codec.request(
        JOIN_GROUP,
        version,
        group_id=group.format(number),
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_MS,
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": metadata}],
    )
    return codec.encode_request(JOIN_GROUP, version, 1, client, body)


def _is_join_refused(version: int, response: bytes) -> bool:
    answer = codec.decode_response(JOIN_GROUP, version, response)
    return bool(answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def _commit(number: int) -> bytes:
    """Return an OffsetCommit request of a group of its own."""
    fields = {"committed_offset": 1, "committed_metadata": COMMIT_METADATA}
    rows = [{"partition_index": index, **fields} for index in range(COMMIT_PARTITIONS)]
    values: dict[str, Any] = {"generation_id_or_member_epoch": -1, "member_id": ""}
    topics = [{"name": TOPIC, "partitions": rows}]
    body = codec.request(OFFSET_COMMIT, 6, group_id=f"group-{number}", topics=topics, **values)
    return codec.encode_request(OFFSET_COMMIT, 6, 1, "attacker", body)


def _is_commit_refused(response: bytes) -> bool:
    answer = codec.decode_response(OFFSET_COMMIT, 6, response)
    code = answer.topics[0].partitions[0].error_code
    return bool(code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def _producer_ids(ids: int, partitions: int, connection: int) -> Iterator[Step]:
    """Return one batch of one record for each of `ids` producer ids, `IDS_AT_ONCE` batches at once."""
    record = batch.Record(0, 0, None, b"x", ())
    for first in range(connection * ids, (connection + 1) * ids, IDS_AT_ONCE):
        requests = []
        for number in range(first, min(first + IDS_AT_ONCE, (connection + 1) * ids)):
            data = batch.build([record], producer_id=number, producer_epoch=0, base_sequence=0)
            requests.append(produce(data, [number % partitions]))
        yield b"".join(requests), len(requests)


def _is_id_refused(response: bytes) -> bool:
    answer = codec.decode_response(PRODUCE, 7, response)
    code = answer.responses[0].partition_responses[0].error_code
    return bool(code == ErrorCode.LEADER_NOT_AVAILABLE)


def _joins(
    name: str,
    connections: int,
    request: Request,
    requests: int,
    version: int = PLAIN_JOIN,
    broker: Mapping[str, object] = AT_ONCE,
) -> Burst:
    steps = partial(_one_by_one, partial(request, version), requests)
    is_refused = partial(_is_join_refused, version)
    return Burst(name, connections, steps, broker=broker, is_refused=is_refused, groups=True)


def _ids(ids: int, partitions: int, to: str) -> Burst:
    return Burst(
        f"{ids:,} batches of as many producer ids, {to}",
        50,
        partial(_producer_ids, ids, partitions),
        partitions=partitions,
        is_refused=_is_id_refused,
    )


GROUPS: Final = (
    _joins(
        "7 JoinGroups of new groups, 900 KB of metadata each",
        100,
        partial(_join, "group-{}", metadata=LARGE_METADATA),
        7,
    ),
    _joins(
        "one JoinGroup of the same group, 900 KB of metadata",
        300,
        partial(_join, "group", metadata=LARGE_METADATA),
        1,
        broker={},
    ),
    _joins(
        "1,000 JoinGroups of new groups, 30 bytes of metadata each",
        40,
        partial(_join, "group-{}", metadata=bytes(30)),
        1_000,
    ),
    _joins(
        "1,000 JoinGroups with client ids of 200 bytes, which receive a member id and never join",
        20,
        partial(_join, "group-{}", client="x" * 200),
        1_000,
        JOIN_WITH_ID,
    ),
    Burst(
        "OffsetCommits of 40 groups, 1,000 partitions with 900 bytes of metadata each",
        10,
        partial(_one_by_one, _commit, 40),
        partitions=COMMIT_PARTITIONS,
        is_refused=_is_commit_refused,
        groups=True,
    ),
)
IDS: Final = (
    _ids(4_000, 1, "to the same partition"),
    _ids(4_000, 100, "to 100 partitions"),
    _ids(14_706, 1, "to the same partition"),
)
