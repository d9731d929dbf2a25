"""Where output files are: a path, or a URI with the options of its store."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote, urlsplit

from minikafka.base.errors import ConfigError
from minikafka.spark.storage.files import OutputFiles
from minikafka.spark.storage.local import LocalFiles
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
    found = _SCHEME.match(path)
    scheme = found[1].lower() if found else "file"
    if scheme == "file":
        if storage:
            raise ConfigError(
                f"{path}: the option {min(storage)} of a store has no effect on a directory: remove it, or name"
                " a URI"
            )
        return LocalFiles(_local(path) if found else path, kind)
    if scheme in _CLOUDS:
        from minikafka.spark.storage.object_store import ObjectStore

        return StoredFiles(ObjectStore(path, storage), kind)
    if scheme == "hdfs":
        from minikafka.spark.storage.hdfs import HdfsStore

        return StoredFiles(HdfsStore(path, storage), kind)
    raise ConfigError(
        f"{path}: the writers of an output need a store that creates an object only if it is absent, which is not"
        f" known of {scheme}://; name {_KNOWN}, or mount the file system and name its path"
    )


def _local(uri: str) -> str:
    parts = urlsplit(uri)
    if parts.netloc not in ("", "localhost"):
        raise ConfigError(
            f"{uri} names the machine {parts.netloc}: write file:///DIR for a directory"
        )
    return unquote(parts.path)
