"""Files in a bucket of S3, Google Cloud Storage or Azure, by the library obstore.

The library repeats a request that fails for a reason that may pass. What it cannot know is whether a conditional
write that failed was carried out: `create` finds out.
"""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, BinaryIO, Final, TypeVar, cast
from urllib.parse import quote

import pyarrow as pa

from minikafka.base.errors import ConfigError
from minikafka.spark.storage.explain import (
    EXPIRED,
    NO_BUCKET,
    OptionNames,
    check_no_login,
    explained,
    names_in_storage,
)
from minikafka.spark.storage.store import StorageError, StorageRefused

try:
    import obstore
    from obstore import exceptions as failures
    from obstore.store import from_url
except ModuleNotFoundError as missing:
    raise ConfigError(
        f"object stores need the package {missing.name}: pip install 'minikafka[object-storage]' for the Python of"
        " the driver and of the executors"
    ) from None

_FAILURES: Final = (failures.BaseError, OSError, ValueError)
_REFUSALS: Final = (failures.PermissionDeniedError, failures.UnauthenticatedError)
_TAKEN: Final = (failures.AlreadyExistsError, failures.PreconditionError)
_OF_CLIENT: Final = {
    *("allow_http", "allow_invalid_certificates", "connect_timeout", "http1_only", "http2_only"),
    *("pool_idle_timeout", "pool_max_idle_per_host", "proxy_url", "timeout", "user_agent"),
}
"""The options of the HTTP client, which the library takes apart from those of the store."""
_ATTEMPTS: Final = 8
_PART_BYTES: Final = 8 << 20
"""Size of the parts of an upload. A task holds a few of them in memory."""
Found = TypeVar("Found")


class ObjectStore:
    """The objects below a URI such as `s3://bucket/archive`, with the options of docs/object-storage.md.

    `names`: how the user names the options, for messages; None for those in an option `storage`.
    """

    def __init__(
        self, url: str, options: Mapping[str, str], names: OptionNames | None = None
    ) -> None:
        self.url = url.rstrip("/")
        self._names = names or names_in_storage(self.url)
        found = {name.lower(): value for name, value in options.items()}
        client: Any = {name: found.pop(name) for name in _OF_CLIENT & found.keys()}
        if _endpoint(found).startswith("http://"):
            client.setdefault("allow_http", "true")
        given: Any = found
        try:
            self._store: Any = from_url(
                _for_library(self.url, self._names), config=given, client_options=client
            )
        except _FAILURES as error:
            raise ConfigError(self._sentence("", "open", error)) from None

    def _sentence(self, name: str, verb: str, error: BaseException) -> str:
        return explained(self.url, name, verb, error, self._names)

    def _ask(self, verb: str, name: str, request: Callable[[], Found]) -> Found:
        """Return the result of a request. Raises `StorageError` if it fails, but `FileNotFoundError` for no object."""
        try:
            return request()
        except FileNotFoundError as error:
            if any(reason in str(error) for reason in NO_BUCKET):
                raise StorageError(self._sentence(name, verb, error)) from error
            raise
        except _TAKEN:
            raise
        except _FAILURES as error:
            is_refused = isinstance(error, _REFUSALS) or EXPIRED.search(str(error))
            kind = StorageRefused if is_refused else StorageError
            raise kind(self._sentence(name, verb, error)) from error

    def files(self, folder: str = "") -> list[str]:
        pages = self._ask("list", folder, lambda: [*obstore.list(self._store, folder or None)])
        return sorted(one["path"] for page in pages for one in page)

    def folders(self, folder: str = "") -> list[str]:
        listed = partial(obstore.list_with_delimiter, self._store, folder or None)
        found = self._ask("list", folder, listed)["common_prefixes"]
        return sorted(name.rstrip("/").rpartition("/")[2] for name in found)

    def read(self, name: str) -> bytes | None:
        try:
            return self._ask("read", name, lambda: bytes(obstore.get(self._store, name).bytes()))
        except FileNotFoundError:
            return None

    def open_input(self, name: str) -> pa.NativeFile:
        try:
            size = self._ask("read", name, lambda: obstore.head(self._store, name))["size"]
        except FileNotFoundError:
            raise StorageError(f"{self.url}/{name} does not exist: it was removed") from None
        return pa.PythonFile(_Ranges(self._range, name, size), mode="r")

    def _range(self, name: str, start: int, end: int) -> bytes:
        asked = partial(obstore.get_range, self._store, name, start=start, end=end)
        return bytes(self._ask("read", name, asked))

    def write(self, name: str, data: bytes) -> None:
        self._ask("write", name, partial(obstore.put, self._store, name, data))

    @contextmanager
    def open_output(self, name: str) -> Iterator[BinaryIO]:
        """Open an upload. If it is not finished, its parts are not visible; the rules of the bucket remove them."""
        writer = obstore.open_writer(self._store, name, buffer_size=_PART_BYTES)
        upload = _Upload(lambda data: self._ask("write", name, lambda: writer.write(data)))
        yield cast("BinaryIO", upload)
        try:
            self._ask("write", name, writer.close)
        except (FileNotFoundError, StorageError) as error:
            # If the store has finished the upload, and its response was lost, the repeated request finds no upload.
            if self._size(name) == upload.tell():
                return
            if isinstance(error, StorageError):
                raise
            raise StorageError(self._sentence(name, "write", error)) from error

    def _size(self, name: str) -> int | None:
        with suppress(FileNotFoundError, StorageError):
            return int(self._ask("read", name, lambda: obstore.head(self._store, name))["size"])
        return None

    def create(self, name: str, data: bytes) -> bool:
        """Write an object if there is none of this name; False if there is another one.

        `data` must differ from what any other caller writes: after a failed request, an equal object is this one.
        """
        put = partial(obstore.put, self._store, name, data, mode="create", use_multipart=False)
        for attempt in range(_ATTEMPTS):
            try:
                self._ask("write", name, put)
            except StorageRefused:
                raise
            except (*_TAKEN, StorageError) as error:
                if (found := self.read(name)) is not None:
                    return found == data
                if isinstance(error, StorageError) and attempt == _ATTEMPTS - 1:
                    raise
                threading.Event().wait(min(0.05 * 2**attempt, 2.0))
            else:
                return True
        raise StorageError(f"{self.url}/{name} cannot be created, although it does not exist")

    def move(self, source: str, target: str) -> None:
        """Copy an object to another name in the store, and remove it."""
        with suppress(FileNotFoundError):
            self._ask("write", target, partial(obstore.copy, self._store, source, target))
            self.delete([source])

    def delete(self, names: Iterable[str]) -> None:
        if not (found := list(names)):
            return
        try:
            self._ask("remove", found[0], partial(obstore.delete, self._store, found))
        except (
            FileNotFoundError
        ):  # Google and Azure report an object that is gone, and may leave the rest
            for name in found:
                with suppress(FileNotFoundError):
                    self._ask("remove", name, partial(obstore.delete, self._store, name))


_ADDRESSES: Final = frozenset(
    f"{store}{name}"
    for store in ("", "aws_", "azure_", "azure_storage_", "google_")
    for name in ("endpoint", "endpoint_url", "base_url")
)
"""The options with the address of a server."""
_ADDRESS_VARIABLES: Final = (
    *("AWS_ENDPOINT_URL", "AWS_ENDPOINT", "GOOGLE_BASE_URL"),
    *("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
)


def _endpoint(options: Mapping[str, str]) -> str:
    given = next((options[name] for name in sorted(_ADDRESSES & options.keys())), None)
    return given or next(filter(None, map(os.environ.get, _ADDRESS_VARIABLES)), "")


def _for_library(url: str, names: OptionNames) -> str:
    """Return a URI in the form that the library knows: Hadoop's name for S3 is `s3a`, and a path is not an escaped one.

    The library would unescape `%20`, and cut the path at `#` and `?`.
    """
    check_no_login(url, names)
    scheme, _, rest = url.partition("://")
    place, _, path = rest.partition("/")
    return f"{'s3' if scheme.lower() == 's3a' else scheme.lower()}://{place}/{quote(path)}"


class _Upload(io.RawIOBase):
    """The file object of an upload. `write`: sends bytes, in parts."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        super().__init__()
        self._write = write
        self._size = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def write(self, data: Any) -> int:
        part = bytes(data)
        self._write(part)
        self._size += len(part)
        return len(part)


class _Ranges(io.RawIOBase):
    """The file object of an object of known size. `read`: returns the bytes [start, end) of the object."""

    def __init__(self, read: Callable[[str, int, int], bytes], name: str, size: int) -> None:
        super().__init__()
        self._read = read
        self._name = name
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        end = self._size if size is None or size < 0 else min(self._at + size, self._size)
        found = self._read(self._name, self._at, end) if end > self._at else b""
        self._at += len(found)
        return found
