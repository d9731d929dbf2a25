"""Some cells of the client matrix over TLS and SASL; `scripts/client-matrix` runs all of them, with all clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.clients.secure_clients import SECURE_CLIENTS
from support.security import client_cells as cells

PYTHON = [one for one in SECURE_CLIENTS if one.name.endswith(("kafka", "python"))]
COMMANDS = {client.name: client.build(Path()) for client in PYTHON}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[cells.Place]:
    """Yield two brokers of the mode without a controller."""
    directory = tmp_path_factory.mktemp("matrix")
    with cells.Place(directory, brokers=2, coordination="leaders") as started:
        yield started


@pytest.fixture(scope="module")
def unfit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[cells.UnfitServer]:
    with cells.UnfitServer(tmp_path_factory.mktemp("unfit")) as started:
        yield started


@pytest.mark.parametrize("name", COMMANDS)
async def test_client_sends_nothing_to_a_server_with_an_expired_or_foreign_certificate(
    place: cells.Place, unfit: cells.UnfitServer, name: str
) -> None:
    for login, address in (unfit.expired, unfit.foreign):
        await cells.refused(place, COMMANDS[name], login, address)


@pytest.mark.parametrize("name", ["aiokafka", "kafka-python"])
async def test_client_with_a_wrong_password_or_a_foreign_certificate_is_refused(
    place: cells.Place, name: str
) -> None:
    for login in (place.sasl("SCRAM-SHA-512", "wrong"), place.foreign_certificate()):
        await cells.refused(place, COMMANDS[name], login)


async def test_certificate_of_a_client_is_its_login(place: cells.Place) -> None:
    await cells.exchange(place, COMMANDS["aiokafka"], place.certificate())


async def test_no_acknowledged_record_is_lost_when_a_leader_is_killed(place: cells.Place) -> None:
    await cells.killed(place, COMMANDS["aiokafka"], place.sasl("SCRAM-SHA-512"))
