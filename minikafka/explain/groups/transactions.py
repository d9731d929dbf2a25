"""The open transactions that hold back a consumer group.

A member that reads with read_committed stops at the last stable offset of a partition. Brokers do not know how members
read, so the findings say what holds for such members, and blame no member.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from minikafka.base.model import TopicPartition
from minikafka.base.names import listed
from minikafka.explain.finding import Finding
from minikafka.explain.groups.lag import Lag
from minikafka.explain.groups.picture import GroupPicture
from minikafka.explain.groups.words import count, duration, named
from minikafka.explain.picture import Answer, Picture
from minikafka.explain.why import held_transactions

_SHOWN: Final = 5
"""Maximum number of partitions about which a finding is reported."""


def held_back_members(picture: GroupPicture) -> Iterator[Finding]:
    """Yield a finding for each partition where the group has read up to the last stable offset."""
    lags = {lag.tp: lag for lag in picture.lags or ()}
    for tp, partition in list(picture.held.items())[:_SHOWN]:
        yield _held_back(picture, tp, partition, lags.get(tp))
    if len(picture.held) > _SHOWN:
        text = f"open transactions hold back {len(picture.held) - _SHOWN} more partitions"
        yield Finding("held-back", text)


def _held_back(
    picture: GroupPicture, tp: TopicPartition, partition: Picture | None, lag: Lag | None
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
        owner = picture.owner(tp)
        reader = "no member is assigned to it" if owner is None else f"{named(owner)} is behind"
        text += f"; if not, {reader}: no commit for {duration(lag.now - lag.committed_at)}"
    because = tuple(reason for finding in found for reason in finding.because)
    is_stuck = any(reason.is_problem for reason in because)
    is_problem = is_stuck or not because or (lag is not None and lag.is_stuck)
    return Finding("held-back", text, because=because, is_problem=is_problem)


def finished_partitions(picture: GroupPicture) -> Iterator[Finding]:
    """Yield a remark about partitions whose lag consists of aborted records and markers."""
    if picture.finished:
        text = (
            f"no committed record follows the committed offset of {listed(picture.finished, _SHOWN)}: their lag is "
            "aborted records and markers, which members that read with read_committed do not get"
        )
        yield Finding("only-aborted", text, is_problem=False)


def unstable_offsets(picture: GroupPicture, report: Answer) -> Iterator[Finding]:
    """Yield a finding about offsets that were committed in a transaction that is still open.

    Until it ends, a member that starts with read_committed gets UNSTABLE_OFFSET_COMMIT instead of the offset.
    """
    found = [] if picture.home is None else held_transactions(picture.home)
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
