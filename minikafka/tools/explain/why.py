"""Explanations of a partition's problems: findings, each with its causes, down to brokers and ledger lines.

`explain` depends only on a `PartitionEvidence`, so that tests need no cluster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Final

from minikafka.base.model import NO_LEADER
from minikafka.tools.cluster.observation.causes import skipped_text
from minikafka.tools.explain.evidence import DOWN, PAUSED, SILENT, PartitionEvidence
from minikafka.tools.explain.finding import Finding, root_findings
from minikafka.tools.explain.leaders import (
    held_brokers,
    not_leading,
    opening_leader,
    unfinished_requests,
    waiting_replicas,
)
from minikafka.tools.explain.open_transactions import held_back
from minikafka.tools.explain.past import Reference
from minikafka.tools.explain.serving import unseen_leader, waiting, why_not_serving
from minikafka.tools.explain.trace import ids

_QUIET_MS: Final = 1_500
"""A follower without a fetch for this long has a problem: an idle follower fetches every 500 ms."""


def explain(evidence: PartitionEvidence, offset: int | None = None) -> list[Finding]:
    """Return the findings about the partition, and about `offset` if given; [] if there is nothing to report."""
    found = [*root_findings(evidence.causes, _concerned(evidence))]
    if evidence.has_controller:
        found += _deletion(evidence)
    else:
        found += unfinished_requests(evidence, why_not_serving)
    if not _is_being_deleted(evidence):
        for part in (
            _leader,
            _under_replicated,
            _writes,
            held_transactions,
            _reassignment,
            _preferred,
            _compaction,
            _skipped_batches,
        ):
            found += part(evidence)
    if offset is not None:
        found += _offset(evidence, offset)
    return found


def _concerned(evidence: PartitionEvidence) -> set[int]:
    """Return the brokers whose links can hold up the partition: its replicas, its leader and the controller."""
    found = {*evidence.assignment.replicas, *evidence.isr, evidence.leader}
    if evidence.nodes is not None and evidence.nodes.controller is not None:
        found.add(evidence.nodes.controller)
    elif evidence.controller is not None:
        found.add(evidence.controller["broker"])
    return found


# One broker, one replica.


def why_behind(evidence: PartitionEvidence, broker: int) -> list[Finding]:
    """Return findings that explain why a working broker's replica is not in the ISR.

    Return [] if the leader has no data about the replica.
    """
    leader, follower = evidence.leader_replica, evidence.follower(broker)
    if leader is None:
        text = f"broker {broker} is alive, but there is no leader to fetch from"
        return [Finding("no-leader-to-follow", text)]
    if follower is None:
        return []
    end, own = leader["log_end_offset"], follower["log_end_offset"]
    fetched = follower["last_fetch_ms"]
    limits = tuple(_throttles(evidence, [evidence.leader, broker]))
    if own is None:
        text = (
            f"broker {broker} has not fetched from leader {evidence.leader} in epoch "
            f"{evidence.leader_epoch}{waiting(evidence, broker)}"
        )
        asked = tuple(evidence.past.oldest_unanswered(broker))
        return [Finding("not-fetching", text, (broker,), asked, limits)]
    if own < end:
        ago = follower["last_caught_up_ms"]
        text = (
            f"broker {broker} is behind by {end - own}: its log ends at {own}, the leader's at {end}; "
            f"it was caught up {_ago(ago)}"
        )
        return [Finding("behind", text, (broker,), because=limits)]
    if fetched is not None and fetched > _QUIET_MS:
        text = f"broker {broker} has all records but last fetched {_ago(fetched)}"
        return [Finding("not-fetching", text, (broker,))]
    pending = leader["pending_isr"]
    if pending and broker in pending["isr"] and broker not in evidence.isr:
        text = f"broker {broker} is caught up; leader {evidence.leader} is writing the ISR {ids(pending['isr'])}"
        return [Finding("isr-change-pending", text, (evidence.leader,))]
    return [Finding("caught-up", f"broker {broker} is caught up and may join at its next fetch")]


def _ago(ms: int) -> str:
    return f"{ms} ms ago" if ms < 10_000 else f"{ms // 1000} s ago"


def _out_of_sync(evidence: PartitionEvidence, brokers: Iterable[int]) -> Iterator[Finding]:
    for broker in brokers:
        yield Finding(
            "out-of-sync",
            f"replica {broker} is not in the ISR",
            (broker,),
            tuple(evidence.past.left_isr(broker)),
            tuple(why_not_serving(evidence, broker) or why_behind(evidence, broker)),
        )


def _controller(evidence: PartitionEvidence) -> list[Finding]:
    """Return a finding that explains why the controller makes no progress; [] if it is idle and reachable.

    In the mode leaders, return findings that explain why the brokers make no progress.
    """
    if not evidence.has_controller:
        return held_brokers(evidence)
    if evidence.controller is None:
        if evidence.nodes is not None and evidence.nodes.controller is not None:
            broker = evidence.nodes.controller
            because = tuple(why_not_serving(evidence, broker))
            text = f"the controller, broker {broker}, does not answer"
            return [Finding("controller-silent", text, (broker,), because=because)]
        known = [cause.sentence for cause in evidence.causes if cause.name == "no-controller"]
        return [Finding("no-controller", known[0] if known else "there is no active controller")]
    answer = evidence.controller_answer
    assert answer is not None
    broker = evidence.controller["broker"]
    if answer.get("held_at"):
        step = answer["held_at"]
        text = f"the controller, broker {broker}, is held at step {step}"
        events = evidence.past.last_step(step.partition(".")[0])
        from_step = (
            (Reference(events["cause"], f"{events['broker']}#{events['n']}"),) if events else ()
        )
        return [Finding("held-at-step", text, (broker,), from_step)]
    if evidence.controller["queue_size"]:
        count, state = evidence.controller["queue_size"], evidence.controller["state"]
        text = f"the controller, broker {broker}, is busy with {state}; {count} events wait"
        return [Finding("controller-busy", text, (broker,))]
    return []


# The questions.


def _leader(evidence: PartitionEvidence) -> list[Finding]:
    """Return a finding that explains why the partition has no leader; [] if the leader answers."""
    if evidence.leader_replica is not None:
        return opening_leader(evidence)
    leader = evidence.leader
    since = tuple(evidence.past.led_since()) if evidence.past.states else ()
    if unseen := unseen_leader(evidence):
        return unseen
    if leader != NO_LEADER and not why_not_serving(evidence, leader):
        if not evidence.has_controller:
            return [not_leading(evidence)]
        text = (
            f"broker {leader} was chosen to lead in epoch {evidence.leader_epoch} but does not lead yet"
            f"{waiting(evidence, leader)}"
        )
        asked = tuple(evidence.past.oldest_unanswered(leader))
        return [
            Finding("not-leading", text, (leader,), since + asked, tuple(_controller(evidence)))
        ]
    led = (
        "it has no leader" if leader == NO_LEADER else f"its leader, broker {leader}, cannot serve"
    )
    because = [*_no_candidate(evidence), *_controller(evidence), *waiting_replicas(evidence)]
    text = f"{evidence.tp} is offline: {led}"
    return [Finding("offline", text, (), since, tuple(because))]


def _no_candidate(evidence: PartitionEvidence) -> Iterator[Finding]:
    """Yield findings that explain why no replica can become the leader."""
    for broker in evidence.isr:
        reasons = why_not_serving(evidence, broker)
        if reasons:
            text = f"replica {broker} is in the ISR but cannot lead"
            yield Finding("isr-member-away", text, (broker,), because=tuple(reasons))
    outside = [broker for broker in evidence.assignment.replicas if broker not in evidence.isr]
    alive = [broker for broker in outside if not why_not_serving(evidence, broker)]
    if alive:
        setting = evidence.setting("unclean.leader.election.enable")
        allowed = "not known" if setting is None else str(setting).lower()
        some = (
            f"broker {alive[0]} is alive" if len(alive) == 1 else f"brokers {ids(alive)} are alive"
        )
        text = (
            f"{some} but outside the ISR {ids(evidence.isr)}, and may lack "
            f"acknowledged records; unclean.leader.election.enable is {allowed} "
            f"(minikafka elect --unclean accepts the loss)"
        )
        refusals = tuple(
            Reference(r["cause"], f"{r['broker']}#{r['n']}") for r in evidence.past.last_refusal()
        )
        yield Finding("unclean-only", text, (), refusals)


def _under_replicated(evidence: PartitionEvidence) -> list[Finding]:
    assignment = evidence.assignment
    missing = [
        b for b in assignment.replicas if b not in evidence.isr and b not in assignment.adding
    ]
    away = [finding for finding in _members_away(evidence) if evidence.leader_replica is not None]
    if not (missing or away) or not evidence.isr:
        return []
    count = len(assignment.replicas) - len(assignment.adding)
    text = (
        f"{evidence.tp} is under-replicated: {count - len(missing) - len(away)} of {count} replicas are in "
        f"sync (ISR {ids(evidence.isr)})"
    )
    return [Finding("under-replicated", text, because=(*_out_of_sync(evidence, missing), *away))]


def _members_away(evidence: PartitionEvidence) -> Iterator[Finding]:
    """Yield a finding for each ISR member whose broker or replica does not work.

    Such a replica stays in the ISR until its broker's session expires or the replica lags for too long. A replica
    that still fetches is no problem, even if its broker has lost its session.
    """
    for broker in evidence.isr:
        if _still_follows(evidence, broker):
            continue
        is_settled = (
            broker in evidence.assignment.replicas and broker not in evidence.assignment.adding
        )
        if is_settled and (reasons := why_not_serving(evidence, broker)):
            text = f"replica {broker} is still in the ISR but does not follow"
            yield Finding("isr-member-away", text, (broker,), because=tuple(reasons))


def _still_follows(evidence: PartitionEvidence, broker: int) -> bool:
    """True if the broker leads the partition, or has fetched from the leader within _QUIET_MS."""
    follower = evidence.follower(broker)
    fetched = follower["last_fetch_ms"] if follower else None
    found = evidence.brokers.get(broker)
    is_answering = found is not None and found.process not in (SILENT, PAUSED, DOWN)
    return broker == evidence.leader or (
        is_answering and fetched is not None and fetched <= _QUIET_MS
    )


def _writes(evidence: PartitionEvidence) -> list[Finding]:
    """Return a finding that explains why writes with acks=all are refused or wait.

    Return [] if no such write is refused or waits, or if no leader answers.
    """
    leader = evidence.leader_replica
    if leader is None:
        return []
    needed, isr = leader["min_isr"], leader["isr"]
    if len(isr) < needed:
        missing = [b for b in evidence.assignment.replicas if b not in isr]
        text = (
            f"writes with acks=all are refused (NOT_ENOUGH_REPLICAS): the ISR {ids(isr)} has "
            f"{len(isr)}, min.insync.replicas is {needed}"
        )
        return [Finding("too-few-in-sync", text, because=tuple(_out_of_sync(evidence, missing)))]
    behind = leader["log_end_offset"] - leader["high_watermark"]
    if behind <= 0:
        return []
    because = tuple(_holding_back(evidence, leader["log_end_offset"]))
    waiting = leader["waiting_connections"]
    text = (
        f"{behind} records are not acknowledged with acks=all: the high watermark is {leader['high_watermark']}, "
        f"the log ends at {leader['log_end_offset']}; producer connections that wait: {waiting}"
    )
    stuck = any(finding.is_problem for finding in because)
    return [Finding("not-acknowledged", text, because=because, is_problem=stuck)]


def held_transactions(evidence: PartitionEvidence) -> list[Finding]:
    """Return a finding with the transactions that hold back the last stable offset; [] if there is none."""
    leader = evidence.leader_replica
    if leader is None:
        return []
    silent = evidence.silent_coordinators()
    return held_back(evidence.tp, leader, evidence.open_transactions, silent, evidence.where)


def _holding_back(evidence: PartitionEvidence, upto: int) -> Iterator[Finding]:
    """Yield findings that explain why the high watermark has not reached the offset `upto`.

    The causes are a pending ISR change, and ISR members whose logs end below `upto`.
    """
    leader = evidence.leader_replica
    assert leader is not None
    pending = leader["pending_isr"]
    members = set(leader["isr"])
    if pending:
        members.update(pending["isr"])
        text = f"leader {evidence.leader} is writing the ISR {ids(pending['isr'])} ({pending['change']})"
        yield Finding("isr-change-pending", text, (evidence.leader,))
    for follower in leader["followers"]:
        broker, own = follower["broker"], follower["log_end_offset"]
        if broker not in members or (own is not None and own >= upto):
            continue
        away = why_not_serving(evidence, broker)
        fetched = follower["last_fetch_ms"]
        quiet = bool(away) or own is None or fetched is None or fetched > _QUIET_MS
        yield from away
        at = (
            "end is not known in this leader epoch"
            if own is None
            else f"ends at {own}, {upto - own} behind"
        )
        text = f"broker {broker} is in the ISR but has not fetched all records: its log {at}"
        member_since = tuple(evidence.past.joined_isr(broker))
        yield Finding("member-behind", text, (broker,), member_since, is_problem=quiet)


def _offset(evidence: PartitionEvidence, offset: int) -> list[Finding]:
    """Return a finding that explains whether consumers can read an offset, and why not."""
    leader = evidence.leader_replica
    if leader is None:
        return [Finding("offset-unknown", _offset_on_disk(evidence, offset), is_problem=False)]
    end, high_watermark = leader["log_end_offset"], leader["high_watermark"]
    if offset < leader["log_start_offset"]:
        text = f"offset {offset} was deleted: the log begins at {leader['log_start_offset']}"
        return [Finding("offset-deleted", text, is_problem=False)]
    if offset >= end:
        text = f"offset {offset} was never written: the log ends at {end}"
        return [Finding("offset-not-written", text, is_problem=False)]
    if leader.get("last_stable_offset", high_watermark) <= offset < high_watermark:
        text = (
            f"offset {offset} is visible only to consumers that read uncommitted records: the last stable offset is "
            f"{leader['last_stable_offset']}"
        )
        return [Finding("offset-not-stable", text, because=tuple(held_transactions(evidence)))]
    if offset < high_watermark:
        text = f"offset {offset} is visible: it is below the high watermark {high_watermark}"
        return [Finding("offset-visible", text, is_problem=False)]
    because = list(_holding_back(evidence, offset + 1))
    if len(leader["isr"]) < leader["min_isr"]:
        text = (
            f"the ISR {ids(leader['isr'])} is smaller than min.insync.replicas {leader['min_isr']}"
        )
        missing = [b for b in evidence.assignment.replicas if b not in leader["isr"]]
        reasons = tuple(_out_of_sync(evidence, missing))
        because.insert(0, Finding("too-few-in-sync", text, because=reasons))
    text = f"offset {offset} is not visible: the high watermark is {high_watermark}, the log ends at {end}"
    return [Finding("offset-not-visible", text, because=tuple(because))]


def _offset_on_disk(evidence: PartitionEvidence, offset: int) -> str:
    found_files = [
        f"the log on broker {broker} ends at {found.log_end_offset}"
        + (
            ""
            if found.high_watermark is None
            else f", high watermark {found.high_watermark} at the last checkpoint"
        )
        for broker, found in sorted(evidence.files.items())
        if found.log_end_offset is not None
    ]
    on_disk = "; ".join(found_files) or "nothing"
    return f"without a leader, it is unknown whether offset {offset} is visible; on disk: {on_disk}"


def _is_being_deleted(evidence: PartitionEvidence) -> bool:
    """True if the topic's deletion has begun, so that the replicas need no leader.

    In the mode leaders, also true for a partition that is being created.
    """
    if not evidence.has_controller:
        return evidence.nodes is not None and (
            evidence.nodes.is_marked or evidence.nodes.is_being_created
        )
    deletion = evidence.deletion
    if deletion is None or deletion["reassigning"]:
        return False
    return evidence.controller is not None or bool(deletion["replicas"])


def _deletion(evidence: PartitionEvidence) -> list[Finding]:
    """Return findings that explain why a topic that is or was marked for deletion still exists."""
    deletion = evidence.deletion
    marked = deletion is not None or (evidence.nodes is not None and evidence.nodes.is_marked)
    events = tuple(evidence.past.deletion_marked())
    topic = evidence.tp.topic
    if not marked:
        if events and evidence.setting("delete.topic.enable") is False:
            text = f"topic {topic} was marked for deletion; the mark was removed, as delete.topic.enable is false"
            return [Finding("deletion-disabled", text, events=events, is_problem=False)]
        return []
    because = list(_controller(evidence))
    # A controller that is held at a step has made decisions that no broker knows yet.
    if deletion is not None and "held-at-step" not in [finding.name for finding in because]:
        because += _holding_deletion(evidence, deletion)
    text = f"topic {topic} is marked for deletion and not deleted yet"
    return [Finding("not-deleted", text, events=events, because=tuple(because))]


def _holding_deletion(evidence: PartitionEvidence, deletion: Any) -> Iterator[Finding]:
    if deletion["reassigning"]:
        text = f"the reassignment of partitions {ids(deletion['reassigning'])} must finish first"
        yield Finding(
            "reassignment-first", text, events=tuple(evidence.past.reassignment_requested())
        )
    elif deletion["waits_for"]:
        yield Finding("deletion-waits", f"the deletion waits because of {deletion['waits_for']}")
    seen = set()
    for broker, _, state in deletion["replicas"]:
        if broker in seen:
            continue
        seen.add(broker)
        away = tuple(why_not_serving(evidence, broker))
        if state == "ReplicaDeletionStarted":
            text = f"broker {broker} was told to delete its replicas and has not answered"
            asked = tuple(evidence.past.oldest_unanswered(broker))
            yield Finding("deletion-unanswered", text, (broker,), asked, away)
        elif away:
            yield from away
        elif state == "ReplicaDeletionIneligible":
            text = f"broker {broker} could not delete its replicas"
            yield Finding("deletion-failed", text, (broker,))


def _reassignment(evidence: PartitionEvidence) -> list[Finding]:
    """Return findings that explain why a reassignment is not finished."""
    assignment = evidence.assignment
    events = tuple(evidence.past.reassignment_requested())
    asked = evidence.nodes.target if evidence.nodes else None
    if not assignment.is_being_reassigned:
        if asked is None or asked == assignment.replicas:
            return []
        text = f"the controller has not begun to move {evidence.tp} to {ids(asked)}"
        return [Finding("not-begun", text, (), events, tuple(_controller(evidence)))]
    text = (
        f"{evidence.tp} is being reassigned from {ids(assignment.origin)} to {ids(assignment.target)}"
        f" (adding {ids(assignment.adding)}, removing {ids(assignment.removing)})"
    )
    missing = [broker for broker in assignment.target if broker not in evidence.isr]
    because = [*_out_of_sync(evidence, missing), *_controller(evidence)]
    if not because:
        because.append(
            Finding(
                "finishing", "all target replicas are in sync: the reassignment is about to finish"
            )
        )
    return [Finding("reassigning", text, (), events, tuple(because))]


def _throttles(evidence: PartitionEvidence, brokers: Iterable[int]) -> Iterator[Finding]:
    """Yield a finding for each rate that limits the copies of the partition, with the brokers that have it."""
    rates: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for broker in brokers:
        found = evidence.brokers.get(broker)
        replica = found.replica if found else None
        for key, rate in (replica or {}).get("throttles", {}).items():
            rates[key, rate].append(broker)
    for (key, rate), limited in rates.items():
        commands = " and ".join(
            f"`minikafka configs set {key}=BYTES --broker {broker}{evidence.where}`"
            for broker in limited
        )
        some = f"broker{'s' if len(limited) > 1 else ''} {ids(limited)}"
        text = f"{key} of {some} limits the copies to {rate} bytes/s; {commands} raises the limit"
        yield Finding("throttled", text, tuple(limited))


def _preferred(evidence: PartitionEvidence) -> list[Finding]:
    """Return findings that explain why the leader is not the preferred replica."""
    replicas = evidence.assignment.target
    if evidence.leader == NO_LEADER or not replicas or evidence.leader == replicas[0]:
        return []
    if evidence.source == "the ledger":
        return []
    preferred = replicas[0]
    because: list[Finding] = []
    if preferred not in evidence.isr:
        because += _out_of_sync(evidence, [preferred])
    elif reasons := why_not_serving(evidence, preferred):
        because += reasons
    else:
        every = evidence.setting("leader.imbalance.check.interval.seconds")
        gives = (
            f"every {every} s the controller elects preferred leaders, but only for a broker with over 10 % of "
            "its partitions led elsewhere"
        )
        if not evidence.has_controller:
            gives = f"every {every} s a leader gives up what a preferred replica can lead"
        how = (
            gives
            if evidence.setting("auto.leader.rebalance.enable")
            else "auto.leader.rebalance.enable is false"
        )
        text = f"broker {preferred} is in sync, but no election was held since then: {how} (see minikafka elect)"
        because.append(Finding("no-election-yet", text, is_problem=False))
    text = f"{evidence.tp} is led by {evidence.leader}, not by its preferred replica {preferred}"
    since = tuple(evidence.past.led_since()) if evidence.past.states else ()
    return [Finding("not-preferred", text, (), since, tuple(because), is_problem=False)]


def _skipped_batches(evidence: PartitionEvidence) -> list[Finding]:
    """Return a finding for each batch that the coordinator in this partition of an internal topic has skipped."""
    return [
        Finding("corrupt-records", skipped_text(broker.id, batch), (broker.id,))
        for broker in evidence.brokers.values()
        if broker.answer
        for batch in broker.answer.get("skipped_batches", ())
    ]


def _compaction(evidence: PartitionEvidence) -> list[Finding]:
    """Return a finding for each broker that has stopped compacting the partition's log."""
    found = []
    for broker in sorted(evidence.brokers):
        compaction = (evidence.brokers[broker].replica or {}).get("compaction")
        if compaction and compaction["uncleanable"]:
            text = f"broker {broker} does not compact its log until it restarts: {compaction['uncleanable']}"
            found.append(Finding("not-compacted", text, (broker,)))
    return found
