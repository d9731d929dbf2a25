"""The controller under test, in a separate process (`python -m benchmarks.controller_term`).

The process runs the real ZooKeeperController with ledger and channels. `controller_brokers.py` simulates all
brokers, including the controller's own broker. The process reads its parameters as one line of JSON, loads the
cluster, shuts down one broker if requested, and prints the measurements as one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import uvloop

from benchmarks.controller_setting import HOST, CountingZooKeeper, zookeeper_of
from minikafka.base.config import BrokerConfig
from minikafka.base.endpoints import Endpoint
from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import Broker, BrokerId, ControllerRequest, ControllerResponse
from minikafka.broker.ledger.writer import LedgerWriter
from minikafka.broker.modes.controller.terms import ZooKeeperController
from minikafka.broker.modes.zookeeper.ports import Ports
from minikafka.broker.rpc.channels import Channels
from minikafka.broker.rpc.liveness import attend, probe
from minikafka.broker.rpc.server import HttpControlPlane
from minikafka.broker.step_gate import StepGate
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.runtime.storage import DiskStorage
from minikafka.runtime.tasks import TaskRegistry
from minikafka.tools.cli.foreground.broker_process import relax_garbage_collector
from minikafka.zookeeper.nodes import layout
from minikafka.zookeeper.nodes.faults import Faults

POLL_SECONDS = 0.002


class Orders(NamedTuple):
    """The parameters of the process.

    `broker`: the id of the controller's own broker, which is simulated. `port`: the port of this broker.
    `shut_down`: the broker to shut down; None for no shutdown.
    """

    connect: str
    secret: str
    broker: int
    port: int
    shut_down: int | None


class CountingChannels(Channels):
    """Channels that count the controller's requests and the responses."""

    sent = answered = 0

    def send(
        self,
        broker_id: BrokerId,
        request: ControllerRequest,
        on_response: Callable[[BrokerId, ControllerRequest, ControllerResponse], None],
    ) -> None:
        """Count the request and send it."""
        self.sent += 1

        def counted(id_: BrokerId, asked: ControllerRequest, answer: ControllerResponse) -> None:
            self.answered += 1
            on_response(id_, asked, answer)

        super().send(broker_id, request, counted)


class Setting(NamedTuple):
    """The controller under test (`service`), and the objects that the controller uses."""

    service: ZooKeeperController
    zookeeper: CountingZooKeeper
    channels: CountingChannels
    broker: Broker
    plane: HttpControlPlane


def main() -> None:
    """Read the parameters from standard input, and run the measurement."""
    uvloop.run(run(Orders(**json.loads(sys.stdin.readline()))))


async def run(orders: Orders) -> None:
    """Load the cluster and, if requested, shut down one broker. Print the measurements."""
    with tempfile.TemporaryDirectory() as directory:
        setting = await _set_up(orders, directory)
        relax_garbage_collector()
        facts = await _measured(setting, lambda: _load(setting))
        if orders.shut_down is not None:
            victim = orders.shut_down
            facts = await _measured(setting, lambda: _shut_down(setting, victim))
        print(json.dumps(facts), flush=True)
        await setting.service.resign()
        await setting.zookeeper.close()
        await setting.plane.close()


async def _set_up(orders: Orders, directory: str) -> Setting:
    clock, rng, tasks = SystemClock(), SystemRng(), TaskRegistry()
    zookeeper = await zookeeper_of(orders.connect)
    plane = HttpControlPlane(orders.secret.encode(), "", orders.broker, clock, rng)
    ledger = LedgerWriter(DiskStorage(), directory, orders.broker, clock)
    ledger.open()
    config = BrokerConfig.from_mapping({"broker.id": orders.broker})
    listener = config.control_plane_listener_name
    timeout_ms = config.controller_socket_timeout_ms
    channels = CountingChannels(plane, clock, tasks, rng, ledger, listener, timeout_ms)
    broker = Broker(orders.broker, (Endpoint(listener, HOST, orders.port),))
    _, stat = await zookeeper.create(
        layout.broker_path(broker.id), layout.encode_broker(broker), ephemeral=True
    )
    prober = lambda broker: probe(plane, clock, broker, listener)  # noqa: E731
    attender = lambda broker: attend(plane, broker, listener)  # noqa: E731
    service = ZooKeeperController(
        Ports(config, zookeeper, clock, tasks, ledger, StepGate(), Faults()),
        channels,
        prober,
        attender,
    )
    registered = replace(broker, epoch=stat.czxid)
    return Setting(service, zookeeper, channels, registered, plane)


async def _measured(setting: Setting, work: Callable[[], Any]) -> dict[str, Any]:
    """Run `work`, wait until every request is answered, and return the seconds and the resources used."""
    channels = setting.channels
    before = await _counts(setting)
    started = time.perf_counter()
    cpu = time.process_time()
    await work()
    while channels.answered < channels.sent:  # noqa: ASYNC110 - there is no event to await
        await asyncio.sleep(POLL_SECONDS)
    seconds = time.perf_counter() - started
    cpu = time.process_time() - cpu
    after = await _counts(setting)
    return {
        "seconds": round(seconds, 3),
        "cpu_seconds": round(cpu, 3),
        "peak_memory_mb": _peak_memory(),
        **{name: after[name] - before[name] for name in after},
    }


async def _load(setting: Setting) -> None:
    await setting.service.start()
    while not setting.service.is_active:  # noqa: ASYNC110
        await asyncio.sleep(POLL_SECONDS)
    # The controller processes events in order. It refuses this shutdown, whose broker epoch 0 is stale, after it has
    # loaded the cluster.
    try:
        await setting.service.controlled_shutdown(setting.broker.id, 0)
    except KafkaError as error:
        if error.code is not ErrorCode.STALE_BROKER_EPOCH:
            raise


async def _shut_down(setting: Setting, victim: BrokerId) -> None:
    _, stat = await setting.zookeeper.get(layout.broker_path(victim))
    remaining = await setting.service.controlled_shutdown(victim, stat.czxid)
    if remaining:
        raise RuntimeError(f"broker {victim} still leads {len(remaining)} partitions")


async def _counts(setting: Setting) -> dict[str, int]:
    reader, writer = await asyncio.open_connection(*setting.zookeeper.address)
    writer.write(b"srvr")
    answer = (await reader.read()).decode()
    rows = dict(line.split(": ") for line in answer.splitlines() if ": " in line)
    writer.close()
    return {
        "zookeeper_requests": int(rows["Received"]),
        "zookeeper_multis": setting.zookeeper.multis,
        "rpcs": setting.channels.answered,
    }


def _peak_memory() -> int:
    """Return the peak resident memory (VmHWM) of this process in MB."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) // 1024


if __name__ == "__main__":
    main()
