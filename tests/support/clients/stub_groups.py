"""A `StubCluster` whose brokers coordinate groups without members, with faults on request.

`failures[api]`: error codes of the next responses, as in
`StubCluster`. A test sets `coordinator` to another broker to move the groups.
"""

from __future__ import annotations

from typing import Any

from support.clients.stub_cluster import HOST, StubCluster

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.client.administration.group_offsets import OffsetAndMetadata
from minikafka.kafka.wire import versions

NO_OFFSET = OffsetAndMetadata(-1)


class StubGroups(StubCluster):
    """A StubCluster in which the broker `coordinator` coordinates every group."""

    coordinator = 1
    has_members = False

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self.listed: dict[int, list[tuple[str, str, str]]] = {}
        self.members: dict[str, list[tuple[str, str, bytes]]] = {}
        self.refused: dict[str, int] = {}

    def answer(self, broker: int, api: int, request: Any) -> Any:
        if api == versions.LIST_GROUPS:
            return self.list_groups(broker)
        handler = _ANSWERS.get(api)
        if handler is None:
            return super().answer(broker, api, request)
        error = self.failure(api)
        if api != versions.FIND_COORDINATOR and broker != self.coordinator:
            error = ErrorCode.NOT_COORDINATOR
        return handler(self, request, error)

    def find(self, request: Any, error: int) -> Any:
        place = {"node_id": self.coordinator, "host": HOST, "port": self.ports[self.coordinator]}
        found = [
            {"key": key, "error_code": error, "error_message": None, **place}
            for key in request.coordinator_keys
        ]
        return {"coordinators": found}

    def commit(self, request: Any, error: int) -> Any:
        error = error or (ErrorCode.UNKNOWN_MEMBER_ID if self.has_members else 0)
        topics = []
        found = {}
        for topic in request.topics:
            rows = []
            for p in topic.partitions:
                tp = TopicPartition(topic.name, p.partition_index)
                found[tp] = OffsetAndMetadata(p.committed_offset, p.committed_metadata)
                rows.append({"partition_index": p.partition_index, "error_code": error})
            topics.append({"name": topic.name, "partitions": rows})
        if not error:
            self.committed |= found
        return {"topics": topics}

    def fetch_offsets(self, request: Any, error: int) -> Any:
        group = request.groups[0]
        topics = []
        for topic in group.topics:
            rows = []
            for number in topic.partition_indexes:
                at = self.committed.get(TopicPartition(topic.name, number), NO_OFFSET)
                row = {"committed_offset": at.offset, "metadata": at.metadata, "error_code": 0}
                rows.append({"partition_index": number, "committed_leader_epoch": -1, **row})
            topics.append({"name": topic.name, "partitions": rows})
        return {"groups": [{"group_id": group.group_id, "topics": topics, "error_code": error}]}

    def list_groups(self, broker: int) -> Any:
        groups = [
            {"group_id": name, "protocol_type": protocol, "group_state": state}
            for name, protocol, state in self.listed.get(broker, [])
        ]
        return {"error_code": self.failure(versions.LIST_GROUPS), "groups": groups}

    def describe(self, request: Any, error: int) -> Any:
        groups = []
        for name in request.groups:
            rows = [
                {"member_id": id_, "member_assignment": share, "client_host": "/1.2.3.4"}
                for id_, _, share in self.members.get(name, [])
            ]
            head = {"group_id": name, "group_state": "Stable", "protocol_type": "consumer"}
            groups.append({"error_code": error, "members": rows, **head})
        return {"groups": groups}

    def delete(self, request: Any, error: int) -> Any:
        results = [
            {"group_id": name, "error_code": error or self.refused.get(name, 0)}
            for name in request.groups_names
        ]
        return {"results": results}

    def delete_offsets(self, request: Any, error: int) -> Any:
        topics = [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": p.partition_index, "error_code": 0}
                    for p in topic.partitions
                ],
            }
            for topic in request.topics
        ]
        return {"error_code": error, "topics": topics}


_ANSWERS = {
    versions.FIND_COORDINATOR: StubGroups.find,
    versions.OFFSET_COMMIT: StubGroups.commit,
    versions.OFFSET_FETCH: StubGroups.fetch_offsets,
    versions.DESCRIBE_GROUPS: StubGroups.describe,
    versions.DELETE_GROUPS: StubGroups.delete,
    versions.OFFSET_DELETE: StubGroups.delete_offsets,
}
