"""The in-memory stand-in behaves as Apache ZooKeeper: random operations run on both and are compared one by one.

Several sessions read, write, watch and end. After each operation both servers must have given the same result or
error, and the same watch signals to each session in the same order. In Stats, versions and counts must be equal
and zxids must be in the same order. A failure names its seed and the operation.
"""

from __future__ import annotations

import asyncio
import bisect
import random
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest
from support.memory_zookeeper import Ensemble, parent_of
from support.until import until
from support.zookeeper_proxy import Proxy
from support.zookeeper_servers import Apache, InMemory, RecordingClient, Zookeeper
from support.zookeepers import Connect

from minikafka.base.errors import CoordinationError, MultiFailed
from minikafka.base.ports import (
    Check,
    Create,
    Delete,
    MultiOp,
    Set,
    Stat,
    WatchKind,
    WatchSignal,
)
from minikafka.zk.processes.apache import ApacheZooKeeper

SEEDS = 12
STEPS = 120
SESSIONS = 3
SESSION_MS = 30_000
"""Session timeout; long enough that no session expires when the machine is busy."""
PATHS = ["/a", "/a/b", "/a/b/c", "/a/d", "/e"]
ODD_PATHS = ["/a/.", "/e//f", "/a/\x01"]
VERSIONS = [-1, -1, 0, 0, 1, 2, 5]
Call = Callable[[RecordingClient], Awaitable[Any]]


class Step(NamedTuple):
    """One operation of one session."""

    session: int
    call: Call


class Side:
    """One of the two servers with its sessions and the watch signals that each session received."""

    def __init__(self, zookeeper: Zookeeper) -> None:
        self.zookeeper = zookeeper
        self.clients: list[RecordingClient] = []
        self.signals: list[list[tuple[str, str, str]]] = [[] for _ in range(SESSIONS)]

    async def open(self) -> Side:
        for _ in range(SESSIONS):
            self.clients.append(await self.zookeeper.connect_directly())
        return self

    async def carry_out(self, step: Step) -> object:
        """Carry out the step; return its result, or the type name of its error."""
        try:
            return await step.call(self.clients[step.session])
        except MultiFailed as failed:
            return "MultiFailed", failed.index, type(failed.error).__name__
        except CoordinationError as error:
            return type(error).__name__

    async def watch(self, session: int, kind: WatchKind, path: str) -> object:
        """Register a watch that records its events. Return the result of the read that sets the watch at the server.

        The read is a get, exists or children.
        """
        client = self.clients[session]
        watch = client.watch(kind, path)
        watch.on_signal(lambda signal: self.noted(session, kind, path, signal))
        if kind is WatchKind.DATA:
            return await client.get(path, watch=True)
        if kind is WatchKind.EXISTS:
            return await client.exists(path, watch=True)
        return await client.children(path, watch=True)

    def noted(self, session: int, kind: WatchKind, path: str, signal: WatchSignal) -> None:
        """Record a signal that a watch of the session has sent. `signals_so_far` returns the recorded signals."""
        self.signals[session].append((kind.value, path, signal.value))

    async def end_session(self, session: int, *, expires: bool) -> None:
        """Close the session and open a new one. With `expires`, the server ends the old session."""
        client = self.clients[session]
        if not expires:
            await client.close()
            self.clients[session] = await self.zookeeper.connect_directly()
            return
        generation = client.generation
        await self.zookeeper.end_session(client.session_id, client.session_password)
        await until(lambda: client.generation > generation)

    async def signals_so_far(self) -> list[list[tuple[str, str, str]]]:
        """Wait for outstanding watch signals. Return the signals of each session since the last call of this method."""
        await asyncio.gather(*(client.sync("/") for client in self.clients))
        await asyncio.sleep(0)
        taken, self.signals[:] = [list(one) for one in self.signals], [[] for _ in self.signals]
        return taken


class Pairs:
    """Values of the real server, each with its counterpart on the stand-in.

    With `ordered`, the values must have the same order as their counterparts.
    """

    def __init__(self, *, ordered: bool) -> None:
        self._counterparts: dict[int, int] = {}
        self._ordered = ordered
        self._seen: list[tuple[int, int]] = []

    def match(self, real: int, stand_in: int) -> bool:
        if real in self._counterparts:
            return self._counterparts[real] == stand_in
        if stand_in in self._counterparts.values():
            return False
        self._counterparts[real] = stand_in
        place = bisect.bisect(self._seen, (real, stand_in))
        self._seen.insert(place, (real, stand_in))
        around = [other for _, other in self._seen[max(place - 1, 0) : place + 2]]
        return not self._ordered or around == sorted(around)


class Comparison:
    """Compares two results, except for clock times and for numbers that each server chooses itself."""

    def __init__(self) -> None:
        self.zxids = Pairs(ordered=True)
        self.owners = Pairs(ordered=False)

    def same(self, real: Any, stand_in: Any) -> bool:
        if isinstance(real, Stat) and isinstance(stand_in, Stat):
            return self._same_stat(real, stand_in)
        if isinstance(real, list | tuple):
            return (
                type(real) is type(stand_in)
                and len(real) == len(stand_in)
                and all(self.same(*pair) for pair in zip(real, stand_in, strict=True))
            )
        return bool(real == stand_in)

    def _same_stat(self, real: Stat, stand_in: Stat) -> bool:
        zxids = ("czxid", "mzxid", "pzxid")
        drawn = dict.fromkeys((*zxids, "ctime", "mtime", "ephemeral_owner"), 0)
        return (
            real._replace(**drawn) == stand_in._replace(**drawn)
            and all(self.zxids.match(getattr(real, z), getattr(stand_in, z)) for z in zxids)
            and self.owners.match(real.ephemeral_owner, stand_in.ephemeral_owner)
            and (real.ctime == real.mtime or stand_in.ctime <= stand_in.mtime)
        )


class Generator:
    """A source of random test steps: ZooKeeper operations, and ends of sessions. Equal seeds give equal steps."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.watched = "/a"
        self.first = [Create(path, b"") for path in PATHS[:2]]

    def path(self) -> str:
        """Return a random path: often the path watched last, seldom a path that every server rejects."""
        draw = self.chance.random()
        if draw < 0.03:
            return self.chance.choice(ODD_PATHS)
        return self.watched if draw < 0.6 else self.chance.choice(PATHS)

    def version(self) -> int:
        return self.chance.choice(VERSIONS)

    def write(self) -> MultiOp:
        kind = self.chance.choices((Create, Set, Delete), (7, 4, 4))[0]
        if kind is Create:
            sequential = self.chance.random() < 0.2
            suffix = "-" if sequential else ""
            ephemeral = self.chance.random() < 0.3
            return Create(self.path() + suffix, self.data(), ephemeral, sequential)
        return Set(self.path(), self.data(), self.version()) if kind is Set else self.delete()

    def delete(self) -> Delete:
        return Delete(self.path(), self.version())

    def data(self) -> bytes:
        return self.chance.randbytes(self.chance.randrange(4))

    def multi(self) -> list[MultiOp]:
        return [
            Check(self.path(), self.version()) if self.chance.random() < 0.3 else self.write()
            for _ in range(self.chance.randrange(1, 6))
        ]

    def read(self) -> tuple[str, Call]:
        path = self.chance.choice((self.path(), self.path(), "/"))
        paths = [self.path() for _ in range(4)]
        reads: list[tuple[str, Call]] = [
            (f"get {path}", lambda client: client.get(path)),
            (f"exists {path}", lambda client: client.exists(path)),
            (f"children {path}", lambda client: client.children(path)),
            (f"get_many {paths}", lambda client: client.get_many(paths)),
            (f"children_many {paths}", lambda client: client.children_many(paths)),
        ]
        return self.chance.choice(reads)

    def step(self) -> tuple[int, str, object]:
        """Return the next random step as (session, kind, argument)."""
        if self.first:
            return 0, "write", self.first.pop(0)
        kinds = ("write", "multi", "read", "watch", "unwatch", "close", "expire")
        (kind,) = self.chance.choices(kinds, (9, 4, 3, 12, 1, 0.4, 0.4))
        session = self.chance.randrange(SESSIONS)
        if kind == "write":
            return session, kind, self.write()
        if kind == "multi":
            return session, kind, self.multi()
        if kind == "read":
            return session, kind, self.read()
        if kind not in ("watch", "unwatch"):
            return session, kind, None
        self.watched = self.chance.choice(PATHS)
        watched = self.chance.choice((self.watched, parent_of(self.watched)))
        return session, kind, (self.chance.choice(list(WatchKind)), watched)


async def apply_write(client: RecordingClient, op: Any) -> object:
    """Carry out one Create, Set or Delete with the client's method for this operation, without a multi."""
    if isinstance(op, Create):
        return await client.create(
            op.path, op.data, ephemeral=op.ephemeral, sequential=op.sequential
        )
    if isinstance(op, Set):
        return await client.set(op.path, op.data, op.version)
    return await client.delete(op.path, op.version)


def call_on(side: Side, session: int, kind: str, argument: Any) -> Call:
    """Return the function that carries out the step on one of the two servers."""
    calls: dict[str, Call] = {
        "write": lambda client: apply_write(client, argument),
        "multi": lambda client: client.multi(argument),
        "read": lambda client: argument[1](client),
        "watch": lambda client: side.watch(session, *argument),
        "unwatch": lambda client: client.unwatch(*argument),
        "close": lambda client: side.end_session(session, expires=False),
        "expire": lambda client: side.end_session(session, expires=True),
    }
    return calls[kind]


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_in_memory_zookeeper_has_the_results_and_watch_events_of_apache_zookeeper(
    server: ApacheZooKeeper, proxy: Proxy, connect: Connect, seed: int
) -> None:
    await compare(seed, Apache(server, proxy, connect, session_ms=SESSION_MS), InMemory())


class Forgetful(Ensemble):
    """A faulty server: deleting a node does not fire the node's child watches."""

    def _fire(self, transaction: Any) -> None:
        for _, path in transaction.changes:
            if path not in self.nodes:
                self.child_watchers.pop(path, None)
        super()._fire(transaction)


async def test_lock_step_comparison_fails_when_a_watch_event_is_missing() -> None:
    async def compare_all() -> None:
        for seed in range(SEEDS):
            forgetful = InMemory()
            forgetful.ensemble = Forgetful()
            await compare(seed, InMemory(), forgetful)

    with pytest.raises(AssertionError, match="'children'"):
        await compare_all()


async def compare(seed: int, apache: Zookeeper, memory: Zookeeper) -> None:
    """Carry out the steps of the seed on both servers; assert equal results and signals after each step."""
    generator, comparison = Generator(seed), Comparison()
    real, stand_in = await Side(apache).open(), await Side(memory).open()
    for number in range(STEPS):
        session, kind, argument = generator.step()
        shown = argument[0] if kind == "read" else argument  # type: ignore[index]
        text = f"seed {seed}, step {number}: session {session}, {kind} {shown}"
        results, signals = [], []
        for side in (real, stand_in):
            step = Step(session, call_on(side, session, kind, argument))
            results.append(await side.carry_out(step))
            signals.append(await side.signals_so_far())
        if kind in ("close", "expire"):
            # Apache ZooKeeper deletes the nodes of a session in the arbitrary order of a hash map.
            signals = [[sorted(one) for one in both] for both in signals]
        assert comparison.same(*results), f"{text}: {results[0]} in Apache, {results[1]} in memory"
        assert signals[0] == signals[1], f"{text}: {signals[0]} in Apache, {signals[1]} in memory"
    assert comparison.same(await whole_tree(real), await whole_tree(stand_in)), f"seed {seed}"


async def whole_tree(side: Side) -> list[object]:
    """Return (path, (data, Stat), child names) of every node; both servers are walked in the same order."""
    client = side.clients[0]
    nodes: list[object] = []
    paths = ["/"]
    while paths:
        path = paths.pop()
        names, _ = await client.children(path)
        nodes.append((path, await client.get(path), names))
        paths += [f"{path.rstrip('/')}/{name}" for name in names]
    return nodes
