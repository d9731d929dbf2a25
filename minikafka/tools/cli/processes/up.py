"""`up`: start a cluster that keeps running, or the processes of it that are down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

import minikafka.runtime.clock as clocks
import minikafka.tools.cli.arguments.config_files as config_files
import minikafka.tools.cluster.directory as directories
import minikafka.tools.cluster.local as clusters
import minikafka.tools.cluster.observation.causes as root_causes
import minikafka.tools.cluster.observation.sights as sight
import minikafka.tools.cluster.processes as processes
import minikafka.tools.cluster.secure.clients as client_blocks
import minikafka.tools.console.standby as standby
from minikafka.base.coordination import MODES
from minikafka.base.errors import ConfigError, MinikafkaError
from minikafka.base.zookeeper import parse_zookeeper, shown_kind
from minikafka.tools.cli.arguments.options import config_option, needs_machine, timeout_option
from minikafka.tools.cli.execution.running import run
from minikafka.tools.cli.processes.differences import Differences, listed
from minikafka.tools.cli.processes.waits import LATE, start_timeout_ms, until_serving
from minikafka.tools.cli.terminal.echo import echo, json_option, show


def _check_zookeeper(
    context: click.Context, option: click.Parameter, value: str | None
) -> str | None:
    """Return the value of `--zookeeper`; a click callback. Raises BadParameter if it has none of the three forms."""
    try:
        if value is not None:
            parse_zookeeper(value)
    except ConfigError as error:
        raise click.BadParameter(str(error), context, option) from error
    return value


@click.command()
@config_option
@click.option("--brokers", type=click.IntRange(1, 1000), metavar="N", help="Number of brokers.")
@needs_machine("starts processes")
@timeout_option
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    metavar="FIRST_PORT",
    help="Port of broker 1; the other brokers use the ports after it. 0: choose free ports.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65_535),
    metavar="FIRST_PORT",
    help="Port for the metrics of broker 1; the other brokers use the ports after it. 0: choose free ports.",
)
@click.option(
    "--coordination",
    type=click.Choice(MODES),
    help="Who elects leaders and changes replicas: one broker as the controller, or the leader of each partition. "
    "A cluster keeps the mode of its first start (default: minikafka.coordination in cluster.toml, else controller).",
)
@click.option(
    "--zookeeper",
    callback=_check_zookeeper,
    metavar="embedded|managed|HOST:PORT[/chroot]",
    help="The ZooKeeper of the cluster. embedded: this project's server, without Java. managed: Apache ZooKeeper "
    "from its jars. HOST:PORT: an existing ensemble. A cluster keeps its ZooKeeper until another one is chosen after "
    "`minikafka down` (default: zookeeper.connect in cluster.toml, else embedded).",
)
@click.option(
    "--secure",
    is_flag=True,
    help="Make certificates, users and ACLs, and print how clients connect. A cluster stays secure.",
)
@click.option(
    "--faults",
    is_flag=True,
    help="Let `minikafka faults` harm disks and connections, until `minikafka down`.",
)
@click.option(
    "--wait",
    is_flag=True,
    expose_value=False,
    help="Return when every broker serves clients. This is the default; the option is for scripts that say so.",
)
@json_option
def up(
    config: str | None,
    brokers: int | None,
    data: str | None,
    port: int | None,
    metrics_port: int | None,
    coordination: str | None,
    zookeeper: str | None,
    secure: bool,
    faults: bool,
) -> None:
    """Start a cluster, wait until every broker serves clients, and print the bootstrap servers.

    The cluster keeps running after the command has returned. Processes that already run are not
    restarted. If the configuration differs from the settings of a running broker, standard error shows each
    difference, and whether it takes effect now or needs a restart. Standard error also shows the URLs of the
    brokers' Prometheus metrics.
    """
    found = config_files.load_cluster_config(config)
    wanted = clusters.LocalCluster(
        brokers,
        data=data or found.data,
        config=found,
        port=port,
        metrics_port=metrics_port,
        zookeeper=zookeeper,
        coordination=coordination,
        secure=secure,
        faults=faults,
        attached=False,
    )
    before, failure = _running(wanted), zookeeper_failure(wanted)
    with config_files.errors_name_file(config_files.find_cluster_file(config)):
        differences = run(_start(wanted), late=LATE, reason=until_serving(wanted, data))
    echo(f"{started(before, _running(wanted))} in {wanted.directory.path}", err=True)
    echo(
        f"coordination: {shown_kind(wanted.record.zookeeper_kind)}, at {wanted.zookeeper}", err=True
    )
    if failure:
        echo(f"ZooKeeper was started again, it had ended with the error: {failure}", err=True)
    kept = [] if found.is_default else wanted.kept_settings(config_files.find_cluster_file(config))
    for line in (*wanted.postponed, *differences.lines(data), *kept):
        echo(line, err=True)
    if urls := wanted.metrics_urls:
        echo(f"metrics: {', '.join(urls.values())}", err=True)
    console = _console(wanted)
    extra = {
        "console_url": console,
        "changes": differences.as_json(),
        "postponed": list(wanted.postponed),
        "kept": kept,
    }
    lines = client_blocks.blocks(wanted.client_access()) if secure else []
    show(describe(wanted) | extra, [wanted.bootstrap, *lines])


def _console(wanted: clusters.LocalCluster) -> str | None:
    """Start the console of the cluster, which costs little while nobody looks; print and return its URL.

    A cluster serves without its console too: if it cannot be started, print why, and return None.
    """
    try:
        url = standby.ensure(wanted.directory, clocks.SystemRng())
    except (MinikafkaError, OSError) as error:
        echo(f"minikafka: warning: the console was not started: {error}", err=True)
        return None
    echo(f"console: {url}", err=True)
    return url


async def _start(wanted: clusters.LocalCluster) -> Differences:
    """Start the processes that are down, and send all brokers their configured settings.

    Return the settings that this changes or that differ.
    """
    await wanted.start(timeout_ms=start_timeout_ms())
    answers = await wanted.reconfigure([broker.id for broker in wanted.record.brokers])
    for broker_id, changes in wanted.changes.items():
        answer = answers[broker_id]
        answers[broker_id] = changes + (answer if isinstance(answer, list) else [])
    return Differences.of(answers)


def _running(cluster: clusters.LocalCluster) -> dict[str, processes.ProcessId]:
    """Return the running processes of the cluster, by name: `ZooKeeper`, or the id of a broker."""
    record = cluster.directory.read()
    if record is None:
        return {}
    brokers = {f"{broker.id}": cluster.process(broker.id) for broker in record.brokers}
    found = {"ZooKeeper": cluster.zookeeper_process(), **brokers}
    return {name: process for name, process in found.items() if process is not None}


def started(
    before: Mapping[str, processes.ProcessId], now: Mapping[str, processes.ProcessId]
) -> str:
    """Return text for the command `up` to print: which processes were started, and which were already running."""
    new = [name for name, process in now.items() if before.get(name) != process]
    if not new:
        return "already running"
    running = [name for name in now if name not in new]
    if not running:
        count = len(now.keys() - {"ZooKeeper"})
        return f"{count} {'broker serves' if count == 1 else 'brokers serve'}, data"
    return f"started {listed(new)}, already running: {listed(running)},"


def zookeeper_failure(cluster: clusters.LocalCluster) -> str:
    """Return the error with which the cluster's ZooKeeper has ended; "" if it runs or was ended from outside."""
    record = cluster.directory.read()
    if record is None or not record.runs_zookeeper or cluster.zookeeper_process() is not None:
        return ""
    return root_causes.failure_in(sight.zookeeper_down(cluster.directory, record))


def describe(found: clusters.LocalCluster) -> dict[str, Any]:
    """Return the JSON object of `up --json`: the addresses and processes of the cluster."""
    record = found.record
    urls = found.metrics_urls
    brokers = []
    for broker in record.brokers:
        process = found.process(broker.id)
        brokers.append(
            {
                "id": broker.id,
                "host": directories.HOST,
                "port": broker.clients[0].port,
                "listeners": {item.name: item.port for item in broker.clients},
                "pid": process.pid if process else None,
                "log_dir": str(found.directory.broker_data(broker.id)),
                "metrics_url": urls.get(broker.id),
            }
        )
    zookeeper = found.zookeeper_process()
    return {
        "bootstrap": record.bootstrap,
        "coordination": record.coordination,
        "zookeeper": record.zookeeper,
        "zookeeper_kind": record.zookeeper_kind,
        "zookeeper_pid": zookeeper.pid if zookeeper else None,
        "brokers": brokers,
    }
