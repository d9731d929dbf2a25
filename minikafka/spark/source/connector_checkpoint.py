"""Checkpoints that Spark's own Kafka connector writes or continues.

The connector has plain offsets in the files `offsets/N`, as `source/positions.py` says, and the start of each source of
the query in a file `sources/INDEX/0`: a zero byte, the line `v1`, and plain offsets. This source reads both, so that a
query can move from the connector. `plain_plan` and `start_text` return the texts that the connector reads, so that a
query can move back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from pyarrow import fs

from minikafka.base.errors import ConfigError
from minikafka.base.names import parse_json
from minikafka.spark.micro_batches import place
from minikafka.spark.option_map import CHECKPOINT
from minikafka.spark.source.positions import (
    Positions,
    first_starts,
    from_json,
    is_plain,
    plain,
    to_plain,
)

_VERSION: Final = "v1"
_OFFSETS: Final = re.compile(r"(?P<name>[^{]*)(?P<tree>\{.*\})")
"""A line with the offsets of a source. Offset logs of version 2 have the name of the source before the offsets."""
_HEAD: Final = 2
"""Number of lines before the offsets: the version, and the facts of the micro-batch."""


def first_of_connector(checkpoint: str | None, end: Mapping[str, Any]) -> Positions:
    """Return the start of a first micro-batch that the connector has planned up to `end`.

    Raises `ConfigError` if the place of the checkpoint is not known, or if the checkpoint does not have the start.
    """
    if checkpoint is None:
        raise ConfigError(
            "micro-batch 0 was planned by Spark's Kafka connector, and only the checkpoint has its start: set option"
            f" {CHECKPOINT} also for the source until this micro-batch is finished"
        )
    topics = end.keys()
    try:
        texts = _start_texts(checkpoint)
        found = [tree for tree in map(_start, texts) if tree.keys() <= topics]
    except (OSError, ValueError) as error:
        raise ConfigError(f"option {CHECKPOINT}: cannot read {checkpoint}: {error}") from error
    if not found or any(tree != found[0] for tree in found):
        count = f"{len(found)} different starts" if found else "no start"
        raise ConfigError(
            f"option {CHECKPOINT}: the files sources/*/0 of {checkpoint} have {count} of {', '.join(topics)}:"
            " finish micro-batch 0 with Spark's Kafka connector"
        )
    return from_json(found[0])


def _start_texts(checkpoint: str) -> list[bytes]:
    """Return the contents of the files `sources/INDEX/0`. Raises `OSError` and `ValueError`."""
    files, root = place(checkpoint)
    sources = files.get_file_info(fs.FileSelector(f"{root.rstrip('/')}/sources"))
    found = files.get_file_info([f"{one.path}/0" for one in sources])
    return [
        files.open_input_stream(one.path).read() for one in found if one.type is fs.FileType.File
    ]


def _start(data: bytes) -> dict[str, Any]:
    """Return the plain offsets in a file `sources/INDEX/0`. Raises `ValueError`."""
    version, _, tree = data.removeprefix(b"\0").decode().partition("\n")
    if version != _VERSION:
        raise ValueError(f"sources/…/0 has version {version!r} instead of {_VERSION}")
    return parse_json(tree.encode())


def start_text(positions: Positions) -> str:
    """Return the text of a file `sources/INDEX/0`."""
    return f"\0{_VERSION}\n{_text(plain(positions))}"


def plain_plan(text: str) -> tuple[str, dict[int, Positions]]:
    """Return the text of a file `offsets/N` with plain offsets, and the starts that it has, by the index of the source.

    Offsets of other sources stay as they are. Raises `ValueError` if the text is not that of a file `offsets/N`.
    """
    lines = text.split("\n")
    starts = {}
    if not re.fullmatch(r"v[12]", lines[0]):
        raise ValueError(
            f"its first line must be v1 or v2, not {lines[0][:20]!r}: restore the file from a backup"
        )
    for index, line in enumerate(lines[_HEAD:]):
        match = _OFFSETS.fullmatch(line)
        tree = _of_this_source(match["tree"]) if match else None
        if match is None or tree is None:
            continue
        lines[_HEAD + index] = match["name"] + _text(to_plain(tree))
        first = first_starts(tree)
        if first:
            starts[index] = first
    return "\n".join(lines), starts


def _of_this_source(text: str) -> dict[str, Any] | None:
    """Return the offsets in a line, if this source has written them."""
    try:
        tree = parse_json(text.encode())
        return None if not tree or is_plain(tree) or not from_json(tree) else tree
    except (ValueError, AttributeError, ConfigError):
        return None


def _text(tree: Mapping[str, Any]) -> str:
    return json.dumps(tree, separators=(",", ":"))
