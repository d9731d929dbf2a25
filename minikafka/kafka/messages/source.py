"""The text of a generated Python function, and the constants that the function uses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct
from typing import Any, Final

FORMATS: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""The types of fixed size, as format characters of `struct`."""

FEW: Final = 16
"""Arrays of fewer numbers are read and written by a prepared `Struct`."""


def few_numbers(character: str, method: str) -> tuple[Any, ...]:
    """Return, for each length below `FEW`, a method of the `Struct` of an array of numbers."""
    return tuple(getattr(Struct(f">{count}{character}"), method) for count in range(FEW))


class GeneratedFunction:
    """A generated function: its lines, and its constants by name."""

    def __init__(self, signature: str, constants: dict[str, Any]) -> None:
        self._lines = [f"def generated({signature}):"]
        self._indent = "    "
        self.constants = constants

    def line(self, text: str) -> None:
        """Append a line in the current block."""
        self._lines.append(self._indent + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Append the head of a block, such as `if n:`. Lines that are appended meanwhile are in the block."""
        self.line(head)
        self._indent += "    "
        yield
        self._indent = self._indent[:-4]

    def constant(self, prefix: str, value: Any) -> str:
        """Return the name of a new constant."""
        name = f"{prefix}{len(self.constants)}"
        self.constants[name] = value
        return name

    def layout(self, characters: str, method: str) -> str:
        """Return the name of a constant: the method of the `Struct` with these format characters, big-endian."""
        name = f"{method}_{characters.replace('?', 'o')}"
        self.constants[name] = getattr(Struct(f">{characters}"), method)
        return name

    def compiled(self, name: str) -> Any:
        """Return the function. `name` is the name of its file in tracebacks."""
        code = compile("\n".join(self._lines), f"<{name}>", "exec")
        exec(code, self.constants)  # noqa: S102 - the text is made from the table alone
        return self.constants["generated"]
