"""The Schema Registry of a LocalCluster: started with it, ready when `start` returns, and ended with it.

A program in the place of Karapace has its command, its settings and its health; `tests/clients` has Karapace itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import threading
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from minikafka.client import Client
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.tools.cluster import ClusterError, LocalCluster
from minikafka.tools.cluster.ports import free_ports
from minikafka.tools.cluster.schema_registry import registry_of

STAND_IN = """\
#!/bin/sh
exec {python} - "$1" <<'END'
import json, os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
settings = json.load(open(sys.argv[1]))
assert os.environ["KARAPACE_BOOTSTRAP_URI"] == settings["bootstrap_uri"]
if "{failure}":
    sys.exit("{failure}")
asked = []
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        asked.append(self.path)
        is_ready = len(asked) > 2
        health = {{"schema_registry_ready": True, "schema_registry_is_primary": is_ready}}
        body = json.dumps({health} if self.path == "/_health" else [settings["bootstrap_uri"], len(asked)])
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body.encode())
HTTPServer((settings["host"], settings["port"]), Handler).serve_forever()
END
"""
OLD, NEW = "health", '{"status": health, "healthy": True}'


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return a function that installs the stand-in of Karapace."""

    def made(health: str = OLD, failure: str = "") -> None:
        command = tmp_path / "bin" / "karapace"
        command.parent.mkdir(exist_ok=True)
        command.write_text(STAND_IN.format(python=sys.executable, health=health, failure=failure))
        command.chmod(0o755)
        monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")

    return made


def get(url: str) -> object:
    with urllib.request.urlopen(url) as answer:
        return json.load(answer)


async def answers(url: str) -> bool:
    try:
        await asyncio.to_thread(get, f"{url}/subjects")
    except OSError:
        return False
    return True


def registry(value: str):
    found = registry_of(value, SystemClock(), SystemRng())
    assert found is not None
    return found


async def test_cluster_starts_karapace_again_at_its_address_and_ends_it(install, tmp_path):
    install()
    cluster = LocalCluster(1, data=tmp_path / "data", schema_registry="karapace")
    with pytest.raises(ClusterError, match="was not started"):
        _ = cluster.schema_registry
    await cluster.start()
    try:
        url = cluster.schema_registry
        bootstrap, asked = await asyncio.to_thread(get, f"{url}/subjects")
        assert bootstrap == cluster.bootstrap
        assert asked > 3, "start returned before the registry was the primary"
        async with Client(cluster.bootstrap) as client:
            assert "_schemas" in await client.list_topics()
        await cluster.stop()
        assert not await answers(url)
        await cluster.start()
        assert cluster.schema_registry == url
        assert await answers(url)
    finally:
        await cluster.stop()
    assert not await answers(url)


async def test_cluster_stops_its_brokers_if_karapace_does_not_start(install, tmp_path):
    install(failure="wrong settings")
    cluster = LocalCluster(1, data=tmp_path / "data", schema_registry="karapace")
    with pytest.raises(ClusterError, match="Karapace has ended: wrong settings"):
        await cluster.start()
    assert cluster.process(1) is None


async def test_start_leaves_the_connections_of_other_threads_open(install, tmp_path):
    """The main thread's connection to Spark's Java process is one that is shut down when it is freed."""
    install()
    near, far = socket.socketpair()
    own = threading.local()
    own.connection = Connection(near)
    found = registry("karapace")
    await found.start("127.0.0.1:1", 1, tmp_path)
    await found.stop()
    with near, far:
        near.sendall(b"open")
        assert far.recv(4) == b"open"


class Connection:
    """A socket that is shut down when this object is freed, as Py4J does."""

    def __init__(self, owned: socket.socket) -> None:
        self._owned = owned

    def __del__(self) -> None:
        with suppress(OSError):
            self._owned.shutdown(socket.SHUT_RDWR)


async def test_health_of_later_releases_is_understood(install, tmp_path):
    install(health=NEW)
    found = registry("karapace")
    await found.start("127.0.0.1:1", 1, tmp_path)
    assert await answers(found.url)
    await found.stop()
    assert not await answers(found.url)


async def test_missing_command_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match="there is no command karapace"):
        await registry("karapace").start("127.0.0.1:1", 1, tmp_path)


async def test_registry_elsewhere_must_answer_and_is_not_stopped(install, tmp_path):
    install()
    running = registry("karapace")
    await running.start("127.0.0.1:1", 1, tmp_path)
    try:
        other = registry(f"{running.url}/")
        await other.start("127.0.0.1:1", 1, tmp_path)
        await other.stop()
        assert other.url == running.url
        assert await answers(running.url)
    finally:
        await running.stop()
    [port] = free_ports(1, SystemRng())
    with pytest.raises(ClusterError, match=f"no Schema Registry at http://127.0.0.1:{port}"):
        await registry(f"http://127.0.0.1:{port}").start("", 1, Path())


@pytest.mark.parametrize("value", ["", "confluent", "127.0.0.1:8081", "ftp://a", "http://"])
def test_value_that_names_no_registry_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="schema_registry must be 'karapace', or an address"):
        LocalCluster(1, schema_registry=value)


def test_registry_of_a_secure_cluster_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be combined with secure=True"):
        LocalCluster(1, schema_registry="karapace", secure=True)


def test_cluster_without_a_registry_has_no_url() -> None:
    with pytest.raises(ClusterError, match="the cluster has no Schema Registry"):
        _ = LocalCluster(1).schema_registry
