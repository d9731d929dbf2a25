"""The password that a command gets from a prompt, a file or standard input.

It is never an argument: every user of the machine can read the arguments of a process.
"""

from __future__ import annotations

import getpass
import sys
from pathlib import Path

from minikafka.base.errors import MinikafkaError


def read_password(file: str | None) -> str:
    """Return the password in the first line of a file, else from a prompt, or from standard input without a terminal.

    Raises MinikafkaError.
    """
    if file is not None:
        return _first_line(Path(file).read_bytes(), file)
    if sys.stdin is None:
        raise MinikafkaError("standard input is closed: give --password-file FILE")
    if not sys.stdin.isatty():
        return _first_line(sys.stdin.buffer.readline(), "standard input")
    password = getpass.getpass("Password: ")
    if password != getpass.getpass("Repeat the password: "):
        raise MinikafkaError("the passwords differ; nothing was changed")
    return _not_empty(password, "the password")


def _first_line(data: bytes, source: str) -> str:
    line = data.partition(b"\n")[0].removesuffix(b"\r")
    try:
        return _not_empty(line.decode(), source)
    except UnicodeDecodeError:
        raise MinikafkaError(f"{source}: the password must be UTF-8") from None


def _not_empty(password: str, source: str) -> str:
    if not password:
        raise MinikafkaError(f"{source} is empty: a password must have at least one character")
    return password
