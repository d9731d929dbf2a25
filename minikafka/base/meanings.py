"""Kafka's error codes as sentences, for answers of brokers that contain a code and no text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from minikafka.base.errors import ErrorCode, KafkaError

_CODE: Final = ErrorCode
_MEANINGS: Final[Mapping[ErrorCode, str]] = {
    _CODE.UNKNOWN_SERVER_ERROR: "the broker failed to handle the request; its log has the cause",
    _CODE.OFFSET_OUT_OF_RANGE: "the log of the partition does not have this offset",
    _CODE.CORRUPT_MESSAGE: "the records do not match their checksum, size or format",
    _CODE.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition",
    _CODE.LEADER_NOT_AVAILABLE: "the partition has no leader at the moment",
    _CODE.NOT_LEADER_OR_FOLLOWER: "the broker that was asked does not lead the partition",
    _CODE.REQUEST_TIMED_OUT: "the request was not completed in time",
    _CODE.BROKER_NOT_AVAILABLE: "the broker is not alive",
    _CODE.REPLICA_NOT_AVAILABLE: "the broker that was asked has no such replica",
    _CODE.MESSAGE_TOO_LARGE: "the batch is larger than max.message.bytes of the topic",
    _CODE.STALE_CONTROLLER_EPOCH: "the request comes from a former controller",
    _CODE.OFFSET_METADATA_TOO_LARGE: "the metadata of the commit is longer than offset.metadata.max.bytes",
    _CODE.NETWORK_EXCEPTION: "the connection to the broker was lost",
    _CODE.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator is still loading what it coordinates",
    _CODE.COORDINATOR_NOT_AVAILABLE: "no broker is the coordinator at the moment",
    _CODE.NOT_COORDINATOR: "the broker that was asked is not the coordinator",
    _CODE.INVALID_TOPIC_EXCEPTION: "the name is not allowed for a topic, or the topic is internal",
    _CODE.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas demands",
    _CODE.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "the records were written, but then fewer replicas were in sync "
    "than min.insync.replicas demands",
    _CODE.INVALID_REQUIRED_ACKS: "acks must be all, 1 or 0",
    _CODE.ILLEGAL_GENERATION: "the group has rebalanced since the client joined",
    _CODE.INCONSISTENT_GROUP_PROTOCOL: "the member has no assignor in common with the group",
    _CODE.INVALID_GROUP_ID: "the name of a group must not be empty",
    _CODE.UNKNOWN_MEMBER_ID: "the client is not a member of the group, or the group has members",
    _CODE.INVALID_SESSION_TIMEOUT: "the session timeout must be between group.min.session.timeout.ms and "
    "group.max.session.timeout.ms",
    _CODE.REBALANCE_IN_PROGRESS: "the group is rebalancing",
    _CODE.INVALID_COMMIT_OFFSET_SIZE: "the commit is too large for a batch of __consumer_offsets",
    _CODE.TOPIC_AUTHORIZATION_FAILED: "no ACL lets the client do this with the topic",
    _CODE.GROUP_AUTHORIZATION_FAILED: "no ACL lets the client do this with the group",
    _CODE.CLUSTER_AUTHORIZATION_FAILED: "no ACL lets the client send this request",
    _CODE.INVALID_TIMESTAMP: "a timestamp is further from the broker's time than the topic allows",
    _CODE.UNSUPPORTED_SASL_MECHANISM: "the broker does not serve this SASL mechanism",
    _CODE.ILLEGAL_SASL_STATE: "this request of SASL is not allowed now",
    _CODE.UNSUPPORTED_VERSION: "the broker does not know this version of the request",
    _CODE.TOPIC_ALREADY_EXISTS: "the topic exists already",
    _CODE.INVALID_PARTITIONS: "this number of partitions is not allowed",
    _CODE.INVALID_REPLICATION_FACTOR: "the replication factor must be from 1 to the number of live brokers",
    _CODE.INVALID_REPLICA_ASSIGNMENT: "the list of replicas has a broker that is not alive or is named twice",
    _CODE.INVALID_CONFIG: "a setting has an unknown key or a value that is not allowed",
    _CODE.NOT_CONTROLLER: "there is no active controller at the moment",
    _CODE.INVALID_REQUEST: "the broker does not accept such a request",
    _CODE.POLICY_VIOLATION: "a policy of the cluster forbids the request",
    _CODE.OUT_OF_ORDER_SEQUENCE_NUMBER: "an earlier batch of this producer is not in the log",
    _CODE.DUPLICATE_SEQUENCE_NUMBER: "the batch was written before",
    _CODE.INVALID_PRODUCER_EPOCH: "a newer producer uses the same id",
    _CODE.INVALID_TXN_STATE: "the transaction is in a state that does not allow the request",
    _CODE.INVALID_PRODUCER_ID_MAPPING: "the transactional id does not exist, or has another producer id",
    _CODE.INVALID_TRANSACTION_TIMEOUT: "the transaction timeout must be between 1 and transaction.max.timeout.ms",
    _CODE.CONCURRENT_TRANSACTIONS: "the coordinator is still handling an earlier request for the transactional id",
    _CODE.TRANSACTION_COORDINATOR_FENCED: "the marker comes from a former transaction coordinator",
    _CODE.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "no ACL lets the client use the transactional id",
    _CODE.SECURITY_DISABLED: "the cluster has no security features",
    _CODE.OPERATION_NOT_ATTEMPTED: "nothing was done, because another partition of the request failed",
    _CODE.KAFKA_STORAGE_ERROR: "the log directory has failed; the broker's log has the cause",
    _CODE.LOG_DIR_NOT_FOUND: "the broker has no such log directory",
    _CODE.SASL_AUTHENTICATION_FAILED: "the client has not proven who it is",
    _CODE.DELEGATION_TOKEN_AUTH_DISABLED: "the brokers have no delegation.token.secret.key",
    _CODE.DELEGATION_TOKEN_NOT_FOUND: "there is no such delegation token",
    _CODE.DELEGATION_TOKEN_OWNER_MISMATCH: "the client is neither owner nor renewer of the delegation token",
    _CODE.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "a client without a login, or with one by token, cannot do this",
    _CODE.DELEGATION_TOKEN_EXPIRED: "the delegation token has expired",
    _CODE.INVALID_PRINCIPAL_TYPE: "the type of a principal must be User",
    _CODE.UNACCEPTABLE_CREDENTIAL: "the credential is not acceptable",
    _CODE.UNKNOWN_PRODUCER_ID: "the partition has no records of the producer id",
    _CODE.REASSIGNMENT_IN_PROGRESS: "the partition is being reassigned",
    _CODE.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "no ACL lets the client do this with the delegation token",
    _CODE.NON_EMPTY_GROUP: "the group has members",
    _CODE.GROUP_ID_NOT_FOUND: "there is no such group",
    _CODE.FETCH_SESSION_ID_NOT_FOUND: "the broker has forgotten the fetch session",
    _CODE.INVALID_FETCH_SESSION_EPOCH: "the fetch session expected another request",
    _CODE.LISTENER_NOT_FOUND: "the leader has no listener with the name that the client uses",
    _CODE.TOPIC_DELETION_DISABLED: "delete.topic.enable is false",
    _CODE.FENCED_LEADER_EPOCH: "the client's leader epoch is older than the broker's",
    _CODE.UNKNOWN_LEADER_EPOCH: "the client's leader epoch is newer than the broker's",
    _CODE.UNSUPPORTED_COMPRESSION_TYPE: "the broker or the client does not support the compression",
    _CODE.STALE_BROKER_EPOCH: "the broker has registered again since the request was sent",
    _CODE.OFFSET_NOT_AVAILABLE: "a new leader does not know its high watermark yet",
    _CODE.MEMBER_ID_REQUIRED: "the member must join again with the id that it was given",
    _CODE.PREFERRED_LEADER_NOT_AVAILABLE: "the preferred replica is not alive or not in sync",
    _CODE.GROUP_MAX_SIZE_REACHED: "the group has group.max.size members",
    _CODE.FENCED_INSTANCE_ID: "another member has taken over the group.instance.id",
    _CODE.ELIGIBLE_LEADERS_NOT_AVAILABLE: "no replica that may lead is alive",
    _CODE.ELECTION_NOT_NEEDED: "the partition has the wanted leader already",
    _CODE.NO_REASSIGNMENT_IN_PROGRESS: "the partition is not being reassigned",
    _CODE.GROUP_SUBSCRIBED_TO_TOPIC: "a member of the group reads the topic",
    _CODE.INVALID_RECORD: "a record of the batch is not valid for the topic",
    _CODE.UNSTABLE_OFFSET_COMMIT: "a transaction may still change the committed offset",
    _CODE.THROTTLING_QUOTA_EXCEEDED: "the client has used up its quota of changes to topics",
    _CODE.PRODUCER_FENCED: "another producer with the same transactional id has started, or the transaction timed out",
    _CODE.RESOURCE_NOT_FOUND: "there is no such resource",
    _CODE.DUPLICATE_RESOURCE: "the request names the resource twice",
    _CODE.UNKNOWN_TOPIC_ID: "there is no topic with this id",
    _CODE.INCONSISTENT_TOPIC_ID: "the topic has another id: it was created again",
    _CODE.TRANSACTIONAL_ID_NOT_FOUND: "there is no such transactional id",
    _CODE.FETCH_SESSION_TOPIC_ID_ERROR: "the fetch session names topics in the other way, by name or by id",
    _CODE.MISMATCHED_ENDPOINT_TYPE: "the request was sent to a listener of another kind",
    _CODE.TRANSACTION_ABORTABLE: "the partition is not part of the transaction, which must be aborted",
}


def meaning(code: ErrorCode) -> str:
    """Return what an error code means, as the predicate of a sentence; "" for NONE."""
    return _MEANINGS.get(code, "")


class AnsweredError(KafkaError):
    """The error code of a broker's answer about `detail`, for example a partition.

    `why`: the rest of the sentence about `detail` (default: the meaning of the code).
    """

    def __init__(self, code: ErrorCode, detail: str, why: str = "") -> None:
        super().__init__(code, detail)
        self.why = why or meaning(code)

    @property
    def reason(self) -> str:
        return f"{self.detail}: {self.why}"
