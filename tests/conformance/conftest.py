"""Real ZooKeeper servers that the tests of this folder share."""

from __future__ import annotations

from support.zookeepers import connect, ensemble, server, shared_ensemble, shared_server

__all__ = ["connect", "ensemble", "server", "shared_ensemble", "shared_server"]
