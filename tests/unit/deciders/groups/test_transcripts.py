"""The decisions of the group coordinator, told in `transcripts/`.

Inputs:

- `coordinator SETTING=VALUE … [partitions=N] [leads=no]`: the settings, with Kafka's names. It leads every partition.
- `stable group GROUP members=N` or `… instances=a,b`: form a stable group without telling how.
- `join`, `sync`, `heartbeat` (with `every=9s times=6` again and again), `leave`, `commit`, `fetch`, `delete-offsets`,
  `describe`, `list`, `delete`: requests. `as=NAME` names a request; otherwise it has the name of its member. `waits`
  means that it is not answered yet.
- `delete-topics`, `transaction-ended`, `unload`, `lead`, `begin-load`, `read`, `loaded`: what else happens on a broker.
- `wait 10s`: time passes, and timers are due. `next deadline` tells when the next timer is due.
- `appends wait | succeed | fail error=…`: the outcome of later appends. `written N` and `failed N error=…` report the
  outcome of an append that waits.
- `verifications wait`: later questions to the transaction coordinator wait. `verified N` reports the answer to question
  N, with `guard=…` or `error=…`.
- `group`, `report`: what the coordinator knows about a group.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from support.deciders.group_world import RANGE, REBALANCE, SESSION, GroupWorld, subscription
from support.deciders.transcripts import Input, play, scenarios

from minikafka.base.coordinators import (
    Append,
    LeadershipBegun,
    LoadedRecord,
    LoadFinished,
    LoadPartition,
    RecordsRead,
    TransactionalProducer,
)
from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.deciders.decider import Answer, Outcome
from minikafka.deciders.groups.commands import (
    CommitResponse,
    DeleteGroupsResponse,
    DeleteOffsetsResponse,
    DescribeGroupsResponse,
    FetchedOffset,
    FetchOffsetsResponse,
    HeartbeatResponse,
    JoinResponse,
    LeaveResponse,
    ListGroupsResponse,
    Note,
    SyncResponse,
    VerifyTransaction,
)
from minikafka.deciders.groups.context import GroupSettings
from minikafka.deciders.groups.events import (
    CommitRequest,
    DeleteGroupsRequest,
    DeleteOffsetsRequest,
    DescribeGroupsRequest,
    FetchOffsetsRequest,
    HeartbeatRequest,
    JoinRequest,
    LeaveRequest,
    LeavingMember,
    ListGroupsRequest,
    OffsetToCommit,
    SyncRequest,
    TopicsDeleted,
)
from minikafka.deciders.groups.group import Group
from minikafka.deciders.groups.records import (
    GroupKey,
    OffsetAndMetadata,
    OffsetKey,
    group_metadata_key,
    offset_commit_key,
    offset_commit_value,
    read_group,
    read_key,
    read_offset,
    subscribed_topics,
)

_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}


# ---- values in a transcript


def milliseconds(text: str) -> int:
    """Return a time such as `5m`, `9s999ms` or `-1ms` in milliseconds."""
    sign = -1 if text.startswith("-") else 1
    return sign * sum(int(n) * _MS[unit] for n, unit in re.findall(r"(\d+)(ms|s|m|h)", text))


def expanded(text: str) -> str:
    """Return the text with `x*3` in place of `xxx`."""
    return re.sub(r"(.)\*(\d+)", lambda found: found[1] * int(found[2]), text)


def shortened(text: str) -> str:
    return re.sub(r"(.)\1{40,}", lambda found: f"{found[1]}*{len(found[0])}", text)


def protocols_of(text: str) -> list[tuple[str, bytes]]:
    """Return protocols from `range[t,u]` (a subscription to topics) or `range:bytes`, separated by spaces."""
    found = []
    for part in text.split():
        if part.endswith("]"):
            name, _, topics = part[:-1].partition("[")
            found.append((name, subscription(*topics.split(","))))
        else:
            name, _, data = part.partition(":")
            found.append((name, data.encode()))
    return found


def assignment_of(text: str) -> bytes:
    """Return the bytes of an assignment: a text, or hexadecimal digits after `0x`."""
    return bytes.fromhex(text[2:]) if text.startswith("0x") else expanded(text).encode()


def assigned(data: bytes) -> str:
    return shortened(data.decode()) if data.isascii() and b"\0" not in data else f"0x{data.hex()}"


def metadata(data: bytes) -> str:
    try:
        return f"[{','.join(sorted(subscribed_topics(data)))}]"
    except ValueError:
        return f":{data.decode()}"


def partition_of(word: str) -> TopicPartition:
    topic, _, number = word.rpartition("-")
    return TopicPartition(expanded(topic), int(number))


def by_topic(words: Iterable[str]) -> list[tuple[str, list[int]]]:
    topics: dict[str, list[int]] = {}
    for word in words:
        tp = partition_of(word)
        topics.setdefault(tp.topic, []).append(tp.partition)
    return list(topics.items())


def error_of(code: int) -> str:
    return "ok" if not code else ErrorCode(code).name


def options(**values: Any) -> str:
    """Return the values that say something, as `name=value` words."""
    told = {name: value for name, value in values.items() if value not in (None, "", (), [])}
    return "".join(f" {name}={word(value)}" for name, value in told.items())


def word(value: Any) -> str:
    text = ",".join(value) if isinstance(value, list | tuple) else str(value)
    return f'"{text}"' if " " in text else text


# ---- answers in a transcript


def errors(topics: Any) -> str:
    return "".join(
        f" {shortened(topic)}-{number}={error_of(error)}"
        for topic, rows in topics
        for number, error in rows
    )


def offset(topic: str, found: FetchedOffset) -> str:
    value = error_of(found.error) if found.error else str(found.offset)
    if found.offset == -1 and not found.error:
        value = "none"
    if found.leader_epoch != -1:
        value += f"(epoch {found.leader_epoch})"
    if found.metadata:
        value += f'("{shortened(found.metadata)}")'
    return f"{topic}-{found.partition}={value}"


def answered(response: Any) -> Iterator[str]:
    """Yield the lines for a response."""
    match response:
        case JoinResponse():
            yield f"JoinGroup {error_of(response.error)}" + options(
                member=response.member_id,
                generation=response.generation if response.generation != -1 else None,
                leader=response.leader,
                type=response.protocol_type,
                protocol=response.protocol_name,
                skip_assignment="yes" if response.skip_assignment else None,
                members=[
                    one.member_id
                    + (f"({one.instance_id})" if one.instance_id else "")
                    + metadata(one.metadata)
                    for one in response.members
                ],
            )
        case SyncResponse():
            yield f"SyncGroup {error_of(response.error)}" + options(
                type=response.protocol_type,
                protocol=response.protocol_name,
                assignment=assigned(response.assignment) or (None if response.error else '""'),
            )
        case HeartbeatResponse():
            yield f"Heartbeat {error_of(response.error)}"
        case LeaveResponse():
            yield f"LeaveGroup {error_of(response.error)}"
            for left in response.members:
                instance = f"({left.instance_id})" if left.instance_id else ""
                yield f"  {left.member_id or 'no id'}{instance}: {error_of(left.error)}"
        case _:
            yield from answered_about_groups(response)


def answered_about_groups(response: Any) -> Iterator[str]:
    """Yield the lines for a response to a client that may not be a member."""
    match response:
        case CommitResponse():
            yield f"OffsetCommit{errors(response.topics)}"
        case FetchOffsetsResponse():
            for group in response.groups:
                rows = [offset(topic, row) for topic, found in group.topics for row in found]
                told = [f"{group.group_id or 'no name'}: {error_of(group.error)}", *rows]
                yield f"OffsetFetch {' '.join(told)}"
        case DeleteOffsetsResponse():
            yield f"OffsetDelete {error_of(response.error)}{errors(response.topics)}"
        case DeleteGroupsResponse():
            rows = [f"{name or 'no name'}={error_of(error)}" for name, error in response.groups]
            yield f"DeleteGroups {' '.join(rows)}"
        case ListGroupsResponse():
            rows = [f"{g.group_id}({g.protocol_type or '-'},{g.state})" for g in response.groups]
            yield f"ListGroups {' '.join([error_of(response.error), *rows])}"
        case DescribeGroupsResponse():
            for group in response.groups:
                yield f"DescribeGroups {group.group_id or 'no name'}: {error_of(group.error)}" + (
                    options(state=group.state, type=group.protocol_type, protocol=group.protocol)
                )
                for one in group.members:
                    yield f"  {one.member_id}" + options(
                        instance=one.instance_id,
                        client=one.client_id,
                        host=one.client_host,
                        metadata=metadata(one.metadata) if one.metadata else None,
                        assignment=assigned(one.assignment),
                    )
        case _:
            raise TypeError(response)


def record(key: bytes, value: bytes | None) -> str:
    """Return a record of `__consumer_offsets` in words."""
    named = read_key(key)
    if isinstance(named, OffsetKey):
        if named.tp.partition < 0:
            return f"confirmation of {named.group}"
        what = f"offset {named.group or 'no name'} {shortened(named.tp.topic)}-{named.tp.partition}"
        return f"tombstone of {what}" if value is None else f"{what}={read_offset(value).offset}"
    assert isinstance(named, GroupKey)
    if value is None:
        return f"tombstone of group {named.group}"
    stored = read_group(value)
    members = [f"{one.member_id}:{assigned(one.assignment)}" for one in stored.members]
    return f"group {named.group} generation={stored.generation}" + options(
        leader=stored.leader, assignments=members
    )


def state(group: Group) -> str:
    return f"{group.state.value}, generation {group.generation}" + "".join(
        (
            f", leader {group.leader}" if group.leader else "",
            f", members {' '.join(group.members)}" if group.members else "",
            f", pending {' '.join(group.pending)}" if group.pending else "",
        )
    )


class Player(GroupWorld):
    """A coordinator that a transcript drives. Each input is told by the method of its verb."""

    def __init__(self, caplog: pytest.LogCaptureFixture, **settings: Any) -> None:
        self.caplog = caplog
        self.lines: list[str] = []
        self.names: dict[int, str] = {}
        """The name of each request in the transcript, by caller number."""
        self.states: dict[str, str] = {}
        self.numbers: dict[int, int] = {}
        """The number of each append in the transcript, by token."""
        self.is_quiet = False
        self.began = 0
        """When the time began to pass."""
        self.questions: list[VerifyTransaction] | None = None
        """The questions to the transaction coordinator, from `verifications wait` on."""
        super().__init__(**settings)

    def __call__(self, heard: Input) -> list[str]:
        self.lines = []
        getattr(self, "hear_" + heard.verb.replace("-", "_"))(heard)
        self.lines += [f"{one.levelname.lower()}: {one.message}" for one in self.caplog.records]
        self.caplog.clear()
        return self.lines or (
            [] if heard.verb in ("coordinator", "appends", "verifications", "read") else ["nothing"]
        )

    # ---- commands

    def run(self, commands: list[Any]) -> None:
        for command in commands:
            self.tell(command)
        self.tell_states()
        super().run(commands)

    def tell(self, command: Any) -> None:
        if self.is_quiet:
            return
        if isinstance(command, Answer):
            name = self.names.get(command.caller, "")  # type: ignore[call-overload]
            first, *more = answered(command.response)
            self.lines += [f"answer {name}: {first}" if name else f"answer: {first}", *more]
        elif isinstance(command, Note):
            told = {name: value for name, value in command.fields.items() if value is not None}
            if "error" in told:
                told["error"] = error_of(told["error"])
            self.lines.append(f"ledger of {command.group_id}: {command.kind}:{options(**told)}")
        elif isinstance(command, Append):
            self.tell_append(command)

    def tell_append(self, append: Append) -> None:
        number = self.numbers[append.token] = len(self.numbers) + 1
        told = "; ".join(record(*each) for each in append.records)
        producer = append.producer
        of = "" if producer is None else f" in the transaction of producer {producer.producer_id}"
        if producer is not None:
            of += f" epoch {producer.producer_epoch} guard {producer.guard}"
        self.lines.append(f"append {number} to partition {append.partition}{of}: {told}")

    def tell_states(self) -> None:
        """Tell which groups are in another state than before."""
        now = {name: state(group) for name, group in self.coordinator.context.groups.items()}
        if not self.is_quiet:
            for name in {**self.states, **now}:
                if self.states.get(name) != now.get(name):
                    self.lines.append(f"{name or 'no name'} is {now.get(name, 'gone')}")
        self.states = now

    # ---- set-up

    def hear_coordinator(self, heard: Input) -> None:
        settings: dict[str, Any] = {}
        for field in fields(GroupSettings):
            value = heard.option(field.name.replace("_", "."))
            if value:
                settings[field.name] = int(value)
        if heard.flag("again"):  # another broker, with the same log
            log = self.log
            Player.__init__(self, self.caplog, loads=False, **settings)
            self.log = log
            return
        loads = heard.option("leads") != "no"
        partitions = heard.number("partitions", 1)
        Player.__init__(self, self.caplog, loads=loads, partitions=partitions, **settings)

    def hear_stable(self, heard: Input) -> None:
        assert heard.flag("group")
        changes: dict[str, Any] = {}
        if session := heard.option("session"):
            changes["session_timeout_ms"] = milliseconds(session)
        if rebalance := heard.option("rebalance"):
            changes["rebalance_timeout_ms"] = milliseconds(rebalance)
        if kind := heard.option("type"):
            changes["protocol_type"] = kind
        if protocols := heard.option("protocols"):
            changes["protocols"] = protocols_of(protocols)
        self.is_quiet = True
        if instances := heard.option("instances"):
            self.static(*instances.split(","), **changes)
        else:
            self.stable(heard.number("members", 1), **changes)
        self.is_quiet, self.states = False, {}
        self.tell_states()

    # ---- requests

    def ask(self, heard: Input, request: type[Any], name: str = "", **values: Any) -> None:
        told = heard.option("as", name)
        waiting = {each for caller, each in self.names.items() if caller not in self.answers}
        assert not told or told not in waiting, f"{told} already waits for an answer"
        self._next_name = told
        caller = self.call(request, **values)
        if caller not in self.answers:
            self.lines.append(f"{told or 'the request'} waits")

    def call(self, request: type[Any], **values: Any) -> int:
        name = "" if self.is_quiet else self._next_name
        upcoming = self._peeked()
        self.names[upcoming] = name
        caller = super().call(request, **values)
        assert caller == upcoming
        return caller

    def _peeked(self) -> int:
        return len(self.names) + 1

    _next_name = ""

    def hear_join(self, heard: Input) -> None:
        member, instance = heard.option("member"), heard.option("instance") or None
        changes: dict[str, Any] = {
            "group_id": " ".join(heard.words[:1]),
            "member_id": member,
            "instance_id": instance,
            "client_id": "client",
            "client_host": "/127.0.0.1",
            "session_timeout_ms": milliseconds(heard.option("session", f"{SESSION}ms")),
            "rebalance_timeout_ms": milliseconds(heard.option("rebalance", f"{REBALANCE}ms")),
            "protocol_type": heard.option("type", "consumer"),
            "protocols": RANGE,
            "reason": heard.option("reason") or None,
            "requires_member_id": heard.flag("requires-id"),
            "can_skip_assignment": heard.flag("can-skip"),
        }
        protocols = heard.option("protocols", "-")
        if protocols != "-":
            changes["protocols"] = protocols_of(protocols)
        self.ask(heard, JoinRequest, member or instance or "", **changes)

    def hear_sync(self, heard: Input) -> None:
        group, *assignments = heard.words
        member = heard.option("member")
        self.ask(
            heard,
            SyncRequest,
            member,
            group_id="" if group == "no-name" else group,
            generation=heard.number("generation"),
            member_id=member,
            instance_id=heard.option("instance") or None,
            protocol_type=heard.option("type") or None,
            protocol_name=heard.option("protocol") or None,
            assignments=[(name, assignment_of(data)) for name, _, data in map(_split, assignments)],
        )

    def hear_heartbeat(self, heard: Input) -> None:
        """Send a heartbeat of each member; with `every` and `times`, again and again. Equal answers are told once."""
        members = heard.option("member").split(",")
        pause, times = milliseconds(heard.option("every")), heard.number("times", 1)
        group, generation = heard.words[0], heard.number("generation")
        group_id, instance = "" if group == "no-name" else group, heard.option("instance") or None
        told: list[str] = []
        for _ in range(times):
            before, self.lines = self.lines, []
            self.pass_time(pause)
            for member in members:
                self.ask(
                    heard,
                    HeartbeatRequest,
                    member,
                    group_id=group_id,
                    generation=generation,
                    member_id=member,
                    instance_id=instance,
                )
            if self.lines == told:
                self.lines = before
            else:
                told, self.lines = self.lines, before + self.lines

    def hear_leave(self, heard: Input) -> None:
        group, *members = heard.words
        reason = heard.option("reason") or None
        leaving = []
        for each in members:
            member, _, instance = each.partition("/")
            leaving.append(LeavingMember(member, instance or None, reason))
        group_id = "" if group == "no-name" else group
        self.ask(heard, LeaveRequest, group_id=group_id, members=leaving)

    def hear_commit(self, heard: Input) -> None:
        group, *offsets = heard.words
        member = heard.option("member")
        metadata, epoch = expanded(heard.option("metadata")), heard.number("leader-epoch", -1)
        topics: dict[str, list[OffsetToCommit]] = {}
        for each in offsets:
            name, _, value = _split(each)
            value, _, own = value.partition("/")
            tp = partition_of(name)
            row = OffsetToCommit(tp.partition, int(value), epoch, expanded(own) or metadata)
            topics.setdefault(tp.topic, []).append(row)
        producer = None
        if producer_id := heard.option("producer"):
            epoch_of, guard = heard.number("epoch", 3), heard.number("guard", 11)
            producer = TransactionalProducer(int(producer_id), epoch_of, guard)
        self.ask(
            heard,
            CommitRequest,
            member,
            group_id="" if group == "no-name" else group,
            generation=heard.number("generation", -1),
            member_id=member,
            instance_id=heard.option("instance") or None,
            topics=list(topics.items()),
            retention_time_ms=milliseconds(heard.option("retention", "-1ms")),
            producer=producer,
            transactional_id=heard.option("in"),
        )

    def hear_fetch(self, heard: Input) -> None:
        is_stable = heard.flag("stable")
        groups: list[tuple[str, Any]] = []
        for each in heard.words:
            group, _, named = each.partition(":")
            partitions = by_topic(named.split(",")) if named else None
            groups.append(("" if group == "no-name" else group, partitions))
        self.ask(heard, FetchOffsetsRequest, groups=groups, require_stable=is_stable)

    def hear_delete_offsets(self, heard: Input) -> None:
        group, *partitions = heard.words
        group_id = "" if group == "no-name" else group
        self.ask(heard, DeleteOffsetsRequest, group_id=group_id, partitions=by_topic(partitions))

    def hear_describe(self, heard: Input) -> None:
        names = ["" if name == "no-name" else name for name in heard.words]
        self.ask(heard, DescribeGroupsRequest, group_ids=names)

    def hear_list(self, heard: Input) -> None:
        self.ask(heard, ListGroupsRequest, states=heard.words)

    def hear_delete(self, heard: Input) -> None:
        names = ["" if name == "no-name" else name for name in heard.words]
        self.ask(heard, DeleteGroupsRequest, group_ids=names)

    # ---- time and appends

    def hear_wait(self, heard: Input) -> None:
        self.pass_time(milliseconds(heard.words[0]))

    def pass_time(self, ms: int) -> None:
        self.began = self.now
        self.advance(ms)

    def wake(self) -> None:
        at = len(self.lines)
        super().wake()
        if len(self.lines) > at:
            self.lines.insert(at, f"after {self.now - self.began} ms:")

    def hear_next(self, heard: Input) -> None:
        assert heard.flag("deadline")
        due = self.coordinator.next_deadline()
        self.lines.append("never" if due is None else f"in {due - self.now} ms")

    def hear_appends(self, heard: Input) -> None:
        self.holds = heard.flag("wait")
        if heard.flag("fail"):
            self.append_error = ErrorCode[heard.option("error")]
        if heard.flag("succeed"):
            self.append_error = 0

    def hear_written(self, heard: Input) -> None:
        self.end_append(heard, 0)

    def hear_failed(self, heard: Input) -> None:
        self.end_append(heard, ErrorCode[heard.option("error")])

    def end_append(self, heard: Input, error: int) -> None:
        for number in map(int, heard.words):
            (append,) = [each for each in self.held if self.numbers.get(each.token) == number]
            self.held.remove(append)
            self.finish(append, error)

    def verify(self, question: VerifyTransaction) -> None:
        if self.questions is None:
            super().verify(question)
            return
        self.questions.append(question)
        producer = question.producer
        self.lines.append(
            f"question {len(self.questions)}: is partition {question.partition} in the transaction of "
            f"{question.transactional_id}, producer {producer.producer_id} epoch {producer.producer_epoch}?"
        )

    def hear_verifications(self, heard: Input) -> None:
        assert heard.flag("wait")
        self.questions = []

    def hear_verified(self, heard: Input) -> None:
        assert self.questions is not None
        question = self.questions[int(heard.words[0]) - 1]
        name = heard.option("error")
        error = ErrorCode[name] if name else ErrorCode.NONE
        self.handle(Outcome(question.token, (error, heard.number("guard"))))

    # ---- partitions

    def hear_unload(self, heard: Input) -> None:
        for number in map(int, heard.words):
            self.unload(number)

    def hear_lead(self, heard: Input) -> None:
        epoch = heard.number("epoch")
        for number in map(int, heard.words):
            self.lead(number, epoch)

    def hear_begin_load(self, heard: Input) -> None:
        event = LeadershipBegun(int(heard.words[0]), heard.number("epoch"))
        commands = self.coordinator.handle(event, self.now)
        is_needed = [isinstance(command, LoadPartition) for command in commands] == [True]
        self.lines.append("the host reads the partition" if is_needed else "it is loaded already")

    def hear_read(self, heard: Input) -> None:
        """Pass records to the load of partition 0: those of the log, or one that the input names."""
        epoch, producer = heard.number("epoch", 1), heard.number("producer", -1)
        if heard.flag("log"):
            records = [LoadedRecord(*each) for each in self.log[0]]
        else:
            records = [LoadedRecord(*_record_of(heard.words), producer)]
        self.handle(RecordsRead(0, epoch, records))

    def hear_loaded(self, heard: Input) -> None:
        count = self.context.partition_count
        self.handle(LoadFinished(int(heard.words[0]), heard.number("epoch", 1), count))

    def hear_transaction_ended(self, heard: Input) -> None:
        is_committed = heard.flag("committed")
        assert is_committed or heard.flag("aborted")
        self.end_transaction(heard.number("producer"), is_committed, heard.number("partition"))

    def hear_delete_topics(self, heard: Input) -> None:
        self.handle(TopicsDeleted(set(heard.words)))

    # ---- what the coordinator knows

    def hear_group(self, heard: Input) -> None:
        group = self.context.groups[heard.words[0]]
        self.lines.append(f"{group.group_id} is {state(group)}")
        for one in group.members.values():
            self.lines.append(
                f"  {one.member_id}"
                + options(
                    instance=one.instance_id,
                    session=f"{one.session_timeout_ms}ms",
                    rebalance=f"{one.rebalance_timeout_ms}ms",
                    protocols=[name + metadata(data) for name, data in one.protocols],
                    assignment=assigned(one.assignment),
                )
            )

    def hear_report(self, heard: Input) -> None:
        told = self.coordinator.explain(heard.words[0], self.now)
        report = told.pop("group")
        self.lines.append(f"partition={told['partition']} {error_of(told['error'])}")
        if report is None:
            return
        members = report.pop("members")
        self.lines += [f"{name}: {value}" for name, value in report.items() if value]
        self.lines += [
            f"member {one.pop('member')}:{options(**{k: v if v is None else str(v) for k, v in one.items()})}"
            for one in members
        ]


def _split(text: str) -> tuple[str, str, str]:
    return text.partition(":")


def _record_of(words: list[str]) -> tuple[bytes | None, bytes | None]:
    """Return a record: `offset g t-0:5`, `tombstone g t-0`, `group-tombstone g`, or `bytes KEY VALUE` (hexadecimal)."""
    kind, *words = words
    if kind == "bytes":
        key, value = (None if each == "none" else bytes.fromhex(each) for each in words)
        return key, value
    if kind == "group-tombstone":
        return group_metadata_key(words[0]), None
    named, _, value = _split(words[1])
    key = offset_commit_key(words[0], partition_of(named))
    if kind == "tombstone":
        return key, None
    assert kind == "offset"
    return key, offset_commit_value(OffsetAndMetadata(int(value), commit_timestamp=1))


@pytest.mark.parametrize("scenario", scenarios(__file__))
def test_group_coordinator_answers_as_the_transcript_tells(
    scenario: Path, rewrite: bool, caplog: pytest.LogCaptureFixture
) -> None:
    play(scenario, Player(caplog), rewrite=rewrite)
