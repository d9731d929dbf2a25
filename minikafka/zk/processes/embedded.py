"""Minikafka's own ZooKeeper server as a child process: the command `minikafka zookeeper`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from minikafka.runtime.spawning import own_environment
from minikafka.zk.processes.child import HOST, SESSION_MAX_MS, ServerProcess


class EmbeddedZooKeeper(ServerProcess):
    """One server of `minikafka zookeeper`. It needs no Java, and it has no replicas."""

    def command(self) -> list[str]:
        """Return the command that starts the server with this interpreter."""
        arguments = {
            "--data": str(self.data_dir / "data"),
            "--host": HOST,
            "--port": str(self.port),
            "--tick-time": str(self._tick_time_ms),
            "--max-session-timeout": str(SESSION_MAX_MS),
        }
        if self._attached:
            arguments["--parent"] = str(os.getpid())
        words = [word for option in arguments.items() for word in option]
        return [sys.executable, "-m", "minikafka", "zookeeper", *words]

    def environment(self) -> Mapping[str, str]:
        """Return the environment in which Python finds this copy of minikafka."""
        return own_environment()
