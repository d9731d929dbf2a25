"""Clusters on this machine: their processes, their data directory, and the `LocalCluster` API over both."""

from __future__ import annotations

from minikafka.cluster.directory import ClusterError
from minikafka.cluster.local import LocalCluster

__all__ = ["ClusterError", "LocalCluster"]
