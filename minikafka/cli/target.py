"""Which cluster a command means: options shared by commands, and how they run.

Without `--data` it is the cluster of the `cluster.toml` in the current directory, else `./data`.
"""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from shlex import quote
from typing import Any, Final, TypeVar

import click

from minikafka.base.config import ClusterConfig
from minikafka.base.errors import ConfigError, ErrorCode, KafkaError
from minikafka.cluster import ClusterError, LocalCluster
from minikafka.cluster.directory import BrokerRecord, is_free

T = TypeVar("T")
_CONFIG_FILE: Final = Path("cluster.toml")


def not_empty(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Refuses `--data "$UNSET"`, which would quietly mean the default; a callback of options."""
    if value is not None and not value.strip():
        text = f"{value!r} names nothing; leave the option out for its default"
        raise click.BadParameter(text, context, option)
    return value


data_option = click.option(
    "--data",
    metavar="DIR",
    callback=not_empty,
    help="Data directory of the cluster (default: that of cluster.toml).",
)
bootstrap_option = click.option(
    "-b",
    "--bootstrap",
    metavar="HOST:PORT,…",
    callback=not_empty,
    help="Brokers to ask (default: those of the cluster in --data).",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def topic_argument(command: Callable[..., None]) -> Callable[..., None]:
    """One topic, as TOPIC or as kcat's `-t TOPIC`."""

    @click.argument("topic", required=False)
    @click.option("-t", "--topic", "named", metavar="TOPIC", help="TOPIC, as kcat has it.")
    @wraps(command)
    def with_topic(topic: str | None, named: str | None, **rest: object) -> None:
        if (topic is None) == (named is None):
            raise click.UsageError("name one topic: TOPIC or -t TOPIC")
        command(topic=topic or named, **rest)

    return with_topic


def pairs(
    context: click.Context, option: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    """KEY=VALUE words as a mapping; a callback of options and arguments."""
    found = {}
    for value in values:
        key, separator, setting = value.partition("=")
        if not separator or not key:
            raise click.BadParameter(f"{value!r} is not KEY=VALUE", context, option)
        found[key] = setting
    return found


def target_options(bootstrap: str | None, data: str | None) -> list[str]:
    """The options that name the same cluster in another command."""
    given = [("--bootstrap", bootstrap)] if bootstrap else [("--data", data)]
    return [word for option, value in given if value for word in (option, value)]


def unknown_topics(names: Sequence[str]) -> KafkaError:
    """The error for topics that are not there, with the way to make one."""
    text = f"{', '.join(names)}: no such topic; to make it: minikafka topics create {names[0]}"
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)


@contextmanager
def errors_name_topic(topic: str) -> Iterator[None]:
    """That the topic, or a partition of it, is not there is said with what can be done about it."""
    try:
        yield
    except KafkaError as error:
        if error.code is ErrorCode.INVALID_REPLICATION_FACTOR and error.detail == topic:
            why = "default.replication.factor is more than the brokers that run"
            fix = f"to make it with fewer: minikafka topics create {topic} --replication-factor N"
            raise KafkaError(error.code, f"{topic}: {why}; {fix}") from None
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        if error.detail == topic:
            raise unknown_topics([topic]) from error
        if not re.fullmatch(rf"{re.escape(topic)}-[0-9]+", error.detail):
            raise
        text = (
            f"{error.detail}: no such partition; those there are: minikafka topics describe {topic}"
        )
        raise KafkaError(error.code, text) from error


def fail_unless(done: bool) -> None:
    """End with exit code 1, everything having been said, unless it was done."""
    if not done:
        raise click.exceptions.Exit(1)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Do it; Ctrl-C and SIGTERM cancel it, so that it can clean up."""
    signal.signal(signal.SIGTERM, interrupt)
    return asyncio.run(work)


def interrupt(*_: object) -> None:
    """A handler of SIGTERM: as Ctrl-C, also where that is ignored, in the background of a script."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)


def load_config(file: str | None) -> ClusterConfig:
    """The given cluster.toml; else the one of the current directory; else Kafka's defaults."""
    path = config_file(file)
    if path is None:
        return ClusterConfig()
    text = read_config(path, "name a cluster.toml, or leave --config out for Kafka's defaults")
    with errors_name(path):
        return ClusterConfig.parse(text)


def config_file(file: str | None) -> Path | None:
    """The cluster.toml that counts; None where there is none."""
    if file:
        return Path(file)
    return _CONFIG_FILE if _CONFIG_FILE.exists() else None


@contextmanager
def errors_name(file: Path | None) -> Iterator[None]:
    """What is wrong with a configuration is told with the file that it stands in, if it is one."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}" if file else str(error)) from error


def read_config(file: Path, fix: str) -> str:
    """The text of a file that --config names. Raises ConfigError, which names the file and the fix."""
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError(f"{file}: there is no such file; {fix}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: not a text in UTF-8; {fix}") from error
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}; {fix}") from error


def data_directory(data: str | None) -> str:
    """The data directory meant."""
    return data or load_config(None).data


def cluster(data: str | None) -> LocalCluster:
    """The cluster that was started there. Raises ClusterError when there is none."""
    found = LocalCluster(data=data_directory(data), attached=False)
    _ = found.record
    return found


def running_cluster(data: str | None) -> LocalCluster:
    """The cluster that was started there. Raises ClusterError when there is none, or none of its brokers runs."""
    found = cluster(data)
    if not any(_may_answer(found, broker) for broker in found.record.brokers):
        where = f"--data {quote(str(found.directory.path))}"
        text = f"no broker of the cluster in {found.directory.path} is running"
        one = f"minikafka start {found.record.brokers[0].id} {where} for one"
        raise ClusterError(f"{text}: minikafka up {where} starts all, {one}")
    return found


def _may_answer(found: LocalCluster, broker: BrokerRecord) -> bool:
    """Whether its process runs, or something listens on its port: it may run where its process is not seen."""
    return found.process(broker.id) is not None or not is_free(broker.port)


def bootstrap_servers(bootstrap: str | None, data: str | None) -> str:
    """The brokers to ask. Raises as `running_cluster` does when none are given."""
    return bootstrap or running_cluster(data).bootstrap
