"""A group coordinator with a log in memory.

Tests send requests with keyword arguments and find each answer under the caller number of its request. A test can
hold appends back and finish them later. Every call checks that a caller is answered at most once, that a group's
generation never falls, and that the memory of all groups is counted correctly. The group itself raises an exception
on an illegal state transition.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import count, starmap
from sys import getsizeof
from typing import Any, NamedTuple

from support.deciders.coordinator_world import CoordinatorWorld

from minikafka.base.config import BrokerConfig
from minikafka.base.coordinators import (
    Append,
    KeyValue,
    LeadershipBegun,
    LeadershipEnded,
    LoadedRecord,
    LoadFinished,
    LoadPartition,
    RecordsRead,
    TransactionalProducer,
    TransactionEnded,
)
from minikafka.broker.coordinators.group_host import settings_of
from minikafka.deciders.decider import Answer, Outcome
from minikafka.deciders.groups.commands import (
    Command,
    CommitResponse,
    FetchedGroup,
    HeartbeatResponse,
    JoinResponse,
    LeaveResponse,
    Note,
    SyncResponse,
    VerifyTransaction,
)
from minikafka.deciders.groups.coordinator import GroupCoordinator
from minikafka.deciders.groups.events import (
    CommitRequest,
    DeleteGroupsRequest,
    DeleteOffsetsRequest,
    FetchOffsetsRequest,
    HeartbeatRequest,
    JoinRequest,
    LeaveRequest,
    LeavingMember,
    OffsetToCommit,
    SyncRequest,
)
from minikafka.deciders.groups.group import Group
from minikafka.deciders.groups.memory import (
    OFFSET_BYTES,
    PENDING_BYTES,
    TOPIC_BYTES,
    group_bytes,
    member_bytes,
)

GROUP = "g"
TYPE = "consumer"
SESSION, REBALANCE = 10_000, 60_000


def subscription(*topics: str) -> bytes:
    """Return a ConsumerProtocolSubscription of version 0 without user data."""
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


RANGE = (("range", subscription("t")),)


class GroupWorld(CoordinatorWorld):
    """One coordinator. It leads every partition of the group topic, or none if `loads` is False."""

    def __init__(self, loads: bool = True, partitions: int = 1, **settings: Any) -> None:
        super().__init__(now=1_000)
        self.ids = count(1)
        keys: dict[str, Any] = {"group_initial_rebalance_delay_ms": 0, **settings}
        self.settings = settings_of(BrokerConfig(**keys))
        self.coordinator = GroupCoordinator(
            self.settings, lambda: str(next(self.ids)), self.wall_ms, partitions
        )
        self.context = self.coordinator.context
        self.notes: list[Note] = []
        self.log: dict[int, list[KeyValue]] = defaultdict(list)
        """Committed records outside of transactions, by partition of the group topic."""
        self.append_error = 0
        """Error code with which later appends fail, 0 for success."""
        self._generations: dict[int, tuple[Group, int]] = {}
        if loads:
            for partition in range(partitions):
                self.lead(partition)

    # Commands.

    def run(self, commands: Sequence[Command]) -> None:
        """Carry out the coordinator's commands, and the commands that the outcomes of appends cause."""
        for command in commands:
            if isinstance(command, Answer):
                self.keep_answer(command)
            elif isinstance(command, Note):
                self.notes.append(command)
            elif isinstance(command, Append):
                self.held.append(command)
            elif isinstance(command, VerifyTransaction):
                self.verify(command)
            else:
                self.load(command)
        self._check_generations()
        self._check_memory()
        if not self.holds:
            self.release()

    def _check_memory(self) -> None:
        """Measure all groups again, and compare the sum with the memory that the coordinator has counted."""
        groups = offsets = 0
        for group in self.context.groups.values():
            groups += group_bytes(group.group_id)
            groups += sum(PENDING_BYTES + getsizeof(member_id) for member_id in group.pending)
            for one in group.members.values():
                ids = one.member_id, one.instance_id, one.client_id
                groups += member_bytes(*ids, one.protocols, one.assignment)
            for topic in {tp.topic for tp in group.offsets.partitions()}:
                offsets += TOPIC_BYTES + len(topic)
            for tp in group.offsets.partitions():
                found = group.offsets.fetch(tp)
                assert found is not None
                offsets += OFFSET_BYTES + len(found.metadata.encode())
        assert self.context.memory.used == groups
        assert self.context.offsets_memory.used == offsets

    def _check_generations(self) -> None:
        for group in self.context.groups.values():
            known, generation = self._generations.get(id(group), (group, group.generation))
            assert known is not group or group.generation >= generation
            self._generations[id(group)] = (group, group.generation)

    def release(self, error: int | None = None) -> None:
        """Finish the appends that the test has held back, with the error code `error` (default: `append_error`)."""
        held, self.held = self.held, []
        code = self.append_error if error is None else error
        for append in held:
            self.finish(append, code)

    def finish(self, append: Append, error: int) -> None:
        if not error and append.producer is None:
            self.log[append.partition].extend(append.records)
        self.handle(Outcome(append.token, error))

    def verify(self, question: VerifyTransaction) -> None:
        """Answer that the transaction contains the partition."""
        self.handle(Outcome(question.token, (0, question.producer.guard)))

    # Time and partitions.

    def lead(self, partition: int = 0, epoch: int = 0) -> None:
        self.handle(LeadershipBegun(partition, epoch))

    def load(self, command: LoadPartition) -> None:
        """Read a partition from the log, and finish its load."""
        partition, epoch = command
        self.handle(RecordsRead(partition, epoch, starmap(LoadedRecord, self.log[partition])))
        self.handle(LoadFinished(partition, epoch, self.context.partition_count))

    def unload(self, partition: int = 0) -> None:
        self.handle(LeadershipEnded(partition))

    # Requests.

    def call(self, request: type[NamedTuple], **fields: Any) -> int:
        """Send the coordinator a request with these fields; return the caller number of the request.

        `answers` gets the answer under this number, possibly later.
        """
        caller = next(self.callers)
        self.handle(request(caller=caller, **fields))
        return caller

    def send_join(self, member: str = "", **changes: Any) -> int:
        values: dict[str, Any] = {
            "group_id": GROUP,
            "member_id": member,
            "instance_id": None,
            "client_id": "client",
            "client_host": "/127.0.0.1",
            "session_timeout_ms": SESSION,
            "rebalance_timeout_ms": REBALANCE,
            "protocol_type": TYPE,
            "protocols": RANGE,
        }
        return self.call(JoinRequest, **{**values, **changes})

    def join(self, member: str = "", **changes: Any) -> JoinResponse:
        answer = self.answers[self.send_join(member, **changes)]
        assert isinstance(answer, JoinResponse)
        return answer

    def send_sync(self, member: str, generation: int, **changes: Any) -> int:
        values: dict[str, Any] = {"group_id": GROUP, "generation": generation, "member_id": member}
        if "assignments" in changes:
            changes["assignments"] = list(changes["assignments"].items())
        return self.call(SyncRequest, **{**values, **changes})

    def sync(self, member: str, generation: int, **changes: Any) -> SyncResponse:
        answer = self.answers[self.send_sync(member, generation, **changes)]
        assert isinstance(answer, SyncResponse)
        return answer

    def heartbeat(self, member: str, generation: int, **changes: Any) -> int:
        values: dict[str, Any] = {"group_id": GROUP, "generation": generation, "member_id": member}
        answer = self.answers[self.call(HeartbeatRequest, **{**values, **changes})]
        assert isinstance(answer, HeartbeatResponse)
        return answer.error

    def leave(self, *members: str | LeavingMember, group: str = GROUP) -> LeaveResponse:
        leaving = [LeavingMember(m) if isinstance(m, str) else m for m in members]
        answer = self.answers[self.call(LeaveRequest, group_id=group, members=leaving)]
        assert isinstance(answer, LeaveResponse)
        return answer

    def send_commit(
        self,
        offsets: dict[tuple[str, int], int],
        member: str = "",
        generation: int = -1,
        group: str = GROUP,
        instance: str | None = None,
        metadata: str = "",
        retention_time_ms: int = -1,
        producer: TransactionalProducer | None = None,
    ) -> int:
        topics: dict[str, list[OffsetToCommit]] = {}
        for (topic, partition), offset in offsets.items():
            topics.setdefault(topic, []).append(
                OffsetToCommit(partition, offset, metadata=metadata)
            )
        return self.call(
            CommitRequest,
            group_id=group,
            generation=generation,
            member_id=member,
            instance_id=instance,
            topics=list(topics.items()),
            retention_time_ms=retention_time_ms,
            producer=producer,
        )

    def commit(self, offsets: dict[tuple[str, int], int], *args: Any, **changes: Any) -> set[int]:
        """Commit offsets; return the error codes of the partitions."""
        answer = self.answers[self.send_commit(offsets, *args, **changes)]
        assert isinstance(answer, CommitResponse)
        return {error for _, partitions in answer.topics for _, error in partitions}

    def end_transaction(self, producer_id: int, committed: bool = True, partition: int = 0) -> None:
        """Report the marker of a producer's transaction."""
        self.handle(TransactionEnded(partition, producer_id, committed))

    def fetch(
        self,
        group: str = GROUP,
        partitions: list[tuple[str, list[int]]] | None = None,
        stable: bool = False,
    ) -> FetchedGroup:
        groups = [(group, partitions)]
        caller = self.call(FetchOffsetsRequest, groups=groups, require_stable=stable)
        return self.answers[caller].groups[0]  # type: ignore[no-any-return]

    def offsets(self, group: str = GROUP) -> dict[tuple[str, int], int]:
        """Return the committed offset of each (topic, partition) of a group."""
        return {
            (topic, found.partition): found.offset
            for topic, partitions in self.fetch(group).topics
            for found in partitions
        }

    def delete_offsets(self, partitions: list[tuple[str, list[int]]], group: str = GROUP) -> Any:
        return self.answers[self.call(DeleteOffsetsRequest, group_id=group, partitions=partitions)]

    def delete(self, *groups: str) -> dict[str, int]:
        caller = self.call(DeleteGroupsRequest, group_ids=groups)
        return dict(self.answers[caller].groups)

    # Groups that many tests begin with.

    @property
    def group(self) -> Group:
        return self.context.groups[GROUP]

    @property
    def state(self) -> str:
        return self.group.state.value

    def stable(self, members: int = 1, **changes: Any) -> list[str]:
        """Form a stable group of dynamic members; return the member ids, the leader's id first."""
        callers = [self.send_join(**changes)]
        ids = [self.answers[callers[0]].member_id]
        if members > 1:
            self.sync(ids[0], 1)
            callers = [self.send_join(**changes) for _ in range(members - 1)]
            callers.insert(0, self.send_join(ids[0], **changes))
            ids = [self.answers[caller].member_id for caller in callers]
        generation = self.group.generation
        for member in ids[1:]:
            self.send_sync(member, generation)
        self.sync(ids[0], generation, assignments={member: member.encode() for member in ids})
        assert self.state == "Stable"
        return ids

    def static(self, *instances: str, **changes: Any) -> dict[str, str]:
        """Form a stable group of static members; return member ids by instance id, the leader's id first."""
        delay = self.settings.group_initial_rebalance_delay_ms
        ids: dict[str, str] = {}
        for instance in instances:
            caller = self.send_join(instance_id=instance, **changes)
            again = [self.send_join(ids[old], instance_id=old, **changes) for old in ids]
            self.advance(delay)
            for old, other in zip(list(ids), again, strict=True):
                ids[old] = self.answers[other].member_id
            ids[instance] = self.answers[caller].member_id
        generation = self.group.generation
        leader = next(iter(ids.values()))
        for member in list(ids.values())[1:]:
            self.send_sync(member, generation)
        self.sync(
            leader, generation, assignments={member: member.encode() for member in ids.values()}
        )
        return ids
