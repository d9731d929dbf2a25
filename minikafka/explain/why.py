"""Explanations of a partition's problems: findings, each with its causes, down to brokers and ledger lines.

`explain` depends only on a `PartitionPicture`, so that tests need no cluster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Final

from minikafka.base.model import NO_LEADER
from minikafka.cluster.observation.causes import skipped_text
from minikafka.explain.finding import Finding, root_findings
from minikafka.explain.leaders import (
    held_brokers,
    not_leading,
    opening_leader,
    unfinished_requests,
    waiting_replicas,
)
from minikafka.explain.open_transactions import held_back
from minikafka.explain.past import Reference
from minikafka.explain.picture import DOWN, PAUSED, SILENT, UP, PartitionPicture
from minikafka.explain.trace import ids

_QUIET_MS: Final = 1_500
"""A follower without a fetch for this long has a problem: an idle follower fetches every 500 ms."""


def explain(picture: PartitionPicture, offset: int | None = None) -> list[Finding]:
    """Return the findings about the partition, and about `offset` if given; [] if there is nothing to report."""
    found = [*root_findings(picture.causes)]
    if picture.has_controller:
        found += _deletion(picture)
    else:
        found += unfinished_requests(picture, why_not_serving)
    if not _is_being_deleted(picture):
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
            found += part(picture)
    if offset is not None:
        found += _offset(picture, offset)
    return found


# One broker, one replica.


def why_not_serving(picture: PartitionPicture, broker: int) -> list[Finding]:
    """Return findings that explain why the broker or its replica does not work; [] if both work."""
    found = picture.brokers.get(broker)
    about = (broker,)
    if found is None:
        text = _with_cause(picture, broker, f"there is no broker {broker} in this cluster")
        return [Finding("no-such-broker", text, about)]
    gone = tuple(picture.past.broker_lost(broker))
    if found.process == DOWN:
        text = _with_cause(picture, broker, f"broker {broker} is down: it has no process")
        return [Finding("broker-down", text, about, gone)]
    if found.process in (SILENT, PAUSED):
        state = "is paused (SIGSTOP)" if found.process == PAUSED else "runs but does not answer"
        text = _with_cause(
            picture, broker, f"broker {broker} {state}", _registration(picture, broker)
        )
        return [Finding("broker-silent", text, about, gone)]
    assert found.answer is not None
    if failed := list(_failed_directory(picture, broker)):
        return failed
    if found.answer["session_state"] != "connected":
        state = found.answer["session_state"].replace("_", " ")
        text = f"broker {broker} has no connection to ZooKeeper (its session: {state})"
        return [Finding("no-session", text, about, gone)]
    if picture.is_registered(broker) is False:
        text = f"broker {broker} runs but is not registered in ZooKeeper"
        return [Finding("not-registered", text, about, gone)]
    return list(_why_replica_not_serving(picture, broker))


def _registration(picture: PartitionPicture, broker: int) -> str:
    is_registered = picture.is_registered(broker)
    if is_registered is None:
        return ""
    return f", and is {'still' if is_registered else 'no longer'} registered in ZooKeeper"


def _with_cause(picture: PartitionPicture, broker: int, text: str, more: str = "") -> str:
    """Return the text of the root cause that concerns the broker, else `text`; add `more`, then the remedy."""
    for cause in picture.causes:
        if cause.broker == broker and cause.name.startswith(("broker-", "control-")):
            return f"{cause.text}{more}; {cause.remedy}"
    return text + more


def _failed_directory(picture: PartitionPicture, broker: int) -> Iterator[Finding]:
    """Yield a finding if the log directory with the broker's replica has failed."""
    replica = picture.brokers[broker].replica
    known = (picture.controller["partition"] if picture.controller else None) or {}
    if not (replica and replica["role"] == "offline") and broker not in known.get(
        "lost_directories", ()
    ):
        return
    events = tuple(picture.past.directory_failed(broker))
    causes = [c for c in picture.causes if c.name == "directory-failed" and c.broker == broker]
    for cause in causes:
        yield Finding("directory-failed", cause.sentence, (broker,), events)
    if not causes:
        text = f"the log directory of the replica on broker {broker} has failed"
        yield Finding("directory-failed", text, (broker,), events)


def _why_replica_not_serving(picture: PartitionPicture, broker: int) -> Iterator[Finding]:
    replica, view = picture.brokers[broker].replica, picture.controller
    answer = picture.brokers[broker].answer
    is_leaving = not picture.has_controller and answer is not None and answer.get("leaving")
    if is_leaving or (view and broker in view["shutting_down"]):
        yield Finding("shutting-down", f"broker {broker} is shutting down", (broker,))
    elif replica is None:
        text = f"broker {broker} has no replica yet{_waiting(picture, broker)}"
        yield Finding("no-replica", text, (broker,), tuple(picture.past.oldest_unanswered(broker)))


def why_behind(picture: PartitionPicture, broker: int) -> list[Finding]:
    """Return findings that explain why a working broker's replica is not in the ISR.

    Return [] if the leader has no data about the replica.
    """
    leader, follower = picture.leader_replica, picture.follower(broker)
    if leader is None:
        text = f"broker {broker} is alive, but there is no leader to fetch from"
        return [Finding("no-leader-to-follow", text)]
    if follower is None:
        return []
    end, own = leader["log_end_offset"], follower["log_end_offset"]
    fetched = follower["last_fetch_ms"]
    limits = tuple(_throttles(picture, [picture.leader, broker]))
    if own is None:
        text = (
            f"broker {broker} has not fetched from leader {picture.leader} in epoch "
            f"{picture.leader_epoch}{_waiting(picture, broker)}"
        )
        asked = tuple(picture.past.oldest_unanswered(broker))
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
    if pending and broker in pending["isr"] and broker not in picture.isr:
        text = f"broker {broker} is caught up; leader {picture.leader} is writing the ISR {ids(pending['isr'])}"
        return [Finding("isr-change-pending", text, (picture.leader,))]
    return [Finding("caught-up", f"broker {broker} is caught up and may join at its next fetch")]


def _waiting(picture: PartitionPicture, broker: int) -> str:
    """Return a phrase with the number of requests that wait for the broker; "" if there are none."""
    waiting = picture.backlog(broker)
    if not waiting:
        return ""
    if picture.has_controller:
        return f"; requests from the controller that it has not answered: {waiting}"
    return f"; requests in its queue: {waiting}"


def _ago(ms: int) -> str:
    return f"{ms} ms ago" if ms < 10_000 else f"{ms // 1000} s ago"


def _out_of_sync(picture: PartitionPicture, brokers: Iterable[int]) -> Iterator[Finding]:
    for broker in brokers:
        yield Finding(
            "out-of-sync",
            f"replica {broker} is not in the ISR",
            (broker,),
            tuple(picture.past.left_isr(broker)),
            tuple(why_not_serving(picture, broker) or why_behind(picture, broker)),
        )


def _controller(picture: PartitionPicture) -> list[Finding]:
    """Return a finding that explains why the controller makes no progress; [] if it is idle and reachable.

    In the mode leaders, return findings that explain why the brokers make no progress.
    """
    if not picture.has_controller:
        return held_brokers(picture)
    if picture.controller is None:
        if picture.nodes is not None and picture.nodes.controller is not None:
            broker = picture.nodes.controller
            because = tuple(why_not_serving(picture, broker))
            text = f"the controller, broker {broker}, does not answer"
            return [Finding("controller-silent", text, (broker,), because=because)]
        known = [cause.sentence for cause in picture.causes if cause.name == "no-controller"]
        return [Finding("no-controller", known[0] if known else "there is no active controller")]
    answer = picture.controller_answer
    assert answer is not None
    broker = picture.controller["broker"]
    if answer.get("held_at"):
        step = answer["held_at"]
        text = f"the controller, broker {broker}, is held at step {step}"
        events = picture.past.last_step(step.partition(".")[0])
        from_step = (
            (Reference(events["cause"], f"{events['broker']}#{events['n']}"),) if events else ()
        )
        return [Finding("held-at-step", text, (broker,), from_step)]
    if picture.controller["queue_size"]:
        count, state = picture.controller["queue_size"], picture.controller["state"]
        text = f"the controller, broker {broker}, is busy with {state}; {count} events wait"
        return [Finding("controller-busy", text, (broker,))]
    return []


# The questions.


def _leader(picture: PartitionPicture) -> list[Finding]:
    """Return a finding that explains why the partition has no leader; [] if the leader answers."""
    if picture.leader_replica is not None:
        return opening_leader(picture)
    leader = picture.leader
    since = tuple(picture.past.led_since()) if picture.past.states else ()
    if leader != NO_LEADER and not why_not_serving(picture, leader):
        if not picture.has_controller:
            return [not_leading(picture)]
        text = (
            f"broker {leader} was chosen to lead in epoch {picture.leader_epoch} but does not lead yet"
            f"{_waiting(picture, leader)}"
        )
        asked = tuple(picture.past.oldest_unanswered(leader))
        return [Finding("not-leading", text, (leader,), since + asked, tuple(_controller(picture)))]
    led = (
        "it has no leader" if leader == NO_LEADER else f"its leader, broker {leader}, cannot serve"
    )
    because = [*_no_candidate(picture), *_controller(picture), *waiting_replicas(picture)]
    text = f"{picture.tp} is offline: {led}"
    return [Finding("offline", text, (), since, tuple(because))]


def _no_candidate(picture: PartitionPicture) -> Iterator[Finding]:
    """Yield findings that explain why no replica can become the leader."""
    for broker in picture.isr:
        reasons = why_not_serving(picture, broker)
        if reasons:
            text = f"replica {broker} is in the ISR but cannot lead"
            yield Finding("isr-member-away", text, (broker,), because=tuple(reasons))
    outside = [broker for broker in picture.assignment.replicas if broker not in picture.isr]
    alive = [broker for broker in outside if not why_not_serving(picture, broker)]
    if alive:
        setting = picture.setting("unclean.leader.election.enable")
        allowed = "not known" if setting is None else str(setting).lower()
        some = (
            f"broker {alive[0]} is alive" if len(alive) == 1 else f"brokers {ids(alive)} are alive"
        )
        text = (
            f"{some} but outside the ISR {ids(picture.isr)}, and may lack "
            f"acknowledged records; unclean.leader.election.enable is {allowed} "
            f"(minikafka elect --unclean accepts the loss)"
        )
        refusals = tuple(
            Reference(r["cause"], f"{r['broker']}#{r['n']}") for r in picture.past.last_refusal()
        )
        yield Finding("unclean-only", text, (), refusals)


def _under_replicated(picture: PartitionPicture) -> list[Finding]:
    assignment = picture.assignment
    missing = [
        b for b in assignment.replicas if b not in picture.isr and b not in assignment.adding
    ]
    away = [finding for finding in _members_away(picture) if picture.leader_replica is not None]
    if not (missing or away) or not picture.isr:
        return []
    count = len(assignment.replicas) - len(assignment.adding)
    text = (
        f"{picture.tp} is under-replicated: {count - len(missing) - len(away)} of {count} replicas are in "
        f"sync (ISR {ids(picture.isr)})"
    )
    return [Finding("under-replicated", text, because=(*_out_of_sync(picture, missing), *away))]


def _members_away(picture: PartitionPicture) -> Iterator[Finding]:
    """Yield a finding for each ISR member whose broker or replica does not work.

    Such a replica stays in the ISR until its broker's session expires or the replica lags for too long. A replica
    that still fetches is no problem, even if its broker has lost its session.
    """
    for broker in picture.isr:
        if _still_follows(picture, broker):
            continue
        is_settled = (
            broker in picture.assignment.replicas and broker not in picture.assignment.adding
        )
        if is_settled and (reasons := why_not_serving(picture, broker)):
            text = f"replica {broker} is still in the ISR but does not follow"
            yield Finding("isr-member-away", text, (broker,), because=tuple(reasons))


def _still_follows(picture: PartitionPicture, broker: int) -> bool:
    """True if the broker leads the partition, or has fetched from the leader within _QUIET_MS."""
    follower = picture.follower(broker)
    fetched = follower["last_fetch_ms"] if follower else None
    is_answering = picture.brokers.get(broker) is not None and picture.brokers[broker].process == UP
    return broker == picture.leader or (
        is_answering and fetched is not None and fetched <= _QUIET_MS
    )


def _writes(picture: PartitionPicture) -> list[Finding]:
    """Return a finding that explains why writes with acks=all are refused or wait.

    Return [] if no such write is refused or waits, or if no leader answers.
    """
    leader = picture.leader_replica
    if leader is None:
        return []
    needed, isr = leader["min_isr"], leader["isr"]
    if len(isr) < needed:
        missing = [b for b in picture.assignment.replicas if b not in isr]
        text = (
            f"writes with acks=all are refused (NOT_ENOUGH_REPLICAS): the ISR {ids(isr)} has "
            f"{len(isr)}, min.insync.replicas is {needed}"
        )
        return [Finding("too-few-in-sync", text, because=tuple(_out_of_sync(picture, missing)))]
    behind = leader["log_end_offset"] - leader["high_watermark"]
    if behind <= 0:
        return []
    because = tuple(_holding_back(picture, leader["log_end_offset"]))
    waiting = leader["waiting_connections"]
    text = (
        f"{behind} records are not acknowledged with acks=all: the high watermark is {leader['high_watermark']}, "
        f"the log ends at {leader['log_end_offset']}; producer connections that wait: {waiting}"
    )
    stuck = any(finding.is_problem for finding in because)
    return [Finding("not-acknowledged", text, because=because, is_problem=stuck)]


def held_transactions(picture: PartitionPicture) -> list[Finding]:
    """Return a finding with the transactions that hold back the last stable offset; [] if there is none."""
    leader = picture.leader_replica
    if leader is None:
        return []
    silent = picture.silent_coordinators()
    return held_back(picture.tp, leader, picture.open_transactions, silent, picture.where)


def _holding_back(picture: PartitionPicture, upto: int) -> Iterator[Finding]:
    """Yield findings that explain why the high watermark has not reached the offset `upto`.

    The causes are a pending ISR change, and ISR members whose logs end below `upto`.
    """
    leader = picture.leader_replica
    assert leader is not None
    pending = leader["pending_isr"]
    members = set(leader["isr"])
    if pending:
        members.update(pending["isr"])
        text = f"leader {picture.leader} is writing the ISR {ids(pending['isr'])} ({pending['change']})"
        yield Finding("isr-change-pending", text, (picture.leader,))
    for follower in leader["followers"]:
        broker, own = follower["broker"], follower["log_end_offset"]
        if broker not in members or (own is not None and own >= upto):
            continue
        away = why_not_serving(picture, broker)
        fetched = follower["last_fetch_ms"]
        quiet = bool(away) or own is None or fetched is None or fetched > _QUIET_MS
        yield from away
        at = (
            "end is not known in this leader epoch"
            if own is None
            else f"ends at {own}, {upto - own} behind"
        )
        text = f"broker {broker} is in the ISR but has not fetched all records: its log {at}"
        member_since = tuple(picture.past.joined_isr(broker))
        yield Finding("member-behind", text, (broker,), member_since, is_problem=quiet)


def _offset(picture: PartitionPicture, offset: int) -> list[Finding]:
    """Return a finding that explains whether consumers can read an offset, and why not."""
    leader = picture.leader_replica
    if leader is None:
        return [Finding("offset-unknown", _offset_on_disk(picture, offset), is_problem=False)]
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
        return [Finding("offset-not-stable", text, because=tuple(held_transactions(picture)))]
    if offset < high_watermark:
        text = f"offset {offset} is visible: it is below the high watermark {high_watermark}"
        return [Finding("offset-visible", text, is_problem=False)]
    because = list(_holding_back(picture, offset + 1))
    if len(leader["isr"]) < leader["min_isr"]:
        text = (
            f"the ISR {ids(leader['isr'])} is smaller than min.insync.replicas {leader['min_isr']}"
        )
        missing = [b for b in picture.assignment.replicas if b not in leader["isr"]]
        reasons = tuple(_out_of_sync(picture, missing))
        because.insert(0, Finding("too-few-in-sync", text, because=reasons))
    text = f"offset {offset} is not visible: the high watermark is {high_watermark}, the log ends at {end}"
    return [Finding("offset-not-visible", text, because=tuple(because))]


def _offset_on_disk(picture: PartitionPicture, offset: int) -> str:
    found_files = [
        f"the log on broker {broker} ends at {found.log_end_offset}"
        + (
            ""
            if found.high_watermark is None
            else f", high watermark {found.high_watermark} at the last checkpoint"
        )
        for broker, found in sorted(picture.files.items())
        if found.log_end_offset is not None
    ]
    on_disk = "; ".join(found_files) or "nothing"
    return f"without a leader, it is unknown whether offset {offset} is visible; on disk: {on_disk}"


def _is_being_deleted(picture: PartitionPicture) -> bool:
    """True if the topic's deletion has begun, so that the replicas need no leader.

    In the mode leaders, also true for a partition that is being created.
    """
    if not picture.has_controller:
        return picture.nodes is not None and (
            picture.nodes.is_marked or picture.nodes.is_being_created
        )
    deletion = picture.deletion
    if deletion is None or deletion["reassigning"]:
        return False
    return picture.controller is not None or bool(deletion["replicas"])


def _deletion(picture: PartitionPicture) -> list[Finding]:
    """Return findings that explain why a topic that is or was marked for deletion still exists."""
    deletion = picture.deletion
    marked = deletion is not None or (picture.nodes is not None and picture.nodes.is_marked)
    events = tuple(picture.past.deletion_marked())
    topic = picture.tp.topic
    if not marked:
        if events and picture.setting("delete.topic.enable") is False:
            text = f"topic {topic} was marked for deletion; the mark was removed, as delete.topic.enable is false"
            return [Finding("deletion-disabled", text, events=events, is_problem=False)]
        return []
    because = list(_controller(picture))
    # A controller that is held at a step has made decisions that no broker knows yet.
    if deletion is not None and "held-at-step" not in [finding.name for finding in because]:
        because += _holding_deletion(picture, deletion)
    text = f"topic {topic} is marked for deletion and not deleted yet"
    return [Finding("not-deleted", text, events=events, because=tuple(because))]


def _holding_deletion(picture: PartitionPicture, deletion: Any) -> Iterator[Finding]:
    if deletion["reassigning"]:
        text = f"the reassignment of partitions {ids(deletion['reassigning'])} must finish first"
        yield Finding(
            "reassignment-first", text, events=tuple(picture.past.reassignment_requested())
        )
    elif deletion["waits_for"]:
        yield Finding("deletion-waits", f"the deletion waits because of {deletion['waits_for']}")
    seen = set()
    for broker, _, state in deletion["replicas"]:
        if broker in seen:
            continue
        seen.add(broker)
        away = tuple(why_not_serving(picture, broker))
        if state == "ReplicaDeletionStarted":
            text = f"broker {broker} was told to delete its replicas and has not answered"
            asked = tuple(picture.past.oldest_unanswered(broker))
            yield Finding("deletion-unanswered", text, (broker,), asked, away)
        elif away:
            yield from away
        elif state == "ReplicaDeletionIneligible":
            text = f"broker {broker} could not delete its replicas"
            yield Finding("deletion-failed", text, (broker,))


def _reassignment(picture: PartitionPicture) -> list[Finding]:
    """Return findings that explain why a reassignment is not finished."""
    assignment = picture.assignment
    events = tuple(picture.past.reassignment_requested())
    asked = picture.nodes.target if picture.nodes else None
    if not assignment.is_being_reassigned:
        if asked is None or asked == assignment.replicas:
            return []
        text = f"the controller has not begun to move {picture.tp} to {ids(asked)}"
        return [Finding("not-begun", text, (), events, tuple(_controller(picture)))]
    text = (
        f"{picture.tp} is being reassigned from {ids(assignment.origin)} to {ids(assignment.target)}"
        f" (adding {ids(assignment.adding)}, removing {ids(assignment.removing)})"
    )
    missing = [broker for broker in assignment.target if broker not in picture.isr]
    because = [*_out_of_sync(picture, missing), *_controller(picture)]
    if not because:
        because.append(
            Finding(
                "finishing", "all target replicas are in sync: the reassignment is about to finish"
            )
        )
    return [Finding("reassigning", text, (), events, tuple(because))]


def _throttles(picture: PartitionPicture, brokers: Iterable[int]) -> Iterator[Finding]:
    """Yield a finding for each rate that limits the copies of the partition, with the brokers that have it."""
    rates: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for broker in brokers:
        found = picture.brokers.get(broker)
        replica = found.replica if found else None
        for key, rate in (replica or {}).get("throttles", {}).items():
            rates[key, rate].append(broker)
    for (key, rate), limited in rates.items():
        commands = " and ".join(
            f"`minikafka configs set {key}=BYTES --broker {broker}{picture.where}`"
            for broker in limited
        )
        some = f"broker{'s' if len(limited) > 1 else ''} {ids(limited)}"
        text = f"{key} of {some} limits the copies to {rate} bytes/s; {commands} raises the limit"
        yield Finding("throttled", text, tuple(limited))


def _preferred(picture: PartitionPicture) -> list[Finding]:
    """Return findings that explain why the leader is not the preferred replica."""
    replicas = picture.assignment.target
    if picture.leader == NO_LEADER or not replicas or picture.leader == replicas[0]:
        return []
    if picture.source == "the ledger":
        return []
    preferred = replicas[0]
    because: list[Finding] = []
    if preferred not in picture.isr:
        because += _out_of_sync(picture, [preferred])
    elif reasons := why_not_serving(picture, preferred):
        because += reasons
    else:
        every = picture.setting("leader.imbalance.check.interval.seconds")
        gives = (
            f"every {every} s the controller elects preferred leaders, but only for a broker with over 10 % of "
            "its partitions led elsewhere"
        )
        if not picture.has_controller:
            gives = f"every {every} s a leader gives up what a preferred replica can lead"
        how = (
            gives
            if picture.setting("auto.leader.rebalance.enable")
            else "auto.leader.rebalance.enable is false"
        )
        text = f"broker {preferred} is in sync, but no election was held since then: {how} (see minikafka elect)"
        because.append(Finding("no-election-yet", text, is_problem=False))
    text = f"{picture.tp} is led by {picture.leader}, not by its preferred replica {preferred}"
    since = tuple(picture.past.led_since()) if picture.past.states else ()
    return [Finding("not-preferred", text, (), since, tuple(because), is_problem=False)]


def _skipped_batches(picture: PartitionPicture) -> list[Finding]:
    """Return a finding for each batch that the coordinator in this partition of an internal topic has skipped."""
    return [
        Finding("corrupt-records", skipped_text(broker.id, batch), (broker.id,))
        for broker in picture.brokers.values()
        if broker.answer
        for batch in broker.answer.get("skipped_batches", ())
    ]


def _compaction(picture: PartitionPicture) -> list[Finding]:
    """Return a finding for each broker that has stopped compacting the partition's log."""
    found = []
    for broker in sorted(picture.brokers):
        compaction = (picture.brokers[broker].replica or {}).get("compaction")
        if compaction and compaction["uncleanable"]:
            text = f"broker {broker} does not compact its log until it restarts: {compaction['uncleanable']}"
            found.append(Finding("not-compacted", text, (broker,)))
    return found
