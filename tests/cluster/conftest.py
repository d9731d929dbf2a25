"""The real cluster that the tests of this folder share."""

from __future__ import annotations

from support.running_cluster import cluster, shared_cluster

__all__ = ["cluster", "shared_cluster"]
