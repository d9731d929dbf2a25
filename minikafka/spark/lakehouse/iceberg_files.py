"""The files of a table of Iceberg, as pyiceberg reads and writes them on the driver."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

_LIBRARY: Final[Any] = import_module("pyiceberg.io.pyarrow").PyArrowFileIO
_NO_PROPERTIES: Final[Mapping[str, str]] = MappingProxyType({})


class TableFiles(_LIBRARY):  # type: ignore[misc]
    """Files by pyarrow, also at `abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH`.

    The library takes the whole authority of such a URI for the name of the container. If adlfs is installed, it would
    read Azure with that, without the listing that the removal of old files needs.
    """

    @staticmethod
    def parse_location(
        location: str, properties: Mapping[str, str] = _NO_PROPERTIES
    ) -> tuple[str, str, str]:
        """Return the scheme, the authority, and the path with the bucket or container."""
        scheme, place, path = _LIBRARY.parse_location(location, properties)
        container, at, _ = place.partition("@")
        return scheme, place, container + path.removeprefix(place) if at else path
