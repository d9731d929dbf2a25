"""The decisions of one broker in the leader-coordinated mode, told in the files `transcripts/*.txt`.

All inputs are about the partition t-0 of a topic, if they name no other. The nodes of a partition stand as ZooKeeper
has them: `replicas=0,1` (AR), `leader=0;8` and `isr=0,1;8` (with their epochs), `reassigned=0,3` (RAR, empty for a
deletion). `ours` says that the session of this broker owns the node `leader`. `live` are the registered brokers.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from support.leaders_player import Player
from support.transcripts import play, scenarios

TOLD_ELSEWHERE: set[str] = set()


def told(*names: str) -> pytest.MarkDecorator:
    """Parametrize a test with these scenarios."""
    TOLD_ELSEWHERE.update(names)
    files = [file for file in scenarios(__file__) if file.id in names]  # type: ignore[attr-defined]
    assert len(files) == len(names), names
    return pytest.mark.parametrize("file", files)


def others() -> Iterable[object]:
    """Return the scenarios that prove no row of the conformance table."""
    return [file for file in scenarios(__file__) if file.id not in TOLD_ELSEWHERE]  # type: ignore[attr-defined]


@pytest.mark.row("C3", "C4")
@told(
    "loser-of-an-election-follows-the-winner",
    "first-leader-that-appears-in-the-wait-is-followed",
    "follower-waits-for-the-preferred-replica-then-elects-itself",
    "leader-stops-when-another-broker-leads",
)
def test_replica_elects_itself_or_follows(file: Path, rewrite: bool) -> None:
    play(file, Player(), rewrite=rewrite)


@pytest.mark.row("C17", "C18", "C38")
@told("won-election-opens-when-the-replicas-have-caught-up")
def test_won_election_opens_when_the_replicas_have_caught_up(file: Path, rewrite: bool) -> None:
    play(file, Player(), rewrite=rewrite)


@pytest.mark.row("C42")
@told("partition-that-is-not-hosted-here-is-ignored")
def test_partition_that_is_not_hosted_here_is_ignored(file: Path, rewrite: bool) -> None:
    play(file, Player(), rewrite=rewrite)


@pytest.mark.row("C29")
@told(
    "leader-gives-up-for-the-preferred-replica-then-waits-its-turn",
    "leader-keeps-a-leadership-that-no-other-can-take",
)
def test_leadership_returns_to_the_preferred_replica(file: Path, rewrite: bool) -> None:
    play(file, Player(), rewrite=rewrite)


@pytest.mark.row("C9")
@told(
    "added-replicas-are-started-in-a-higher-epoch",
    "follower-leaves-a-reassignment-to-its-leader",
)
def test_leader_starts_the_replicas_of_a_reassignment(file: Path, rewrite: bool) -> None:
    play(file, Player(), rewrite=rewrite)


@pytest.mark.row("C30", "C31")
@told(
    "reassignment-completes-in-one-multi-when-its-replicas-are-in-sync",
    "leader-outside-the-new-replicas-closes-itself-and-gives-up",
    "leader-gives-up-for-the-preferred-replica-after-a-reassignment",
    "leader-stays-after-a-reassignment-if-no-better-one-is-alive",
    "replaced-reassignment-closes-the-replica-that-only-the-former-one-has-added",
)
def test_leader_completes_a_reassignment(file: Path, rewrite: bool) -> None:
    play(file, Player(), rewrite=rewrite)


@pytest.mark.row("C10")
@told(
    "deletion-is-requested-from-every-replica-once",
    "next-leader-requests-the-deletion-again",
)
def test_leader_requests_a_deletion_from_every_replica(file: Path, rewrite: bool) -> None:
    play(file, Player(), rewrite=rewrite)


@pytest.mark.row("C8", "C14", "C38", "C41")
@told(
    "start-request-makes-a-follower-of-a-new-replica",
    "start-request-without-a-leader-is-an-election",
    "start-request-that-the-fence-stops-is-noted-and-consumed",
    "stale-start-request-does-not-move-a-follower",
)
def test_start_request_is_carried_out_or_refused(file: Path, rewrite: bool) -> None:
    play(file, Player(), rewrite=rewrite)


@pytest.mark.row("C6", "C7", "C15", "C41")
@told(
    "close-request-deletes-a-replica-that-is-in-no-list",
    "close-request-is-not-fenced-by-its-epoch",
    "close-request-before-the-scan-deletes-the-log-of-its-topic-id",
    "close-request-that-the-fence-stops-keeps-the-files",
)
def test_close_request_is_carried_out_or_refused(file: Path, rewrite: bool) -> None:
    play(file, Player(), rewrite=rewrite)


@pytest.mark.parametrize("file", others())
def test_broker_decides_as_told(file: Path, rewrite: bool) -> None:
    play(file, Player(), rewrite=rewrite)
