"""Many groups of one idle member that only sends heartbeats, and the CPU time that brokers need for them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks import group_loads, kafka
from benchmarks.closed_loop import LoadError
from minikafka.kafka.wire import codec
from minikafka.kafka.wire.versions import HEARTBEAT, JOIN_GROUP, SYNC_GROUP

Address = tuple[str, int]

HEARTBEAT_SECONDS: Final = 3.0
"""Kafka's default of heartbeat.interval.ms, in seconds."""
_USER_TICKS: Final = 11
"""Index of utime in the fields of /proc/PID/stat after the program name. The next field is stime."""


class IdleMember:
    """The only member of a group, with its own connection."""

    def __init__(
        self, group: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.group = group
        self._reader = reader
        self._writer = writer

    async def live(self, joined: asyncio.Event) -> None:
        """Join the group, set `joined`, and send heartbeats until cancelled. Raises LoadError."""
        try:
            answer = await self._ask(JOIN_GROUP, group_loads.join_body(self.group, ""))
            names = {"member_id": answer.member_id, "generation": answer.generation_id}
            ids = [answer.member_id]
            await self._ask(SYNC_GROUP, group_loads.sync_body(self.group, **names, ids=ids))
            joined.set()
            while True:
                await self._ask(HEARTBEAT, group_loads.heartbeat_body(self.group, **names))
                await asyncio.sleep(HEARTBEAT_SECONDS)
        finally:
            self._writer.close()

    async def _ask(self, api: int, values: dict[str, Any]) -> Any:
        version = group_loads.GROUP_VERSION
        body = codec.request(api, version, **values)
        self._writer.write(codec.encode_request(api, version, 1, kafka.CLIENT_ID, body))
        (size,) = kafka.LENGTH.unpack(await self._reader.readexactly(4))
        answer = codec.decode_response(api, version, await self._reader.readexactly(size))
        if answer.error_code:
            raise LoadError(f"API {api} was answered with error {answer.error_code}")
        return answer


@asynccontextmanager
async def idle_groups(coordinators: Sequence[Address]) -> AsyncIterator[None]:
    """Keep one group with one member at each of these coordinators. Raises LoadError if a member fails."""
    async with asyncio.TaskGroup() as tasks:
        living = []
        for number, coordinator in enumerate(coordinators):
            streams = await asyncio.open_connection(*coordinator)
            joined = asyncio.Event()
            member = IdleMember(group_name(number), *streams)
            living.append(tasks.create_task(member.live(joined)))
            await joined.wait()
        yield
        for task in living:
            task.cancel()


def group_name(number: int) -> str:
    """Return the name of the idle group with this number."""
    return f"idle-{number}"


async def cpu_percent(pids: Iterable[int], seconds: float) -> float:
    """Return the total CPU time of these processes during `seconds`, in percent of one processor."""
    pids = list(pids)
    before = sum(map(cpu_seconds, pids))
    await asyncio.sleep(seconds)
    return 100 * (sum(map(cpu_seconds, pids)) - before) / seconds


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds that a process has used since its start."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, words[_USER_TICKS : _USER_TICKS + 2])) / os.sysconf("SC_CLK_TCK")
