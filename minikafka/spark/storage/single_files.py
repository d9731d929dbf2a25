"""One output file at a path or a URI, which readers see complete or not at all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress

from minikafka.base.errors import ConfigError
from minikafka.spark.storage.files import new_name
from minikafka.spark.storage.locations import local_path, open_store


def check_file(path: str, storage: Mapping[str, str]) -> None:
    """Raise `ConfigError` if `write_file` cannot write this file. Call this before a long job starts.

    Reasons: a directory that does not exist, a store that is not known, or a wrong option of a store.
    """
    local = local_path(path)
    if local is None:
        open_store(_split(path)[0], storage)
        return
    folder = os.path.dirname(os.path.abspath(local))
    if not os.path.isdir(folder):
        raise ConfigError(f"{path}: the directory {folder} does not exist")


def write_file(path: str, data: bytes, storage: Mapping[str, str]) -> None:
    """Write a file, and replace a file of this name at once. Raises `ConfigError`, `OSError` and `StorageError`."""
    local = local_path(path)
    if local is None:
        place, name = _split(path)
        open_store(place, storage).write(name, data)
        return
    folder, name = os.path.split(os.path.abspath(local))
    draft = os.path.join(folder, new_name(f".{name}"))
    try:
        with open(draft, "wb") as file:
            file.write(data)
        os.replace(draft, local)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(draft)
        raise


def _split(uri: str) -> tuple[str, str]:
    """Return the URI of the folder of a file, and the name of the file. Raises `ConfigError`."""
    folder, _, name = uri.rpartition("/")
    if not name or folder.endswith(":/"):
        raise ConfigError(
            f"{uri} names no file: write a bucket and a name, such as s3://BUCKET/NAME"
        )
    return folder, name
