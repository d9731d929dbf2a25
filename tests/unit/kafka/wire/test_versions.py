"""The table of served versions."""

from __future__ import annotations

import pytest
from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest
from support.cases import for_each

from minikafka.kafka.wire import codec, versions

KAFKA_39 = {
    "Produce": 11,
    "Fetch": 17,
    "ListOffsets": 9,
    "Metadata": 12,
    "OffsetCommit": 9,
    "OffsetFetch": 9,
    "FindCoordinator": 6,
    "JoinGroup": 9,
    "Heartbeat": 4,
    "LeaveGroup": 5,
    "SyncGroup": 5,
    "DescribeGroups": 5,
    "ListGroups": 5,
    "ApiVersions": 4,
    "CreateTopics": 7,
    "DeleteTopics": 6,
    "DeleteRecords": 2,
    "InitProducerId": 5,
    "OffsetForLeaderEpoch": 4,
    "DescribeAcls": 3,
    "CreateAcls": 3,
    "DeleteAcls": 3,
    "DescribeConfigs": 4,
    "AlterConfigs": 2,
    "AlterReplicaLogDirs": 2,
    "DescribeLogDirs": 4,
    "SaslHandshake": 1,
    "SaslAuthenticate": 2,
    "CreatePartitions": 3,
    "CreateDelegationToken": 3,
    "RenewDelegationToken": 2,
    "ExpireDelegationToken": 2,
    "DescribeDelegationToken": 3,
    "DeleteGroups": 2,
    "ElectLeaders": 2,
    "IncrementalAlterConfigs": 1,
    "AlterPartitionReassignments": 0,
    "ListPartitionReassignments": 0,
    "OffsetDelete": 0,
    "DescribeClientQuotas": 1,
    "AlterClientQuotas": 1,
    "DescribeUserScramCredentials": 0,
    "AlterUserScramCredentials": 0,
    "UpdateFeatures": 1,
    "DescribeCluster": 1,
    "DescribeProducers": 0,
    "AddPartitionsToTxn": 5,
    "AddOffsetsToTxn": 4,
    "EndTxn": 4,
    "WriteTxnMarkers": 1,
    "TxnOffsetCommit": 4,
    "DescribeTransactions": 0,
    "ListTransactions": 1,
}
"""The highest version of each API in Apache Kafka 3.9, by name. The lowest version is always 0."""


@for_each(versions.SERVED.keys() - versions.OWN)
def test_every_version_of_kafka_is_served_or_listed_with_a_reason(api: int) -> None:
    listed = {
        version
        for (key, low, high), reason in versions.NOT_SERVED.items()
        if key == api and reason
        for version in range(low, high + 1)
    }
    low, high = versions.SERVED[api]
    served = set(range(low, high + 1))
    assert served | listed == set(range(KAFKA_39[versions.NAMES[api]] + 1))


def test_every_served_api_has_a_name_and_a_version_range() -> None:
    assert versions.SERVED.keys() == versions.NAMES.keys()
    assert all(0 <= low <= high for low, high in versions.SERVED.values())


@pytest.mark.parametrize("message", [ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest])
def test_flexible_versions_are_the_same_as_in_kafka(message: type) -> None:
    low, high = versions.SERVED[message.API_KEY]
    for version in range(low, high + 1):
        flexible = bool(message.flexible_version_q(version))
        assert codec.is_flexible(message.API_KEY, version) == flexible


def test_api_versions_outside_the_version_table_are_not_served() -> None:
    assert versions.is_served(versions.FETCH, 4)
    assert not versions.is_served(versions.FETCH, 3)
    assert not versions.is_served(versions.FETCH, 18)
    assert not versions.is_served(versions.FETCH, -1)
    assert not versions.is_served(4, 0)


def test_the_response_header_of_api_versions_is_never_flexible() -> None:
    assert not codec.has_flexible_response_header(versions.API_VERSIONS, 3)
    assert codec.has_flexible_response_header(versions.METADATA, 9)
    assert not codec.has_flexible_response_header(versions.METADATA, 8)
