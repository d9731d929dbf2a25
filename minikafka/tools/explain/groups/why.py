"""Explanations of a consumer group's problems. Each finding has causes: members, brokers or ledger lines.

`explain_group` depends only on a `GroupEvidence`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from minikafka.base.errors import ErrorCode, code_name
from minikafka.base.model import TopicPartition
from minikafka.base.names import listed
from minikafka.deciders.groups import commands
from minikafka.tools.cluster.observation.causes import skipped_text
from minikafka.tools.explain.evidence import Answer, PartitionEvidence
from minikafka.tools.explain.finding import Finding, root_findings
from minikafka.tools.explain.groups.evidence import GroupEvidence, Lag
from minikafka.tools.explain.groups.history import HistoryEntry, rebalances
from minikafka.tools.explain.groups.words import (
    cause_of,
    client_of,
    count,
    describe,
    duration,
    named,
)
from minikafka.tools.explain.past import Reference, reference
from minikafka.tools.explain.trace import Line
from minikafka.tools.explain.why import explain, held_transactions

SLOW_MS: Final = 5_000
"""A longer rebalance is a problem. Members learn of a rebalance with their next heartbeat, within 3 s."""
UNWRITTEN_MS: Final = 30_000
"""A failed write of a commit is reported for this long, or until a later commit is written."""
RECENT_MS: Final = 5 * 60_000
"""Maximum age of the rebalances and refused commits that are explained."""
_RETURNS_MIN: Final = 2
"""A client that was removed and joined again at least this number of times is in a loop."""
_REPEATS_MIN: Final = 3
"""A member that causes at least this number of rebalances for one reason is in a loop."""
_SHOWN: Final = 5
"""Maximum number of members, partitions or clients about which one kind of finding is reported."""
_PREPARING: Final = "PreparingRebalance"
_COMPLETING: Final = "CompletingRebalance"
_STABLE: Final = "Stable"
_EMPTY: Final = "Empty"
_COMINGS_AND_GOINGS: Final = (commands.MEMBER_ADDED, commands.MEMBER_REMOVED)
_STEADY: Final = (commands.JOINED, commands.LEFT)
"""Causes of normal rebalances. They are a problem only if the same client leaves and joins repeatedly."""


def explain_group(evidence: GroupEvidence) -> list[Finding]:
    """Return the findings about the group: problems and remarks; [] if there is nothing to report."""
    found = [*root_findings(evidence.causes), *_coordinator(evidence), *_skipped_batches(evidence)]
    if evidence.report is not None:
        found += [*_rebalance(evidence, evidence.report), *_members(evidence, evidence.report)]
        found += unstable_offsets(evidence, evidence.report)
    found += [*_loop(evidence), *_refusals(evidence), *held_back_members(evidence)]
    return [*found, *finished_partitions(evidence), *_away(evidence), *_lags(evidence)]


def _recent(evidence: GroupEvidence, lines: Sequence[Line]) -> list[Line]:
    return [line for line in lines if evidence.wall_ms - line["time"] <= RECENT_MS]


# The coordinator.


def _coordinator(evidence: GroupEvidence) -> Iterator[Finding]:
    if evidence.coordinator is not None:
        return
    name = f"__consumer_offsets-{evidence.partition}"
    if evidence.loading is not None:
        broker = evidence.loading
        text = f"broker {broker} is loading {name}, which holds the group; until then it answers no request"
        yield Finding("loading", text, (broker,), because=_home(evidence))
    elif not evidence.answers:
        yield Finding("no-broker", "no broker answers", because=_home(evidence))
    else:
        text = f"the group has no coordinator: no broker that answers leads {name}"
        yield Finding("no-coordinator", text, because=_home(evidence))


def _skipped_batches(evidence: GroupEvidence) -> Iterator[Finding]:
    """Yield a finding for each corrupt batch in the group's partition of __consumer_offsets."""
    for broker, answer in evidence.answers.items():
        for batch in answer.get("skipped_batches", ()):
            yield Finding("corrupt-records", skipped_text(broker, batch), (broker,))


def _home(evidence: GroupEvidence) -> tuple[Finding, ...]:
    if evidence.home is None:
        return ()
    if not evidence.home.is_known:
        return (Finding("no-offsets-topic", "the topic __consumer_offsets does not exist yet"),)
    return _partition(evidence.home)


def _partition(evidence: PartitionEvidence) -> tuple[Finding, ...]:
    """Return the problems of a partition, without those of the whole cluster, which the group has too."""
    found = explain(replace(evidence, causes=[c for c in evidence.causes if c.broker is not None]))
    return tuple(finding for finding in found if finding.is_problem)


# The current rebalance.


def _rebalance(evidence: GroupEvidence, report: Answer) -> Iterator[Finding]:
    """Yield a finding about the current rebalance, if there is one.

    The causes in the finding explain why the rebalance is not complete: for example, a member has not joined, or
    the assignment is still being written.
    """
    if report["state"] not in (_PREPARING, _COMPLETING):
        return
    started = _start_of(evidence.history, report["since"])
    began = report["since"] if started is None else started["time"]
    took = evidence.wall_ms - began
    why = "" if started is None else f": {cause_of(started)}"
    waits = (
        _waiting_to_join(report, took)
        if report["state"] == _PREPARING
        else _waiting_to_assign(evidence, report)
    )
    events = () if started is None else (reference(started),)
    text = f"the group has been rebalancing for {duration(took)}{why}"
    is_normal = took < SLOW_MS or report["waits_for_more"]
    yield Finding("rebalancing", text, (), events, tuple(waits), is_problem=not is_normal)


def _start_of(history: Sequence[HistoryEntry], since: int) -> Line | None:
    """Return the line about the start of the rebalance whose current phase began at `since` (Unix ms).

    Return None if no ledger contains this line, for example because the coordinator has not written it yet.
    """
    last = next((entry for entry in reversed(history) if entry.is_rebalance), None)
    if last is None or not (last.is_open or last.lines[-1]["time"] >= since):
        return None
    return last.start


def _waiting_to_join(report: Answer, took: int) -> Iterator[Finding]:
    if report["waits_for_more"]:
        text = f"it waits {duration(report['due_ms'])} more for further members (group.initial.rebalance.delay.ms)"
        yield Finding("initial-delay", text, is_problem=False)
        return
    for member in [each for each in report["members"] if not each["joined"]][:_SHOWN]:
        yield _not_rejoined(member, report["due_ms"], took)
    if report["pending_members"]:
        new = count(report["pending_members"], "new member")
        text = f"it waits for {new} to send JoinGroup again, with the member id from the first response"
        yield Finding("pending-members", text)


def _not_rejoined(member: Answer, due_ms: int | None, took: int) -> Finding:
    """Return the finding about a member that has not joined the rebalance again, with the time of its removal.

    A member without heartbeats is removed at the end of its session, or at the end of the rebalance if that is
    earlier. `due_ms`: time until the end of the rebalance. `took`: duration of the rebalance so far.
    """
    heard, timeout = member["heard_ms"], member["session_timeout_ms"]
    is_alive = heard is not None and heard < min(took, timeout / 2)
    session_ms = None if heard is None or is_alive else timeout - heard
    removal_ms = min((ms for ms in (due_ms, session_ms) if ms is not None), default=None)
    until = "" if removal_ms is None else f"; it is removed in {duration(max(removal_ms, 0))}"
    text = f"{named(member)} has not joined again{until}"
    if heard is None:
        return Finding("not-rejoined", text)
    sign = f"its last request came {duration(heard)} ago"
    if is_alive:
        sign += ": it sends heartbeats, but its application does not poll (probably it is busy with records)"
        return Finding("not-rejoined", text, because=(Finding("heartbeats-only", sign),))
    if session_ms == removal_ms:
        sign += f"; without a heartbeat its session of {duration(timeout)} ends then"
    else:
        sign += "; then the rebalance ends without it (max.poll.interval.ms)"
    return Finding("not-rejoined", text, because=(Finding("silent-member", sign),))


def _waiting_to_assign(evidence: GroupEvidence, report: Answer) -> Iterator[Finding]:
    if report["is_writing"]:
        text = f"the assignment is being written to __consumer_offsets-{evidence.partition}"
        yield Finding("writing-assignment", text, because=_home(evidence))
        return
    leader = next((m for m in report["members"] if m["member"] == report["leader"]), None)
    if leader is not None and not leader["synced"]:
        text = f"the leader, {named(leader)}, has not sent the assignment"
        yield Finding("no-assignment", text)


# Members and partitions.


def _members(evidence: GroupEvidence, report: Answer) -> Iterator[Finding]:
    if report["state"] == _EMPTY and report["protocol_type"]:
        last = [entry for entry in rebalances(evidence.history) if entry.find(commands.EMPTY)][-1:]
        since = (
            "" if report["since"] < 0 else f" for {duration(evidence.wall_ms - report['since'])}"
        )
        text = f"the group has had no member{since}"
        text += "".join(f": {cause_of(entry.start)}" for entry in last if entry.start is not None)
        has_lag = any(lag.records for lag in evidence.lags or ())
        yield Finding("no-members", text, (), _events(last), is_problem=has_lag)
    existing = {topic for topic, _, _ in evidence.answers[evidence.coordinator or 0]["leaders"]}
    missing = [topic for topic in report["topics"] or () if topic not in existing]
    if missing:
        text = f"members subscribe to {', '.join(missing[:_SHOWN])}, which does not exist"
        yield Finding("no-such-topic", text)
    idle = [member for member in report["members"] if member["assigned"] == {}]
    if report["state"] == _STABLE and idle:
        text = f"{len(idle)} of {count(len(report['members']), 'member')} have no partition"
        yield Finding("idle-members", text, is_problem=False)


def _events(entries: Sequence[HistoryEntry]) -> tuple[Reference, ...]:
    return tuple(reference(entry.start or entry.lines[0]) for entry in entries)


def _away(evidence: GroupEvidence) -> Iterator[Finding]:
    for tp, partition in list(evidence.away.items())[:_SHOWN]:
        owner = evidence.owner(tp)
        reader = "" if owner is None else f" ({named(owner)} is assigned to it)"
        text = f"{tp} has no leader that answers: nobody can read it{reader}"
        yield Finding("leader-away", text, because=_partition(partition))
    if len(evidence.away) > _SHOWN:
        text = f"{len(evidence.away) - _SHOWN} more partitions have no leader that answers"
        yield Finding("leader-away", text)


# Loops.


def _loop(evidence: GroupEvidence) -> Iterator[Finding]:
    """Yield a finding about repeated rebalances, if the same clients cause them again and again."""
    recent = [
        entry
        for entry in rebalances(evidence.history)
        if entry.start is not None and evidence.wall_ms - entry.time <= RECENT_MS
    ]
    because = [*_returning(recent), *_repeating(recent)]
    if because:
        text = f"the group rebalanced {len(recent)} times in the last {duration(RECENT_MS)}"
        yield Finding("rebalance-loop", text, (), _events(recent[-3:]), tuple(because))


def _returning(recent: Sequence[HistoryEntry]) -> Iterator[Finding]:
    """Yield a finding for each client that was removed and joined again at least _RETURNS_MIN times.

    If the only member leaves with LeaveGroup, this removal is not counted, because no other member has to wait.
    """
    causes: defaultdict[str, list[Line]] = defaultdict(list)
    returns: Counter[str] = Counter()
    gone: Counter[str] = Counter()
    for entry in recent:
        for line in entry.lines:
            client = _client(line) if line["fact"] in _COMINGS_AND_GOINGS else ""
            if line["fact"] == commands.MEMBER_ADDED and gone[client]:
                gone[client] -= 1
                returns[client] += 1
            elif line["fact"] == commands.MEMBER_REMOVED and _disturbs(entry, line):
                causes[client].append(line)
                gone[client] += 1
    for client, times in returns.most_common(_SHOWN):
        if times >= _RETURNS_MIN:
            reasons = Counter(f"{line['trigger']}{_said(line)}" for line in causes[client])
            words = ", ".join(
                f"{number} times {reason}" for reason, number in reasons.most_common()
            )
            text = f"{client} was removed {len(causes[client])} times ({words}) and joined again {times} times"
            yield Finding("returning-client", text, (), (reference(causes[client][-1]),))


def _disturbs(entry: HistoryEntry, removal: Line) -> bool:
    """True if a member's removal made other members wait, or if the removed member did not send LeaveGroup."""
    has_others: bool = entry.start is not None and entry.start["members"] > 0
    return has_others or removal["trigger"] != commands.LEFT


def _client(line: Line) -> str:
    if line["instance"] is not None:
        return f"static member {line['instance']}"
    return f"{line['client']} at {line['host'].removeprefix('/')}"


def _said(line: Line) -> str:
    return f' ("{line["reason"]}")' if line.get("reason") else ""


def _repeating(recent: Sequence[HistoryEntry]) -> Iterator[Finding]:
    """Yield a finding for each client that caused at least _REPEATS_MIN rebalances for one reason.

    Rebalances after a join, a leave or an expired session are not counted. At most _SHOWN findings.
    """
    starts = [entry.start for entry in recent if entry.start is not None]
    found = Counter(
        (client_of(line["member"]), line["trigger"])
        for line in starts
        if line["trigger"] not in (*_STEADY, commands.SESSION_EXPIRED)
    )
    for (client, cause), times in found.most_common(_SHOWN):
        if times >= _REPEATS_MIN:
            last = next(
                line
                for line in reversed(starts)
                if (client_of(line["member"]), line["trigger"]) == (client, cause)
            )
            text = f"{times} times because of {client}: {cause}; last: {cause_of(last)}"
            yield Finding("repeated-cause", text, (), (reference(last),))


# Commits.


def _refusals(evidence: GroupEvidence) -> Iterator[Finding]:
    """Yield findings about refused commits, and about failed writes of commits.

    If several commits of one member were refused with the same error, only the last refusal gets a finding.
    """
    lines = _recent(evidence, [entry.lines[0] for entry in evidence.history])
    refused: dict[tuple[str, int], Line] = {}
    for line in lines:
        if line["fact"] == commands.COMMIT_REFUSED:
            refused[line["member"], line["error"]] = line
    for line in list(refused.values())[-_SHOWN:]:
        is_normal = line["error"] == ErrorCode.REBALANCE_IN_PROGRESS
        yield Finding(
            "commit-refused",
            describe(line),
            (),
            (reference(line),),
            tuple(_why_refused(evidence, line)),
            is_problem=not is_normal,
        )
    yield from _unwritten(evidence, lines)


def _unwritten(evidence: GroupEvidence, lines: Sequence[Line]) -> Iterator[Finding]:
    """Yield a finding if writes of commits failed in the last UNWRITTEN_MS, and no later commit was written."""
    report = evidence.report
    written = max((time for *_, time in report["offsets"]), default=-1) if report else -1
    since = max(written, evidence.wall_ms - UNWRITTEN_MS)
    failed = [
        line
        for line in lines
        if line["fact"] == commands.APPEND_FAILED
        and line["what"] == "offsets"
        and line["time"] > since
    ]
    if failed:
        text = (
            f"{count(len(failed), 'commit')} could not be written to __consumer_offsets, "
            f"last: {code_name(failed[-1]['error'])}"
        )
        yield Finding("commit-not-written", text, (), (reference(failed[-1]),), _home(evidence))


def _why_refused(evidence: GroupEvidence, line: Line) -> Iterator[Finding]:
    """Yield the cause of a refused commit: an earlier removal of the member, or a cause implied by the error."""
    removals = [
        each
        for entry in evidence.history
        for each in entry.lines
        if each["fact"] == commands.MEMBER_REMOVED
        and each["member"] == line["member"]
        and each["time"] <= line["time"]
    ]
    if removals:
        yield Finding("removed-member", describe(removals[-1]), (), (reference(removals[-1]),))
    elif line["error"] == ErrorCode.ILLEGAL_GENERATION:
        text = f"the group was in generation {line['generation']}: the member missed a rebalance"
        yield Finding("old-generation", text)
    elif line["error"] == ErrorCode.UNKNOWN_MEMBER_ID and line["of_generation"] < 0:
        yield Finding("not-a-member", "the group has members, and the client is none of them")


# Lag.


def _lags(evidence: GroupEvidence) -> Iterator[Finding]:
    """Yield findings about lag, except where transactions may be the cause (`held_back_members`)."""
    excused = {*evidence.held, *evidence.finished}
    behind = [lag for lag in evidence.lags or () if lag.records and lag.tp not in excused]
    behind.sort(key=lambda lag: -lag.records)
    for lag in [lag for lag in behind if lag.grows or lag.is_stuck][:_SHOWN]:
        yield _lag(evidence, lag)
    steady = [lag for lag in behind if not (lag.grows or lag.is_stuck)]
    if steady:
        total = sum(lag.records for lag in steady)
        text = (
            f"the lag of {count(len(steady), 'partition')} is {total} records in all; "
            "it did not grow from commit to commit"
        )
        yield Finding("lag", text, is_problem=False)
    if evidence.lags is None and evidence.report is not None:
        yield Finding("lag-unknown", "the lag could not be read in time", is_problem=False)


def _lag(evidence: GroupEvidence, lag: Lag) -> Finding:
    owner = evidence.owner(lag.tp)
    reader = "no member is assigned to it" if owner is None else f"assigned to {named(owner)}"
    if lag.is_stuck:
        ago = duration(lag.now - lag.committed_at)
        text = (
            f"{lag.tp} has {lag.records} records after the committed offset {lag.committed}, "
            f"and no commit for {ago}; {reader}"
        )
        return Finding("lag-stuck", text)
    first = lag.past[0]
    text = (
        f"the lag of {lag.tp} grows: {first.lag} records {duration(lag.now - first.time)} ago, "
        f"{lag.records} now; {reader}"
    )
    return Finding("lag-grows", text)


"""Maximum number of partitions about which a finding is reported."""


def held_back_members(evidence: GroupEvidence) -> Iterator[Finding]:
    """Yield a finding for each partition where the group has read up to the last stable offset."""
    lags = {lag.tp: lag for lag in evidence.lags or ()}
    for tp, partition in list(evidence.held.items())[:_SHOWN]:
        yield _held_back(evidence, tp, partition, lags.get(tp))
    if len(evidence.held) > _SHOWN:
        text = f"open transactions hold back {len(evidence.held) - _SHOWN} more partitions"
        yield Finding("held-back", text)


def _held_back(
    evidence: GroupEvidence,
    tp: TopicPartition,
    partition: PartitionEvidence | None,
    lag: Lag | None,
) -> Finding:
    found = [] if partition is None else held_transactions(partition)
    leader = None if partition is None else partition.leader_replica
    upto = ""
    if leader is not None:
        stable, end = leader["last_stable_offset"], leader["high_watermark"]
        upto = f" {stable}, {count(end - stable, 'offset')} before the high watermark {end}"
    text = (
        f"the group has read {tp} up to the last stable offset{upto}: if its members read with read_committed, which "
        "brokers do not know, they wait for the end of a transaction"
    )
    if lag is not None and lag.is_stuck:
        owner = evidence.owner(tp)
        reader = "no member is assigned to it" if owner is None else f"{named(owner)} is behind"
        text += f"; if not, {reader}: no commit for {duration(lag.now - lag.committed_at)}"
    because = tuple(reason for finding in found for reason in finding.because)
    is_stuck = any(reason.is_problem for reason in because)
    is_problem = is_stuck or not because or (lag is not None and lag.is_stuck)
    return Finding("held-back", text, because=because, is_problem=is_problem)


def finished_partitions(evidence: GroupEvidence) -> Iterator[Finding]:
    """Yield a remark about partitions whose lag consists of aborted records and markers."""
    if evidence.finished:
        text = (
            f"no committed record follows the committed offset of {listed(evidence.finished, _SHOWN)}: their lag is "
            "aborted records and markers, which members that read with read_committed do not get"
        )
        yield Finding("only-aborted", text, is_problem=False)


def unstable_offsets(evidence: GroupEvidence, report: Answer) -> Iterator[Finding]:
    """Yield a finding about offsets that were committed in a transaction that is still open.

    Until it ends, a member that starts with read_committed gets UNSTABLE_OFFSET_COMMIT instead of the offset.
    """
    found = [] if evidence.home is None else held_transactions(evidence.home)
    because = tuple(reason for finding in found for reason in finding.because)
    if not report["unstable"] or not because:
        return
    partitions = listed([TopicPartition(*each) for each in report["unstable"]], _SHOWN)
    text = (
        f"offsets of {partitions} were committed in a transaction that has not ended: members that read with "
        "read_committed get no offset of these partitions when they start"
    )
    is_problem = any(reason.is_problem for reason in because)
    yield Finding("unstable-offsets", text, because=because, is_problem=is_problem)
