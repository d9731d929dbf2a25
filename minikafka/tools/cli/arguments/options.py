"""Click options and arguments that several commands share.

This module imports nothing heavy: every `--help` loads it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import Any, Final

import click
from click.core import ParameterSource

from minikafka.tools.cli.arguments import command_config, completion, profiles
from minikafka.tools.cli.terminal.echo import json_option

DATA_VARIABLE: Final = "MINIKAFKA_DATA"
_CLUSTER: Final = f"{__name__}.cluster"
_TIME_LIMIT: Final = f"{__name__}.time_limit"


def not_blank(
    context: click.Context | None, option: click.Parameter | None, value: str | None
) -> str | None:
    """Return the value of an option; a click callback.

    Raises BadParameter for a blank value: `--data "$UNSET"` must not silently mean the default.
    """
    if value is not None and not value.strip():
        text = f"{value!r} is blank; leave the option out to use its default"
        raise click.BadParameter(text, context, option)
    return value


data_option = click.option(
    "--data",
    metavar="DIR",
    envvar=DATA_VARIABLE,
    callback=not_blank,
    help="Data directory of the cluster (default: MINIKAFKA_DATA, else the one in cluster.toml, else ./data).",
)


class _ExistingFile(click.Path):
    def __init__(self) -> None:
        super().__init__(exists=True, dir_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        not_blank(ctx, param, value)
        return super().convert(value, param, ctx)


EXISTING_FILE: Final = _ExistingFile()
"""The type of an argument that names a file to read. A wrong name is a usage error (exit code 2)."""
config_option = click.option(
    "--config",
    type=EXISTING_FILE,
    metavar="FILE",
    help="Configuration of the cluster (default: ./cluster.toml, if it exists).",
)


def _bootstrap_or_profile(
    context: click.Context, option: click.Parameter, value: str | None
) -> str | None:
    """Return the value of `--bootstrap`, else the brokers of the chosen profile, else None; a click callback.

    The security of the profile is used too. A profile that only MINIKAFKA_CLUSTER names has no effect if an option
    names the cluster, so that its passwords are sent to no other address. Raises UsageError and ConfigError.
    """
    not_blank(context, option, value)
    name = profiles.name_in_option(context)
    if value is None and _names_data(context):
        if name is not None:
            raise click.UsageError("--cluster and --data name two clusters: give one of them")
        return None
    if value is None and name is None:
        name = profiles.name_in_environment()
        if name is not None and os.environ.get(DATA_VARIABLE):
            text = f"{DATA_VARIABLE} and {profiles.VARIABLE} name two clusters: unset one of them"
            raise click.UsageError(f"{text}, or give --data or --cluster")
    if name is None:
        return value
    profile = profiles.read_profile(name)
    command_config.use_profile(profile, context)
    return value or profile.bootstrap


def _names_data(context: click.Context) -> bool:
    return context.get_parameter_source("data") is ParameterSource.COMMANDLINE


bootstrap_option = click.option(
    "-b",
    "--bootstrap",
    "--bootstrap-server",
    "bootstrap",
    metavar="HOST:PORT,...",
    callback=_bootstrap_or_profile,
    help="Brokers to connect to (default: those of `minikafka --cluster`, else of the cluster in --data).",
)


def needs_machine(reason: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds --data to a command that only works on the machine of the cluster's processes.

    `reason`: what it does there, as a verb with its object. The command refuses --bootstrap and profiles, and says why.
    """

    def refuse(context: click.Context, option: click.Parameter, value: str | None) -> None:
        given = option.opts[0] if value is not None else ""
        if not given and not (_names_data(context) or _names_zookeeper(context)):
            if profiles.name_in_option(context) is not None:
                given = "--cluster"
            elif profiles.name_in_environment() is not None:
                given = profiles.VARIABLE
        if given:
            text = f"`{context.command_path}` {reason} of the machine on which it runs"
            remedy = "run it on the machine of the broker, with --data DIR"
            raise click.UsageError(f"{text}, but {given} names a cluster elsewhere: {remedy}")

    hidden = click.option(
        "--bootstrap",
        "--bootstrap-server",
        "-b",
        hidden=True,
        expose_value=False,
        callback=refuse,
    )
    return lambda command: hidden(data_option(command))


def _names_zookeeper(context: click.Context) -> bool:
    return context.get_parameter_source("zookeeper") is ParameterSource.COMMANDLINE


command_config_option = click.option(
    "--command-config",
    type=EXISTING_FILE,
    metavar="FILE",
    expose_value=False,
    callback=command_config.remember_file,
    help="Properties file of Kafka's tools, with TLS and login (security.protocol, ssl.*, sasl.*).",
)
"""The option `--command-config`. `command_config.connector` reads the file, so commands need not handle it."""


def connection_options(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command that connects to brokers with --bootstrap, --command-config and --data."""
    return bootstrap_option(command_config_option(data_option(command)))


def topic_argument(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command with the argument TOPIC (or `-t TOPIC`), which is passed as `topic`."""

    @click.argument("topic", required=False, shell_complete=completion.topics)
    @click.option(
        "-t",
        "--topic",
        "named",
        metavar="TOPIC",
        help="Same as TOPIC.",
        shell_complete=completion.topics,
    )
    @wraps(command)
    def with_topic(topic: str | None, named: str | None, **rest: object) -> None:
        if (topic is None) == (named is None):
            raise click.UsageError("name exactly one topic, as TOPIC or as -t TOPIC")
        command(topic=topic or named, **rest)

    return with_topic


def topics_argument(*, required: bool) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds the argument TOPIC… (or repeated `-t TOPIC`), which is passed as `topics`."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        @click.argument(
            "words",
            nargs=-1,
            metavar="TOPIC..." if required else "[TOPIC]...",
            shell_complete=completion.topics,
        )
        @click.option(
            "-t",
            "--topic",
            "named",
            multiple=True,
            metavar="TOPIC",
            help="Same as TOPIC; may be repeated.",
            shell_complete=completion.topics,
        )
        @wraps(command)
        def with_topics(words: tuple[str, ...], named: tuple[str, ...], **rest: object) -> None:
            if required and not (words or named):
                raise click.UsageError("name at least one topic, as TOPIC or as -t TOPIC")
            command(topics=(*words, *named), **rest)

        return with_topics

    return add


def groups_argument(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command with GROUP… (or `-g GROUP`) and `--all-groups`, passed as `groups` and `all_groups`."""

    @click.argument("words", nargs=-1, metavar="[GROUP]...", shell_complete=completion.groups)
    @click.option(
        "-g",
        "--group",
        "named",
        multiple=True,
        metavar="GROUP",
        help="Same as GROUP; may be repeated.",
        shell_complete=completion.groups,
    )
    @click.option("--all-groups", is_flag=True, help="All consumer groups.")
    @wraps(command)
    def with_groups(
        words: tuple[str, ...], named: tuple[str, ...], all_groups: bool, **rest: object
    ) -> None:
        groups = tuple(dict.fromkeys((*words, *named)))
        if bool(groups) == all_groups:
            raise click.UsageError("name at least one GROUP, or give --all-groups")
        command(groups=groups, all_groups=all_groups, **rest)

    return with_groups


def _remember_time_limit(
    context: click.Context, option: click.Parameter, seconds: float | None
) -> None:
    context.meta[_TIME_LIMIT] = seconds


timeout_option = click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    expose_value=False,
    callback=_remember_time_limit,
    help="Fail if the command has not ended after this time.",
)
"""The option `--timeout`. `execution.run` enforces the limit, so commands need not handle it."""


def client_options(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command that calls `run_with_client` with `connection_options`, --timeout and --json."""

    @connection_options
    @timeout_option
    @json_option
    @wraps(command)
    def with_client(bootstrap: str | None, data: str | None, **rest: object) -> None:
        click.get_current_context().meta[_CLUSTER] = bootstrap, data
        command(**rest)

    return with_client


def named_cluster() -> tuple[str | None, str | None]:
    """Return the `--bootstrap` and the `--data` of the running command."""
    found: tuple[str | None, str | None] = click.get_current_context().meta[_CLUSTER]
    return found


def time_limit() -> float | None:
    """Return the `--timeout` of the running command in seconds; None without a limit."""
    context = click.get_current_context(silent=True)
    found: float | None = context.meta.get(_TIME_LIMIT) if context else None
    return found


def key_value_pairs(
    context: click.Context, option: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    """Parse words of the form KEY=VALUE as a mapping; a click callback. Raises BadParameter."""
    found = {}
    for value in values:
        key, separator, setting = value.partition("=")
        if not separator or not key:
            raise click.BadParameter(f"{value!r} is not KEY=VALUE", context, option)
        found[key] = setting
    return found
