"""Simulated brokers: registrations in ZooKeeper, and control-plane listeners that answer immediately.

The simulated brokers run in a separate process (`python -m benchmarks.controller_brokers`), so that the
controller's cost is measured separately. The process reads its parameters as one line of JSON, prints the
listeners' ports as JSON when the brokers are registered, and ends when its standard input is closed.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import uvloop

from benchmarks.controller_setting import HOST, zookeeper_of
from minikafka.base.endpoints import Endpoint
from minikafka.base.model import NO_EPOCH, Broker
from minikafka.base.ports import Call
from minikafka.broker.rpc.liveness import PRESENT
from minikafka.broker.rpc.messages import encode_registration
from minikafka.broker.rpc.server import HttpControlPlane
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.zookeeper.nodes import layout


class Orders(NamedTuple):
    """The brokers to simulate. `registered`: the brokers that this process registers in ZooKeeper."""

    connect: str
    secret: str
    brokers: Sequence[int]
    registered: Sequence[int]


def main() -> None:
    """Run until standard input is closed. Garbage collection is off, because this process is not measured."""
    gc.disable()
    uvloop.run(run(Orders(**json.loads(sys.stdin.readline()))))


async def run(orders: Orders) -> None:
    """Start the listeners, register the brokers, print the ports, and wait for the end of standard input."""
    clock, rng = SystemClock(), SystemRng()
    planes = {
        id_: HttpControlPlane(orders.secret.encode(), "", id_, clock, rng) for id_ in orders.brokers
    }
    listeners = {id_: await plane.serve(answer, HOST, 0) for id_, plane in planes.items()}
    zookeeper = await zookeeper_of(orders.connect)
    for id_ in orders.registered:
        port = listeners[id_].port
        data = layout.encode_broker(Broker(id_, (Endpoint("CONTROLLER", HOST, port),)))
        await zookeeper.create(layout.broker_path(id_), data, ephemeral=True)
    ports = {id_: listener.port for id_, listener in listeners.items()}
    print(json.dumps(ports), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await zookeeper.close()
    for plane in planes.values():
        await plane.close()


async def answer(call: Call) -> dict[str, Any]:
    """Return a successful response for every partition of a controller request, or no registration to a probe."""
    if call.method == PRESENT:
        return encode_registration(0, NO_EPOCH)
    if call.method == "update_metadata":
        return {"error": 0, "partitions": []}
    rows = call.body["partitions"]
    return {"error": 0, "partitions": [[row[0], row[1], 0] for row in rows]}


if __name__ == "__main__":
    main()
