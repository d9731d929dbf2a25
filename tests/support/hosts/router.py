"""A router in user space: every host's packets go through it, and it delays them, loses them, or cuts them off.

It needs no kernel module: each host has a TUN device, which this process opens in the namespace of the host. Run it as
a process of its own. Arguments: the network, as 10.198.7, then NUMBER=NAMESPACE of each host; "-" is the namespace of
this process. Each line of standard input is a command, which is answered by a line: a JSON object with `from` and `to`,
two numbers, and `cut`, `delay_ms` or `loss`, which stay until they are set again.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import json
import os
import random
import selectors
import struct
import subprocess
import sys
import time
from contextlib import suppress
from typing import Final, NamedTuple

MTU: Final = 1500
_TUNSETIFF: Final = 0x400454CA
_TUN_WITHOUT_HEADER: Final = 0x0001 | 0x1000
_CLONE_NEWNET: Final = 0x40000000
_BURST: Final = 64


class Way(NamedTuple):
    """One direction between two hosts."""

    cut: bool = False
    delay_ms: float = 0
    loss: float = 0


def open_tun(namespace: str, address: str) -> int:
    """Make the device of a host with its address, and return the descriptor that gives its packets."""
    device = (
        "mkt" + address.split(".")[2]
    )  # several networks have a device in the namespace of this process
    libc = ctypes.CDLL(None, use_errno=True)
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    if namespace != "-":
        there = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
        if libc.setns(there, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"no way into namespace {namespace}")
        os.close(there)
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH22x", device.encode(), _TUN_WITHOUT_HEADER))
    for command in (
        f"address add {address}/24 dev {device}",
        f"link set {device} mtu {MTU} up",
        "link set lo up",
    ):
        subprocess.run(["ip", *command.split()], check=True)
    libc.setns(home, _CLONE_NEWNET)
    os.close(home)
    return tun


class Router:
    """The devices of all hosts by the last byte of their addresses, and the packets that are on their way."""

    def __init__(self, network: str, hosts: dict[int, str]) -> None:
        self._tuns = {
            number: open_tun(name, f"{network}.{number}") for number, name in hosts.items()
        }
        self._ways: dict[tuple[int, int], Way] = {}
        self._due: list[tuple[float, int, int, bytes]] = []
        self._count = 0
        self._selector = selectors.DefaultSelector()
        for number, tun in self._tuns.items():
            self._selector.register(tun, selectors.EVENT_READ, number)
        self._selector.register(0, selectors.EVENT_READ, None)

    def run(self) -> None:
        """Carry packets until standard input ends."""
        while True:
            wait = max(0, self._due[0][0] - time.monotonic()) if self._due else None
            for key, _ in self._selector.select(wait):
                if key.data is None:
                    if not self._command():
                        return
                else:
                    self._read(key.fd)
            now = time.monotonic()
            while self._due and self._due[0][0] <= now:
                _, _, target, packet = heapq.heappop(self._due)
                self._write(target, packet)

    def _command(self) -> bool:
        line = sys.stdin.buffer.readline()
        if not line:
            return False
        asked = json.loads(line)
        way = asked.pop("from"), asked.pop("to")
        self._ways[way] = self._ways.get(way, Way())._replace(**asked)
        sys.stdout.write("ok\n")
        sys.stdout.flush()
        return True

    def _read(self, tun: int) -> None:
        for _ in range(_BURST):
            try:
                packet = os.read(tun, 65_536)
            except BlockingIOError:
                return
            if packet[0] >> 4 == 4:
                self._route(packet)

    def _route(self, packet: bytes) -> None:
        source, target = packet[15], packet[19]
        way = self._ways.get((source, target))
        if way is None:
            self._write(target, packet)
        elif not way.cut and random.random() >= way.loss:
            self._count += 1
            due = time.monotonic() + way.delay_ms / 1000
            heapq.heappush(self._due, (due, self._count, target, packet))

    def _write(self, target: int, packet: bytes) -> None:
        tun = self._tuns.get(target)
        if tun is not None:
            with suppress(OSError):  # a full queue, or a device that is down: the packet is lost
                os.write(tun, packet)


def main(network: str, *hosts: str) -> None:
    """Make the devices, say so in one line, and carry packets."""
    router = Router(
        network, {int(n): name for n, _, name in (host.partition("=") for host in hosts)}
    )
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    router.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
