"""The APIs of transactional producers in every version, with a coordinator that only records calls."""

from __future__ import annotations

from typing import Any

import pytest
from support.brokers.cold import Cold, state
from support.brokers.group_recorder import exchange

from minikafka.base.coordinators import partition_of
from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.base.names import GROUP_TOPIC
from minikafka.deciders.transactions.commands import (
    AddPartitionsResponse,
    DescribedTransaction,
    DescribeTransactionsResponse,
    EndResponse,
    ListedTransaction,
    ListTransactionsResponse,
)
from minikafka.deciders.transactions.events import (
    AddPartitionsRequest,
    DescribeTransactionsRequest,
    EndRequest,
    ListTransactionsRequest,
    VerifyRequest,
)
from minikafka.kafka.wire.versions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    LIST_TRANSACTIONS,
)
from minikafka.security.acls import (
    AclEntry,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
    ResourcePattern,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
FENCED, OLD_FENCED = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH
UNKNOWN, NOT_TRIED = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
CLIENT = "tester at 10.1.2.3:4567"
PRODUCER = {"transactional_id": "tx", "producer_id": 77, "producer_epoch": 3}


@pytest.fixture
async def cold() -> Cold:
    found = Cold()
    found.update(state("t", 0, (1,)), state("t", 1, (1,)))
    return found


def adding(*topics: tuple[str, list[int]]) -> dict[str, Any]:
    """Return the fields of an AddPartitionsToTxn request of a client."""
    rows = [{"name": name, "partitions": numbers} for name, numbers in topics]
    fields = {**PRODUCER, "topics": rows}
    return {f"v3_and_below_{name}": value for name, value in fields.items()}


def added(topics: Any) -> list[tuple[str, int, int]]:
    return [
        (topic.name, row.partition_index, row.partition_error_code)
        for topic in topics
        for row in topic.results_by_partition
    ]


@pytest.mark.parametrize("version", range(4))
def test_partitions_of_a_producer_are_passed_to_the_coordinator_once(
    cold: Cold, version: int
) -> None:
    outcome = AddPartitionsResponse({T0: 0, T1: FENCED})
    values = adding(("t", [0, 1, 0]))
    asked, answer = exchange(cold, ADD_PARTITIONS_TO_TXN, version, outcome, **values)
    assert asked == AddPartitionsRequest("tx", 77, 3, [T0, T1], CLIENT, None)
    fenced = FENCED if version >= 2 else OLD_FENCED
    assert added(answer.results_by_topic_v3_and_below) == [("t", 0, 0), ("t", 1, fenced)]


@pytest.mark.parametrize("version", range(4))
def test_no_partition_is_added_if_one_of_them_does_not_exist(cold: Cold, version: int) -> None:
    values = adding(("t", [0, 2]), ("gone", [0]))
    asked, answer = exchange(cold, ADD_PARTITIONS_TO_TXN, version, None, **values)
    assert asked is None
    found = added(answer.results_by_topic_v3_and_below)
    assert found == [("t", 0, NOT_TRIED), ("t", 2, UNKNOWN), ("gone", 0, UNKNOWN)]


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("verify_only", [False, True])
def test_several_transactions_are_added_or_verified(
    cold: Cold, version: int, verify_only: bool
) -> None:
    transaction = {
        "verify_only": verify_only,
        "topics": [{"name": "t", "partitions": [0, 1]}],
    }
    gone = {**PRODUCER, "topics": [{"name": "gone", "partitions": [0]}]}
    transactions = [{**PRODUCER, **transaction}, {**gone, "transactional_id": "other"}]
    outcome = AddPartitionsResponse({T0: 0, T1: FENCED})
    asked, answer = exchange(
        cold, ADD_PARTITIONS_TO_TXN, version, outcome, transactions=transactions
    )
    kind: Any = VerifyRequest if verify_only else AddPartitionsRequest
    assert type(asked) is kind
    assert asked[:4] == ("tx", 77, 3, [T0, T1])
    assert verify_only or asked.client == CLIENT
    assert answer.error_code == 0
    first, second = answer.results_by_transaction
    assert (first.transactional_id, second.transactional_id) == ("tx", "other")
    assert added(first.topic_results) == [("t", 0, 0), ("t", 1, FENCED)]
    assert added(second.topic_results) == [("gone", 0, UNKNOWN)]


@pytest.mark.parametrize("version", range(5))
def test_offsets_add_the_partition_of_the_group_to_the_transaction(
    cold: Cold, version: int
) -> None:
    tp = TopicPartition(GROUP_TOPIC, partition_of("g", 50))
    outcome = AddPartitionsResponse({tp: FENCED})
    values = {**PRODUCER, "group_id": "g"}
    asked, answer = exchange(cold, ADD_OFFSETS_TO_TXN, version, outcome, **values)
    assert asked == AddPartitionsRequest("tx", 77, 3, (tp,), CLIENT, None)
    assert answer.error_code == (FENCED if version >= 2 else OLD_FENCED)


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("committed", [True, False])
def test_end_of_a_transaction_is_passed_to_the_coordinator(
    cold: Cold, version: int, committed: bool
) -> None:
    values = {**PRODUCER, "committed": committed}
    asked, answer = exchange(cold, END_TXN, version, EndResponse(0), **values)
    assert asked == EndRequest("tx", 77, 3, committed, None)
    assert answer.error_code == 0
    _, answer = exchange(cold, END_TXN, version, EndResponse(FENCED), **values)
    assert answer.error_code == (FENCED if version >= 2 else OLD_FENCED)


def test_described_transactions_have_their_partitions_by_topic(cold: Cold) -> None:
    other = TopicPartition("u", 4)
    open_one = DescribedTransaction("tx", 0, "Ongoing", 60_000, 1_234, 77, 3, [T0, other, T1])
    not_found = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    outcome = DescribeTransactionsResponse([open_one, DescribedTransaction("gone", not_found)])
    values = {"transactional_ids": ["tx", "gone"]}
    asked, answer = exchange(cold, DESCRIBE_TRANSACTIONS, 0, outcome, **values)
    assert asked == DescribeTransactionsRequest(("tx", "gone"), None)
    first, second = answer.transaction_states
    assert (first.error_code, first.transactional_id, first.transaction_state) == (
        0,
        "tx",
        "Ongoing",
    )
    assert (first.transaction_timeout_ms, first.transaction_start_time_ms) == (60_000, 1_234)
    assert (first.producer_id, first.producer_epoch) == (77, 3)
    assert [(topic.topic, topic.partitions) for topic in first.topics] == [
        ("t", (0, 1)),
        ("u", (4,)),
    ]
    assert (second.error_code, second.transactional_id) == (not_found, "gone")
    assert (second.transaction_start_time_ms, second.producer_id, second.topics) == (0, 0, ())


@pytest.mark.parametrize("version", [0, 1])
def test_listed_transactions_pass_the_filters_of_the_version(cold: Cold, version: int) -> None:
    outcome = ListTransactionsResponse(0, ["Odd"], [ListedTransaction("tx", 77, "Ongoing")])
    values = {
        "state_filters": ["Ongoing", "Odd"],
        "producer_id_filters": [77],
        "duration_filter": 500,
    }
    asked, answer = exchange(cold, LIST_TRANSACTIONS, version, outcome, **values)
    assert asked == ListTransactionsRequest(("Ongoing", "Odd"), (77,), 500 if version else -1, None)
    assert (answer.error_code, answer.unknown_state_filters) == (0, ("Odd",))
    (row,) = answer.transaction_states
    assert (row.transactional_id, row.producer_id, row.transaction_state) == ("tx", 77, "Ongoing")


def test_described_transaction_has_the_topics_that_the_client_may_see() -> None:
    authorizer = "kafka.security.authorizer.AclAuthorizer"
    cold = Cold(config={"authorizer.class.name": authorizer})
    assert cold.access.authorizer is not None
    entry = AclEntry("User:ANONYMOUS", "*", AclOperation.DESCRIBE, AclPermission.ALLOW)
    for kind, name in ((AclResourceType.TRANSACTIONAL_ID, "tx"), (AclResourceType.TOPIC, "t")):
        pattern = ResourcePattern(kind, name, PatternType.LITERAL)
        cold.access.authorizer.update(pattern, frozenset({entry}))
    other = TopicPartition("u", 4)
    outcome = DescribeTransactionsResponse(
        [DescribedTransaction("tx", 0, "Ongoing", 60_000, 1_234, 77, 3, [T0, other, T1])]
    )
    values = {"transactional_ids": ["tx", "hidden"]}
    asked, answer = exchange(cold, DESCRIBE_TRANSACTIONS, 0, outcome, **values)
    assert asked.transactional_ids == ("tx",)
    shown, hidden = answer.transaction_states
    assert [(topic.topic, topic.partitions) for topic in shown.topics] == [("t", (0, 1))]
    denied = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert (hidden.transactional_id, hidden.error_code, hidden.topics) == ("hidden", denied, ())
