"""Files in HDFS, by the library hdfs-native, which needs no Java.

A file of HDFS is visible while it is written. So a file that must appear complete is written under `_staging/`, and
renamed: the name node renames at once, and refuses an existing target unless told otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, BinaryIO, Final, TypeVar, cast

import pyarrow as pa

from minikafka.base.errors import ConfigError
from minikafka.spark.storage.files import STAGING, new_name
from minikafka.spark.storage.store import StorageError

try:
    from hdfs_native import Client, WriteOptions
except ModuleNotFoundError as missing:
    raise ConfigError(
        f"hdfs:// needs the package {missing.name}: pip install 'minikafka[hdfs]' for the Python of the driver and"
        " of the executors"
    ) from None

_TAKEN: Final = "AlreadyExists"
_GONE: Final = ("NotFound", "does not exist", "FileNotFound")
Found = TypeVar("Found")


class HdfsStore:
    """The files below a URI such as `hdfs://namenode:8020/archive`. `options`: keys of Hadoop's configuration."""

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        self.url = url.rstrip("/")
        place, _, path = self.url.partition("://")[2].partition("/")
        self._top = f"/{path}"
        try:
            self._client = Client(f"hdfs://{place}", dict(options))
        except Exception as error:  # noqa: BLE001 - the library raises RuntimeError and others
            raise ConfigError(self._sentence("", error)) from None

    def _ask(self, name: str, request: Callable[[], Found]) -> Found:
        """Return the result of a request. Raises `FileNotFoundError`, `FileExistsError` or `StorageError`."""
        try:
            return request()
        except Exception as error:
            if isinstance(error, FileNotFoundError) or any(word in str(error) for word in _GONE):
                raise FileNotFoundError(name) from error
            if isinstance(error, FileExistsError) or _TAKEN in str(error):
                raise FileExistsError(name) from error
            raise StorageError(self._sentence(name, error)) from error

    def _sentence(self, name: str, error: BaseException) -> str:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return (
            f"{self.url}/{name}: {lines[0][:200].rstrip('.')}: check the URI, that the name node answers, and the"
            " rights of the user (HADOOP_USER_NAME, or a ticket of Kerberos)"
        )

    def _path(self, name: str) -> str:
        return f"{self._top.rstrip('/')}/{name}".rstrip("/") or "/"

    def _listed(self, folder: str, *, recursive: bool) -> list[Any]:
        try:
            asked = self._client.list_status
            return self._ask(folder, lambda: [*asked(self._path(folder), recursive)])
        except FileNotFoundError:
            return []

    def files(self, folder: str = "") -> list[str]:
        start = len(self._path("")) + (self._top != "/")
        found = self._listed(folder, recursive=True)
        return sorted(one.path[start:] for one in found if not one.isdir)

    def folders(self, folder: str = "") -> list[str]:
        found = self._listed(folder, recursive=False)
        return sorted(one.path.rpartition("/")[2] for one in found if one.isdir)

    def read(self, name: str) -> bytes | None:
        try:
            return self._ask(name, lambda: bytes(self._client.read(self._path(name)).read()))
        except FileNotFoundError:
            return None

    def open_input(self, name: str) -> pa.NativeFile:
        try:
            return pa.PythonFile(self._ask(name, lambda: self._client.read(self._path(name))), "r")
        except FileNotFoundError:
            raise StorageError(f"{self.url}/{name} does not exist: it was removed") from None

    def write(self, name: str, data: bytes) -> None:
        self._place(name, data, overwrite=True)

    @contextmanager
    def open_output(self, name: str) -> Iterator[BinaryIO]:
        """Open a new file, which the caller lists only after the `with` body has ended without an error."""
        options = WriteOptions(overwrite=False, create_parent=True)
        writer = self._ask(name, lambda: self._client.create(self._path(name), options))
        yield cast(
            "BinaryIO", _Counted(writer, lambda data: self._ask(name, lambda: writer.write(data)))
        )
        self._ask(name, writer.close)

    def create(self, name: str, data: bytes) -> bool:
        """Write a file if there is none of this name. `data` must differ from what any other caller writes."""
        try:
            self._place(name, data, overwrite=False)
        except (FileExistsError, FileNotFoundError, StorageError) as error:
            # A repeated request of the library may have renamed the file before: then it is this caller's.
            if (found := self.read(name)) is None:
                raise StorageError(self._sentence(name, error)) from error
            return found == data
        return True

    def _place(self, name: str, data: bytes, *, overwrite: bool) -> None:
        draft = f"{STAGING}/{new_name('draft')}"
        with self.open_output(draft) as file:
            file.write(data)
        try:
            self._rename(draft, name, overwrite=overwrite)
        finally:
            self.delete([draft])

    def _rename(self, source: str, target: str, *, overwrite: bool) -> None:
        folder = self._path(target).rpartition("/")[0] or "/"
        self._ask(target, lambda: self._client.mkdirs(folder, create_parent=True))
        paths = self._path(source), self._path(target)
        self._ask(target, lambda: self._client.rename(*paths, overwrite))

    def move(self, source: str, target: str) -> None:
        with suppress(FileNotFoundError):
            self._rename(source, target, overwrite=True)

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            with suppress(FileNotFoundError):
                self._ask(name, partial(self._client.delete, self._path(name)))


class _Counted:
    """A file object that knows its position. `write`: sends bytes."""

    closed = False

    def __init__(self, writer: Any, write: Callable[[bytes], object]) -> None:
        self._writer = writer
        self._write = write
        self._size = 0

    def write(self, data: Any) -> int:
        part = bytes(data)
        self._write(part)
        self._size += len(part)
        return len(part)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None:
        """Do nothing: the end of the file writes everything."""
