"""The memory of groups and of committed offsets on one coordinator, and its limits.

The bytes are estimates: fixed sizes of objects, plus the texts and bytes that clients have sent.
"""

from __future__ import annotations

import logging
from sys import getsizeof
from typing import Final

from minikafka.deciders.groups.events import JoinRequest

logger = logging.getLogger(__name__)

GROUP_BYTES: Final = 2_300
"""Memory of a group without members and offsets, without its name."""
MEMBER_BYTES: Final = 600
"""Memory of a member, without the texts and bytes of its requests."""
PENDING_BYTES: Final = 400
"""Memory of a pending member, without its member id."""
OFFSET_BYTES: Final = 150
"""Memory of a committed offset, without its metadata."""
TOPIC_BYTES: Final = 400
"""Memory of a topic in which a group has committed offsets, without its name."""
_PROTOCOL_BYTES: Final = 100
_LARGE_MIN: Final = 32 << 10
"""From this size on, an addition may only use half of the memory, so that few large ones leave room for small ones."""
_AGAIN_MS: Final = 60_000
"""Interval between log lines about refusals."""


class MemoryBudget:
    """The memory that all groups of a coordinator use for one purpose. `key`: the configuration key of its limit."""

    __slots__ = ("_key", "_logged_at", "_maximum", "used")

    def __init__(self, key: str, maximum: int) -> None:
        self._key = key
        self._maximum = maximum
        self._logged_at: int | None = None
        self.used = 0

    def fits(self, added: int, now: int) -> bool:
        """True if this number of bytes may be added. Refusals are logged, once a minute."""
        limit = self._maximum if added < _LARGE_MIN else self._maximum // 2
        if added <= 0 or self.used + added <= limit:
            return True
        if self._logged_at is None or now - self._logged_at >= _AGAIN_MS:
            self._logged_at = now
            logger.warning(
                "a request about a group is refused: it needs %d bytes, and the groups use %d of %s=%d",
                added,
                self.used,
                self._key,
                self._maximum,
            )
        return False


class Held:
    """The bytes of one group, or of its offsets. They count in a `MemoryBudget` between `share` and `release`."""

    __slots__ = ("_memory", "bytes")

    def __init__(self) -> None:
        self.bytes = 0
        self._memory: MemoryBudget | None = None

    def add(self, size: int) -> None:
        """Add this number of bytes, which may be negative."""
        self.bytes += size
        if self._memory is not None:
            self._memory.used += size

    def share(self, memory: MemoryBudget) -> None:
        """Begin to count the bytes in `memory`."""
        memory.used += self.bytes
        self._memory = memory

    def release(self) -> None:
        """Stop counting the bytes, because the coordinator drops the group."""
        if self._memory is not None:
            self._memory.used -= self.bytes
            assert self.bytes >= 0 <= self._memory.used, (self.bytes, self._memory.used)
            self._memory = None


def group_bytes(group_id: str) -> int:
    """Return the memory of a group without members and offsets."""
    return GROUP_BYTES + 2 * getsizeof(group_id)


def protocol_bytes(protocols: tuple[tuple[str, bytes], ...]) -> int:
    """Return the memory of a member's protocols."""
    return sum(
        _PROTOCOL_BYTES + getsizeof(name) + getsizeof(metadata) for name, metadata in protocols
    )


def member_bytes(
    member_id: str,
    instance_id: str | None,
    client_id: str,
    protocols: tuple[tuple[str, bytes], ...],
    assignment: bytes = b"",
) -> int:
    """Return the memory of a member."""
    texts = getsizeof(member_id) + getsizeof(instance_id or "") + getsizeof(client_id)
    return MEMBER_BYTES + texts + protocol_bytes(protocols) + getsizeof(assignment)


def bytes_of(request: JoinRequest) -> int:
    """Return the memory of the member that joins with this request."""
    return member_bytes(
        request.member_id, request.instance_id, request.client_id, tuple(request.protocols)
    )
