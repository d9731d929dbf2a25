"""`cluster describe`: show the brokers, the controller and the log directories.

Epochs are not part of the Kafka protocol. They are read over the control plane, which needs `--data`;
with `--bootstrap` they are null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

import click

import minikafka.client as clients
import minikafka.client.administration.results as administration
import minikafka.tools.cli.terminal.console as consoles
import minikafka.tools.cli.terminal.progress as displays
import minikafka.tools.cluster.directory as directories
import minikafka.tools.cluster.observation.state as cluster_state
import minikafka.tools.cluster.observation.views as broker_views
from minikafka.base.coordination import LEADERS
from minikafka.tools.cli.arguments.find_cluster import bootstrap_servers, find_cluster
from minikafka.tools.cli.arguments.options import connection_options, timeout_option
from minikafka.tools.cli.execution.running import run_with_client
from minikafka.tools.cli.terminal.columns import Column, lay_out, objects, or_dash
from minikafka.tools.cli.terminal.echo import echo, json_option, show


class KnownBroker(NamedTuple):
    """One broker. `node`: None if it is down; `port` is then its last known port. `epoch`: None if it is not known."""

    id: int
    node: clients.Node | None
    port: int
    is_controller: bool
    epoch: int | None
    dirs: Sequence[administration.LogDir]


class ClusterView(NamedTuple):
    """The data that `cluster describe` shows. `controller`: None in the mode leaders."""

    cluster_id: str | None
    coordination: str
    controller: int | None
    controller_epoch: int | None
    brokers: Sequence[KnownBroker]


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
        if local is None:
            return view_of(info, dirs, await broker_views.coordination_of(client.admin, info))
        return view_of(info, dirs, local.record.coordination, local.record, await local.state())

    view = run_with_client(work, bootstrap_servers(bootstrap, data))
    show(as_json(view), lambda: _print(view))


def view_of(
    info: clients.ClusterInfo,
    dirs: Mapping[int, Sequence[administration.LogDir]],
    coordination: str,
    record: directories.ClusterRecord | None = None,
    state: cluster_state.ClusterState | None = None,
) -> ClusterView:
    """Return the data that `cluster describe` shows.

    `dirs`: the log directories of each broker that answered. `record` and `state`: the cluster as it is known on its
    own machine, with the brokers that are down; None with `--bootstrap`.
    """
    known = {broker.id: broker for broker in record.brokers} if record else {}
    named = info.controller_id if info.controller_id >= 0 else None
    if state is not None:  # a former controller may still name itself to clients
        named = state.controller
    controller = None if coordination == LEADERS else named
    brokers = []
    for id_ in sorted({*known, *info.brokers}):
        node = info.brokers.get(id_)
        port = node.port if node else known[id_].clients[0].port
        answer = state.answers.get(id_) if state else None
        epoch = answer["broker_epoch"] if answer else None
        brokers.append(KnownBroker(id_, node, port, id_ == controller, epoch, dirs.get(id_, ())))
    controller_epoch = state.controller_epoch if state else None
    return ClusterView(info.cluster_id, coordination, controller, controller_epoch, brokers)


class _Row(NamedTuple):
    """A line of the text: a broker with one of its log directories. `is_first`: the line names the broker."""

    broker: KnownBroker
    directory: administration.LogDir | None
    is_first: bool


def _size(count: int | None) -> str:
    return "-" if count is None else displays.size(count)


def _error(directory: administration.LogDir) -> str | None:
    return None if directory.outcome.ok else directory.outcome.code.name


_DIRECTORY: Final = (
    Column("", "path", attrgetter("path")),
    Column("", "error", _error),
    Column("partitions", "partitions", lambda one: len(one.sizes)),
    Column("size", "size", lambda one: sum(one.sizes.values()), text=_size),
    Column("", "total_bytes", attrgetter("total_bytes")),
    Column("", "usable_bytes", attrgetter("usable_bytes")),
    Column(
        "log directory",
        "",
        lambda one: " ".join(filter(None, (one.path, _error(one)))),
        is_below=True,
    ),
)
"""The columns of log directories."""
_BROKER: Final = (
    Column("broker", "", lambda one: f"{one.id} *" if one.is_controller else one.id),
    Column("", "id", attrgetter("id")),
    Column("", "host", lambda one: one.node and one.node.host),
    Column("", "port", attrgetter("port")),
    Column("address", "", lambda one: f"{one.node.host}:{one.port}" if one.node else "not alive"),
    Column("rack", "rack", lambda one: one.node and one.node.rack, drop=2),
    Column("", "alive", lambda one: one.node is not None),
    Column("", "controller", attrgetter("is_controller")),
    Column("epoch", "broker_epoch", attrgetter("epoch"), drop=1),
    Column("", "log_dirs", lambda one: objects(_DIRECTORY, one.dirs)),
)
"""The columns of brokers."""


def _of_broker(column: Column) -> Column:
    return column._replace(value=lambda row: column.value(row.broker) if row.is_first else "")


def _of_directory(column: Column) -> Column:
    return column._replace(
        value=lambda row: None if row.directory is None else column.value(row.directory)
    )


_LINE: Final = (*map(_of_broker, _BROKER), *map(_of_directory, _DIRECTORY))
"""The columns of the text."""


def as_json(view: ClusterView) -> dict[str, Any]:
    """Return the JSON object of `cluster describe`."""
    return {**view._asdict(), "brokers": objects(_BROKER, view.brokers)}


def _print(view: ClusterView) -> None:
    console = consoles.plain_console()
    echo(f"cluster     {view.cluster_id}")
    if view.coordination == LEADERS:
        echo("controller  none: the leaders of the partitions coordinate (mode leaders)")
    else:
        epoch = or_dash(view.controller_epoch)
        echo(f"controller  {or_dash(view.controller)}  epoch {epoch}")
    rows = [
        _Row(broker, directory, at == 0)
        for broker in view.brokers
        for at, directory in enumerate(broker.dirs or [None])
    ]
    width = console.width if console.is_terminal else None
    consoles.print_lines(console, lay_out(_LINE, rows, width).lines)
