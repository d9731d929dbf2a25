"""Faults of disks: full log directories, and slow or failing fsyncs (`runtime/disk_faults.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from minikafka.base.disk_faults import FAILED_SYNC, FULL, SLOW_SYNC, DiskFault
from minikafka.broker.rpc.disk_faults import DISK_FAULTS, encode_disk_faults
from minikafka.runtime.disk_faults import read_faults, size_of, write_faults
from minikafka.tools.cluster.directory import ClusterError
from minikafka.tools.cluster.faults.fault import Fault, Hits
from minikafka.tools.cluster.launch.launcher import POLL_MS
from minikafka.tools.cluster.observation.observed import ObservedCluster
from minikafka.tools.cluster.observation.state import STATE_TIMEOUT_MS
from minikafka.tools.cluster.processes import is_paused
from minikafka.tools.cluster.proxy.rules import DELAY_MAX_MS

OPERATIONS: Final = "operations"
"""What a fault of a disk hits: operations that it has refused or delayed."""
_NAMES: Final = {FULL: "fill_disk", SLOW_SYNC: "slow_sync", FAILED_SYNC: "fail_sync"}
_BYTES_MAX: Final = 2**60


class DiskVerbs(ObservedCluster):
    """The methods of LocalCluster that harm disks.

    A fault lasts until it is healed, also if the broker is killed and started again.
    """

    async def fill_disk(
        self, broker_id: int, log_dir: str | None = None, free_bytes: int = 0
    ) -> Fault:
        """Let the files of a broker's log directory (None: of each) grow by at most `free_bytes`.

        A write that does not fit fails with "No space left on device".
        """
        _check("free_bytes", free_bytes, 0, _BYTES_MAX)
        name = f"fill_disk {broker_id}"
        return await self._harm_disk(name, broker_id, log_dir, FULL, free_bytes)

    async def slow_sync(self, broker_id: int, ms: int, log_dir: str | None = None) -> Fault:
        """Let each fsync in a broker's log directory (None: in each) take `ms` milliseconds longer."""
        _check("ms", ms, 1, DELAY_MAX_MS)
        name = f"slow_sync {broker_id}"
        return await self._harm_disk(name, broker_id, log_dir, SLOW_SYNC, ms)

    async def fail_sync(self, broker_id: int, log_dir: str | None = None) -> Fault:
        """Let each fsync in a broker's log directory (None: in each) fail with "Input/output error"."""
        name = f"fail_sync {broker_id}"
        return await self._harm_disk(name, broker_id, log_dir, FAILED_SYNC, 0)

    async def heal_disk(self, broker_id: int) -> None:
        """End all faults of a broker's disk. A log directory that went offline stays so until the broker restarts."""
        await self._replace_disk_faults(broker_id, frozenset(), [], everything=True)

    def active_disk_faults(self) -> list[Fault]:
        """Return the faults of all disks that are in effect, with what they have hit."""
        return [
            self._disk_fault(f"{_NAMES[fault.kind]} {broker.id}", broker.id, fault.id)
            for broker in self.record.brokers
            for fault in {one.id: one for one in self.disk_faults(broker.id)}.values()
        ]

    def disk_faults(self, broker_id: int) -> list[DiskFault]:
        """Return the active faults of a broker's disk, with their counts."""
        self.record.broker(broker_id)
        return read_faults(self.directory.disk_faults(broker_id))

    async def _harm_disk(
        self, name: str, broker_id: int, log_dir: str | None, kind: str, value: int
    ) -> Fault:
        directories = self._log_directories(broker_id, log_dir)
        self.check_faults()
        fault_id = f"{kind}-{self._rng.bytes(4).hex()}"
        rows = [
            DiskFault(fault_id, kind, path, value + (size_of(path) if kind == FULL else 0))
            for path in directories
        ]
        await self._replace_disk_faults(broker_id, frozenset(), rows)

        return self._disk_fault(name, broker_id, fault_id)

    def _disk_fault(self, name: str, broker_id: int, fault_id: str) -> Fault:
        async def count() -> Hits:
            return _hits(self.disk_faults(broker_id), fault_id) or fault.hits

        async def heal() -> Hits:
            former = await self._replace_disk_faults(broker_id, {fault_id}, [])
            return _hits(former, fault_id) or fault.hits

        hits = _hits(self.disk_faults(broker_id), fault_id)
        fault = Fault(name, count=count, heal=heal, hits=hits)
        return fault

    def _log_directories(self, broker_id: int, wanted: str | None) -> list[str]:
        self.record.broker(broker_id)
        config = self.directory.broker_config(broker_id)
        known = list(config.log_dirs) if config else []
        if wanted is None:
            return known
        if str(wanted).rstrip("/") not in known:
            names = ", ".join(known)
            raise ClusterError(f"broker {broker_id} has no log directory {wanted}, but {names}")
        return [str(wanted).rstrip("/")]

    async def _replace_disk_faults(
        self,
        broker_id: int,
        removed: frozenset[str] | set[str],
        added: Sequence[DiskFault],
        *,
        everything: bool = False,
    ) -> list[DiskFault]:
        """Remove and add faults of a broker's disk. Return the former faults with their counts."""
        async with self.directory.locked(self._clock):
            former = self.disk_faults(broker_id)
            kept = [] if everything else [fault for fault in former if fault.id not in removed]
            if former or added:
                await self._set_disk_faults(broker_id, [*kept, *added])
            return former

    async def _set_disk_faults(self, broker_id: int, faults: Sequence[DiskFault]) -> None:
        process = self.process(broker_id)
        if process is None:
            write_faults(self.directory.disk_faults(broker_id), faults)
            return
        if is_paused(process):
            hint = f"minikafka resume {broker_id} lets it continue"
            raise ClusterError(
                f"broker {broker_id} is paused (SIGSTOP): its disk is unchanged", hint
            )
        body, deadline = encode_disk_faults(faults), self._clock.now() + STATE_TIMEOUT_MS
        while True:
            answer = (await self.ask(DISK_FAULTS, body, STATE_TIMEOUT_MS, [broker_id]))[broker_id]
            if not isinstance(answer, Exception):
                return
            if self.process(broker_id) is None:
                write_faults(self.directory.disk_faults(broker_id), faults)
                return
            is_starting = isinstance(answer, ConnectionRefusedError)
            if not is_starting or self._clock.now() >= deadline:
                raise ClusterError(f"broker {broker_id} did not change its disk: {answer}")
            await self._clock.sleep(POLL_MS)


def _hits(faults: Sequence[DiskFault], fault_id: str) -> Hits:
    """Return what the fault has hit; an empty map if it is not active."""
    found = [fault.hits for fault in faults if fault.id == fault_id]
    return {OPERATIONS: sum(found)} if found else {}


def _check(name: str, value: object, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise ClusterError(f"{name} must be a whole number from {least} to {most}, got {value!r}")
