"""The commands of docs/deployment.md run as printed, on machines of their own, while clients write and read."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.hosts import traffic
from support.hosts.machines import Done, Machine, finish, machines, needs_machines

PAGE = (Path(__file__).parents[2] / "docs/deployment.md").read_text()
SERVERS = ("kafka1", "kafka2", "kafka3")
COPY_SECRET = "scp -p /etc/minikafka/minikafka-secret.properties {}:/etc/minikafka"
OUTSIDE = "kafka1.example.com:9094,kafka3.example.com:9094"

Network = dict[str, Machine]
pytestmark = [*needs_machines, pytest.mark.cluster]


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    with machines([*SERVERS, "kafka4", "laptop"], tmp_path) as found:
        yield found


def blocks(section: str) -> list[str]:
    """Return the commands of a section, one text for each block. Its first line says where it runs."""
    [text] = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    return re.findall(r"^```sh\n(# on .*?)^```$", text, re.DOTALL | re.MULTILINE)


def run_on(network: Network, names: Iterable[str], block: str) -> str:
    """Run a block on these machines at once, and return what it prints. It must succeed."""
    started = {name: network[name].start(block) for name in names}
    ended = {name: finish(process) for name, process in started.items()}
    return "".join(output(name, block, done, network[name]) for name, done in ended.items())


def output(name: str, block: str, done: Done, machine: Machine) -> str:
    log = machine.root / "run/minikafka-broker.log"
    said = log.read_text()[-4_000:] if log.exists() else ""
    assert done.code == 0, f"{name}:\n{block}\n{done.out}{done.err}\n{said}"
    return done.out


def run(network: Network, block: str) -> str:
    """Run a block on the machines that its first line names: on one after the other if it says `then`."""
    where = block.splitlines()[0]
    names = re.findall(r"kafka\d|laptop", where)
    if "then" in where:
        return "".join(run_on(network, [name], block) for name in names)
    return run_on(network, names, block)


def install_broker(network: Network, name: str) -> None:
    """Run on a new machine the blocks of the section about brokers, and copy the secret to it."""
    configure, _, start, *_ = blocks("Brokers")
    run_on(network, [name], configure)
    run_on(network, ["kafka1"], COPY_SECRET.format(name))
    run_on(network, [name], start)


def replace(network: Network, name: str) -> None:
    """Cut the power of a machine, and put a new one with empty disks in its place."""
    names = (network[name].root / "etc/hosts").read_text()
    network[name].cut_power(silent=True)
    network[name].install(names)
    network[name].boot()
    run_on(network, [name], blocks("ZooKeeper")[0])
    install_broker(network, name)
    [wait] = blocks("Replacing a dead machine")
    run(network, wait)


@contextmanager
def clients_of(network: Network) -> Iterator[subprocess.Popen[str]]:
    """Run a producer and a member of a group. The block begins when the first record is acknowledged."""
    command = f"exec {sys.executable} {traffic.__file__} {OUTSIDE} events shop"
    with network["laptop"].start(command) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            yield process
        finally:
            process.kill()


def test_commands_of_the_page_lose_no_record_from_empty_machines_to_a_rolling_restart(
    network: Network,
) -> None:
    for section in ("ZooKeeper", "Brokers"):
        printed = "".join(run(network, block) for block in blocks(section))
    assert printed.endswith("hello\n")
    with clients_of(network) as clients:
        for block in blocks("Backup"):
            run(network, block)
        replace(network, "kafka2")
        add_and_remove_a_broker(network)
        change_a_disk(network)
        for block in blocks("Rolling restart"):
            run(network, block)
        seen = json.loads(finish(clients).out)
    assert seen["acked"] == seen["sent"] > 0, seen
    assert seen["missing"] == 0, seen


def change_a_disk(network: Network) -> None:
    """Empty a disk, restart the broker without it, and lose what it has before the broker gets it back."""
    move, without, back = blocks("Changing a disk")
    assert run(network, move).count("no replicas") == 1
    run(network, without)
    network["kafka1"].run("rm -r /var/lib/minikafka/disk2; mkdir /var/lib/minikafka/disk2")
    run(network, back)


def add_and_remove_a_broker(network: Network) -> None:
    install_broker(network, "kafka4")
    [add] = blocks("Adding a broker")
    assert "is completed." in run(network, add)
    assert stored(network["kafka4"])
    move, stop = blocks("Removing a broker")
    assert "is completed." in run(network, move)
    deadline = time.monotonic() + 30
    while replicas := stored(network["kafka4"]):
        assert time.monotonic() < deadline, replicas
        time.sleep(0.05)  # a directory has no change notification
    run(network, stop)


def stored(machine: Machine) -> list[str]:
    """Return the replicas on a machine."""
    found = (machine.root / "var/lib/minikafka").glob("disk?/*-*")
    return [path.name for path in found if re.fullmatch(r".*-\d+", path.name)]
