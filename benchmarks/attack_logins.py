"""`python -m benchmarks.attack_logins`: attacks of clients that have not authenticated.

Each flood has a new broker, and 2,000 connections that attack as soon as they are open; a connection that the broker
closes is opened again. Meanwhile another client connects, logs in and produces a record. Then a scanner compares the
times of answers to failed logins with and without an existing user. The exit code is 1 if a limit is exceeded: of the
broker's memory, of the other client's wait, of connections that the broker must close, or of the scanner.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import ssl
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks import kafka, lifetime, login_times, report
from benchmarks.attacks import forget_peak, memory_mb
from benchmarks.closed_loop import LoadError
from benchmarks.peer import HOST, in_thread
from benchmarks.secured import Access, Material, make_material
from minikafka import LocalCluster
from minikafka.base.config.cluster import ClusterConfig
from minikafka.client import Client, NewTopic
from minikafka.kafka.wire import codec
from minikafka.kafka.wire.versions import SASL_AUTHENTICATE, SASL_HANDSHAKE

CONNECTIONS: Final = 2_000
LARGE_CONNECTIONS: Final = 200
LOGINS: Final = 5
"""How often the other client connects during a flood."""
LOGIN_SECONDS: Final = 10.0
"""The longest that the other client may need, on a busy machine too."""
SILENT_MB: Final = 60
"""Limit for 2,000 connections that send nothing, and for what all connections cost apart from TLS."""
PLACES: Final = 256
"""The most connections of a listener that shake hands at once."""
TLS_MB: Final = 0.1
"""Limit for the TLS state of one connection."""
FRAMES_MB: Final = 8
"""What the broker reserves for large requests before authentication."""
RECEIVE_MAX: Final = 512 << 10
"""The default of sasl.server.max.receive.size."""
DRIP_SECONDS: Final = 0.2
OPEN_SECONDS: Final = 120.0
OPENED_AT_ONCE: Final = 100
TOPIC: Final = "other"


class Flood(NamedTuple):
    """A kind of attack. A connection handshakes first if `secures`, and sends the bytes `data(access)`.

    Then it sends one byte of `drip` after the other, or is silent. `memory_mb`: the limit of the broker's growth with
    the given number of connections. `is_closed`: the broker must close each connection at once.
    """

    name: str
    connections: int
    data: Callable[[Access], bytes]
    memory_mb: Callable[[int], float]
    secures: bool = False
    drip: bytes = b""
    is_closed: bool = False


class Flooded(NamedTuple):
    """The figures of one flood: memory in MB, and the other client's times in s."""

    flood: Flood
    connections: int
    growth_mb: float
    waits: list[float]
    closed: int

    def failures(self) -> list[str]:
        """Return which limits are exceeded."""
        most = self.flood.memory_mb(self.connections)
        found = []
        if self.growth_mb > most:
            found.append(f"the memory grew by {self.growth_mb:.0f} MB, at most {most:.0f} MB")
        if max(self.waits) > LOGIN_SECONDS:
            found.append(
                f"another client waited {max(self.waits):.1f} s, at most {LOGIN_SECONDS} s"
            )
        if self.flood.is_closed and self.closed < self.connections:
            found.append(f"only {self.closed} of {self.connections} connections were closed")
        return [f"{self.flood.name}: {text}" for text in found]

    def facts(self) -> dict[str, object]:
        """Return the figures as values for JSON."""
        return {
            "connections": self.connections,
            "growth_mb": round(self.growth_mb, 1),
            "waits_s": [round(wait, 3) for wait in self.waits],
            "closed": self.closed,
        }

    def line(self) -> str:
        """Return the figures as text."""
        return (
            f"{self.connections:,} connections, {self.flood.name}: the broker grew by {self.growth_mb:.0f} MB, "
            f"another client was served within {max(self.waits):.2f} s, {self.closed:,} connections closed"
        )


class Attacker:
    """The attacking connections of one flood."""

    def __init__(
        self, address: tuple[str, int], flood: Flood, access: Access, connections: int
    ) -> None:
        self._address = address
        self._flood = flood
        self._data = flood.data(access)
        self._tls = access.context if flood.secures else None
        self._turns = asyncio.Semaphore(OPENED_AT_ONCE)
        self._left = connections
        self.has_begun = asyncio.Event()
        self.closed = 0

    async def attack(self) -> None:
        """Attack with one connection, and open it again when the broker closes it, until cancelled."""
        is_first = True
        while True:
            with suppress(OSError, ssl.SSLError, asyncio.IncompleteReadError):
                async with self._turns:
                    reader, writer = await asyncio.open_connection(*self._address, ssl=self._tls)
                    writer.write(self._data)
                if is_first:
                    self._left -= 1
                    is_first = False
                if not self._left:
                    self.has_begun.set()
                try:
                    await self._last(reader, writer)
                finally:
                    writer.transport.abort()
            self.closed += 1
            await asyncio.sleep(DRIP_SECONDS)

    async def _last(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Send the rest byte by byte, then wait until the broker closes the connection."""
        for byte in self._flood.drip:
            await asyncio.sleep(DRIP_SECONDS)
            writer.write(bytes([byte]))
            await writer.drain()
        while await reader.read(1 << 16):
            pass


def nothing(_: Access) -> bytes:
    """Return no bytes."""
    return b""


def client_hello(access: Access) -> bytes:
    """Return the first message of a TLS handshake."""
    outgoing = ssl.MemoryBIO()
    tls = access.context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=HOST)
    with suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def noise(_: Access) -> bytes:
    """Return bytes that begin no TLS handshake."""
    return b"\0" + os.urandom(99)


def choice(_: Access) -> bytes:
    """Return a request that chooses the mechanism PLAIN."""
    body = codec.request(SASL_HANDSHAKE, 1, mechanism="PLAIN")
    return codec.encode_request(SASL_HANDSHAKE, 1, 1, "attacker", body)


def large_token(size: int, _: Access) -> bytes:
    """Return the choice, and all but the last byte of a SaslAuthenticate request of `size` bytes."""
    body = codec.request(SASL_AUTHENTICATE, 1, auth_bytes=bytes(size))
    frame = codec.encode_request(SASL_AUTHENTICATE, 1, 2, "attacker", body)
    cut = kafka.LENGTH.pack(size) + frame[kafka.LENGTH.size : kafka.LENGTH.size + size]
    return choice(_) + cut[:-1]


DRIP: Final = kafka.LENGTH.pack(4_000) + bytes(200)
"""The beginning of a request that is never complete."""


def of_silent(connections: int) -> float:
    """Return the limit for connections without TLS state: `SILENT_MB` for all, and 15 MB at least."""
    return max(SILENT_MB * connections / CONNECTIONS, SILENT_MB / 4)


def of_places(connections: int) -> float:
    """Return the limit for connections of which `PLACES` have TLS state."""
    return of_silent(connections) + min(connections, PLACES) * TLS_MB


def of_all(connections: int) -> float:
    """Return the limit for connections that all have TLS state."""
    return of_silent(connections) + connections * TLS_MB


def of_frames(connections: int) -> float:
    """Return the limit for connections that have TLS state and send large requests."""
    return of_all(connections) + FRAMES_MB


FLOODS: Final = (
    Flood("silent", CONNECTIONS, nothing, of_silent),
    Flood("half of a TLS handshake", CONNECTIONS, client_hello, of_places),
    Flood("no TLS", CONNECTIONS, noise, of_silent, is_closed=True),
    Flood("a login byte by byte after TLS", CONNECTIONS, choice, of_all, secures=True, drip=DRIP),
    Flood(
        "all but one byte of a token of 512 KiB",
        CONNECTIONS,
        partial(large_token, RECEIVE_MAX),
        of_frames,
        secures=True,
    ),
    Flood(
        "a token of more than 512 KiB",
        LARGE_CONNECTIONS,
        partial(large_token, RECEIVE_MAX + 1),
        of_frames,
        secures=True,
        is_closed=True,
    ),
)
SCANNER: Final = "the scanner"
LISTENER: Final = "SASL_SSL"


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attack_logins", description=__doc__)
    parser.add_argument(
        "--only",
        metavar="TEXT",
        default="",
        help=f"run only attacks with TEXT in their name, or {SCANNER}",
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="factor for connections and logins (default: 1)"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="append a line of results to FILE"
    )
    options = parser.parse_args()
    failures: list[str] = []
    lifetime.live(run(options, failures), asyncio.run)
    if failures:
        sys.exit("\n".join(failures))


async def run(options: argparse.Namespace, failures: list[str]) -> None:
    """Run the attacks, print each result at once, and add the exceeded limits to `failures`."""
    print(report.machine(), flush=True)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    facts: dict[str, object] = {}
    with tempfile.TemporaryDirectory(prefix="logins-") as directory:
        material = make_material(Path(directory))
        for flood in FLOODS:
            if options.only in flood.name:
                connections = max(int(flood.connections * options.scale), 10)
                row = await flooded(flood, material, connections)
                print(row.line(), flush=True)
                failures += row.failures()
                facts[flood.name] = row.facts()
        if options.only in SCANNER:
            async with new_broker(material) as cluster:
                times = await login_times.scan(cluster, material, options.scale)
            for compared in times:
                print(compared.line(), flush=True)
                failures += compared.failures()
            facts[SCANNER] = {compared.name: compared.facts() for compared in times}
    if options.json is not None:
        report.append(options.json, {"machine": report.machine(), "attack_logins": facts})


@asynccontextmanager
async def new_broker(material: Material) -> AsyncIterator[LocalCluster]:
    """Start a broker with listeners of three protocols, and create the topic of the other client."""
    keys = {**material.keys("PLAINTEXT"), **login_times.KEYS}
    # A mapping would be combined with the defaults of LocalCluster, which differ from Kafka's.
    config = ClusterConfig(port=0, broker=keys)
    async with LocalCluster(
        1, config=config, port=0, listeners={LISTENER: 0, "SASL_PLAINTEXT": 0}
    ) as cluster:
        async with Client(cluster.bootstrap_of("PLAINTEXT")) as client:
            await client.create_topics(NewTopic(TOPIC, 1, 1))
        yield cluster


async def flooded(flood: Flood, material: Material, connections: int) -> Flooded:
    """Flood a new broker, and return the figures."""
    access = material.access(LISTENER)
    async with new_broker(material) as cluster:
        address = (HOST, cluster.record.brokers[0].ports[LISTENER])
        await in_thread(partial(produce_once, address, access))
        before = forget_peak(cluster)
        attacker = Attacker(address, flood, access, connections)
        tasks = [asyncio.create_task(attacker.attack()) for _ in range(connections)]
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                await attacker.has_begun.wait()
            waits = []
            for _ in range(LOGINS):
                waits.append(await in_thread(partial(produce_once, address, access)))
                await asyncio.sleep(DRIP_SECONDS)
            closed = attacker.closed
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        growth = memory_mb(cluster, "VmHWM") - before
    return Flooded(flood, connections, growth, waits, closed)


def produce_once(address: tuple[str, int], access: Access) -> float:
    """Connect, log in, and produce a record; return the seconds that this took. Raises LoadError, OSError."""
    request = kafka.produce_request(7, TOPIC, 0, kafka.batch_of(259), 1)
    answer = kafka.produce_answer(7, TOPIC)
    started = time.perf_counter()
    with kafka.Session(*address, access.secure) as session:
        session.socket.sendall(request)
        frame = session.receive()
    found = answer.fields.unpack(kafka.LENGTH.pack(len(frame)) + frame)
    if found != answer.expected:
        raise LoadError("a produce request of the other client was refused")
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
