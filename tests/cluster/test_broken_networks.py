"""A short form of `scripts/broken-networks`: a link between two hosts that is cut in one direction."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.hosts.routed import needs_routed_hosts
from support.hosts.spread import broken_cluster

from scripts.broken_networks_job import Job

pytestmark = [needs_routed_hosts, pytest.mark.cluster]
LAG_MS = 3_000


def test_cut_between_hosts_is_named_and_holds_up_acks_all_for_the_stated_time(
    tmp_path: Path,
) -> None:
    with broken_cluster(tmp_path, "controller", LAG_MS) as cluster:
        job = Job(cluster, print, hold_seconds=1.5 * LAG_MS / 1000 + 3)
        job.run(["follower-leader"], rounds=1)
    (result,) = job.results
    assert result.problems + job.problems == []
    assert result.longest_pause_s < 1.5 * LAG_MS / 1000 + 2
    assert "the way back, from" not in result.named  # TCP needs both directions
