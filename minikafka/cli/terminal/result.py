"""The result of a command: text, or with `--json` one line of JSON.

A command has `json_option`, and hands its result to `show` as an object and as text. Records (`consume --json`)
are no result but a stream, with a format of its own (`records/record_format.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Final

import click

from minikafka.cli.terminal.echo import echo

_KEY: Final = "minikafka.json"


def _remember(context: click.Context, option: click.Parameter, is_given: bool) -> None:
    context.meta[_KEY] = is_given


json_option = click.option(
    "--json", is_flag=True, expose_value=False, callback=_remember, help="Print JSON."
)


def wants_json() -> bool:
    """True if the running command was called with `--json`; False outside of a command."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_KEY))


def as_line(result: Any) -> str:
    """Return a result as one line of JSON."""
    return json.dumps(result)


def show(result: Any, text: Iterable[object] | Callable[[], None] = ()) -> None:
    """Print a result as JSON with `--json`, else as text: lines, or a function that prints them."""
    if wants_json():
        echo(as_line(result))
    elif callable(text):
        text()
    else:
        for line in text:
            echo(line)
