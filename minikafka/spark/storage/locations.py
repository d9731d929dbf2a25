"""Where output files are: a path, or a URI with the options of its store."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

from minikafka.base.errors import ConfigError
from minikafka.spark.storage.files import OutputFiles
from minikafka.spark.storage.local import LocalFiles
from minikafka.spark.storage.store import FileStore
from minikafka.spark.storage.stored import StoredFiles

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_CLOUDS: Final = ("s3", "s3a", "gs", "abfs", "abfss", "az")
_KNOWN: Final = "a path, or a URI that begins with s3://, gs://, abfs:// or hdfs://"


def is_uri(path: str) -> bool:
    """True if a path is a URI, such as `s3://bucket/archive`."""
    return _SCHEME.match(path) is not None


def open_files(path: str, storage: Mapping[str, str], kind: str) -> OutputFiles:
    """Return the directory at a path or URI. `kind`: what it holds, for messages. Nothing is read or written.

    `storage`: the options of the store. Raises `ConfigError` for a URI or an option that is not known.
    """
    local = local_path(path)
    if local is None:
        return StoredFiles(open_store(path, storage), kind)
    check_options([path], storage)
    return LocalFiles(local, kind)


def check_options(paths: Iterable[str | None], storage: Mapping[str, str]) -> None:
    """Raise `ConfigError` if there are options of a store, and no output is in a store. None: no output."""
    given = [path for path in paths if path]
    if storage and all(local_path(path) is not None for path in given):
        place = f"{given[0]}: " if given else ""
        raise ConfigError(
            f"{place}the option {min(storage)} of a store has no effect without a URI: remove it, or name a URI"
        )


def check_directory(key: str, path: str) -> None:
    """Raise `ConfigError` if a path on this machine is a file. `key`: what the path is, for the message."""
    local = local_path(path)
    if local is not None and os.path.isfile(local):
        raise ConfigError(f"{key}: {path} is a file: name a directory")


def check_checkpoint(checkpoint: str | None, output: str | None) -> None:
    """Raise `ConfigError` if a checkpoint is a file, or in the directory of an output.

    Readers of the output would take the files of the checkpoint for rows, and the upkeep of a table would remove them.
    Both ignore names that begin with `_` or `.`.
    """
    if not checkpoint:
        return
    check_directory("checkpoint", checkpoint)
    if output is None:
        return
    inner, outer = _whole(checkpoint), _whole(output)
    below = inner.removeprefix(outer)
    if inner == outer or (below != inner and below[0] == "/" and not re.search(r"/[_.]", below)):
        raise ConfigError(
            f"checkpoint: {checkpoint} is in {output}, whose readers would take its files for rows: name another"
            " directory for it"
        )


def _whole(path: str) -> str:
    """Return a URI, or an absolute path, without a slash at its end."""
    local = local_path(path)
    return path.rstrip("/") if local is None else os.path.abspath(local)


def options_of(path: str, storage: Mapping[str, str]) -> Mapping[str, str]:
    """Return the options for one of several outputs: none for a path on this machine."""
    return storage if local_path(path) is None else {}


def open_store(uri: str, storage: Mapping[str, str]) -> FileStore:
    """Return the store of a URI. Raises `ConfigError` as `open_files` does."""
    scheme = uri.partition(":")[0].lower()
    if scheme in _CLOUDS:
        from minikafka.spark.storage.object_store import ObjectStore

        return ObjectStore(uri, storage)
    if scheme == "hdfs":
        from minikafka.spark.storage.hdfs import HdfsStore

        return HdfsStore(uri, storage)
    raise ConfigError(
        f"{uri}: the writers of an output need a store that creates an object only if it is absent, which is not"
        f" known of {scheme}://; name {_KNOWN}, or mount the file system and name its path"
    )


def local_path(path: str) -> str | None:
    """Return the path on this machine that a path or a URI `file:///DIR` names; None for the URI of a store."""
    found = _SCHEME.match(path)
    if found is None:
        return path
    return _local(path) if found[1].lower() == "file" else None


def _local(uri: str) -> str:
    parts = urlsplit(uri)
    if parts.netloc not in ("", "localhost"):
        raise ConfigError(
            f"{uri} names the machine {parts.netloc}: write file:///DIR for a directory"
        )
    return unquote(parts.path)
