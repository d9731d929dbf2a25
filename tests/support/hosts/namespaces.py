"""Hosts with an address of their own: network namespaces of this machine that share one bridge.

Creating them needs the command `ip` and the right to administer the network; `needs_hosts` skips a test without them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


def _may_administer() -> bool:
    probe = f"mk-probe-{os.getpid()}"
    if shutil.which("ip") is None or _ip("netns", "add", probe).returncode:
        return False
    made = _ip("-n", probe, "link", "add", "mk-bridge", "type", "bridge")
    _ip("netns", "del", probe)
    return made.returncode == 0


def _ip(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)


def _do(*arguments: str) -> None:
    done = _ip(*arguments)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"


needs_hosts = pytest.mark.skipif(
    not _may_administer(), reason="needs the right to create network namespaces and bridges"
)


class Hosts:
    """Network namespaces NAME-1 … NAME-N with the addresses .11 … of one /24 network; this machine has .1."""

    def __init__(self, count: int) -> None:
        number = os.getpid() % 250
        self.network = f"10.197.{number}"
        self.numbers = range(1, count + 1)
        self._bridge = f"mkbr{number}"
        self._name = f"mk{os.getpid()}"

    @property
    def gateway(self) -> str:
        """The address of this machine."""
        return f"{self.network}.1"

    def address(self, number: int) -> str:
        """Return the address of one host."""
        return f"{self.network}.{10 + number}"

    def command(self, number: int, *command: str) -> list[str]:
        """Return the command that runs `command` on a host. The process keeps its pid."""
        return ["ip", "netns", "exec", self._host(number), *command]

    def pids(self, number: int) -> list[int]:
        """Return the ids of the processes on a host."""
        return [int(pid) for pid in _ip("netns", "pids", self._host(number)).stdout.split()]

    def plug(self, number: int, *, plugged: bool) -> None:
        """Connect a host to the network, or let all its packets be lost."""
        _do("link", "set", self._port(number), "up" if plugged else "down")

    def create(self) -> None:
        """Create the bridge and the hosts."""
        _do("link", "add", self._bridge, "type", "bridge")
        _do("address", "add", f"{self.gateway}/24", "dev", self._bridge)
        _do("link", "set", self._bridge, "up")
        for number in self.numbers:
            host, port = self._host(number), self._port(number)
            _do("netns", "add", host)
            _do("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host)
            _do("link", "set", port, "master", self._bridge, "up")
            _do("-n", host, "address", "add", f"{self.address(number)}/24", "dev", "eth0")
            _do("-n", host, "link", "set", "eth0", "up")
            _do("-n", host, "link", "set", "lo", "up")

    def remove(self) -> None:
        """Remove the hosts and the bridge."""
        for number in self.numbers:
            _ip("netns", "del", self._host(number))
            _ip("link", "del", self._port(number))
        _ip("link", "del", self._bridge)

    def _host(self, number: int) -> str:
        return f"{self._name}-{number}"

    def _port(self, number: int) -> str:
        return f"{self._bridge}p{number}"


@contextmanager
def hosts(count: int) -> Iterator[Hosts]:
    """Create hosts, and remove them at the end."""
    found = Hosts(count)
    try:
        found.create()
        yield found
    finally:
        found.remove()
