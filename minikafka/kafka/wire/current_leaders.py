"""The current leaders that a Produce or Fetch response names for partitions that this broker does not lead (KIP-951).

A client of Produce 10 or Fetch 16 can then send its next request to the leader without a Metadata request first.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from minikafka.base.model import BrokerId, Node
from minikafka.kafka.wire.primitives import INT32, NO_TAGS, compact_array, compact_string, tags

_LEADER: Final = Struct(">iiB")
"""Leader id, leader epoch, and an empty section of tagged fields."""
_NODE_ENDPOINTS: Final = 0
"""Tag of the addresses, in the response of either API."""


class CurrentLeaders:
    """The leaders of refused partitions in one response, and the leaders' addresses.

    A partition is the pair of its topic, as the response names it, and its number.
    """

    __slots__ = ("_found", "_nodes")

    def __init__(self) -> None:
        self._found: dict[tuple[bytes, int], tuple[BrokerId, int]] = {}
        self._nodes: dict[BrokerId, Node] = {}

    def add(
        self, topic: bytes, number: int, leader: tuple[BrokerId, int], node: Node | None
    ) -> None:
        """Name the leader (id, leader epoch) of a partition; (-1, -1) if it is unknown. `node`: its address."""
        self._found[topic, number] = leader
        if node is not None:
            self._nodes[node.id] = node

    def of(self, topic: bytes, number: int) -> bytes:
        """Return the encoded leader of a partition, b"" if it is unknown."""
        leader, epoch = self._found.get((topic, number), (-1, -1))
        return _LEADER.pack(leader, epoch, 0) if (leader, epoch) != (-1, -1) else b""

    def node_endpoints(self) -> bytes:
        """Return the response's section of tagged fields, with the addresses of the leaders."""
        if not self._nodes:
            return NO_TAGS
        nodes = [
            INT32.pack(node.id)
            + compact_string(node.host)
            + INT32.pack(node.port)
            + compact_string(node.rack)
            + NO_TAGS
            for node in self._nodes.values()
        ]
        return tags([(_NODE_ENDPOINTS, compact_array(len(nodes)) + b"".join(nodes))])
