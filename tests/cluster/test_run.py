"""`minikafka run`: a command with a temporary cluster, its verdict, and its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest
from support.commands.commands import NEW_INTERPRETER

from minikafka.tools.cli.verdict.run import BAD_VERDICT, NOT_RUN

LOSES = """
import json, os, sys
assert os.environ["KAFKA_BOOTSTRAP_SERVERS"].startswith("127.0.0.1:")
from minikafka.testing.history import history
import asyncio
from aiokafka import AIOKafkaProducer

async def send():
    with history() as made:
        async with AIOKafkaProducer(bootstrap_servers=os.environ["KAFKA_BOOTSTRAP_SERVERS"]) as producer:
            await producer.send_and_wait("t", b"sent")
    assert len(made.events) == 3

asyncio.run(send())
never = {"client": "liar", "number": 0, "event": "write", "outcome": "ok", "topic": "t", "value": "never sent"}
with open(os.environ["MINIKAFKA_HISTORY"] + "/liar.jsonl", "w") as file:
    file.write(json.dumps(never | {"partition": 0, "offset": 7}) + "\\n")
sys.exit(int(sys.argv[1]))
"""


def start(*command: str, brokers: int = 1) -> subprocess.Popen[str]:
    words = [*NEW_INTERPRETER, "run", "--brokers", str(brokers), "--", *command]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_run_with_a_bad_verdict_names_what_was_lost_and_has_a_code_of_its_own() -> None:
    _, shown = (ended := start(sys.executable, "-c", LOSES, "0")).communicate(timeout=120)
    assert ended.returncode == BAD_VERDICT, shown
    assert "lost t-0 offset 7, value 'never sent' (liar): it is in no log\n" in shown
    assert "verdict: 1 lost (2 writes)\n" in shown
    assert "replicas: 1 partitions, 0 under-replicated, 0 without leader, replicas in" in shown
    kept = Path(shown.rpartition(" are kept in ")[2].strip())
    assert (kept / "histories" / "liar.jsonl").is_file()
    subprocess.run(["rm", "-r", str(kept.parent)], check=True)


PROGRAM = """
import os, subprocess, time
try:
    subprocess.Popen(["sleep", "987"], start_new_session=True)
    print(os.environ["MINIKAFKA_DATA"], os.getpid(), flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    raise SystemExit(7)
"""


def first_line(output: IO[str] | None) -> list[str]:
    assert output is not None
    return output.readline().split()


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_run_leaves_nothing_behind_when_it_is_killed_or_interrupted(sent: signal.Signals) -> None:
    with start(sys.executable, "-c", PROGRAM) as process:
        data, pid = first_line(process.stdout)
        assert Path(data).is_dir()
        process.send_signal(sent)
        # Every process of the cluster and of the command has inherited standard error or its log in the directory.
        shown = process.stderr.read() if process.stderr else ""
    assert process.returncode == (-sent if sent is signal.SIGKILL else 7), shown
    assert not Path(f"/proc/{pid}").exists()
    wait_until_gone(Path(data))


def wait_until_gone(data: Path) -> None:
    """Wait until no process names the directory, and until it is gone."""
    for _ in range(1_000):
        if not data.exists() and not running(str(data)):
            return
        subprocess.run(["sleep", "0.02"], check=True)
    pytest.fail(f"{data} exists, or {running(str(data))} run")


def running(text: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if text in line:
                found.append(line)
    return found


def test_run_of_an_unknown_command_ends_like_a_shell() -> None:
    _, shown = (ended := start("no-such-command")).communicate(timeout=120)
    assert ended.returncode == 127
    assert shown == "minikafka: no-such-command: no such command\n"


def test_run_whose_cluster_does_not_start_has_a_code_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text("[broker]\nno.such.key = 1\n")
    words = [*NEW_INTERPRETER, "run", "--config", str(tmp_path / "cluster.toml"), "true"]
    ended = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == NOT_RUN, ended.stderr
    assert "no.such.key" in ended.stderr
