"""Free ports, their reservation while clusters start, and the parts of pytest-xdist's workers."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from minikafka.base.config.cluster import ClusterConfig
from minikafka.runtime.clock import SystemRng
from minikafka.tools.cluster import ClusterError, LocalCluster
from minikafka.tools.cluster.directory import HOST, ClusterRecord
from minikafka.tools.cluster.ports import PORTS_VARIABLE, HeldPorts, free_ports, is_free

CLUSTERS, PORTS = 5, range(14_000, 14_050)
HOLD = """
import sys
from minikafka.tools.cluster.ports import HeldPorts
held = HeldPorts()
print(all(held.hold(int(port)) for port in sys.argv[1:]), flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the tests the ports of a process that is no worker of pytest-xdist."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)


def test_free_ports_returns_distinct_ports_that_are_not_in_use() -> None:
    ports = free_ports(20, SystemRng())
    assert len(set(ports)) == 20
    assert all(map(is_free, ports))


def test_free_ports_are_drawn_from_the_range_in_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(PORTS_VARIABLE, "20000-20999")
    assert all(20_000 <= port <= 20_999 for port in free_ports(50, SystemRng()))
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setenv(PORTS_VARIABLE, f"{port}-{port}")
        with pytest.raises(ClusterError, match=f"between {port} and {port}: widen MINIKAFKA_PORTS"):
            free_ports(1, SystemRng())


@pytest.mark.parametrize("given", ["x", "20000", "2-1", "0-5", "1-65536", "-", "1-2-3", "\u00b2-3"])
def test_malformed_port_range_in_the_environment_is_refused(
    monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setenv(PORTS_VARIABLE, given)
    with pytest.raises(ClusterError, match="MINIKAFKA_PORTS must be the first and the last port"):
        free_ports(1, SystemRng())


def test_port_that_a_socket_already_listens_on_is_not_free() -> None:
    with socket.create_server((HOST, 0)) as server:
        assert not is_free(server.getsockname()[1])


def ports_of(record: ClusterRecord) -> list[int]:
    brokers = [port for broker in record.brokers for port in (broker.port, broker.control_port)]
    return [int(record.zookeeper.rpartition(":")[2]), *brokers]


@pytest.mark.parametrize("_round", range(3))
def test_clusters_that_start_at_once_on_few_ports_share_no_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, _round: int
) -> None:
    monkeypatch.setenv(PORTS_VARIABLE, f"{PORTS[0]}-{PORTS[-1]}")
    config = ClusterConfig(port=0)
    clusters = [
        LocalCluster(3, data=tmp_path / str(number), config=config) for number in range(CLUSTERS)
    ]
    launchers = [cluster._launcher() for cluster in clusters]
    for launcher in launchers:
        launcher.check()
    planned = [launcher.plan(None) for launcher in launchers]
    used = [port for plan in planned for port in ports_of(plan.record)]
    assert len(used) == CLUSTERS * 7
    assert len(set(used)) == len(used)
    assert set(used) <= set(PORTS)
    for cluster in clusters:
        cluster._end()
    everybody = HeldPorts()
    assert all(map(everybody.hold, PORTS))
    everybody.release()


def test_port_that_another_process_holds_is_not_free_until_that_process_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(PORTS_VARIABLE, "14050-14052")
    command = [sys.executable, "-c", HOLD, "14050", "14052"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        assert free_ports(1, SystemRng()) == [14_051]
        assert not HeldPorts().hold(14_050)
        with pytest.raises(ClusterError, match="too few ports are free"):
            free_ports(2, SystemRng())
        other.send_signal(signal.SIGKILL)
    assert sorted(free_ports(3, SystemRng())) == [14_050, 14_051, 14_052]


def test_held_port_is_still_free_for_the_broker_that_it_is_held_for() -> None:
    held = HeldPorts()
    [port] = free_ports(1, SystemRng(), held=held)
    with socket.create_server((HOST, port)):
        assert not held.hold_if_free(port)
        assert not HeldPorts().hold(port)
    held.release()


def test_workers_of_xdist_divide_the_range_of_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PORTS_VARIABLE, "14000-14029")
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "3")
    found = []
    for worker in range(3):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", f"gw{worker}")
        found.append(free_ports(10, SystemRng()))
    assert [sorted(ports) for ports in found] == [
        [*range(14_000, 14_010)],
        [*range(14_010, 14_020)],
        [*range(14_020, 14_030)],
    ]
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "31")
    with pytest.raises(ClusterError, match="31 workers cannot share 14000-14029"):
        free_ports(1, SystemRng())
