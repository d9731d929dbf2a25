"""Rewrites the offsets in a checkpoint, so that Spark's own Kafka connector continues the query.

Each file is replaced as a whole. If the program is killed, a second run rewrites the files that are left, and both
sources can read the files that are done.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyarrow import fs

from minikafka.base.errors import ConfigError
from minikafka.spark.micro_batches import place
from minikafka.spark.source.connector_checkpoint import plain_plan, start_text

_NEW: Final = ".minikafka-new"
"""The end of the name of a file that is not complete yet. Spark ignores names that begin with a dot."""


def rewrite_offsets(checkpoint: str) -> list[str]:
    """Rewrite the offsets of this source, and return the names of the changed files, below the checkpoint.

    Raises `ConfigError` if the directory is not a checkpoint, or if the connector could not continue.
    """
    try:
        directory = _Directory(checkpoint)
        plans = directory.plans()
        if not plans:
            raise ConfigError(
                f"{checkpoint} has no files offsets/N: name the checkpointLocation of a query"
            )
        changed, starts = _changes(plans)
        if "offsets/0" in changed and not starts and not directory.has("commits/0"):
            raise ConfigError(
                f"{checkpoint}: micro-batch 0 is not finished, and its plan has no start, since an earlier version of"
                ' minikafka has written it: run the query once more with format("minikafka")'
            )
        new = {name: text for name, text in starts.items() if not directory.has(name)}
        for name, text in (new | changed).items():
            directory.replace(name, text)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot rewrite the checkpoint {checkpoint}: {error}") from error
    return sorted(new | changed)


def _changes(plans: Mapping[int, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the new texts of files `offsets/N` and of files `sources/INDEX/0`, by name."""
    changed: dict[str, str] = {}
    starts: dict[str, str] = {}
    for number, text in plans.items():
        try:
            plain, found = plain_plan(text)
        except ValueError as error:
            raise ValueError(f"offsets/{number}: {error}") from error
        if plain != text:
            changed[f"offsets/{number}"] = plain
        starts |= {f"sources/{index}/0": start_text(at) for index, at in found.items()}
    return changed, starts


class _Directory:
    """The files of a checkpoint. Names are paths below its directory."""

    def __init__(self, checkpoint: str) -> None:
        self._files, root = place(checkpoint)
        self._root = root.rstrip("/")

    def plans(self) -> dict[int, str]:
        """Return the text of each file `offsets/N` by its number."""
        wanted = fs.FileSelector(f"{self._root}/offsets", allow_not_found=True)
        names = [one.base_name for one in self._files.get_file_info(wanted)]
        return {int(name): self._read(f"offsets/{name}") for name in names if name.isdecimal()}

    def has(self, name: str) -> bool:
        (found,) = self._files.get_file_info([f"{self._root}/{name}"])
        return bool(found.type is fs.FileType.File)

    def _read(self, name: str) -> str:
        with self._files.open_input_stream(f"{self._root}/{name}") as file:
            return bytes(file.read()).decode()

    def replace(self, name: str, text: str) -> None:
        """Write a file as a whole. The checksum that Hadoop keeps of a local file is deleted first."""
        folder, _, file = f"{self._root}/{name}".rpartition("/")
        self._files.create_dir(folder, recursive=True)
        new = f"{folder}/.{file}{_NEW}"
        with self._files.open_output_stream(new) as stream:
            stream.write(text.encode())
        for checksum in self._files.get_file_info([f"{folder}/.{file}.crc"]):
            if checksum.type is fs.FileType.File:
                self._files.delete_file(checksum.path)
        self._files.move(new, f"{folder}/{file}")
