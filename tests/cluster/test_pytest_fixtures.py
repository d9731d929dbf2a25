"""The fixtures of the pytest plugin in real runs of pytest, on real clusters."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
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
    topic = minikafka.topic(config={"retention.ms": 60_000})
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

def test_fails(minikafka):
    topic = minikafka.topic("missing")
    minikafka.produce(topic, "one")
    minikafka.records(topic, 2, timeout_ms=300)
"""


def run(directory: Path, test: str, *options: str) -> str:
    (directory / "test_it.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "-p", "minikafka.pytest", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "--rootdir=.", "--asyncio-mode=auto", "--tb=short", *options],
        cwd=directory,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout + done.stderr


def test_fixtures_serve_ordinary_tests_coroutines_and_fixtures(tmp_path: Path) -> None:
    output = run(tmp_path, ONE_BROKER, "--minikafka-brokers=1")
    assert "1 failed, 5 passed" in output, output
    assert "missing-" in output
    assert "had 1 of 2 records after 0.3 s" in output
    assert "partition 0 offset 0: key None, value b'one'" in output
    assert "what is wrong with the cluster" in output
