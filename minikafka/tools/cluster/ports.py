"""Free ports, and their reservation while a cluster starts.

A port that was found free is used later, by another process. Meanwhile its finder *holds* it: it binds a Unix socket
in the abstract namespace whose name contains the port. Every start of every user sees this name, in the same network
namespace as the ports. It leaves no file, and the kernel releases it when the process ends, also by SIGKILL. Programs
other than minikafka do not see it.
"""

from __future__ import annotations

import os
import socket
import weakref
from collections.abc import Collection
from pathlib import Path
from typing import Final

from minikafka.base.ports import Rng
from minikafka.tools.cluster.directory import HOST, ClusterError

PORTS_VARIABLE: Final = "MINIKAFKA_PORTS"
"""Environment variable with the range of ports for `free_ports`, as FIRST-LAST, for example "20000-24999"."""
_WORKER: Final = "PYTEST_XDIST_WORKER"
_WORKERS: Final = "PYTEST_XDIST_WORKER_COUNT"
"""Environment variables of a worker of pytest-xdist, and of the processes that it starts: its name, such as "gw2", and
the number of workers."""
_PORT_MAX: Final = 65_535
_LOWEST_FREE_PORT: Final = 15_000
_EPHEMERAL_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_DRAWS_MAX: Final = 10_000


class HeldPorts:
    """The ports that this object holds. They are released by `release`, or when this object or the process ends."""

    def __init__(self) -> None:
        self._descriptors: dict[int, int] = {}
        weakref.finalize(self, _release, self._descriptors)

    def hold(self, port: int) -> bool:
        """Hold a port; return False if another start holds it."""
        if port not in self._descriptors:
            with socket.socket(socket.AF_UNIX) as reservation:
                try:
                    reservation.bind(f"\0minikafka-port-{port}")
                except OSError:
                    return False
                self._descriptors[port] = reservation.detach()
        return True

    def release(self, *ports: int) -> None:
        """Release these ports; all ports if none is given."""
        _release(self._descriptors, *ports)

    def hold_if_free(self, port: int) -> bool:
        """Hold a port that no process listens on and nobody else holds; return False for any other port."""
        was_held = port in self._descriptors
        if not self.hold(port):
            return False
        if is_free(port):
            return True
        if not was_held:
            self.release(port)
        return False


def _release(descriptors: dict[int, int], *ports: int) -> None:
    for port in ports or tuple(descriptors):
        if (descriptor := descriptors.pop(port, None)) is not None:
            os.close(descriptor)


def free_ports(
    count: int, rng: Rng, taken: Collection[int] = (), held: HeldPorts | None = None
) -> list[int]:
    """Return free ports outside `taken`, drawn from the range of `MINIKAFKA_PORTS`.

    `held` holds them afterwards; without it, nobody does. If the variable is not set, the ports are below the system's
    range for outgoing connections, so that no connection takes the port of a broker that is down. Each worker of
    pytest-xdist has its own part of the range. Raises ClusterError if too few ports are free, or if the variable is
    not a range.
    """
    first, last = _part_of_worker(*_port_range())
    holder = held or HeldPorts()
    found: list[int] = []
    try:
        for _ in range(_DRAWS_MAX):
            if len(found) == count:
                return found
            port = int(rng.uniform(first, last + 1))
            if port not in found and port not in taken and holder.hold_if_free(port):
                found.append(port)
    finally:
        if held is None:
            holder.release()
    raise ClusterError(f"too few ports are free between {first} and {last}: widen {PORTS_VARIABLE}")


def _port_range() -> tuple[int, int]:
    """Return the first and the last port for `free_ports`. Raises ClusterError if MINIKAFKA_PORTS is invalid."""
    given = os.environ.get(PORTS_VARIABLE)
    if given:
        first, _, last = given.partition("-")
        if not (
            first.isdecimal() and last.isdecimal() and 0 < int(first) <= int(last) <= _PORT_MAX
        ):
            example = "the first and the last port, such as 20000-24999"
            raise ClusterError(f"{PORTS_VARIABLE} must be {example}, not {given!r}")
        return int(first), int(last)
    try:
        below = int(_EPHEMERAL_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        below = 32_768
    return _LOWEST_FREE_PORT, max(below, _LOWEST_FREE_PORT + 5_000) - 1


def _part_of_worker(first: int, last: int) -> tuple[int, int]:
    """Return the part of a range that belongs to this worker of pytest-xdist; the whole range in other processes."""
    number = os.environ.get(_WORKER, "").removeprefix("gw")
    count = os.environ.get(_WORKERS, "")
    if not (number.isdecimal() and count.isdecimal() and 0 <= int(number) < int(count)):
        return first, last
    size = (last - first + 1) // int(count)
    if not size:
        raise ClusterError(f"{count} workers cannot share {first}-{last}: widen {PORTS_VARIABLE}")
    start = first + int(number) * size
    return start, start + size - 1


def is_free(port: int) -> bool:
    """True if a process could listen on this port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
    return True
