"""The proxy of a cluster with faults: its process, its ports, and the keys of the brokers behind it."""

from __future__ import annotations

from typing import Final

from minikafka.base.ports import Clock
from minikafka.tools.cluster.directory import (
    CONTROL,
    BrokerRecord,
    ClusterDirectory,
    ClusterError,
    ClusterRecord,
)
from minikafka.tools.cluster.launch.broker_keys import ADVERTISED, SOURCE, protocols_of
from minikafka.tools.cluster.processes import ProcessId, is_alive
from minikafka.tools.cluster.proxy.addresses import source_of
from minikafka.tools.cluster.proxy.calls import NoProxy, call
from minikafka.tools.cluster.proxy.front import ProxyRoute
from minikafka.tools.cluster.proxy.rules import CONTROL as CONTROL_LINK
from minikafka.tools.cluster.proxy.rules import FETCH, ZOOKEEPER

PROXY: Final = "fault-proxy"
"""The command that runs the proxy, and the name of its log."""
_START_TIMEOUT_MS: Final = 30_000
_POLL_MS: Final = 10


def behind_proxy(broker: BrokerRecord, record: ClusterRecord) -> dict[str, object]:
    """Return the keys with which a broker listens behind the proxy, and connects from an address of its own."""
    ends = (*broker.clients, broker.control)
    behind = [end._replace(port=record.listening(end.port)) for end in ends]
    return {
        "listeners": ",".join(map(str, behind)),
        ADVERTISED: ",".join(map(str, ends)),
        SOURCE: source_of(broker.id),
    }


def proxy_command(owner: ProcessId | None) -> list[str]:
    """Return the arguments of the command that runs the proxy. `owner`: the process with which it ends."""
    return [PROXY, *(["--parent", str(owner.pid)] if owner is not None else [])]


async def set_routes(
    process: ProcessId, directory: ClusterDirectory, record: ClusterRecord, clock: Clock
) -> None:
    """Tell the proxy, which may have been started just now, which ports there are. Raises ClusterError."""
    deadline = clock.now() + _START_TIMEOUT_MS
    while True:
        try:
            await call(process, "routes", {"routes": routes_of(directory, record)})
            return
        except NoProxy as error:
            if not is_alive(process) or clock.now() >= deadline:
                log = directory.output(PROXY)
                raise ClusterError(f"the proxy of faults did not start, see {log}") from error
        await clock.sleep(_POLL_MS)


def routes_of(directory: ClusterDirectory, record: ClusterRecord) -> list[ProxyRoute]:
    """Return the ports of the proxy of a cluster."""
    routes = []
    for broker in record.brokers:
        config = directory.broker_config(broker.id)
        protocols = {} if config is None else protocols_of(config)
        for name, port in broker.ports.items():
            link = CONTROL_LINK if name == CONTROL else FETCH
            is_plain = "SSL" not in protocols.get(name, "")
            routes.append(ProxyRoute(port, record.listening(port), broker.id, link, is_plain))
    if record.runs_zookeeper:
        port = record.zookeeper_port
        routes.append(ProxyRoute(port, record.listening(port), ZOOKEEPER, ZOOKEEPER, False))
    return routes
