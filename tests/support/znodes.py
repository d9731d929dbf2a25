"""A tree of znodes in memory: as much of the Coordination port as the broker's own writes use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minikafka.base.errors import BadVersion, MultiFailed, NodeExists, NoNode, ServerVerdict
from minikafka.base.ports import Check, Create, MultiOp, Set, Stat


class Znodes:
    """Data and version by path. `failures`: raised, one each, by the next calls; with `applied` a
    failing multi is applied all the same, as when only its answer is lost."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes, int]] = {}
        self.failures: list[Exception] = []
        self.applied = False
        self.multis: list[Sequence[MultiOp]] = []
        self.generation = 1
        self.session_timeout_ms = 6000

    async def get(self, path: str, *, watch: bool = False) -> tuple[bytes, Stat]:
        self._fail()
        if path not in self.nodes:
            raise NoNode(path)
        data, version = self.nodes[path]
        return data, _stat(version)

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        self._fail()
        return [
            (self.nodes[path][0], _stat(self.nodes[path][1])) if path in self.nodes else None
            for path in paths
        ]

    async def children(self, path: str, *, watch: bool = False) -> tuple[list[str], Stat]:
        self._fail()
        below = (name[len(path) + 1 :] for name in self.nodes if name.startswith(path + "/"))
        return [name for name in below if "/" not in name], _stat(0)

    async def set(
        self, path: str, data: bytes, version: int, *, generation: int | None = None
    ) -> Stat:
        self._fail()
        self._apply(Set(path, data, version), self.nodes)
        return _stat(self.nodes[path][1])

    async def multi(self, ops: Sequence[MultiOp], *, generation: int | None = None) -> list[Any]:
        self.multis.append(ops)
        if not self.applied:
            self._fail()
        nodes = dict(self.nodes)
        for index, op in enumerate(ops):
            try:
                self._apply(op, nodes)
            except ServerVerdict as error:
                raise MultiFailed(index, error) from error
        self.nodes = nodes
        self._fail()
        return [None] * len(ops)

    def _fail(self) -> None:
        if self.failures:
            raise self.failures.pop(0)

    def _apply(self, op: MultiOp, nodes: dict[str, tuple[bytes, int]]) -> None:
        if isinstance(op, Create):
            if op.path in nodes:
                raise NodeExists(op.path)
            nodes[op.path] = (op.data, 0)
            return
        if op.path not in nodes:
            raise NoNode(op.path)
        version = nodes[op.path][1]
        if op.version not in (-1, version):
            raise BadVersion(op.path)
        if isinstance(op, Set):
            nodes[op.path] = (op.data, version + 1)
        elif not isinstance(op, Check):
            del nodes[op.path]


def _stat(version: int) -> Stat:
    return Stat(1, 1, 0, 0, version, 0, 0, 0, 0, 0, 0)
