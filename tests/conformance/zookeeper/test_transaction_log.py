"""The test library's reader of ZooKeeper's transaction log returns the transactions that were written."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.zookeeper.transaction_log import (
    CHECK,
    CLOSE_SESSION,
    CREATE,
    DELETE,
    OPEN_SESSION,
    SET,
    Operation,
    Transaction,
    TransactionLogError,
    transactions,
)
from support.zookeeper.zookeepers import Client, Connect

from minikafka.base.errors import MultiFailed
from minikafka.base.ports import Check, Create, Delete, Set
from minikafka.zookeeper.processes.child import ServerProcess

ROOT = "/logged"


@pytest.fixture
async def client(server: ServerProcess, connect: Connect) -> Client:
    return await connect(server.connect, root=ROOT)


def of_session(server: ServerProcess, session: int) -> list[Transaction]:
    """Return the session's transactions without the creation of its root node."""
    mine = [one for one in transactions(server.data_dir) if one.session == session]
    return [one for one in mine if ROOT not in [op.path for op in one.ops]]


async def test_log_reader_returns_every_kind_of_write_in_full(
    server: ServerProcess, client: Client
) -> None:
    session = client.session_id
    await client.create("/a", b"1")
    await client.create("/e", b"mine", ephemeral=True)
    stat = await client.set("/a", b"2", 0)
    await client.multi([Check("/a", 1), Set("/a", b"3", 1), Create("/b", b"")])
    await client.multi([Check("/a", 2), Delete("/b", 0)])
    await client.delete("/a", 2)
    await client.close()
    history = of_session(server, session)
    assert [one.ops for one in history] == [
        (Operation(OPEN_SESSION),),
        (Operation(CREATE, f"{ROOT}/a", data=b"1"),),
        (Operation(CREATE, f"{ROOT}/e", data=b"mine", ephemeral=True),),
        (Operation(SET, f"{ROOT}/a", 1, b"2"),),
        (
            Operation(CHECK, f"{ROOT}/a", 1),
            Operation(SET, f"{ROOT}/a", 2, b"3"),
            Operation(CREATE, f"{ROOT}/b"),
        ),
        (Operation(CHECK, f"{ROOT}/a", 2), Operation(DELETE, f"{ROOT}/b")),
        (Operation(DELETE, f"{ROOT}/a"),),
        (Operation(CLOSE_SESSION), Operation(DELETE, f"{ROOT}/e")),
    ]
    assert history[3].zxid == stat.mzxid
    assert [one.zxid for one in history] == sorted(one.zxid for one in history)
    assert history[4].begins_with_check_of(f"{ROOT}/a")


async def test_refused_multi_is_marked_in_the_log(server: ServerProcess, client: Client) -> None:
    with pytest.raises(MultiFailed):
        await client.multi([Check("/none", 1), Create("/c", b"")])
    *_, last = of_session(server, client.session_id)
    assert last.refused
    assert not last.begins_with_check_of(f"{ROOT}/none")


async def test_log_reader_continues_across_files_after_a_restart(
    server: ServerProcess, client: Client
) -> None:
    await client.create("/before", b"")
    await server.kill()
    await server.start()
    await client.connected()
    await client.create("/after", b"")
    written = [one.ops[0].path for one in of_session(server, client.session_id)]
    assert written == ["", f"{ROOT}/before", f"{ROOT}/after"]
    assert len(list(server.data_dir.rglob("version-2/log.*"))) > 1


@pytest.mark.parametrize("damage", ["magic", "entry"])
async def test_log_reader_refuses_a_damaged_file(
    server: ServerProcess, client: Client, tmp_path: Path, damage: str
) -> None:
    await client.create("/damaged-", b"data", sequential=True)
    [*_, newest] = sorted(server.data_dir.rglob("version-2/log.*"), key=lambda f: f.stat().st_mtime)
    data = bytearray(newest.read_bytes())
    data[0 if damage == "magic" else 40] ^= 1
    copy = tmp_path / "version-2"
    copy.mkdir()
    (copy / newest.name).write_bytes(data)
    with pytest.raises(TransactionLogError):
        transactions(tmp_path)
