"""Hosts whose network may be slow, lossy or cut, in one direction or in both."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from support.hosts import router
from support.hosts.namespaces import Hosts, _do, _ip, _may_administer

ROUTER: Final = 1
"""The last byte of the address of this machine."""


def _has_tun() -> bool:
    return os.access("/dev/net/tun", os.R_OK | os.W_OK)


needs_routed_hosts = pytest.mark.skipif(
    not (_has_tun() and _may_administer()),
    reason="needs /dev/net/tun, and the right to create network namespaces",
)


class RoutedHosts(Hosts):
    """Hosts that reach each other, and this machine, only through a router in user space (`router.py`)."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.network = f"10.198.{os.getpid() % 250}"
        self._router: subprocess.Popen[str] | None = None

    def create(self) -> None:
        """Create the hosts and start the router."""
        names = [f"{ROUTER}=-"]
        for number in self.numbers:
            _do("netns", "add", self._host(number))
            names.append(f"{10 + number}={self._host(number)}")
        self._router = subprocess.Popen(
            [sys.executable, str(Path(router.__file__)), self.network, *names],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._router.stdout is not None
        assert self._router.stdout.readline() == "ready\n"

    def remove(self) -> None:
        """Stop the router and remove the hosts."""
        if self._router is not None:
            self._router.kill()
            self._router.communicate()  # closes the pipes
        for number in self.numbers:
            _ip("netns", "del", self._host(number))

    def change(
        self, source: int, target: int, *, cut: bool = False, delay_ms: float = 0, loss: float = 0
    ) -> None:
        """Set what happens to the packets of one direction. 0 is this machine."""
        assert self._router is not None
        assert self._router.stdin is not None
        assert self._router.stdout is not None
        way = {"from": _last_byte(source), "to": _last_byte(target)}
        asked = {**way, "cut": cut, "delay_ms": delay_ms, "loss": loss}
        self._router.stdin.write(json.dumps(asked) + "\n")
        self._router.stdin.flush()
        assert self._router.stdout.readline() == "ok\n"

    def plug(self, number: int, *, plugged: bool) -> None:
        """Connect a host to the network, or let all its packets be lost."""
        for other in (0, *self.numbers):
            if other != number:
                self.change(number, other, cut=not plugged)
                self.change(other, number, cut=not plugged)


def _last_byte(number: int) -> int:
    return 10 + number if number else ROUTER


@contextmanager
def routed_hosts(count: int) -> Iterator[RoutedHosts]:
    """Create hosts, and remove them at the end."""
    found = RoutedHosts(count)
    try:
        found.create()
        yield found
    finally:
        found.remove()
