"""Text from outside as text that is safe in a log line and on a terminal.

Names, client ids, group ids and error texts come from clients, files, ZooKeeper and other servers. A line feed in
such a text could begin a forged log line, and an escape sequence could change what a terminal shows.
"""

from __future__ import annotations

import json


def json_escapes(text: str) -> str:
    r"""Return the text as JSON writes it in ASCII, without the quotes around it."""
    return json.dumps(text)[1:-1]


def printable(text: str) -> str:
    r"""Return the text as one line: every character that is not printable becomes a JSON escape, such as \n or \u001b.

    This includes control characters, line and paragraph separators, characters that change the writing direction or
    are invisible, and halves of surrogate pairs, which no output stream could encode. A JSON document stays valid.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else json_escapes(char) for char in text)
