"""`cluster describe`: show the brokers, the controller and the log directories.

Epochs are not part of the Kafka protocol. They are read over the control plane, which needs `--data`;
with `--bootstrap` they are null.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any, Final, NamedTuple

import click

import minikafka.client as clients
import minikafka.client.administration.results as administration
import minikafka.tools.cli.terminal.console as consoles
import minikafka.tools.cli.terminal.progress as displays
import minikafka.tools.cluster.local as clusters
import minikafka.tools.cluster.observation.state as cluster_state
from minikafka.base.coordination import CONTROLLER, LEADERS
from minikafka.tools.cli.arguments.find_cluster import bootstrap_servers, find_cluster
from minikafka.tools.cli.arguments.options import connection_options, timeout_option
from minikafka.tools.cli.cluster.views import coordination_of
from minikafka.tools.cli.execution.running import run_with_client
from minikafka.tools.cli.terminal.columns import Column, lay_out, or_dash
from minikafka.tools.cli.terminal.echo import echo, json_option, show


class ClusterView(NamedTuple):
    """The data that `cluster describe` shows.

    `dirs`: the log directories of each broker that answered. `state`: the state of the cluster as read over the
    control plane; None with `--bootstrap`. `coordination`: the mode.
    """

    info: clients.ClusterInfo
    dirs: Mapping[int, list[administration.LogDir]]
    state: cluster_state.ClusterState | None
    coordination: str = CONTROLLER


@click.command()
@connection_options
@timeout_option
@json_option
def describe(bootstrap: str | None, data: str | None) -> None:
    """Show the cluster id, controller, brokers, racks, epochs and log directories."""
    local = None if bootstrap else find_cluster(data)

    async def work(client: clients.Client) -> ClusterView:
        info = await client.admin.describe_cluster()
        dirs = await client.admin.describe_log_dirs()
        mode = local.record.coordination if local else await coordination_of(client.admin, info)
        return ClusterView(info, dirs, await local.state() if local else None, mode)

    view = run_with_client(work, bootstrap_servers(bootstrap, data))
    shown = as_json_view(view, local)
    show(shown, lambda: _print(shown))


def as_json_view(view: ClusterView, local: clusters.LocalCluster | None) -> dict[str, Any]:
    """Return the JSON object of `cluster describe`.

    With `local`, the object also contains the brokers that are down, with `alive` false. In the mode leaders the
    controller is null.
    """
    known = {broker.id: broker for broker in local.record.brokers} if local else {}
    named = view.info.controller_id if view.info.controller_id >= 0 else None
    if view.state is not None:  # a former controller may still name itself to clients
        named = view.state.controller
    controller = None if view.coordination == LEADERS else named
    brokers = []
    for broker_id in sorted({*known, *view.info.brokers}):
        node = view.info.brokers.get(broker_id)
        answer = view.state.answers.get(broker_id) if view.state else None
        dirs = view.dirs.get(broker_id, [])
        brokers.append(
            {
                "id": broker_id,
                "host": node.host if node else None,
                "port": node.port if node else known[broker_id].clients[0].port,
                "rack": node.rack if node else None,
                "alive": node is not None,
                "controller": broker_id == controller,
                "broker_epoch": answer["broker_epoch"] if answer else None,
                "log_dirs": [_directory(found) for found in dirs],
            }
        )
    return {
        "cluster_id": view.info.cluster_id,
        "coordination": view.coordination,
        "controller": controller,
        "controller_epoch": view.state.controller_epoch if view.state else None,
        "brokers": brokers,
    }


def _directory(found: administration.LogDir) -> dict[str, Any]:
    return {
        "path": found.path,
        "error": None if found.outcome.ok else found.outcome.code.name,
        "partitions": len(found.sizes),
        "size": sum(found.sizes.values()),
        "total_bytes": found.total_bytes,
        "usable_bytes": found.usable_bytes,
    }


_COLUMNS: Final = (
    Column("broker", "", itemgetter(0)),
    Column("address", "", itemgetter(1)),
    Column("rack", "", itemgetter(2), drop=2),
    Column("epoch", "", itemgetter(3), drop=1),
    Column("partitions", "", itemgetter(4)),
    Column("size", "", itemgetter(5)),
    Column("log directory", "", itemgetter(6), is_below=True),
)


def _print(shown: dict[str, Any]) -> None:
    console = consoles.plain_console()
    echo(f"cluster     {shown['cluster_id']}")
    if shown["coordination"] == LEADERS:
        echo("controller  none: the leaders of the partitions coordinate (mode leaders)")
    else:
        epoch = or_dash(shown["controller_epoch"])
        echo(f"controller  {or_dash(shown['controller'])}  epoch {epoch}")
    rows = [row for broker in shown["brokers"] for row in _rows(broker)]
    width = console.width if console.is_terminal else None
    consoles.print_lines(console, lay_out(_COLUMNS, rows, width).lines)


def _rows(broker: Mapping[str, Any]) -> Iterator[tuple[object, ...]]:
    """Yield a row for each log directory of a broker; only the first one names the broker."""
    name = f"{broker['id']}{' *' if broker['controller'] else ''}"
    address = f"{broker['host']}:{broker['port']}" if broker["alive"] else "not alive"
    head = (name, address, broker["rack"], broker["broker_epoch"])
    for found in broker["log_dirs"]:
        error = f" {found['error']}" if found["error"] else ""
        yield *head, found["partitions"], displays.size(found["size"]), f"{found['path']}{error}"
        head = ("", "", "", "")
    if not broker["log_dirs"]:
        yield *head, None, None, None
