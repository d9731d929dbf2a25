"""The options `--watch` and `--interval`: output that is shown again after each interval."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from typing import Any, NoReturn

import click
import rich.console as rich_console
import rich.live as rich_live
import rich.text as rich_text

import minikafka.tools.cli.terminal.console as consoles
from minikafka.runtime.clock import SystemClock
from minikafka.tools.cli.terminal.echo import show, wants_json


def watch_options(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command with `--watch` and `--interval`; the interval is passed as `watch`, None without --watch."""

    @click.option("--watch", is_flag=True, help="Repeat the output until Ctrl-C.")
    @click.option(
        "--interval",
        type=click.FloatRange(0, min_open=True),
        default=1.0,
        show_default=True,
        metavar="SECONDS",
        help="Time between two outputs of --watch.",
    )
    @wraps(command)
    def with_watch(watch: bool, interval: float, **rest: object) -> None:
        command(watch=interval if watch else None, **rest)

    return with_watch


async def watch_lines(
    read: Callable[[], Awaitable[tuple[Any, Sequence[rich_text.Text]]]], interval_seconds: float
) -> NoReturn:
    """Show what `read` returns, a result and its lines, again after each interval, until the task is cancelled.

    On a terminal each output replaces the previous output. With `--json`, and elsewhere, each output is appended.
    """
    clock = SystemClock()
    console = consoles.plain_console()
    is_live = console.is_terminal and not wants_json()
    with rich_live.Live(console=console, auto_refresh=False, transient=False) as live:
        while True:
            result, lines = await read()
            if is_live:
                live.update(rich_console.Group(*map(consoles.escaped, lines)), refresh=True)
            else:
                show(result, (line.plain for line in lines))
            await clock.sleep(1000 * interval_seconds)
