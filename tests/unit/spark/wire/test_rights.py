"""The right that a refused request needs, in the errors of clients."""

from __future__ import annotations

import pytest

from minikafka.base.errors import ErrorCode
from minikafka.base.meanings import AnsweredError
from minikafka.spark.wire import producing, protocol, topics, transactions
from minikafka.spark.wire.leaders import raise_if_final

TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
ID = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("code", "api", "missing"),
    [
        (TOPIC, protocol.METADATA, "right Describe on topic t"),
        (TOPIC, protocol.LIST_OFFSETS, "right Describe on topic t"),
        (TOPIC, protocol.FETCH, "right Read on topic t"),
        (TOPIC, producing.PRODUCE, "right Write on topic t"),
        (TOPIC, topics.CREATE_TOPICS, "rights Create and Describe on topic t"),
        (TOPIC, transactions.OFFSET_COMMIT, "right Read on topic t"),
        (GROUP, transactions.FIND_COORDINATOR, "right Describe on group t"),
        (GROUP, transactions.OFFSET_COMMIT, "right Read on group t"),
        (ID, transactions.FIND_COORDINATOR, "right Describe on transactional id t"),
        (
            CLUSTER,
            producing.INIT_PRODUCER_ID,
            "right IdempotentWrite on the cluster, or Write on any topic",
        ),
    ],
)
def test_error_of_a_refused_request_names_the_right_and_the_resource(code, api, missing):
    with pytest.raises(AnsweredError, match=f": no ACL gives the user the {missing}$"):
        raise_if_final(code, "t-0", api, "t")


def test_error_of_another_kind_has_its_own_meaning():
    with pytest.raises(AnsweredError, match=r"t-0: no ACL lets the client send this request$"):
        raise_if_final(CLUSTER, "t-0", topics.CREATE_TOPICS, "t")
