"""Random writes on a small tree, so that both success and refusal are frequent."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

from minikafka.zookeeper.messages import codes
from minikafka.zookeeper.messages.jute import ANYONE, Acl
from minikafka.zookeeper.messages.requests import (
    CheckVersion,
    CreateNode,
    DeleteNode,
    Operation,
    SetAcl,
    SetData,
)
from minikafka.zookeeper.server.core.acl import READABLE

T = TypeVar("T")
PATHS = ["/a", "/b", "/a/c", "/a/d", "/b/e", "/a/c/f", "/a/.", "/zookeeper"]
NO_DELETE: Acl = ((31 - 8, "world", "anyone"),)
ACLS: list[Acl | None] = [ANYONE, ANYONE, ANYONE, ANYONE, NO_DELETE, READABLE, ()]
KINDS = [codes.CREATE, codes.CREATE2, codes.CREATE_CONTAINER]


class Operations:
    """A source of random writes."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def pick(self, choices: Sequence[T]) -> T:
        return self.chance.choice(choices)

    def several(self) -> list[Operation]:
        return [
            CheckVersion(self.pick(PATHS), self._version())
            if self.chance.random() < 0.1
            else self.one()
            for _ in range(self.chance.randrange(5))
        ]

    def one(self) -> Operation:
        (kind,) = self.chance.choices((CreateNode, SetData, DeleteNode, SetAcl), (6, 3, 4, 0.5))
        path = self.pick(PATHS)
        if kind is CreateNode:
            flags = self.chance.choices((0, 1, 2, 3), (5, 2, 1, 1))[0]
            return CreateNode(self.pick(KINDS), path, self._data(), self.pick(ACLS), flags)
        if kind is SetData:
            return SetData(path, self._data(), self._version())
        if kind is DeleteNode:
            return DeleteNode(path, self._version())
        return SetAcl(path, self.pick(ACLS), self._version())

    def _data(self) -> bytes | None:
        return self.pick((None, b"", b"x", b"data"))

    def _version(self) -> int:
        return self.pick((-1, -1, -1, 0, 1))
