"""`minikafka zk export | import | recover`: arguments, output, and directories that are in use."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner, Result
from support.zookeeper.server_states import RandomWrites, new_state

from minikafka.base.errors import MinikafkaError
from minikafka.runtime.storage import DiskStorage
from minikafka.tools.cli.zk import recover, zk
from minikafka.tools.cluster.recovery.rebuild import Rebuilt
from minikafka.zookeeper.server.core.state import ServerState
from minikafka.zookeeper.server.store.store import Store


def written(directory: Path) -> ServerState:
    """Write data as a server does; return the state."""
    state = new_state()
    store = Store(DiskStorage(), str(directory))
    store.recover(state)
    writes = RandomWrites(state, Random(2))
    for _ in range(100):
        writes.step()
    store.append(state.journal)
    state.journal.clear()
    store.close()
    return state


def run(*arguments: object) -> Result:
    return CliRunner().invoke(zk, list(map(str, arguments)), catch_exceptions=False)


def test_export_prints_what_was_checked_and_what_an_ensemble_needs(tmp_path: Path) -> None:
    state = written(tmp_path / "data")
    target = tmp_path / "new" / "apache"
    result = run("export", tmp_path / "data", target)
    assert result.exit_code == 0
    assert "copied snapshot.0, log.1 (" in result.stdout
    nodes, sessions = len(state.tree.nodes), len(state.sessions.open)
    assert f"checked: the copy has the same {nodes} nodes (" in result.stdout
    assert f"the same {sessions} sessions, and the last zxid {state.zxid:#x}" in result.stdout
    assert (
        f"copy {target} to the dataDir of ALL members before you start any of them" in result.stdout
    )
    assert f"set dataDir={target} in zoo.cfg" in result.stdout
    assert sorted(path.name for path in (target / "version-2").iterdir()) == ["log.1", "snapshot.0"]


def test_import_names_the_command_that_starts_the_server(tmp_path: Path) -> None:
    written(tmp_path / "source")
    result = run("import", tmp_path / "source", tmp_path / "data")
    assert f"minikafka zookeeper --data {tmp_path / 'data'} --port 2181" in result.stdout


def test_json_has_what_was_copied(tmp_path: Path) -> None:
    state = written(tmp_path / "source")
    result = json.loads(run("import", tmp_path / "source", tmp_path / "data", "--json").stdout)
    assert result == {
        "version": 1,
        "action": "import",
        "source": str(tmp_path / "source"),
        "destination": str(tmp_path / "data"),
        "files": ["snapshot.0", "log.1"],
        "bytes": sum(f.stat().st_size for f in (tmp_path / "source" / "version-2").iterdir()),
        "zxid": hex(state.zxid),
        "nodes": len(state.tree.nodes),
        "ephemeral_nodes": sum(map(len, state.tree.ephemerals.values())),
        "containers": len(state.tree.containers),
        "sessions": len(state.sessions.open),
        "notes": [],
    }


def test_directory_of_a_cluster_stands_for_its_zookeeper_data(tmp_path: Path) -> None:
    written(tmp_path / "cluster" / "zookeeper" / "data")
    assert run("export", tmp_path / "cluster", tmp_path / "apache").exit_code == 0
    assert (tmp_path / "apache" / "version-2" / "log.1").exists()


def test_logs_are_read_from_the_data_log_dir(tmp_path: Path) -> None:
    state = written(tmp_path / "source")
    logs = tmp_path / "logs" / "version-2"
    logs.mkdir(parents=True)
    (tmp_path / "source" / "version-2" / "log.1").rename(logs / "log.1")
    arguments = ("import", tmp_path / "source", tmp_path / "data", "--log-dir", tmp_path / "logs")
    assert json.loads(run(*arguments, "--json").stdout)["zxid"] == hex(state.zxid)


def test_directory_with_an_open_log_is_refused(tmp_path: Path) -> None:
    """A child has the log open, as Apache ZooKeeper has, which takes no lock."""
    written(tmp_path / "source")
    (tmp_path / "source" / ".lock").unlink()
    log = tmp_path / "source" / "version-2" / "log.1"
    with (
        log.open("rb") as file,
        subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=file) as other,
    ):
        with pytest.raises(
            MinikafkaError, match=rf"is in use by process {other.pid}; stop this server"
        ):
            run("import", tmp_path / "source", tmp_path / "data")
        other.communicate()
    assert not (tmp_path / "data").exists()


def test_directory_of_a_running_server_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "data")
    store = Store(DiskStorage(), str(tmp_path / "data"))
    store.recover(new_state())
    with pytest.raises(MinikafkaError, match=r"is in use: .* holds .*; stop it first"):
        run("export", tmp_path / "data", tmp_path / "apache")
    store.close()


def test_source_must_exist(tmp_path: Path) -> None:
    result = run("import", tmp_path / "none", tmp_path / "data")
    assert result.exit_code == 2
    assert "does not exist" in result.output


def test_recover_lists_what_it_cannot_rebuild_with_the_commands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    recover._tell(Rebuilt("the-cluster", (), (1,), (), 1_000, 1_000), " --data d")
    said = capsys.readouterr().out
    for lost in ("settings of topics", "users with SCRAM, quotas, ACLs and delegation tokens"):
        assert f"- {lost} are lost" in said
    for command in ("configs set KEY=VALUE --topic T", "users add USER", "acls add", "quotas set"):
        assert f"minikafka {command} --data d" in said
