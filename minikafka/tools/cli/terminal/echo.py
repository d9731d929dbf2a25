"""The output of commands: lines in which no text from outside can begin another line or control the terminal.

Every module of `cli` prints through this module, `console.py` and `progress.py`. Only the records that `consume`
prints are written unchanged, and files such as the one of `groups reset-offsets --export`. A command with
`json_option` hands its result to `show` as an object and as text. Records (`consume --json`) are no result but a
stream, with a format of its own (`records/record_format.py`).

Invariant: after `escape_unencodable`, no text fails because the encoding of the output lacks a character. Python's
own handler `backslashreplace` would write `\\xe9`, which no JSON document may contain.
"""

from __future__ import annotations

import codecs
import io
import json
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final

import click

from minikafka.base.printable import json_escapes, printable

_ESCAPE: Final = "minikafka.json-escapes"
"""Name of the error handler of the output streams."""


def escape_unencodable() -> None:
    """Let standard output and standard error write a character that their encoding lacks as a JSON escape."""
    codecs.register_error(_ESCAPE, _escape_span)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ESCAPE)


def _escape_span(error: UnicodeError) -> tuple[str, int]:
    """Handle a codec error: return the escapes of the characters that the encoding lacks, and the index after them."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json_escapes(error.object[error.start : error.end]), error.end


def echo(*lines: object, err: bool = False) -> None:
    """Print each argument as one line, by default an empty line; `err`: on standard error.

    Characters that are not printable are escaped, line feeds too. Only tabs stay.
    """
    text = "\n".join(_escaped(str(line)) for line in lines)
    # click.echo would write UTF-8 where the encoding is ASCII.
    print(text, file=sys.stderr if err else sys.stdout, flush=True)


def echo_data(line: str) -> None:
    """Print a line that a command reads again: escaped on a terminal, elsewhere unchanged as UTF-8."""
    if sys.stdout.isatty():
        echo(line)
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(f"{line}\n".encode())
        sys.stdout.buffer.flush()


def _escaped(line: str) -> str:
    return "\t".join(map(printable, line.split("\t")))


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
