"""The fixtures of the pytest plugin in real runs of pytest, on real clusters."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from support.commands.commands import ENVIRONMENT

from minikafka import LocalCluster
from minikafka.tools.cluster.processes import is_alive

ONE_BROKER = """
import asyncio
import pytest


@pytest.fixture(scope="module")
def module_topic(minikafka_cluster):
    return minikafka_cluster.topic("module", partitions=2)

@pytest.fixture
async def written(minikafka):
    topic = await minikafka.topic()
    await minikafka.produce(topic, [b"a", b"b"])
    return topic

def test_blocks(minikafka, module_topic):
    topic = minikafka.topic(config={"retention.ms": -1})
    assert topic.startswith("test_blocks-")
    [first, second] = minikafka.produce(topic, "a", ("key", "b"), headers={"h": "x"}, timestamp=5)
    assert (first.offset, second.offset) == (0, 1)
    [a, b] = minikafka.records(topic, 2)
    assert (a.value, a.headers, a.timestamp, b.key) == (b"a", (("h", b"x"),), 5, b"key")
    assert minikafka.leader(topic) == 1
    minikafka.produce(module_topic, "x", partition=1)

async def test_awaits(minikafka, written, module_topic):
    assert [record.value for record in await minikafka.records(written, 1)] == [b"a"]
    assert [record.partition for record in await minikafka.records(module_topic)] == [1]
    assert minikafka.group() != minikafka.group()

def test_names_of_another_test_are_other_names(minikafka, request):
    assert minikafka.transactional_id().startswith("test_names_of_another_test")
    with pytest.raises(AttributeError):
        minikafka.no_such_verb

def test_kills(minikafka):
    minikafka.kill(1)

def test_finds_a_repaired_cluster(minikafka):
    assert minikafka.produce(minikafka.topic(), "a")[0].offset == 0

def test_moves_the_clock(minikafka):
    minikafka.advance_clock("8d")

def test_finds_the_clock_of_the_machine(minikafka):
    topic = minikafka.topic()
    minikafka.produce(topic, "of now")
    assert minikafka.expire(topic).records == 0

def test_fails(minikafka):
    topic = minikafka.topic("missing")
    minikafka.produce(topic, "one")
    minikafka.records(topic, 2, timeout_ms=300)
"""


ON_ANOTHER_KAFKA = """
def test_writes(minikafka):
    topic = minikafka.topic()
    minikafka.produce(topic, "a")
    assert len(minikafka.records(topic, 1)) == 1
    assert minikafka.leader(topic) in (1, 2, 3)

async def test_kills(minikafka):
    await minikafka.kill(1)

def test_destroys(minikafka_private):
    minikafka_private(brokers=1)
"""
WITHOUT_A_PROXY = """
import os
import signal

def test_kills_the_proxy_and_fails(minikafka):
    process = minikafka.record.proxy.process
    os.kill(process.pid, signal.SIGKILL)
    assert False, minikafka.bootstrap

def test_cuts(minikafka):
    with minikafka.cut_clients(1):
        pass
    assert minikafka.produce(minikafka.topic(), "a")[0].offset == 0

def test_pauses_the_proxy(minikafka):
    os.kill(minikafka.record.proxy.process.pid, signal.SIGSTOP)

def test_cuts_again(minikafka):
    with minikafka.cut_clients(1):
        pass
    assert minikafka.produce(minikafka.topic(), "a")[0].offset == 0
"""
HANGS = """
import time

def test_hangs(minikafka):
    print("directory", minikafka.directory.path, flush=True)
    time.sleep(100)
"""


def command(*options: str) -> list[str]:
    plugins = ["-p", "minikafka.pytest", "-p", "no:cacheprovider", "--asyncio-mode=auto"]
    return [sys.executable, "-m", "pytest", "--rootdir=.", "--tb=short", *plugins, *options]


def run(directory: Path, test: str, *options: str) -> str:
    (directory / "test_it.py").write_text(test)
    done = subprocess.run(
        command(*options),
        cwd=directory,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout + done.stderr


def test_fixtures_serve_ordinary_tests_coroutines_and_fixtures(tmp_path: Path) -> None:
    output = run(tmp_path, ONE_BROKER, "--minikafka-brokers=1")
    assert "1 failed, 7 passed" in output, output
    assert "missing-" in output
    assert "had 1 of 2 records after 0.3 s" in output
    assert "partition 0 offset 0: key None, value b'one'" in output
    assert "what is wrong with the cluster" in output


def test_tests_run_on_another_kafka_and_skip_what_it_lacks(
    shared_cluster: LocalCluster, tmp_path: Path
) -> None:
    address = shared_cluster.bootstrap
    output = run(tmp_path, ON_ANOTHER_KAFKA, f"--minikafka-external={address}", "-rs")
    assert "1 passed, 2 skipped" in output, output
    assert f"kill needs a cluster of minikafka, but the tests run against {address}" in output
    assert "minikafka_private starts a cluster of minikafka" in output


def test_proxy_of_faults_that_a_test_has_harmed_is_mended_before_the_next_test(
    tmp_path: Path,
) -> None:
    output = run(tmp_path, WITHOUT_A_PROXY, "--minikafka-brokers=1", "--minikafka-faults")
    assert "1 failed, 3 passed" in output, output
    assert "the proxy of faults has ended: nobody reaches the ports of brokers" in output


def test_no_process_survives_the_death_of_pytest(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(HANGS)
    with subprocess.Popen(
        command("-s", "--minikafka-brokers=1"),
        cwd=tmp_path,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as running:
        assert running.stdout is not None
        line = next(line for line in running.stdout if "directory " in line)
        running.kill()
    data = Path(line.partition("directory ")[2].strip())
    cluster = LocalCluster(data=data)
    pids = [cluster.record.broker(1).process, cluster.record.zookeeper_process]
    for process in filter(None, pids):
        while is_alive(process):
            pass  # the kernel kills it at once
    shutil.rmtree(data)
