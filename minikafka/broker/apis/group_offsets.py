"""The committed offsets of consumer groups.

OffsetCommit 8, versions 0–9.
- Answered when the offsets are on all in-sync replicas of the group's partition of `__consumer_offsets`. After
  `offsets.commit.timeout.ms` the response is REQUEST_TIMED_OUT. A topic or partition that does not exist gets
  UNKNOWN_TOPIC_OR_PARTITION. Metadata longer than `offset.metadata.max.bytes` gets OFFSET_METADATA_TOO_LARGE.
- COORDINATOR_LOAD_IN_PROGRESS, which clients retry, if the offsets of new partitions would need more than
  `minikafka.offsets.memory.max.bytes`, or a new group more than `minikafka.groups.memory.max.bytes`.
- The offsets of more than 256 partitions are written in several batches, and some of these batches may fail.
- Version notes: 0 without a member (Kafka keeps its offsets in ZooKeeper, minikafka in `__consumer_offsets`), 1 the
  commit's timestamp (-1: now), 2–4 the client's retention time (negative: the default), 6 leader epochs
  (KIP-320), 7 static members (KIP-345).

OffsetFetch 9, versions 0–9.
- A partition without a committed offset gets offset -1. Null topics (from version 2) request all partitions
  that the group has committed. Versions 0 and 1 carry errors of the group in each partition. From version 7 the
  request may ask for stable offsets only (KIP-447). Version 8 takes several groups (KIP-709).

TxnOffsetCommit 28, versions 0–4.
- Commits offsets in the transaction of a producer: they become visible with the transaction's commit marker. The
  group's partition of `__consumer_offsets` must be in the transaction (AddOffsetsToTxn). From version 3 the request has
  the consumer's member id and generation, which must be current (KIP-447).

OffsetDelete 47, version 0.
- A topic to which a member of the group subscribes gets GROUP_SUBSCRIBED_TO_TOPIC (KIP-496).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, Final

from minikafka.base.coordinators import TransactionalProducer
from minikafka.base.errors import ErrorCode
from minikafka.broker.request_parts import AT_ONCE_ROWS, Respond, answer_in_parts, by_topic
from minikafka.broker.services import (
    LATER,
    Entity,
    Handler,
    Later,
    RequestContext,
    Services,
    Steps,
)
from minikafka.deciders.groups.commands import (
    CommitResponse,
    DeleteOffsetsResponse,
    FetchedGroup,
    FetchedOffset,
    FetchOffsetsResponse,
    PartitionErrors,
)
from minikafka.deciders.groups.events import (
    NO_COMMIT_TIME,
    NO_GENERATION,
    CommitRequest,
    DeleteOffsetsRequest,
    FetchOffsetsRequest,
    OffsetToCommit,
    Partitions,
)
from minikafka.kafka.messages.encoder import Row
from minikafka.kafka.wire.codec import response, response_in_steps
from minikafka.kafka.wire.versions import (
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    TXN_OFFSET_COMMIT,
)
from minikafka.security.operations import (
    DELETE,
    DESCRIBE,
    GROUP,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    need,
)

_COMMITS: Final = {
    OFFSET_COMMIT: (need("OffsetCommit", READ, GROUP), need("OffsetCommit", READ, TOPIC)),
    TXN_OFFSET_COMMIT: (need("TxnOffsetCommit", READ, GROUP), need("TxnOffsetCommit", READ, TOPIC)),
}
"""API → the rights to the group and to each topic."""
_TRANSACTION: Final = need("TxnOffsetCommit", WRITE, TRANSACTIONAL_ID)
_FETCH: Final = need("OffsetFetch", DESCRIBE, GROUP)
_FETCH_TOPIC: Final = need("OffsetFetch", DESCRIBE, TOPIC)
_DELETE: Final = need("OffsetDelete", DELETE, GROUP)
_DELETE_TOPIC: Final = need("OffsetDelete", READ, TOPIC)
_DEFAULT_RETENTION: Final = -1
_GROUPS_SINCE: Final = 8
_GROUP_ERROR_SINCE: Final = 2
_CACHED_PARTITIONS_MAX: Final = 16
"""The encoded response to a commit is cached if it has at most this many partitions."""
_LOADING_SINCE: Final = 2
_ABORTABLE_SINCE: Final = 4
_UNKNOWN: Final = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def offset_commit(
    services: Services, request: Entity, context: RequestContext
) -> bytes | Steps | Later:
    """Handle an OffsetCommit request."""
    return _commit(services, request, context, OFFSET_COMMIT)


def txn_offset_commit(
    services: Services, request: Entity, context: RequestContext
) -> bytes | Steps | Later:
    """Handle a TxnOffsetCommit request."""
    return _commit(services, request, context, TXN_OFFSET_COMMIT)


def _commit(
    services: Services, request: Entity, context: RequestContext, api: int
) -> bytes | Steps | Later:
    def commit(topics: Sequence[tuple[str, Sequence[OffsetToCommit]]], respond: Respond) -> None:
        services.groups.handle(_commit_request(request, topics, respond))

    if denied := _denied(services, request, context, api):
        return response_in_steps(api, context.version, topics=_repeated_error(request, denied))
    allowed = services.access.allowed(context.connection, _COMMITS[api][1])
    named = [(topic.name, topic.partitions) for topic in request.topics]
    if _count(named) > AT_ONCE_ROWS:
        parts = filter(None, (_existing(services, part, allowed) for part in by_topic(named)))
        encode_parts = partial(_errors_of_parts, api, request, allowed)
        return answer_in_parts(commit, parts, encode_parts, context)
    topics = _existing(services, named, allowed)
    encode = partial(_committed, api, _asked(request), allowed)
    if not topics:
        return encode(context.version, CommitResponse(()))
    commit(topics, context.answer_with(encode))
    return LATER


def _denied(
    services: Services, request: Entity, context: RequestContext, api: int
) -> ErrorCode | None:
    """Return the error code if the client may not commit for the transactional id or the group, else None."""
    access, client = services.access, context.connection
    if api == TXN_OFFSET_COMMIT and not access.allows(
        client, _TRANSACTION, request.transactional_id
    ):
        return _TRANSACTION.error
    of_group = _COMMITS[api][0]
    return None if access.allows(client, of_group, request.group_id) else of_group.error


def _repeated_error(request: Entity, error: int) -> Iterable[Row]:
    """Return the rows of a response in which every partition of the request has this error."""
    return (
        {
            "name": topic.name,
            "partitions": (
                {"partition_index": row.partition_index, "error_code": error}
                for row in topic.partitions
            ),
        }
        for topic in request.topics
    )


def _count(named: Iterable[tuple[str, Sequence[Any]]]) -> int:
    return sum(len(partitions) for _, partitions in named)


def _existing(
    services: Services, named: Iterable[tuple[str, Sequence[Entity]]], allowed: Container[str]
) -> list[tuple[str, list[OffsetToCommit]]]:
    """Return the offsets to commit, by topic, without offsets of partitions that do not exist.

    `allowed`: the topics for which the client may commit offsets.
    """
    known = services.metadata.topics
    topics = [
        (name, [_offset(row) for row in rows if row.partition_index in known.get(name, ())])
        for name, rows in named
        if name in allowed
    ]
    return [(name, partitions) for name, partitions in topics if partitions]


def _commit_request(
    request: Entity, topics: Sequence[tuple[str, Sequence[OffsetToCommit]]], respond: Respond
) -> CommitRequest:
    generation = getattr(request, "generation_id", NO_GENERATION)  # TxnOffsetCommit
    producer = None
    if hasattr(request, "producer_id"):
        producer = TransactionalProducer(request.producer_id, request.producer_epoch)
    return CommitRequest(
        group_id=request.group_id,
        generation=getattr(request, "generation_id_or_member_epoch", generation),
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        topics=topics,
        retention_time_ms=getattr(request, "retention_time_ms", _DEFAULT_RETENTION),
        producer=producer,
        transactional_id=getattr(request, "transactional_id", ""),
        caller=respond,
    )


def _errors_of_parts(
    api: int,
    request: Entity,
    allowed: Container[str],
    version: int,
    outcomes: Sequence[CommitResponse | DeleteOffsetsResponse],
) -> Steps:
    """Return the response to a large OffsetCommit or OffsetDelete request as `Steps`.

    A partition without an outcome gets the error of `_missing`.
    """
    errors: dict[tuple[str, int], int] = {}
    for outcome in outcomes:
        if isinstance(outcome, DeleteOffsetsResponse) and outcome.error:
            return (yield from response_in_steps(api, version, error_code=outcome.error))
        for name, partitions in outcome.topics:
            errors |= {(name, number): _code(api, version, error) for number, error in partitions}
        yield
    return (
        yield from response_in_steps(
            api,
            version,
            topics=(
                {"name": topic.name, "partitions": _error_rows_of(topic, errors, allowed)}
                for topic in request.topics
            ),
        )
    )


def _missing(topic: str, allowed: Container[str]) -> int:
    """Return the error of a partition that was left out: it does not exist, or the client has no right to the topic."""
    return _UNKNOWN if topic in allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _error_rows_of(
    topic: Entity, errors: dict[tuple[str, int], int], allowed: Container[str]
) -> Iterator[Row]:
    missing = _missing(topic.name, allowed)
    for row in topic.partitions:
        number = row.partition_index
        error = errors.get((topic.name, number), missing)
        yield {"partition_index": number, "error_code": error}


def _offset(partition: Entity) -> OffsetToCommit:
    return OffsetToCommit(
        partition.partition_index,
        partition.committed_offset,
        partition.committed_leader_epoch,
        partition.committed_metadata or "",
        getattr(partition, "commit_timestamp", NO_COMMIT_TIME),
    )


def _code(api: int, version: int, error: int) -> int:
    """Return the error code for this version. The producers that send old versions do not know newer codes."""
    if api != TXN_OFFSET_COMMIT:
        return error
    if version < _LOADING_SINCE and error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if version < _ABORTABLE_SINCE and error == ErrorCode.TRANSACTION_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    return ErrorCode.INVALID_PRODUCER_EPOCH if error == ErrorCode.PRODUCER_FENCED else error


def _committed(
    api: int,
    asked: Sequence[tuple[str, Sequence[int]]],
    allowed: Container[str],
    version: int,
    outcome: CommitResponse,
) -> bytes | Steps:
    """Return the response to a commit; a partition without an outcome gets the error of `_missing`."""
    if len(asked) == len(outcome.topics) == 1 == len(asked[0][1]):
        ((name, ((number, error),)),) = outcome.topics
        return _encoded(api, version, ((name, ((number, _code(api, version, error)),)),))
    errors = {
        (name, number): _code(api, version, error)
        for name, partitions in outcome.topics
        for number, error in partitions
    }
    topics = tuple(
        (name, _with_errors(name, numbers, errors, _missing(name, allowed)))
        for name, numbers in asked
    )
    if len(errors) <= _CACHED_PARTITIONS_MAX:
        return _encoded(api, version, topics)
    return response_in_steps(api, version, topics=_error_rows(topics))


def _with_errors(
    name: str, numbers: Iterable[int], errors: dict[tuple[str, int], int], missing: int
) -> tuple[tuple[int, int], ...]:
    return tuple((number, errors.get((name, number), missing)) for number in numbers)


@lru_cache(maxsize=1024)
def _encoded(api: int, version: int, topics: PartitionErrors) -> bytes:
    """Return the encoded response to OffsetCommit or TxnOffsetCommit.

    The responses are cached, because consumers commit the same partitions repeatedly.
    """
    return response(api, version, topics=_error_rows(topics))


def offset_fetch(services: Services, request: Entity, context: RequestContext) -> Steps | Later:
    """Handle an OffsetFetch request."""
    groups = request.groups if context.version >= _GROUPS_SINCE else [request]
    rows = sum(1 + sum(len(t.partition_indexes) for t in g.topics or ()) for g in groups)
    if rows > AT_ONCE_ROWS:
        return _fetch_in_parts(services, request, groups, context)
    wanted = [(group.group_id, _partitions(group.topics)) for group in groups]
    encode = _fetched if context.version >= _GROUPS_SINCE else partial(_fetched_one, wanted[0][1])
    rights = _FetchRights(services, context)
    rights.fetch(wanted, request.require_stable, context.answer_with(encode))
    return LATER


class _FetchRights:
    """The rights of a client to the groups and topics of one OffsetFetch request."""

    def __init__(self, services: Services, context: RequestContext) -> None:
        self._services = services
        self._groups = services.access.allowed(context.connection, _FETCH)
        self._topics = services.access.allowed(context.connection, _FETCH_TOPIC)

    def fetch(
        self,
        wanted: Sequence[tuple[str, Partitions | None]],
        require_stable: bool,
        respond: Respond,
    ) -> None:
        """Fetch the offsets that the client may see; call `respond` with those, and with errors for the others."""
        known = [
            (
                group,
                topics and [(name, numbers) for name, numbers in topics if name in self._topics],
            )
            for group, topics in wanted
            if group in self._groups
        ]
        self._services.groups.handle(
            FetchOffsetsRequest(
                known,
                require_stable=require_stable,
                caller=lambda outcome: respond(self._completed(wanted, outcome)),
            )
        )

    def _completed(
        self, wanted: Sequence[tuple[str, Partitions | None]], outcome: FetchOffsetsResponse
    ) -> FetchOffsetsResponse:
        fetched = iter(outcome.groups)
        return FetchOffsetsResponse(
            [
                self._with_denied(next(fetched), topics)
                if group in self._groups
                else FetchedGroup(group, _FETCH.error)
                for group, topics in wanted
            ]
        )

    def _with_denied(self, group: FetchedGroup, asked: Partitions | None) -> FetchedGroup:
        """Add the topics that the client may not see, with an error; leave them out if all topics are requested."""
        if group.error:
            return group
        if asked is None:
            shown = [(name, offsets) for name, offsets in group.topics if name in self._topics]
            return group._replace(topics=shown)
        denied = [
            (name, [FetchedOffset(number, error=_FETCH_TOPIC.error) for number in numbers])
            for name, numbers in asked
            if name not in self._topics
        ]
        return group._replace(topics=[*group.topics, *denied]) if denied else group


def _fetch_in_parts(
    services: Services, request: Entity, groups: Sequence[Entity], context: RequestContext
) -> Steps:
    """Return the response to a large OffsetFetch request as `Steps`."""
    require_stable = request.require_stable
    rights = _FetchRights(services, context)
    owners: list[int] = []
    """The index of the group of each part."""

    def parts() -> Iterator[tuple[str, Partitions | None]]:
        for index, group in enumerate(groups):
            named = [(topic.name, topic.partition_indexes) for topic in group.topics or ()]
            for part in by_topic(named) if named else (_partitions(group.topics),):
                owners.append(index)
                yield group.group_id, part

    def fetch(part: tuple[str, Partitions | None], respond: Respond) -> None:
        rights.fetch([part], require_stable, respond)

    encode = partial(_fetched_parts, groups, owners)
    return answer_in_parts(fetch, parts(), encode, context)


def _fetched_parts(
    groups: Sequence[Entity],
    owners: Sequence[int],
    version: int,
    outcomes: Sequence[FetchOffsetsResponse],
) -> Steps:
    """Return the response to a large OffsetFetch request. `owners`: the index of the group of each outcome."""
    found: list[list[FetchedGroup]] = [[] for _ in groups]
    for index, outcome in zip(owners, outcomes, strict=True):
        found[index] += outcome.groups
    fetched = FetchOffsetsResponse(
        [_joined(group.group_id, parts) for group, parts in zip(groups, found, strict=True)]
    )
    if version >= _GROUPS_SINCE:
        return _fetched(version, fetched)
    return _fetched_one(_partitions(groups[0].topics), version, fetched)


def _joined(group_id: str, parts: Sequence[FetchedGroup]) -> FetchedGroup:
    """Return what all parts of a request have found of a group: the first error, or every topic."""
    error = next((part.error for part in parts if part.error), 0)
    topics = [] if error else [topic for part in parts for topic in part.topics]
    return FetchedGroup(group_id, error, topics)


def _partitions(topics: Any) -> list[tuple[str, Sequence[int]]] | None:
    if topics is None:
        return None
    return [(topic.name, topic.partition_indexes) for topic in topics]


def _fetched(version: int, fetched: FetchOffsetsResponse) -> Steps:
    return response_in_steps(
        OFFSET_FETCH,
        version,
        groups=(
            {
                "group_id": group.group_id,
                "error_code": group.error,
                "topics": _offset_rows(group),
            }
            for group in fetched.groups
        ),
    )


def _fetched_one(
    asked: Sequence[tuple[str, Sequence[int]]] | None, version: int, fetched: FetchOffsetsResponse
) -> Steps:
    (group,) = fetched.groups
    if group.error and version < _GROUP_ERROR_SINCE:
        failed = {"committed_offset": -1, "metadata": "", "error_code": group.error}
        topics: Iterable[Row] = (
            {
                "name": name,
                "partitions": ({"partition_index": number, **failed} for number in numbers),
            }
            for name, numbers in asked or ()
        )
    else:
        topics = _offset_rows(group)
    return response_in_steps(OFFSET_FETCH, version, error_code=group.error, topics=topics)


def _offset_rows(group: FetchedGroup) -> Iterable[Row]:
    return (
        {
            "name": name,
            "partitions": (
                {
                    "partition_index": offset.partition,
                    "committed_offset": offset.offset,
                    "committed_leader_epoch": offset.leader_epoch,
                    "metadata": offset.metadata,
                    "error_code": offset.error,
                }
                for offset in offsets
            ),
        }
        for name, offsets in group.topics
    )


def offset_delete(services: Services, request: Entity, context: RequestContext) -> Steps | Later:
    """Handle an OffsetDelete request."""

    access, client = services.access, context.connection
    if not access.allows(client, _DELETE, request.group_id):
        return response_in_steps(OFFSET_DELETE, context.version, error_code=_DELETE.error)
    allowed = access.allowed(client, _DELETE_TOPIC)

    def delete(topics: Iterable[tuple[str, Sequence[Entity]]], respond: Respond) -> None:
        partitions = _known(services, topics, allowed)
        services.groups.handle(DeleteOffsetsRequest(request.group_id, partitions, caller=respond))

    named = [(topic.name, topic.partitions) for topic in request.topics]
    if _count(named) > AT_ONCE_ROWS:
        encode = partial(_errors_of_parts, OFFSET_DELETE, request, allowed)
        return answer_in_parts(delete, by_topic(named), encode, context)
    delete(named, context.answer_with(partial(_deleted, _asked(request), allowed)))
    return LATER


def _known(
    services: Services, named: Iterable[tuple[str, Sequence[Entity]]], allowed: Container[str]
) -> list[tuple[str, list[int]]]:
    """Return the existing partitions of the topics in `named` that are also in `allowed`, by topic."""
    known = services.metadata.topics
    existing = [
        (name, [row.partition_index for row in rows if row.partition_index in known.get(name, ())])
        for name, rows in named
        if name in allowed
    ]
    return [(name, numbers) for name, numbers in existing if numbers]


def _deleted(
    asked: Sequence[tuple[str, Sequence[int]]],
    allowed: Container[str],
    version: int,
    outcome: DeleteOffsetsResponse,
) -> Steps:
    if outcome.error:
        return response_in_steps(OFFSET_DELETE, version, error_code=outcome.error)
    errors = {
        (name, number): error for name, partitions in outcome.topics for number, error in partitions
    }
    topics = [
        (name, _with_errors(name, numbers, errors, _missing(name, allowed)))
        for name, numbers in asked
    ]
    return response_in_steps(OFFSET_DELETE, version, topics=_error_rows(topics))


def _asked(request: Entity) -> list[tuple[str, list[int]]]:
    """Return the topics that a request names, each with its partition numbers."""
    return [
        (topic.name, [partition.partition_index for partition in topic.partitions])
        for topic in request.topics
    ]


def _error_rows(topics: PartitionErrors) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "partitions": [
                {"partition_index": number, "error_code": error} for number, error in partitions
            ],
        }
        for name, partitions in topics
    ]


HANDLERS: Final[dict[int, Handler]] = {
    OFFSET_COMMIT: offset_commit,
    OFFSET_FETCH: offset_fetch,
    OFFSET_DELETE: offset_delete,
    TXN_OFFSET_COMMIT: txn_offset_commit,
}
