"""ZooKeeper's Java command-line client prints the same on minikafka's own server as on Apache ZooKeeper.

Runs ZooKeeper 3.9 from the pyspark wheel and, where MINIKAFKA_KAFKA_JARS names a directory with the jars of Kafka 3.9,
ZooKeeper 3.8 from it.
"""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import Final, NamedTuple

import pyspark
import pytest
from support.clusters.apache_kafka import QUICK

from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.tools.cluster.ports import free_ports
from minikafka.zookeeper.processes.apache import ApacheZooKeeper, find_java
from minikafka.zookeeper.processes.child import EmbeddedZooKeeper, ServerProcess

KAFKA: Final = os.environ.get("MINIKAFKA_KAFKA_JARS", "")
NEEDED: Final = ("zookeeper", "slf4j-api", "commons-cli", "netty-handler", "netty-common")
MAIN: Final = "org.apache.zookeeper.ZooKeeperMain"
CLOSED: Final = "WatchedEvent state:Closed type:None path:null zxid: -1"
COMMANDS: Final = """\
create /a one
create -s /a/s- x
create -e /a/e y
create -c /c
create -t 1000 /ttl v
create /a dup
get /a
get -s /a
set /a two
set -v 0 /a bad
set -s /a three
stat /a
stat /nothing
ls /
ls -s /a
ls -R /a
getAcl /a
getAcl -s /a
addauth digest u:p
create /p secret auth:u:p:cdrwa
getAcl /p
setAcl /a world:anyone:cdr
set /a refused
delete /a
getEphemerals
getAllChildrenNumber /a
whoami
sync /
addWatch /w
create /w 1
set /w 2
removewatches /w
delete -v 5 /w
delete /w
deleteall /a
reconfig -remove 1
ls /
quit
"""


class Printed(NamedTuple):
    """What the client printed. Events come from another thread, so that only their own order is certain."""

    lines: list[str]
    errors: list[str]
    events: list[str]


def _wheel() -> str:
    jars = Path(pyspark.__file__).parent / "jars"
    return os.pathsep.join(str(jar) for name in NEEDED for jar in jars.glob(f"{name}-*.jar"))


needs_kafka = pytest.mark.skipif(
    not KAFKA, reason="MINIKAFKA_KAFKA_JARS names no directory with the jars of Kafka"
)


@pytest.mark.parametrize(
    "class_path",
    [pytest.param(_wheel(), id="3.9"), pytest.param(f"{KAFKA}/*", id="3.8", marks=needs_kafka)],
)
async def test_java_cli_prints_the_same_as_on_apache_zookeeper(class_path: str, tmp_path: Path):
    ours, apache = free_ports(2, SystemRng())
    servers = [
        EmbeddedZooKeeper(tmp_path / "ours", ours, clock=SystemClock()),
        ApacheZooKeeper(tmp_path / "apache", apache, clock=SystemClock()),
    ]

    found, expected = await asyncio.gather(*(printed(class_path, server) for server in servers))

    assert found == expected
    assert "Node not empty: /a" in found.errors
    assert [event.split()[2] for event in found.events] == [
        "type:None",
        "type:NodeCreated",
        "type:NodeDataChanged",
        "type:PersistentWatchRemoved",
    ]


async def printed(class_path: str, server: ServerProcess) -> Printed:
    """Run the commands on a new server.

    The last event, that the session is closed, is left out: Java often ends before it prints this event.
    """
    await server.start()
    try:
        process = await asyncio.create_subprocess_exec(
            str(find_java()), *QUICK, "-cp", class_path, MAIN, "-server", server.connect,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        output, errors = await process.communicate(COMMANDS.encode())
    finally:
        await server.kill()
    text = re.sub(r"([cm]time =).*", r"\1", output.decode().replace(server.connect, "SERVER"))
    lines = [line for line in text.splitlines() if line and line not in ("WATCHER::", CLOSED)]
    events = [line for line in lines if line.startswith("WatchedEvent")]
    return Printed(
        [line for line in lines if line not in events], errors.decode().splitlines(), events
    )
