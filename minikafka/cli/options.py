"""Click options and arguments that several commands share.

This module imports nothing heavy: every `--help` loads it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

import click


def not_blank(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
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
    callback=not_blank,
    help="Data directory of the cluster (default: the one in cluster.toml, else ./data).",
)
bootstrap_option = click.option(
    "-b",
    "--bootstrap",
    metavar="HOST:PORT,…",
    callback=not_blank,
    help="Brokers to connect to (default: those of the cluster in --data).",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def topic_argument(command: Callable[..., None]) -> Callable[..., None]:
    """Add the argument TOPIC, which may also be given as `-t TOPIC`, as in kcat."""

    @click.argument("topic", required=False)
    @click.option("-t", "--topic", "named", metavar="TOPIC", help="Same as TOPIC.")
    @wraps(command)
    def with_topic(topic: str | None, named: str | None, **rest: object) -> None:
        if (topic is None) == (named is None):
            raise click.UsageError("name exactly one topic, as TOPIC or as -t TOPIC")
        command(topic=topic or named, **rest)

    return with_topic


def key_value_pairs(
    context: click.Context, option: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    """Return KEY=VALUE words as a mapping; a click callback. Raises BadParameter."""
    found = {}
    for value in values:
        key, separator, setting = value.partition("=")
        if not separator or not key:
            raise click.BadParameter(f"{value!r} is not KEY=VALUE", context, option)
        found[key] = setting
    return found
