"""The APIs of transactional producers and of transactions' administration (KIP-98, KIP-664, KIP-890).

AddPartitionsToTxn 24, versions 0–5.
- Answered when the partitions are on all in-sync replicas of the id's partition of `__transaction_state`. If a
  partition does not exist, it gets UNKNOWN_TOPIC_OR_PARTITION, and the existing ones get OPERATION_NOT_ATTEMPTED.
- Version 4 takes several transactions, and may ask whether a transaction contains partitions without adding them:
  partition leaders verify transactions with it. Clients use versions 0–3.

AddOffsetsToTxn 25, versions 0–4.
- Adds the group's partition of `__consumer_offsets` to the transaction.

EndTxn 26, versions 0–4.
- Answered when the decision is on all in-sync replicas; the markers follow. A request for the producer's next
  transaction waits for them for at most 200 ms, and then gets CONCURRENT_TRANSACTIONS, which producers retry. (Kafka
  returns the error at once, and clients pause for 20 ms, longer than the markers take.)

DescribeTransactions 65, version 0. ListTransactions 66, versions 0–1.
- Each broker returns the transactional ids that it coordinates. Version 1 of ListTransactions filters by duration
  (KIP-994). State filters that are no state are returned, and match nothing.

WriteTxnMarkers 27, versions 0–1.
- Appends a marker to each partition, which ends the producer's transaction there. The response is sent when all
  markers are on all in-sync replicas. Markers that take longer than 30 s get REQUEST_TIMED_OUT.
- A partition without a replica on this broker gets UNKNOWN_TOPIC_OR_PARTITION. A follower answers
  NOT_LEADER_OR_FOLLOWER.
- A marker of an earlier producer epoch gets INVALID_PRODUCER_EPOCH. If the log has a marker of a later coordinator, the
  marker gets TRANSACTION_COORDINATOR_FENCED.
- The offsets that a transaction has committed in `__consumer_offsets` become visible with its marker there.
- As in Kafka, the response has one entry for each producer id, and a request with a negative producer id gets
  UNKNOWN_SERVER_ERROR.

Any other request about a transactional id gets NOT_COORDINATOR if another broker coordinates it, and
COORDINATOR_LOAD_IN_PROGRESS while this broker reads the id's partition after an election. A producer with an older
epoch gets PRODUCER_FENCED, and INVALID_PRODUCER_EPOCH in versions 0 and 1.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final

from minikafka.base.coordinators import partition_of
from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.base.names import GROUP_TOPIC, INTERNAL_TOPICS
from minikafka.broker.clients.access import EVERYTHING
from minikafka.broker.coordinators.markers import ANY_EPOCH
from minikafka.broker.request_parts import answer_in_parts, in_rows
from minikafka.broker.rpc.coordinator_calls import Errors, MarkerRow
from minikafka.broker.services import (
    LATER,
    Entity,
    Handler,
    Later,
    RequestContext,
    Services,
    Steps,
)
from minikafka.deciders.transactions.commands import (
    AddPartitionsResponse,
    DescribedTransaction,
    DescribeTransactionsResponse,
    EndResponse,
    ListTransactionsResponse,
)
from minikafka.deciders.transactions.events import (
    AddPartitionsRequest,
    DescribeTransactionsRequest,
    EndRequest,
    ListTransactionsRequest,
    VerifyRequest,
)
from minikafka.kafka.messages.encoder import Row
from minikafka.kafka.wire.codec import response, response_in_steps
from minikafka.kafka.wire.versions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    LIST_TRANSACTIONS,
    WRITE_TXN_MARKERS,
)
from minikafka.security.operations import (
    ALTER,
    CLUSTER,
    CLUSTER_ACTION,
    DESCRIBE,
    GROUP,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    need,
)

_ADD: Final = need("AddPartitionsToTxn", WRITE, TRANSACTIONAL_ID)
_ADD_TOPIC: Final = need("AddPartitionsToTxn", WRITE, TOPIC)
_ADD_AS_BROKER: Final = need("AddPartitionsToTxn", CLUSTER_ACTION, CLUSTER)
_ADD_OFFSETS: Final = need("AddOffsetsToTxn", WRITE, TRANSACTIONAL_ID)
_ADD_OFFSETS_OF: Final = need("AddOffsetsToTxn", READ, GROUP)
_END: Final = need("EndTxn", WRITE, TRANSACTIONAL_ID)
_DESCRIBE: Final = need("DescribeTransactions", DESCRIBE, TRANSACTIONAL_ID)
_DESCRIBE_TOPIC: Final = need("DescribeTransactions", DESCRIBE, TOPIC)
_LIST: Final = need("ListTransactions", DESCRIBE, TRANSACTIONAL_ID)
_MARK: Final = need("WriteTxnMarkers", ALTER, CLUSTER)
_MARK_AS_BROKER: Final = need("WriteTxnMarkers", CLUSTER_ACTION, CLUSTER)
_TRANSACTIONS_SINCE: Final = 4
_FENCED_SINCE: Final = 2
_FENCED: Final = ErrorCode.PRODUCER_FENCED
_MARKER_WAIT_MS: Final = 30_000
"""Kafka's default of `request.timeout.ms`."""
_CLIENT_ID_MAX: Final = 255
"""Longest client id, in characters, that is kept for diagnosis."""


def add_partitions_to_txn(
    services: Services, request: Entity, context: RequestContext
) -> Steps | Later:
    """Handle an AddPartitionsToTxn request."""
    access, client = services.access, context.connection
    if context.version >= _TRANSACTIONS_SINCE:
        if not access.allows(client, _ADD_AS_BROKER):
            code = _ADD_AS_BROKER.error
            return response_in_steps(ADD_PARTITIONS_TO_TXN, context.version, error_code=code)
        ids = [transaction.transactional_id for transaction in request.transactions]
        call = partial(_add_or_verify, services, _client(context))
        return answer_in_parts(call, request.transactions, partial(_added_many, ids), context)
    partitions = _partitions(request.v3_and_below_topics)
    if not access.allows(client, _ADD, request.v3_and_below_transactional_id):
        denied = AddPartitionsResponse(dict.fromkeys(partitions, _ADD.error))
        return _added(context.version, denied)
    refused = _refused(
        services, partitions, access.allowed(client, _ADD_TOPIC), reserved=INTERNAL_TOPICS
    )
    if refused is not None:
        return _added(context.version, refused)
    services.transactions.handle(
        AddPartitionsRequest(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            partitions,
            _client(context),
            caller=context.answer_with(_added),
        )
    )
    return LATER


def _add_or_verify(services: Services, client: str, transaction: Entity, respond: Any) -> None:
    """Handle one transaction of an AddPartitionsToTxn request of version 4 or later."""
    partitions = _partitions(transaction.topics)
    producer = (
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
    )
    refused = _refused(services, partitions)
    if refused is not None:
        respond(refused)
    elif transaction.verify_only:
        services.transactions.handle(VerifyRequest(*producer, partitions, caller=respond))
    else:
        services.transactions.handle(
            AddPartitionsRequest(*producer, partitions, client, caller=respond)
        )


def _client(context: RequestContext) -> str:
    """Return the client id and the address of the client that sent a request."""
    name = (context.client_id or "")[:_CLIENT_ID_MAX]
    return f"{name} at {context.connection.peer}".lstrip()


def _partitions(topics: Iterable[Entity]) -> list[TopicPartition]:
    """Return the partitions that the topics of a request name, each once."""
    named = (TopicPartition(topic.name, number) for topic in topics for number in topic.partitions)
    return list(dict.fromkeys(named))


def _refused(
    services: Services,
    partitions: Sequence[TopicPartition],
    allowed: Container[str] = EVERYTHING,
    reserved: Container[str] = (),
) -> AddPartitionsResponse | None:
    """Return the response to a request with a partition that does not exist, or that the client may not write.

    None if there is no such partition. `allowed`: the topics that the client may write. `reserved`: the topics that no
    client may add, as in Kafka.
    """
    known = services.metadata.topics
    errors: dict[TopicPartition, int] = {}
    for tp in partitions:
        if tp.topic in reserved or tp.topic not in allowed:
            errors[tp] = _ADD_TOPIC.error
        elif tp.partition not in known.get(tp.topic, ()):
            errors[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not errors:
        return None
    others = ErrorCode.OPERATION_NOT_ATTEMPTED
    return AddPartitionsResponse({tp: errors.get(tp, others) for tp in partitions})


def _added(version: int, outcome: AddPartitionsResponse) -> Steps:
    topics = _result_rows(version, outcome.errors)
    return response_in_steps(ADD_PARTITIONS_TO_TXN, version, results_by_topic_v3_and_below=topics)


def _added_many(
    ids: Sequence[str], version: int, outcomes: Sequence[AddPartitionsResponse]
) -> Steps:
    """Return the response to a request of several transactions as `Steps`. `ids`: their transactional ids."""
    results = (
        {"transactional_id": name, "topic_results": _result_rows(version, outcome.errors)}
        for name, outcome in zip(ids, outcomes, strict=True)
    )
    return response_in_steps(ADD_PARTITIONS_TO_TXN, version, results_by_transaction=results)


def _result_rows(version: int, errors: Mapping[TopicPartition, int]) -> Iterable[Row]:
    by_topic: dict[str, list[Row]] = {}
    for tp, error in errors.items():
        row = {
            "partition_index": tp.partition,
            "partition_error_code": _code(version, error),
        }
        by_topic.setdefault(tp.topic, []).append(row)
    return ({"name": topic, "results_by_partition": results} for topic, results in by_topic.items())


def _code(version: int, error: int) -> int:
    """Return the error code for the version of AddPartitionsToTxn, AddOffsetsToTxn or EndTxn.

    Clients that send versions 0 and 1 do not know PRODUCER_FENCED.
    """
    if version < _FENCED_SINCE and error == _FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def add_offsets_to_txn(
    services: Services, request: Entity, context: RequestContext
) -> bytes | Later:
    """Handle an AddOffsetsToTxn request."""
    access, client = services.access, context.connection
    if not access.allows(client, _ADD_OFFSETS, request.transactional_id):
        return _answered(ADD_OFFSETS_TO_TXN, context.version, _ADD_OFFSETS.error)
    if not access.allows(client, _ADD_OFFSETS_OF, request.group_id):
        return _answered(ADD_OFFSETS_TO_TXN, context.version, _ADD_OFFSETS_OF.error)
    number = partition_of(request.group_id, services.groups.topic.partition_count)
    tp = TopicPartition(GROUP_TOPIC, number)

    def encode(version: int, outcome: AddPartitionsResponse) -> Entity:
        return _answered(ADD_OFFSETS_TO_TXN, version, outcome.errors[tp])

    services.transactions.handle(
        AddPartitionsRequest(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            (tp,),
            _client(context),
            caller=context.answer_with(encode),
        )
    )
    return LATER


def end_txn(services: Services, request: Entity, context: RequestContext) -> bytes | Later:
    """Handle an EndTxn request."""
    if not services.access.allows(context.connection, _END, request.transactional_id):
        return _answered(END_TXN, context.version, _END.error)
    services.transactions.end(
        EndRequest(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            request.committed,
            caller=context.answer_with(_ended),
        )
    )
    return LATER


def _ended(version: int, outcome: EndResponse) -> bytes:
    return _answered(END_TXN, version, outcome.error)


def _answered(api: int, version: int, error: int) -> bytes:
    return response(api, version, error_code=_code(version, error))


# ---- administration


def describe_transactions(services: Services, request: Entity, context: RequestContext) -> Steps:
    """Handle a DescribeTransactions request."""

    allowed = services.access.allowed(context.connection, _DESCRIBE)
    shown = services.access.allowed(context.connection, _DESCRIBE_TOPIC)

    def describe(transactional_ids: Sequence[str], respond: Any) -> None:
        known = tuple(name for name in transactional_ids if name in allowed)

        def described(outcome: DescribeTransactionsResponse) -> None:
            found = {one.transactional_id: one for one in outcome.transactions}
            rows = [
                found.get(name) or DescribedTransaction(name, _DESCRIBE.error)
                for name in transactional_ids
            ]
            respond(DescribeTransactionsResponse(rows))

        services.transactions.handle(
            DescribeTransactionsRequest(
                known, caller=respond if len(known) == len(transactional_ids) else described
            )
        )

    parts = in_rows(request.transactional_ids)
    return answer_in_parts(describe, parts, partial(_described, shown), context)


def _described(
    shown: Container[str], version: int, outcomes: Sequence[DescribeTransactionsResponse]
) -> Steps:
    """Return the response to a DescribeTransactions request. `shown`: the topics that the client may see."""
    transactions = chain.from_iterable(outcome.transactions for outcome in outcomes)
    return response_in_steps(
        DESCRIBE_TRANSACTIONS,
        version,
        transaction_states=(_described_transaction(one, shown) for one in transactions),
    )


def _described_transaction(transaction: DescribedTransaction, shown: Container[str]) -> Row:
    by_topic: dict[str, list[int]] = {}
    for tp in transaction.partitions:
        if tp.topic not in shown:
            continue
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    return {
        "error_code": transaction.error,
        "transactional_id": transaction.transactional_id,
        "transaction_state": transaction.state,
        "transaction_timeout_ms": transaction.timeout_ms,
        "transaction_start_time_ms": transaction.start_ms,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "topics": [{"topic": name, "partitions": numbers} for name, numbers in by_topic.items()],
    }


def list_transactions(services: Services, request: Entity, context: RequestContext) -> Later:
    """Handle a ListTransactions request."""
    allowed = services.access.allowed(context.connection, _LIST)
    services.transactions.handle(
        ListTransactionsRequest(
            request.state_filters,
            request.producer_id_filters,
            request.duration_filter,
            caller=context.answer_with(partial(_listed, allowed)),
        )
    )
    return LATER


def _listed(allowed: Container[str], version: int, listed: ListTransactionsResponse) -> Steps:
    return response_in_steps(
        LIST_TRANSACTIONS,
        version,
        error_code=listed.error,
        unknown_state_filters=listed.unknown_states,
        transaction_states=(
            {
                "transactional_id": transaction.transactional_id,
                "producer_id": transaction.producer_id,
                "transaction_state": transaction.state,
            }
            for transaction in listed.transactions
            if transaction.transactional_id in allowed
        ),
    )


async def write_txn_markers(services: Services, request: Entity, context: RequestContext) -> Steps:
    """Handle a WriteTxnMarkers request."""
    rows = [_marker_row(marker) for marker in request.markers]
    errors: Errors
    access, client = services.access, context.connection
    if not (access.allows(client, _MARK) or access.allows(client, _MARK_AS_BROKER)):
        errors = [[_MARK_AS_BROKER.error] * len(row.partitions) for row in rows]
    elif any(row.producer_id < 0 for row in rows):
        errors = [[ErrorCode.UNKNOWN_SERVER_ERROR] * len(row.partitions) for row in rows]
    else:
        errors = await services.marker_appends.write(rows, _MARKER_WAIT_MS)
    results: dict[int, dict[str, dict[int, int]]] = {}
    for row, codes in zip(rows, errors, strict=True):
        topics = results.setdefault(row.producer_id, {})
        for (tp, _), code in zip(row.partitions, codes, strict=True):
            topics.setdefault(tp.topic, {})[tp.partition] = code
    return response_in_steps(
        WRITE_TXN_MARKERS,
        context.version,
        markers=(
            {
                "producer_id": producer_id,
                "topics": (
                    {
                        "name": topic,
                        "partitions": (
                            {"partition_index": number, "error_code": code}
                            for number, code in partitions.items()
                        ),
                    }
                    for topic, partitions in topics.items()
                ),
            }
            for producer_id, topics in results.items()
        ),
    )


def _marker_row(marker: Entity) -> MarkerRow:
    return MarkerRow(
        marker.producer_id,
        marker.producer_epoch,
        marker.coordinator_epoch,
        marker.transaction_result,
        [
            (TopicPartition(topic.name, number), ANY_EPOCH)
            for topic in marker.topics
            for number in topic.partition_indexes
        ],
    )


HANDLERS: Final[dict[int, Handler]] = {
    ADD_PARTITIONS_TO_TXN: add_partitions_to_txn,
    ADD_OFFSETS_TO_TXN: add_offsets_to_txn,
    END_TXN: end_txn,
    DESCRIBE_TRANSACTIONS: describe_transactions,
    LIST_TRANSACTIONS: list_transactions,
    WRITE_TXN_MARKERS: write_txn_markers,
}
