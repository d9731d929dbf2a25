"""Commands for the processes of a cluster: `up`, `down`, `start`, `stop`, and the faults `kill`, `pause`, `resume`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import click

import minikafka.broker.rpc.messages as messages
import minikafka.tools.cli.arguments.config_files as config_files
import minikafka.tools.cluster.directory as directories
import minikafka.tools.cluster.local as clusters
import minikafka.tools.cluster.observation.causes as root_causes
import minikafka.tools.cluster.observation.sights as sight
import minikafka.tools.cluster.processes as processes
from minikafka.base.coordination import MODES
from minikafka.base.errors import ConfigError, KafkaError
from minikafka.base.zookeeper import parse_zookeeper, shown_kind
from minikafka.tools.cli.arguments.completion import ZOOKEEPER
from minikafka.tools.cli.arguments.find_cluster import find_cluster
from minikafka.tools.cli.arguments.options import (
    config_option,
    data_option,
    time_limit,
    timeout_option,
)
from minikafka.tools.cli.execution.running import run
from minikafka.tools.cli.processes.process_argument import ProcessName, process_argument, shown
from minikafka.tools.cli.processes.waits import (
    until_ended,
    until_serving,
    until_zookeeper_ended,
    until_zookeeper_serves,
)
from minikafka.tools.cli.terminal.echo import echo, json_option, show

_EFFECTS: Final = {
    "now": "in effect now",
    "restart": "takes effect at the next start",
    "overridden": "no effect while `configs set` overrides it",
    "started": "takes effect with this start, unless `configs set` overrides it",
}
_LATE: Final = "the brokers did not serve clients"


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
@data_option
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
@json_option
def up(
    config: str | None,
    brokers: int | None,
    data: str | None,
    port: int | None,
    metrics_port: int | None,
    coordination: str | None,
    zookeeper: str | None,
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
        attached=False,
    )
    before, failure = _running(wanted), zookeeper_failure(wanted)
    with config_files.errors_name_file(config_files.find_cluster_file(config)):
        differences = run(_start(wanted), late=_LATE, reason=until_serving(wanted, data))
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
    extra = {"changes": differences.as_json(), "postponed": list(wanted.postponed), "kept": kept}
    show(describe(wanted) | extra, [wanted.bootstrap])


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


class Differences(NamedTuple):
    """The result of comparing running brokers with their configuration.

    `changes`: changed setting -> ids of the brokers whose answers contained the change. `errors`: broker id -> the
    error because of which the broker was not compared.
    """

    changes: Mapping[messages.SettingChange, Sequence[int]]
    errors: Mapping[int, Exception]

    @classmethod
    def of(
        cls, answers: Mapping[int, Sequence[messages.SettingChange] | OSError | KafkaError]
    ) -> Differences:
        """Return the changed settings in the brokers' answers, each with the brokers that reported the change."""
        changes: dict[messages.SettingChange, list[int]] = {}
        errors: dict[int, Exception] = {}
        for broker_id, answer in sorted(answers.items()):
            if isinstance(answer, Exception):
                errors[broker_id] = answer
                continue
            for change in answer:
                changes.setdefault(change, []).append(broker_id)
        return cls(changes, errors)

    def lines(self, data: str | None) -> list[str]:
        """Return a line for each changed setting and each error, and the command for necessary restarts."""
        lines = [
            f"{_change(change)} on {_listed([str(id_) for id_ in ids])}: {_EFFECTS[change.effect]}"
            for change, ids in self.changes.items()
        ]
        lines += [
            f"broker {id_} was not compared with the configuration: {error}"
            for id_, error in self.errors.items()
        ]
        late = {id_ for c, ids in self.changes.items() if c.effect == "restart" for id_ in ids}
        if late:
            names = " ".join(map(str, sorted(late)))
            where = f" --data {shlex.quote(data)}" if data else ""
            lines.append(f"to restart them: minikafka restart {names} --rolling{where}")
        return lines

    def as_json(self) -> list[dict[str, Any]]:
        """Return the changed settings as JSON objects, for `up --json`."""
        return [{**change._asdict(), "brokers": list(ids)} for change, ids in self.changes.items()]


def _change(change: messages.SettingChange) -> str:
    if change.effect == "overridden":
        return f"{change.name} = {change.new}, set to {change.old} at run time,"
    new = "not set" if change.new is None else change.new
    return f"{change.name} = {new} (was {'not set' if change.old is None else change.old})"


def start_timeout_ms() -> int:
    """Return the time within which brokers must serve clients: `--timeout`, else one minute."""
    limit = time_limit()
    return clusters.START_TIMEOUT_MS if limit is None else round(limit * 1000)


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
    return f"started {_listed(new)}, already running: {_listed(running)},"


def zookeeper_failure(cluster: clusters.LocalCluster) -> str:
    """Return the error with which the cluster's ZooKeeper has ended; "" if it runs or was ended from outside."""
    record = cluster.directory.read()
    if record is None or not record.runs_zookeeper or cluster.zookeeper_process() is not None:
        return ""
    return root_causes.failure_in(sight.zookeeper_down(cluster.directory, record))


def _listed(names: Sequence[str]) -> str:
    """Return process names as text, for example `ZooKeeper, brokers 1, 2`."""
    brokers = [name for name in names if name != "ZooKeeper"]
    words = ["ZooKeeper"] if "ZooKeeper" in names else []
    if brokers:
        words.append(f"broker{'s' if len(brokers) > 1 else ''} {', '.join(brokers)}")
    return ", ".join(words)


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


@click.command()
@data_option
@timeout_option
def down(data: str | None) -> None:
    """Stop all brokers and the ZooKeeper of the cluster; keep the data."""
    found = find_cluster(data)
    ids = [broker.id for broker in found.record.brokers]
    run(found.stop(), reason=until_ended(found, data, ids, "close its logs"))
    echo(f"{found.directory.path}: all processes have stopped", err=True)


@click.command()
@process_argument
@data_option
@timeout_option
def start(process: ProcessName, data: str | None) -> None:
    """Start the broker ID, or ZooKeeper, with its former ports and data, and wait until it serves clients."""
    found = find_cluster(data)
    if process == ZOOKEEPER:
        reason = until_zookeeper_serves(found)
        run(found.start_zookeeper(), reason=reason)
        address = found.zookeeper
    else:
        broker_id = int(process)
        reason = until_serving(found, data, [broker_id])
        run(found.start(broker_id, timeout_ms=start_timeout_ms()), late=_LATE, reason=reason)
        address = found.record.address(broker_id)
        _tell_unapplied(broker_id, data)
    echo(f"{shown(process)} serves on {address}", err=True)


def _tell_unapplied(broker_id: int, data: str | None) -> None:
    """Print the settings of ./cluster.toml that a broker was started without, because `start` does not read them."""
    if data is not None or (file := config_files.find_cluster_file(None)) is None:
        return
    try:
        with config_files.errors_name_file(file):
            config = config_files.load_cluster_config(None)
            cluster = clusters.LocalCluster(data=config.data, config=config, attached=False)
            changes, kept = cluster.unapplied(broker_id), cluster.kept_settings(file)
    except ConfigError:  # `find_cluster` has printed it
        return
    for change in changes:
        text = f"{_change(change)}: not in effect, `start` does not read {file}"
        echo(f"{text}; minikafka restart {broker_id} applies it", err=True)
    for line in kept:
        echo(line, err=True)


@click.command()
@process_argument
@data_option
@timeout_option
def stop(process: ProcessName, data: str | None) -> None:
    """Stop the broker ID after it has handed over its leaderships (controlled shutdown), or stop ZooKeeper."""
    found = find_cluster(data)
    if process == ZOOKEEPER:
        run(found.stop_zookeeper(), reason=until_zookeeper_ended())
    else:
        broker_id = int(process)
        what = "hand over its leaderships and close its logs"
        run(found.stop(broker_id), reason=until_ended(found, data, [broker_id], what))
    echo(f"{shown(process)} has stopped", err=True)


@click.command()
@process_argument
@data_option
@timeout_option
def kill(process: ProcessName, data: str | None) -> None:
    """Kill the broker ID, or ZooKeeper, with SIGKILL.

    A broker then neither hands over its leaderships nor closes its files.
    """
    found = find_cluster(data)
    run(found.kill_zookeeper() if process == ZOOKEEPER else found.kill(int(process)))
    echo(f"{shown(process)} was killed", err=True)


@click.command()
@process_argument
@data_option
@timeout_option
def pause(process: ProcessName, data: str | None) -> None:
    """Pause the broker ID, or ZooKeeper, with SIGSTOP: it keeps its connections and answers nothing."""
    found = find_cluster(data)
    run(found.pause_zookeeper() if process == ZOOKEEPER else found.pause(int(process)))
    echo(f"{shown(process)} is paused", err=True)


@click.command()
@process_argument
@data_option
@timeout_option
def resume(process: ProcessName, data: str | None) -> None:
    """Let the paused broker ID, or ZooKeeper, continue, with SIGCONT."""
    found = find_cluster(data)
    run(found.resume_zookeeper() if process == ZOOKEEPER else found.resume(int(process)))
    echo(f"{shown(process)} continues", err=True)
