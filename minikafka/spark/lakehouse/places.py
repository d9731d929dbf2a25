"""Where the files of a table are: a directory, or a URI with the options of its store."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

from minikafka.base.errors import ConfigError
from minikafka.spark.storage.explain import (
    NO_ANSWER,
    OptionNames,
    check_no_login,
    explained,
    names_in_storage,
)
from minikafka.spark.storage.local import sync, writing
from minikafka.spark.storage.store import StorageError

_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_UNCLEAR: Final = re.compile(r"[%#?]|/\.\.?(?=/|$)")
_STORES: Final = ("s3", "s3a", "gs", "abfs", "abfss")
_OF_PYICEBERG: Final = {
    "s3.endpoint": "endpoint",
    "s3.access-key-id": "access_key_id",
    "s3.secret-access-key": "secret_access_key",
    "s3.session-token": "session_token",
    "s3.region": "region",
    "s3.force-virtual-addressing": "virtual_hosted_style_request",
    "adls.account-name": "account_name",
    "adls.account-key": "account_key",
    "adls.sas-token": "sas_token",
    "adls.tenant-id": "tenant_id",
    "adls.client-id": "client_id",
    "adls.client-secret": "client_secret",
    "gcs.service.host": "base_url",
    "gcs.oauth2.token": "bearer_token",
}
"""The properties of pyiceberg, and the options of `minikafka.spark.storage` with the same meaning."""

_PREFIXES: Final = {"s3": "s3", "s3a": "s3", "gs": "gcs", "abfs": "adls", "abfss": "adls"}
"""The first word of pyiceberg's properties, by the scheme of a URI."""
_ONLY_NAMES: Final = {
    "gcs.service.host": "endpoint",
    "gcs.oauth2.token": "service_account",
    "adls.blob-storage-authority": "endpoint",
}
"""Further properties that a message names instead of an option. Their values differ from those of the option."""


@dataclass(frozen=True)
class StoreOptions:
    """The options of the store of a table's files. `names`: how the user names them; None as `explained` has it."""

    values: Mapping[str, str] = field(default_factory=dict, repr=False)
    names: OptionNames | None = None


NO_OPTIONS: Final = StoreOptions()


class DataFiles(Protocol):
    """The data files of a table, in one directory."""

    def open_output(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Open a new file. It is complete and durable after the `with` body has ended without an error.

        After an error there is no file.
        """

    def folders(self) -> list[str]:
        """Return the names of the folders in the directory, and on a local disk also those of its files."""


def data_files(directory: str, storage: StoreOptions) -> DataFiles:
    """Return the files of a directory or URI. Raises `ConfigError`."""
    if not is_remote(directory):
        return _Directory(local_path(directory))
    _check_scheme(directory, "az")
    from minikafka.spark.storage.object_store import ObjectStore

    return ObjectStore(directory, storage.values, storage.names)


def check_unused(
    place: str, storage: StoreOptions, own: Container[str], exists: Callable[[], bool]
) -> None:
    """Raise `ConfigError` if the place of a new table holds something else, which its upkeep could remove.

    `own`: the names that a table has there if its creation was interrupted. `exists`: true if another writer has
    created the table in the meantime.
    """
    others = [name for name in data_files(place, storage).folders() if name not in own]
    if others and not exists():
        raise ConfigError(
            f"{place} is not empty, it holds {others[0]}: name a directory that only this table uses, because its"
            " upkeep removes all files there that are not part of the table"
        )


def check_uri(uri: str, names: OptionNames | None, *also: str) -> None:
    """Raise `ConfigError` if no table can be at a URI. `also`: further schemes that are possible."""
    check_no_login(uri, names)
    _check_scheme(uri, *also)
    if found := _UNCLEAR.search(uri):
        raise ConfigError(
            f"{uri}: the URI of a table must have no {found[0]}, which readers take for different names: choose"
            " another path"
        )


def _check_scheme(uri: str, *also: str) -> None:
    scheme = uri.partition(":")[0].lower()
    if scheme not in (*_STORES, *also):
        raise ConfigError(
            f"{uri}: this table needs a path, or a URI that begins with s3://, gs:// or abfs://, not {scheme}://:"
            " name one of these, or mount the file system and name its path"
        )


class _Directory:
    """A directory that the driver and all executors see."""

    def __init__(self, path: str) -> None:
        self._path = path

    @contextmanager
    def open_output(self, name: str) -> Iterator[BinaryIO]:
        place = f"{self._path}/{name}"
        with writing(Path(place)):
            os.makedirs(self._path, exist_ok=True)
            with open(place, "xb") as file:
                try:
                    yield file
                    file.flush()
                    os.fsync(file.fileno())
                except BaseException:
                    os.unlink(place)
                    raise
            sync(Path(self._path))

    def folders(self) -> list[str]:
        return sorted(os.listdir(self._path)) if os.path.isdir(self._path) else []


def is_uri(place: str) -> bool:
    """True for a URI such as `s3://bucket/table`, false for a path."""
    return bool(_URI.match(place))


def is_remote(place: str) -> bool:
    """True for a URI of another store than the local file system."""
    return is_uri(place) and not place.startswith("file:")


def absolute(place: str) -> str:
    """Return a URI unchanged, and a path as an absolute path. Both without a slash at the end.

    Raises `ConfigError` for a path that is a file, or that has a character with a meaning in URIs: the libraries of the
    formats would look for another directory.
    """
    if is_uri(place):
        return place.rstrip("/")
    found = os.path.abspath(place)
    if wrong := [one for one in "%#?" if one in found]:
        raise ConfigError(f"{found}: the path of a table must not contain {wrong[0]}: name another")
    if os.path.isfile(found):
        raise ConfigError(f"{found} is a file: name the directory of the table")
    return found


def file_uri(place: str) -> str:
    """Return the URI of an absolute path, and a URI unchanged."""
    return place if is_uri(place) else f"file://{place}"


def local_path(place: str) -> str:
    """Return the path of a URI of a local file, and every other text unchanged."""
    if not place.startswith("file:"):
        return place
    return "/" + place.removeprefix("file:").lstrip("/")


def refusal(place: str, properties: Mapping[str, str], error: Exception) -> str:
    """Return a sentence for an error of pyarrow about the files of an Iceberg table at a URI.

    pyarrow begins with a request for an object's size, whose answer has no reason. So the store is asked again, for a
    list. `properties`: those of pyiceberg.
    """
    storage = storage_of(place, properties)
    if not NO_ANSWER.search(str(error)):
        try:
            data_files(place, storage).folders()
        except StorageError as found:
            return str(found)
    return explained(place, "", "write", error, storage.names)


def storage_of(place: str, properties: Mapping[str, Any]) -> StoreOptions:
    """Return the options of the store of an Iceberg table, from the properties with which pyiceberg reads it.

    `place`: the path or URI of the table or of its files.
    """
    if not is_remote(place):
        return NO_OPTIONS
    found = {
        name: str(properties[key]) for key, name in _OF_PYICEBERG.items() if properties.get(key)
    }
    if authority := properties.get("adls.blob-storage-authority"):
        account = found.get("account_name", "")
        host = f"{account}{authority}" if authority[0] == "." else f"{authority}/{account}"
        found["endpoint"] = f"{properties.get('adls.blob-storage-scheme', 'https')}://{host}"
    return StoreOptions(found, _names_in_catalog(place))


def _names_in_catalog(place: str) -> OptionNames:
    """Return the names that options have among pyiceberg's properties."""
    prefix = _PREFIXES.get(place.partition(":")[0], "")
    keys = {
        name: key
        for key, name in (_OF_PYICEBERG | _ONLY_NAMES).items()
        if key.partition(".")[0] == prefix
    }
    names = {**names_in_storage(place).names, **keys}
    return OptionNames("the properties of the catalog", names)
