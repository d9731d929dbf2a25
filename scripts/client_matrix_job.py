"""Every Kafka client over TLS and SASL, with wrong passwords and certificates, and while brokers are killed.

    [MINIKAFKA_KAFKA_JARS=DIR] client-matrix [--client NAME …] [--cell NAME …] [--coordination MODE …]
        [--keep DIR] [--json]

Each client is a program of `tests/clients/drivers`, which is built with go, npm, mvn or javac from packages of their
registries or caches. A client whose tools are missing is skipped. Apache Kafka's client and tools of version 3.9 need
MINIKAFKA_KAFKA_JARS. The whole matrix takes about 20 minutes. The exit code is 0 only if no cell has failed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import endings
import pytest
from display import Display

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from support.clients.secure_clients import MECHANISMS, SECURE_CLIENTS, SecureClient
from support.security import client_cells as cells

from minikafka.base.coordination import MODES
from minikafka.tools.cli.execution.running import run_cancellable

PARALLEL = 2
CELL_SECONDS = 240.0


class Places(NamedTuple):
    """The brokers of a run, and a broker with unfit certificates."""

    good: cells.Place
    unfit: cells.UnfitServer


Run = Callable[[Places, list[str], SecureClient], Awaitable[object]]


class Cell(NamedTuple):
    """One row of the matrix. `has` tells which clients it concerns."""

    name: str
    run: Run
    has: Callable[[SecureClient], bool] = lambda _: True
    is_alone: bool = False
    """Brokers are killed: no other cell runs meanwhile."""


def exchange(mechanism: str) -> Cell:
    """Return the cell of a mechanism over SASL_SSL."""

    async def run(places: Places, command: list[str], _: SecureClient) -> str:
        return await cells.exchange(places.good, command, places.good.sasl(mechanism))

    return Cell(f"SASL_SSL {mechanism}", run, lambda client: mechanism in client.mechanisms)


def wrong(mechanism: str) -> Cell:
    """Return the cell of a wrong password, or of an expired token."""

    async def run(places: Places, command: list[str], _: SecureClient) -> object:
        return await cells.refused(places.good, command, places.good.sasl(mechanism, "wrong"))

    name = "expired token" if mechanism == "OAUTHBEARER" else f"wrong password, {mechanism}"
    return Cell(name, run, lambda client: mechanism in client.mechanisms)


async def certificate(places: Places, command: list[str], _: SecureClient) -> str:
    """Run the cell of a client's certificate."""
    return await cells.exchange(places.good, command, places.good.certificate())


async def expired(places: Places, command: list[str], _: SecureClient) -> object:
    """Run the cell of a server's expired certificate."""
    return await cells.refused(places.good, command, *places.unfit.expired)


async def foreign_server(places: Places, command: list[str], _: SecureClient) -> object:
    """Run the cell of a server's foreign certificate."""
    return await cells.refused(places.good, command, *places.unfit.foreign)


async def foreign_client(places: Places, command: list[str], _: SecureClient) -> object:
    """Run the cell of a client's foreign certificate."""
    return await cells.refused(places.good, command, places.good.foreign_certificate())


async def killed(places: Places, command: list[str], _: SecureClient) -> str:
    """Run the cell of a killed broker."""
    return await cells.killed(places.good, command, places.good.sasl("SCRAM-SHA-512"))


async def reauthenticated(places: Places, command: list[str], _: SecureClient) -> str:
    """Run the cell of `connections.max.reauth.ms`."""
    return await cells.reauthenticated(places.good, command, "SCRAM-SHA-256")


async def replaced(places: Places, command: list[str], _: SecureClient) -> str:
    """Run the cell of replaced certificates."""
    return await cells.replaced(places.good, command, places.good.sasl("SCRAM-SHA-256"))


async def tokens(places: Places, command: list[str], _: SecureClient) -> str:
    """Run the cell of delegation tokens."""
    return await cells.with_token(places.good, command)


async def administrated(places: Places, command: list[str], client: SecureClient) -> str:
    """Run the cell of the administration of rights."""
    return await cells.administrated(places.good, command, client.rights)


CELLS = (
    Cell("SSL with client certificate", certificate),
    *map(exchange, MECHANISMS),
    *map(wrong, MECHANISMS),
    Cell("expired server certificate", expired),
    Cell("foreign server certificate", foreign_server),
    Cell("foreign client certificate", foreign_client),
    Cell("re-authentication every 2 s", reauthenticated),
    Cell("delegation token", tokens, lambda client: client.name.startswith("java")),
    Cell(
        "ACLs, users, quotas, operations",
        administrated,
        lambda client: bool(client.rights),
        is_alone=True,
    ),
    Cell("broker killed", killed, is_alone=True),
    Cell("certificates replaced", replaced, is_alone=True),
)


class Outcome(NamedTuple):
    """The outcome of a cell: passed, failed, skipped."""

    client: str
    cell: str
    coordination: str
    outcome: str
    detail: object
    seconds: float


class Matrix:
    """One run of chosen cells."""

    def __init__(self, display: Display, places: Places, coordination: str) -> None:
        self._display = display
        self._places = places
        self._coordination = coordination
        self._slots = asyncio.Semaphore(PARALLEL)
        self.outcomes: list[Outcome] = []

    async def run(
        self, clients: Sequence[tuple[SecureClient, list[str] | str]], chosen: Sequence[Cell]
    ) -> None:
        """Run the cells of all clients."""
        wanted = [
            (cell, client, command)
            for client, command in clients
            for cell in chosen
            if cell.has(client)
        ]
        together = [self._in_slot(*one) for one in wanted if not one[0].is_alone]
        await asyncio.gather(*together)
        for one in wanted:
            if one[0].is_alone:
                await self._cell(*one)

    async def _in_slot(self, cell: Cell, client: SecureClient, command: list[str] | str) -> None:
        async with self._slots:
            await self._cell(cell, client, command)

    async def _cell(self, cell: Cell, client: SecureClient, command: list[str] | str) -> None:
        begin = time.monotonic()
        outcome, detail = await self._attempt(cell, client, command)
        seconds = round(time.monotonic() - begin, 1)
        self.outcomes.append(
            Outcome(client.name, cell.name, self._coordination, outcome, detail, seconds)
        )
        mode = self._coordination
        self._display.say(f"{outcome:8}{client.name}, {cell.name}, {mode}: {detail} ({seconds} s)")

    async def _attempt(
        self, cell: Cell, client: SecureClient, command: list[str] | str
    ) -> tuple[str, Any]:
        if isinstance(command, str):
            return "skipped", command
        try:
            async with asyncio.timeout(CELL_SECONDS):
                return "passed", await cell.run(self._places, command, client)
        except Exception as error:  # noqa: BLE001  each failure is the outcome of its cell
            return "failed", f"{type(error).__name__}: {error}"


def build(
    clients: Sequence[SecureClient], folder: Path
) -> list[tuple[SecureClient, list[str] | str]]:
    """Return the command of each client's driver, or why there is none."""
    found: list[tuple[SecureClient, list[str] | str]] = []
    for client in clients:
        try:
            found.append((client, client.build(folder / client.name)))
        except pytest.skip.Exception as skipped:
            found.append((client, str(skipped)))
    return found


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="client-matrix", description=(__doc__ or "").split("\n")[0]
    )
    add = parser.add_argument
    add("--client", nargs="+", choices=[one.name for one in SECURE_CLIENTS], metavar="NAME",
        help=f"only these: {', '.join(one.name for one in SECURE_CLIENTS)}")  # fmt: skip
    add("--cell", nargs="+", choices=[one.name for one in CELLS], metavar="NAME",
        help=f"only these: {'; '.join(one.name for one in CELLS)}")  # fmt: skip
    add("--coordination", nargs="+", choices=MODES, default=list(MODES), help="only these modes")
    add(
        "--keep",
        type=Path,
        metavar="DIR",
        help="keep the logs of the brokers in DIR, which must not exist",
    )
    add("--json", action="store_true", help="print the outcomes as one JSON array")
    return parser.parse_args(sys.argv[1:])


def main() -> bool:
    """Run the matrix. Return True if no cell has failed."""
    arguments = parse()
    clients = [c for c in SECURE_CLIENTS if c.name in (arguments.client or [c.name])]
    chosen = [c for c in CELLS if c.name in (arguments.cell or [c.name])]
    outcomes: list[Outcome] = []
    with Display() as display, TemporaryDirectory(prefix="minikafka-matrix-") as name:
        display.say("building the drivers …")
        commands = build(clients, Path(name) / "drivers")
        directory = arguments.keep or Path(name) / "brokers"
        directory.mkdir()
        for mode in arguments.coordination:
            display.say(f"starting brokers, coordination {mode} …")
            outcomes += run_mode(display, directory.resolve() / mode, mode, commands, chosen)
    if arguments.json:
        print(json.dumps([outcome._asdict() for outcome in outcomes]))
    counts = {
        kind: sum(one.outcome == kind for one in outcomes)
        for kind in ("passed", "failed", "skipped")
    }
    print(", ".join(f"{number} {kind}" for kind, number in counts.items()), file=sys.stderr)
    return counts["failed"] == 0


def run_mode(
    display: Display,
    directory: Path,
    mode: str,
    commands: Sequence[tuple[SecureClient, list[str] | str]],
    chosen: Sequence[Cell],
) -> list[Outcome]:
    """Run the cells on brokers of one coordination mode."""
    unfit_directory = directory / "unfit"
    unfit_directory.mkdir(parents=True)
    with ExitStack() as stack:
        good = stack.enter_context(cells.Place(directory, coordination=mode))
        unfit = stack.enter_context(cells.UnfitServer(unfit_directory))
        matrix = Matrix(display, Places(good, unfit), mode)
        run_cancellable(matrix.run(commands, chosen))
    return matrix.outcomes


if __name__ == "__main__":
    endings.run("client-matrix", main)
