"""The commands `up`, `status`, `topics`, `produce`, `consume`, `stop`, `start` and `down` on a real cluster."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.commands.commands import ENVIRONMENT, NEW_INTERPRETER, run

from minikafka.runtime.clock import SystemClock
from minikafka.tools.cluster import ClusterError, LocalCluster, processes
from minikafka.tools.cluster.processes import ProcessId, identify, is_alive, send_signal

POLL_SECONDS = 0.02
HEALTH_POLL_SECONDS = 0.3
"""Pause between two commands that ask for the health, because each needs the processor as long as this."""


def ok(*arguments: str, cwd: Path, stdin: str = "") -> str:
    done = run(*arguments, cwd=cwd, stdin=stdin)
    assert done.code == 0, done.err
    return done.out


def status(cwd: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ok("status", "--json", cwd=cwd))
    return found


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The working directory of a running cluster."""
    directory = tmp_path_factory.mktemp("cluster")
    (directory / "cluster.toml").write_text(
        "[cluster]\nport = 0\n[broker]\nzookeeper.session.timeout.ms = 4_000\n"
    )
    try:
        ok("up", cwd=directory)
        yield directory
    finally:
        run("down", cwd=directory)


def test_up_of_a_running_cluster_changes_nothing(here: Path) -> None:
    before = status(here)
    again = run("up", "--json", cwd=here)
    assert again.code == 0
    assert "already running" in again.err
    shown = json.loads(again.out)
    assert (shown.pop("changes"), shown.pop("postponed"), shown.pop("kept")) == ([], [], [])
    assert shown.pop("coordination") == "controller"
    assert shown.pop("zookeeper_kind") == "embedded"
    assert shown.pop("console_url").startswith("http://127.0.0.1:")
    assert shown.keys() == {"bootstrap", "zookeeper", "zookeeper_pid", "brokers"}
    assert {key: before[key] for key in ("bootstrap", "zookeeper", "zookeeper_pid")}.items() <= (
        shown.items()
    )
    assert [b["pid"] for b in shown["brokers"]] == [b["pid"] for b in before["brokers"]]
    for broker in shown["brokers"]:
        assert broker.keys() == {"id", "host", "port", "pid", "log_dir", "listeners", "metrics_url"}
        assert Path(broker["log_dir"], "meta.properties").exists()
        with urllib.request.urlopen(broker["metrics_url"], timeout=10) as answer:
            assert b"kafka_server_replicamanager_leadercount " in answer.read()
        assert broker["metrics_url"] in again.err


def test_consume_returns_produced_records_in_order(here: Path) -> None:
    assert ok(
        "topics", "create", "lines", "--partitions", "2", "--replication-factor", "3", cwd=here
    )
    text = "".join(f"k{i % 3}:line {i}\n" for i in range(100))
    ok("produce", "lines", "-K", ":", "--compression", "zstd", cwd=here, stdin=text)
    out = ok("consume", "lines", "-e", "-K", ":", cwd=here)
    assert sorted(out.splitlines()) == sorted(text.splitlines())
    for key in ("k0:", "k1:", "k2:"):
        assert [x for x in out.splitlines() if x.startswith(key)] == [
            x for x in text.splitlines() if x.startswith(key)
        ]
    rows = [
        json.loads(row) for row in ok("consume", "lines", "-e", "--json", cwd=here).splitlines()
    ]
    assert len(rows) == 100
    partition = str(rows[0]["partition"])
    some = ok("consume", "lines", "-p", partition, "-o", "1:3", "--json", cwd=here).splitlines()
    assert [json.loads(row)["offset"] for row in some] == [1, 2]
    assert len(ok("consume", "lines", "-c", "7", cwd=here).splitlines()) == 7
    shown = ok("consume", "lines", "-eq", "--json", cwd=here)
    ok("topics", "create", "copy", "--partitions", "2", cwd=here)
    ok("produce", "copy", "--json", "-z", "lz4", cwd=here, stdin=shown)
    kept = ok("consume", "copy", "-e", "--json", cwd=here).replace('"copy"', '"lines"')
    assert sorted(kept.splitlines()) == sorted(shown.splitlines())
    first = rows[0]
    since = ok("consume", "lines", "-e", "-o", f"s@{first['timestamp']}", "-f", "%T\n", cwd=here)
    assert len(since.splitlines()) == 100


@pytest.mark.row("D15", "M4")
def test_topics_are_listed_described_and_deleted(here: Path) -> None:
    assert ok("topics", "create", "short", cwd=here) == "Created topic short.\n"
    assert "short" in json.loads(ok("topics", "list", "--json", cwd=here))
    assert ok("topics", "describe", "short", cwd=here).startswith("Topic: short\tTopicId: ")
    assert json.loads(ok("topics", "describe", "short", "--json", cwd=here))[0]["topic"] == "short"
    twice = run("topics", "create", "short", cwd=here)
    assert (twice.code, twice.err.count("\n")) == (1, 1)
    assert "TOPIC_ALREADY_EXISTS" in twice.err
    ok("topics", "delete", "short", cwd=here)
    missing = run("topics", "describe", "never-made", cwd=here)
    assert (missing.code, missing.err.count("\n")) == (1, 1)


@pytest.fixture(scope="module")
def alike(here: Path) -> None:
    """A topic with this name."""
    ok("topics", "create", "alike", "--replication-factor", "3", cwd=here)


@pytest.mark.usefixtures("alike")
@pytest.mark.parametrize(
    "words",
    [
        "up",
        "status",
        "start 1",
        "stop 9",
        "logs 1",
        "zk recover",
        "topics describe alike",
        "reassign --list",
        "elect --preferred --topic alike --partition 0",
        "brokers add 4",
        "cluster describe",
        "log-dirs",
        "configs describe --broker 1",
        "groups list",
        "transactions list",
        "produce alike",
        "consume alike --exit",
        "trace alike-0",
        "why alike-0",
        "plan elect alike-0 --json",
    ],
)
def test_command_ends_alike_in_a_new_interpreter_and_in_a_forked_process(
    here: Path, words: str
) -> None:
    """The other tests fork. A user starts an interpreter, which imports only the modules of this command."""
    forked = run(*words.split(), cwd=here)
    new = subprocess.run(
        [*NEW_INTERPRETER, *words.split()],
        cwd=here,
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (new.returncode, new.stdout) == forked[:2]
    assert without_waiting(new.stderr) == without_waiting(forked.err)


def without_waiting(text: str) -> list[str]:
    """Return the lines, without those that a slow machine adds."""
    return [line for line in text.splitlines() if not line.startswith("waiting for")]


def test_broker_started_by_hand_keeps_its_id_and_port(here: Path) -> None:
    before = status(here)["brokers"][0]
    os.kill(before["pid"], signal.SIGKILL)
    gone = status(here)["brokers"][0]
    assert (gone["state"], gone["pid"]) == ("down", None)
    log = (here / "by-hand.log").open("wb")
    with log:
        command = [*NEW_INTERPRETER, "broker", "--config", "broker-1.toml"]
        by_hand = subprocess.Popen(
            command, cwd=here / "data", env=ENVIRONMENT, stdout=log, stderr=log
        )
    try:
        while "serves on" not in (here / "by-hand.log").read_text():
            assert by_hand.poll() is None, (here / "by-hand.log").read_text()
            time.sleep(POLL_SECONDS)
        after = status(here)["brokers"][0]
        assert (after["id"], after["port"], after["pid"]) == (1, before["port"], by_hand.pid)
        assert after["broker_epoch"] > before["broker_epoch"]
        ok("stop", "1", cwd=here)
    finally:
        by_hand.kill()
        by_hand.wait()
    ok("start", "1", cwd=here)
    assert status(here)["brokers"][0]["state"] == "up"


def wait_until_healthy(cwd: Path) -> None:
    deadline = time.monotonic() + 60
    while (done := run("cluster", "health", cwd=cwd)).code:
        assert time.monotonic() < deadline, done.out + done.err
        time.sleep(HEALTH_POLL_SECONDS)


@pytest.mark.parametrize(
    ("fault", "heal", "why"),
    [
        ("pause", "resume", "is paused (SIGSTOP"),
        ("kill", "start", "is down: it has no process"),
    ],
)
def test_health_names_a_broker_right_after_its_fault(
    here: Path, fault: str, heal: str, why: str
) -> None:
    name, cluster = f"hurt-{fault}", LocalCluster(data=here / "data", attached=False)
    wait_until_healthy(here)
    ok("topics", "create", name, "--partitions", "1", "--replication-factor", "3", cwd=here)
    asyncio.run(cluster.wait_for_isr(name))
    assert ok("cluster", "health", cwd=here).startswith("healthy\n")
    leader = asyncio.run(cluster.leader_of(name, 0))
    ok(fault, str(leader), cwd=here)
    try:
        found = unhealthy(here)
        assert found["reasons"][0].startswith(f"broker {leader} {why}")
        assert f"`minikafka {heal} {leader}`" in found["reasons"][0]
        assert found["brokers_away"] == [leader]
        assert f"{name}-0" in found["under_replicated_partitions"]
        if f"{name}-0" not in found["offline_partitions"]:
            assert asyncio.run(cluster.leader_of(name, 0)) != leader
        assert unhealthy(here, "--bootstrap", cluster.bootstrap)["reasons"]
    finally:
        ok(heal, str(leader), cwd=here)


def unhealthy(cwd: Path, *where: str) -> dict[str, Any]:
    done = run("cluster", "health", "--json", "--timeout", "60", *where, cwd=cwd)
    assert done.code == 1, done.err
    found: dict[str, Any] = json.loads(done.out)
    return found


def test_doctors_name_a_paused_zookeeper_and_up_lets_it_continue(here: Path) -> None:
    wait_until_healthy(here)
    process = LocalCluster(data=here / "data", attached=False).zookeeper_process()
    assert process is not None
    ok("topics", "create", "doctors", "--partitions", "1", cwd=here)
    send_signal(process, signal.SIGSTOP)
    name = f"ZooKeeper is paused (SIGSTOP, pid {process.pid})"
    try:
        assert unhealthy(here)["reasons"][0].startswith(name)
        assert status(here)["causes"][0]["text"].startswith(name)
        found = json.loads(ok("why", "doctors-0", "--json", cwd=here))
        assert found["findings"][0]["text"].startswith(name)
        assert found["findings"][0]["text"].endswith(
            "`minikafka resume zookeeper` lets it continue"
        )
    finally:
        ok("up", cwd=here)
    wait_until_healthy(here)


def test_broker_is_paused_resumed_and_killed_by_commands(here: Path) -> None:
    before = status(here)["brokers"][2]
    assert run("pause", "3", cwd=here).err == "broker 3 is paused\n"
    assert status(here)["brokers"][2]["state"] == "paused"
    refused = run("start", "3", cwd=here)
    assert refused.code == 1
    assert "minikafka resume 3 lets it continue" in refused.err
    assert run("resume", "3", cwd=here).err == "broker 3 continues\n"
    assert status(here)["brokers"][2]["pid"] == before["pid"]
    assert run("kill", "3", cwd=here).err == "broker 3 was killed\n"
    assert identify(before["pid"]) is None
    for command in ("kill", "pause", "resume"):
        assert run(command, "3", cwd=here).err == "minikafka: broker 3 is not running\n"
    ok("start", "3", cwd=here)
    log = ok("logs", "3", cwd=here)
    assert log.count("broker 3 serves on") >= 2
    assert "broker-3 | " not in log
    assert "broker-3 | broker 3 serves on" in ok("logs", cwd=here)


def test_up_after_down_restores_the_cluster_with_its_data(here: Path) -> None:
    ok("topics", "create", "kept", "--replication-factor", "3", cwd=here)
    ok("produce", "kept", cwd=here, stdin="precious\n")
    before = status(here)
    pids = [before["zookeeper_pid"], *(broker["pid"] for broker in before["brokers"])]
    ok("down", cwd=here)
    assert [identify(pid) for pid in pids] == [None] * 4
    ok("up", cwd=here)
    assert status(here)["bootstrap"] == before["bootstrap"]
    assert ok("consume", "kept", "-e", cwd=here) == "precious\n"


def test_up_does_not_kill_a_foreign_process_that_has_the_pid_of_a_dead_broker(
    here: Path,
) -> None:
    """The kernel may have given the pid of a dead broker to another process."""
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        cluster = LocalCluster(data=here / "data", attached=False)
        record = cluster.record
        asyncio.run(cluster.kill(3))
        stale = ProcessId(bystander.pid, 1)
        cluster.directory.write(record.with_broker(replace(record.broker(3), process=stale)))
        ok("up", cwd=here)
        assert bystander.poll() is None
        assert status(here)["brokers"][2]["pid"] != bystander.pid
    finally:
        bystander.kill()
        bystander.wait()


def test_produce_names_the_line_that_is_too_large_and_stores_the_others(
    here: Path,
) -> None:
    ok("topics", "create", "narrow", "--config", "max.message.bytes=300", cwd=here)
    text = "".join(f"{i}\n" for i in range(99)) + "x" * 1000 + "\n"
    done = run("produce", "narrow", cwd=here, stdin=text)
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "MESSAGE_TOO_LARGE: line 100 is larger than max.message.bytes" in done.err
    assert "99 records were stored" in done.err
    assert ok("consume", "narrow", "-e", cwd=here).splitlines() == [str(i) for i in range(99)]
    beyond = run("consume", "narrow", "-o", "99999999", "--exit", cwd=here)
    assert beyond.code == 1
    assert "OFFSET_OUT_OF_RANGE" in beyond.err
    assert "valid offsets are 0 to 99" in beyond.err


def test_consume_to_a_full_disk_fails_and_to_a_closed_pipe_ends_by_sigpipe(here: Path) -> None:
    ok("topics", "create", "shown", cwd=here)
    ok("produce", "shown", cwd=here, stdin="one\ntwo\nthree\n")
    command = [*NEW_INTERPRETER, "consume", "shown"]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command, cwd=here, env=ENVIRONMENT, stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 1
    assert done.stderr == b"minikafka: standard output: No space left on device\n"
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        command, cwd=here, env=ENVIRONMENT, stdout=writing, stderr=subprocess.PIPE, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, b"")


def test_leader_of_wait_for_isr_and_consume_fail_at_once_for_an_unknown_topic(here: Path) -> None:
    cluster = LocalCluster(data=here / "data", attached=False)
    with pytest.raises(ClusterError, match=r"there is no partition never-made-0$"):
        asyncio.run(cluster.leader_of("never-made", 0, timeout_ms=3_600_000))
    with pytest.raises(ClusterError, match=r"there is no topic never-made$"):
        asyncio.run(cluster.wait_for_isr("never-made", timeout_ms=5_000))
    missing = run("consume", "never-made", "-e", cwd=here)
    assert "UNKNOWN_TOPIC_OR_PARTITION: never-made: no such topic" in missing.err


def test_growing_cluster_keeps_the_ports_of_its_brokers(
    tmp_path: Path,
) -> None:
    try:
        first = ok("up", "--data", "D", "--port", "0", "--brokers", "1", cwd=tmp_path)
        grown = run("up", "--data", "D", "--brokers", "2", cwd=tmp_path)
        assert grown.code == 0, grown.err
        assert "started broker 2, already running: ZooKeeper, broker 1," in grown.err
        assert grown.out.startswith(first.strip() + ",")
        ok("stop", "2", "--data", "D", cwd=tmp_path)
        assert ok("up", "--data", "D", "--brokers", "1", cwd=tmp_path) == first
        assert ok("up", "--data", "D", "--brokers", "2", cwd=tmp_path) == grown.out
    finally:
        run("down", "--data", "D", cwd=tmp_path)


def test_up_with_an_edited_configuration_reports_and_applies_the_changes(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(CONFIGURATION.format(brokers=2, partitions=3, retention=70_000))
    try:
        ok("up", cwd=tmp_path)
        ok("topics", "create", "t", "--replication-factor", "2", cwd=tmp_path)
        file.write_text(CONFIGURATION.format(brokers=3, partitions=6, retention=80_000))
        edited = run("up", cwd=tmp_path)
        assert edited.code == 0, edited.err
        lines = without_waiting(edited.err)
        assert "started broker 3, already running: ZooKeeper, brokers 1, 2," in lines[0]
        assert "num.partitions = 6 (was 3) on brokers 1, 2: takes effect at the next start" in lines
        now = "log.retention.ms = 80000 (was 70000) on brokers 1, 2: in effect now"
        assert now in lines
        assert "to restart them: minikafka restart 1 2 --rolling" in lines
        shown = ok("configs", "describe", "--broker", "1", cwd=tmp_path)
        assert "log.retention.ms=80000 source=STATIC_BROKER_CONFIG" in shown
        assert "num.partitions=3 " in shown
        changes = json.loads(ok("up", "--json", cwd=tmp_path))["changes"]
        assert [(change["name"], change["brokers"]) for change in changes] == [
            ("num.partitions", [1, 2]),
            ("offsets.topic.replication.factor", [1, 2]),  # min(3, brokers)
            ("transaction.state.log.replication.factor", [1, 2]),
            ("transaction.state.log.min.isr", [1, 2]),
        ]
        rolled = run("restart", "1", "2", "--rolling", cwd=tmp_path)
        assert rolled.code == 0, rolled.err
        assert rolled.err.splitlines()[-1] == "all replicas are in sync"
        assert json.loads(ok("up", "--json", cwd=tmp_path))["changes"] == []
        ok("restart", cwd=tmp_path)
        assert [b["state"] for b in status(tmp_path)["brokers"]] == ["up", "up", "up"]
    finally:
        run("down", cwd=tmp_path)


CONFIGURATION = """
[cluster]
brokers = {brokers}
port = 0
[broker]
num.partitions = {partitions}
log.retention.ms = {retention}
"""


def test_up_with_port_0_after_a_failed_up_or_a_down_chooses_new_ports(
    tmp_path: Path,
) -> None:
    options = ("--data", "D", "--brokers", "1")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        failed = run("up", *options, "--port", str(port), cwd=tmp_path)
        assert failed.code == 1
        assert f"port {port} of broker 1 is in use" in failed.err
        try:
            first = ok("up", *options, "--port", "0", cwd=tmp_path)
            assert first != f"127.0.0.1:{port}\n"
            assert ok("up", *options, "--port", "0", cwd=tmp_path) == first
            made = run("produce", "made", "--data", "D", cwd=tmp_path, stdin="x\n")
            assert made.err == "created topic made: 1 partition, replication factor 1\n"
            ok("down", "--data", "D", cwd=tmp_path)
            assert ok("up", *options, cwd=tmp_path) == first
            ok("down", "--data", "D", cwd=tmp_path)
            assert ok("up", *options, "--port", "0", cwd=tmp_path) != first
        finally:
            run("down", "--data", "D", cwd=tmp_path)


def test_interrupted_up_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text("[cluster]\nport = 0\n")
    command = [*NEW_INTERPRETER, "up"]
    up = subprocess.Popen(command, cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.DEVNULL)
    cluster = LocalCluster(data=tmp_path / "data", attached=False)
    while cluster.directory.read() is None or not cluster.is_running():
        assert up.poll() is None
        time.sleep(POLL_SECONDS)
    record = cluster.record
    started = [record.zookeeper_process, *(broker.process for broker in record.brokers)]
    up.send_signal(signal.SIGINT)
    assert up.wait(60) == 130
    assert not any(map(is_alive, started))


OWNER = """
import asyncio, os, sys, threading, time
from minikafka import LocalCluster

def start():
    asyncio.run(LocalCluster(1, data=sys.argv[1]).start())

thread = threading.Thread(target=start)
thread.start()
thread.join()
while os.path.exists(f"/proc/self/task/{thread.native_id}"):
    time.sleep(0.001)
print("up", flush=True)
time.sleep(600)
"""


def test_cluster_outlives_the_thread_that_started_it_and_ends_with_the_process(
    tmp_path: Path,
) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)], env=ENVIRONMENT, stdout=subprocess.PIPE
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == b"up\n"
    cluster = LocalCluster(data=tmp_path)
    record = cluster.record
    assert asyncio.run(cluster.state()).controller == 1
    assert is_alive(record.zookeeper_process)
    owner.kill()
    owner.wait()
    owner.stdout.close()
    asyncio.run(_start_again(cluster, [record.zookeeper_process, record.brokers[0].process]))


async def _start_again(cluster: LocalCluster, former: list[ProcessId | None]) -> None:
    for process in former:
        assert process is not None
        assert await processes.wait_until_gone(process, SystemClock(), 10_000)
    async with cluster:
        assert (await cluster.state()).controller == 1
