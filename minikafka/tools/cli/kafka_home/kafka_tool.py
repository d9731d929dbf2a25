"""`kafka-tool`: run a class of Kafka's distribution, as the scripts of `kafka-home` do."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable, Sequence
from typing import Final

import click

import minikafka.tools.cli.kafka_home.servers as servers
from minikafka.base.errors import MinikafkaError
from minikafka.tools.cli.kafka_home.java_arguments import parse_java_arguments
from minikafka.tools.cli.kafka_home.options import COMMON_FLAGS, Arguments, Names, parse
from minikafka.tools.cli.kafka_home.tables import CLASSES, KAFKA, ZOOKEEPER, Tool
from minikafka.tools.cli.kafka_home.version import KAFKA_VERSION
from minikafka.tools.cli.terminal.echo import echo

_PACKAGE: Final = f"{__name__.rpartition('.')[0]}.tools"


@click.command(
    "kafka-tool",
    context_settings={
        "ignore_unknown_options": True,
        "allow_interspersed_args": False,
        "help_option_names": ["--help"],
    },
)
@click.argument(
    "words", nargs=-1, type=click.UNPROCESSED, metavar="[JVM OPTION]... CLASS [ARGUMENT]..."
)
def kafka_tool(words: tuple[str, ...]) -> None:
    """Run CLASS of Kafka's distribution. The scripts that `minikafka kafka-home` makes call this command."""
    properties, main_class, arguments = parse_java_arguments(words)
    if main_class in (KAFKA, ZOOKEEPER):
        run = servers.run_kafka if main_class == KAFKA else servers.run_zookeeper
        run(arguments, properties)
        return
    tool = CLASSES.get(main_class)
    if tool is None:
        raise MinikafkaError(f"minikafka has no class {main_class or 'without a name'} of Kafka")
    if not tool.work:
        raise MinikafkaError(f"{tool.script}: {tool.refusal}")
    _run_tool(tool, arguments)


def _run_tool(tool: Tool, words: Sequence[str]) -> None:
    if "--version" in words:
        echo(f"{KAFKA_VERSION} (Commit:minikafka)")
        return
    flags = f"{tool.flags} {COMMON_FLAGS}".split()
    names = Names(flags, tool.values.split(), tool.optional.split(), tool.lists.split())
    if not words or "--help" in words:
        echo(
            f"Options of {tool.script}: "
            + " ".join(f"--{name}" for name in sorted(itertools.chain(*names)))
        )
        if not words:
            raise click.exceptions.Exit(1)
        return
    module, _, function = tool.work.partition(".")
    work: Callable[[Arguments], None] = getattr(
        importlib.import_module(f"{_PACKAGE}.{module}"), function
    )
    if tool.work.startswith("zookeeper_shell."):
        work(Arguments(tuple(words)))
        return
    arguments = parse(words, names, has_rest=tool.has_rest)
    try:
        _with_one_kind_of_error(work, arguments)
    except MinikafkaError as error:
        error.exit_code = 1
        if not tool.failure:
            raise
        echo(*f"{tool.failure}{_reason(error)}".split("\n"))
        raise


def _with_one_kind_of_error(work: Callable[[Arguments], None], arguments: Arguments) -> None:
    """Do the work. Raises MinikafkaError, also for an option whose value is wrong: Kafka's tools have one exit code."""
    try:
        work(arguments)
    except click.UsageError as error:
        raise MinikafkaError(error.message) from error


def _reason(error: MinikafkaError) -> str:
    """Return the text of an error without its code, as Kafka's exceptions have it."""
    return getattr(error, "reason", "") or str(error)
