"""The output of commands: lines in which no text from outside can begin another line or control the terminal.

Every module of `cli` prints through this module, `console.py` and `progress.py`. Only the records that `consume`
prints are written unchanged, and files such as the one of `groups reset-offsets --export`.
"""

from __future__ import annotations

import sys

import click

from minikafka.base.printable import printable


def echo(*lines: object, err: bool = False) -> None:
    """Print each argument as one line, by default an empty line; `err`: on standard error.

    Characters that are not printable are escaped, line feeds too. Only tabs stay.
    """
    click.echo("\n".join(_escaped(str(line)) for line in lines), err=err)


def echo_data(line: str) -> None:
    """Print a line that a command reads again. It is escaped only on a terminal."""
    if sys.stdout.isatty():
        echo(line)
    else:
        click.echo(line, color=True)  # without this, click would remove escape sequences


def _escaped(line: str) -> str:
    return "\t".join(map(printable, line.split("\t")))
