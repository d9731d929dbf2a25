"""Requests with flipped, cut and added bytes: the server stays alive, answers or closes, and its directory recovers."""

from __future__ import annotations

import asyncio
import random
import struct

import pytest
from support.zookeeper import wire as wire
from support.zookeeper.sequences import Sequence
from support.zookeeper.server_states import fingerprint
from support.zookeeper.state import assert_consistent
from support.zookeeper.wire import WireClient

from minikafka.runtime.tasks import TaskRegistry, ThreadExecutor
from minikafka.simulation.clocks import LoopClock
from minikafka.simulation.loop import run_seeded
from minikafka.simulation.ports import SeededRng
from minikafka.simulation.storage import MemoryStorage
from minikafka.simulation.transport import MemoryTransport
from minikafka.zookeeper.messages import codes
from minikafka.zookeeper.server.core.state import ServerState
from minikafka.zookeeper.server.server import ZooKeeperServer
from minikafka.zookeeper.server.settings import ServerSettings
from minikafka.zookeeper.server.store.store import Store

SEEDS = 4
SEQUENCES = 40
BATCH = 10
CLIENTS = 3
PORT = 2181
DIRECTORY = "/data"
TICK_MS = 2_000
MARKER_XID = 1_000_000
XID_BYTES = 4
HEADER_BYTES = 8
OPCODE_DAMAGE = 0.03
"""How often the opcode may be damaged too: most damage to it ends the connection."""
NUMBERS = [struct.pack("!i", number) for number in (-1, -2, 0, 1, 2**31 - 1, -(2**31), 10**6)]


class Mutator:
    """A source of damaged requests. The xid stays, so that replies can be counted."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def frame(self, frame: bytes) -> bytes:
        """Return the frame with up to three kinds of damage."""
        damages = (self._flip, self._cut, self._add, self._replace_number, bytes)
        kept = XID_BYTES if self.chance.random() < OPCODE_DAMAGE else HEADER_BYTES
        for damage in self.chance.choices(damages, (6, 2, 2, 4, 6), k=self.chance.randrange(1, 4)):
            frame = frame[:kept] + damage(frame[kept:])
        return frame

    def _place(self, body: bytes) -> int:
        return self.chance.randrange(len(body) + 1)

    def _flip(self, body: bytes) -> bytes:
        place = self._place(body)
        flipped = bytes(byte ^ (1 << self.chance.randrange(8)) for byte in body[place : place + 1])
        return body[:place] + flipped + body[place + 1 :]

    def _cut(self, body: bytes) -> bytes:
        place = self._place(body)
        return body[:place] + body[place + self.chance.choice((1, 2, 4, 10**6)) :]

    def _add(self, body: bytes) -> bytes:
        place = self._place(body)
        return body[:place] + self.chance.randbytes(self.chance.choice((1, 4, 50))) + body[place:]

    def _replace_number(self, body: bytes) -> bytes:
        place = self._place(body)
        return body[:place] + self.chance.choice(NUMBERS) + body[place + 4 :]


class Attack:
    """Mutated requests of several clients to one server with a store in memory."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.mutator = Mutator(seed)
        self.storage = MemoryStorage()
        self.transport = MemoryTransport()
        self.failures: list[str] = []
        self.store = Store(self.storage, DIRECTORY)
        self.server = ZooKeeperServer(
            self.store,
            LoopClock(),
            SeededRng(seed),
            self.transport,
            TaskRegistry(),
            ThreadExecutor(),
            settings=ServerSettings(tick_ms=TICK_MS),
            on_failure=self.failures.append,
        )
        self.clients: list[WireClient] = []
        self.answered = self.closed = 0

    async def run(self) -> None:
        await self.server.start("127.0.0.1", PORT)
        self.clients = [await wire.client(self.transport) for _ in range(CLIENTS)]
        for number in range(SEQUENCES):
            root = f"/s{number}"
            steps = Sequence(self.seed * SEQUENCES + number, root).steps()
            requests = [step for step in steps if step.code is not None]
            for start in range(0, len(requests), BATCH):
                some = requests[start : start + BATCH]
                frames = [
                    struct.pack("!ii", xid, step.code) + step.record
                    for xid, step in enumerate(some, 1)
                ]
                await self.send(self.mutator.chance.randrange(CLIENTS), frames)
            self.check_recovery()
        await self.server.close()

    async def send(self, place: int, frames: list[bytes]) -> None:
        """Send damaged frames; assert that each is answered unless the server closes the connection."""
        client = self.clients[place]
        for frame in frames:
            client.send(self.mutator.frame(frame))
        client.request(codes.WHO_AM_I, xid=MARKER_XID)
        replies = 0
        try:
            while (reply := await client.reply()).xid != MARKER_XID:
                replies += reply.xid != wire.EVENT_XID
        except ConnectionError:
            self.closed += 1
            self.clients[place] = await wire.client(self.transport)
        else:
            assert replies == len(frames)
        self.answered += replies
        assert self.failures == []

    def check_recovery(self) -> None:
        """Assert that a start with the files as they are now gives the state that the server has."""
        assert_consistent(self.server.state)
        recovered = ServerState(tick_ms=TICK_MS)
        Store(self.storage.clone(), DIRECTORY).recover(recovered)
        assert fingerprint(recovered) == fingerprint(self.server.state)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_server_survives_mutated_requests_and_its_directory_recovers(seed: int) -> None:
    async def run() -> Attack:
        attack = Attack(seed)
        await attack.run()
        return attack

    attack = run_seeded(seed, run())
    assert attack.answered > 50 * SEQUENCES / 2, "most requests must be answered"
    assert attack.closed, "some damage must end the connection"


def test_server_closes_connections_with_damaged_lengths_and_stays_alive() -> None:
    """Here the damage also meets the lengths of frames, so that the server sees frames that nobody sent."""

    async def run() -> None:
        attack = Attack(99)
        await attack.server.start("127.0.0.1", PORT)
        for number in range(200):
            client = await wire.client(attack.transport)
            steps = Sequence(number, "/s").steps(BATCH)
            frames = [struct.pack("!ii", 1, step.code) + step.record for step in steps if step.code]
            stream = b"".join(struct.pack("!i", len(frame)) + frame for frame in frames)
            client.link.send([attack.mutator.frame(stream)])
            await asyncio.sleep(0)
            client.link.close()
            other = await wire.client(attack.transport)
            assert (await other.call(codes.WHO_AM_I)).error == 0
            other.link.close()
        assert attack.failures == []
        attack.check_recovery()
        await attack.server.close()

    run_seeded(1, run())
